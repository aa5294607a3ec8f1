cimport cython

from softhca.machine.primitives cimport address_of
from softhca.transport.pacing cimport PacketPacing
from softhca.transport.request cimport Request
from softhca.transport.unreliable cimport UnreliableTransmitter
from softhca.wire.burst cimport Burst
from softhca.wire.vxlan cimport put_vxlan


@cython.final
cdef class FrameSender(UnreliableTransmitter):
    cdef tuple destinations
    cdef unsigned int vni
    cdef bytearray addresses
    cdef unsigned long long addresses_address

    cdef bint direct(self, Request request)
    cdef bint put(self, Request request, Burst burst)

