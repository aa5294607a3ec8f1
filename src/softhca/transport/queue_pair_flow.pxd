cimport cython

from softhca.transport.connection cimport Connection
from softhca.transport.flow cimport Flow
from softhca.wire.burst cimport Arrival, Burst
from softhca.wire.packet_view cimport PacketView
from softhca.wire.raw cimport RawView
from softhca.wire.route cimport Route


cdef class QueuePairFlow(Flow):
    cdef readonly Connection qp
    cdef bint replied_last
    cdef bint overtaken

    cpdef object clear(self)
    @cython.locals(qp=Connection)
    cpdef object receive(self, PacketView view, Arrival arrival, unsigned long long now)
    @cython.locals(qp=Connection)
    cpdef object receive_raw(self, RawView view, Arrival arrival, unsigned long long now)
    @cython.locals(qp=Connection)
    cpdef int produce(self, Burst burst, unsigned long long now) except? -1
    @cython.locals(qp=Connection)
    cdef object _consider_path(self, PacketView view, Arrival arrival, unsigned long long now)
    cdef bint _requester_first(self) except -1
