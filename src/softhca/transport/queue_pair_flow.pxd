cimport cython

from softhca.transport.context cimport QueuePair
from softhca.transport.flow cimport Flow
from softhca.wire.burst cimport Arrival, Burst
from softhca.wire.packet_view cimport PacketView
from softhca.wire.raw cimport RawView
from softhca.wire.route cimport Route


cdef class QueuePairFlow(Flow):
    cdef readonly QueuePair qp
    cdef bint replied_last
    cdef bint overtaken

    cpdef object clear(self)
    @cython.locals(qp=QueuePair)
    cpdef object receive(self, PacketView view, Arrival arrival, unsigned long long now)
    @cython.locals(qp=QueuePair)
    cpdef object receive_raw(self, RawView view, Arrival arrival, unsigned long long now)
    @cython.locals(qp=QueuePair)
    cpdef int produce(self, Burst burst, unsigned long long now) except? -1
    @cython.locals(qp=QueuePair)
    cdef object _consider_path(self, PacketView view, Arrival arrival, unsigned long long now)
    cdef bint _requester_first(self) except -1
