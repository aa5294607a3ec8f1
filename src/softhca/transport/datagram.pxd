cimport cython

from softhca.machine.primitives cimport fill
from softhca.transport.environment cimport AddressHandle
from softhca.transport.context cimport QueuePair
from softhca.transport.engines cimport ReceiveEngine
from softhca.transport.receiving cimport ReceiveQueue
from softhca.transport.request cimport Request
from softhca.transport.unreliable cimport UnreliableTransmitter
from softhca.wire.build cimport put_immdt, put_pad
from softhca.wire.burst cimport Arrival, Burst
from softhca.wire.packet_view cimport PacketView


cdef class DatagramSender(UnreliableTransmitter):
    cdef int judge(self, Request request, AddressHandle handle)
    cdef bint put(self, Request request, Burst burst)


@cython.final
cdef class DatagramReceiver(ReceiveEngine):
    cdef QueuePair qp
    cdef readonly ReceiveQueue queue
    cdef unsigned long long now
    cdef bytearray grh
    cdef unsigned long long grh_address
    cdef object grh_key

    cdef object fill_grh(self, Arrival arrival, unsigned int transport_bytes)
    cdef int place(self, PacketView view, Arrival arrival) except? -1
