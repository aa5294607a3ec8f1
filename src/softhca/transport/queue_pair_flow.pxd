cimport cython

from softhca.transport.congestion cimport CongestionControl
from softhca.transport.connection cimport Connection
from softhca.transport.flow cimport Flow
from softhca.transport.pacing cimport Both, PacketPacing
from softhca.wire.burst cimport Arrival, Burst
from softhca.wire.packet_view cimport PacketView
from softhca.wire.raw cimport RawView
from softhca.wire.route cimport Route


@cython.final
cdef class QueuePairFlow(Flow):
    cdef readonly Connection qp
    cdef bint replied_last
    cdef bint overtaken
    cdef bint tells
    cdef bint paced
    cdef Route telling_route
    cdef CongestionControl limiter

    cpdef object clear(self)
    cpdef object control_by(self, CongestionControl control)
    cpdef object pace_by(self, PacketPacing pacing)
    cdef object _limit(self)
    @cython.locals(qp=Connection)
    cpdef object receive_notification(self, unsigned long long now)
    @cython.locals(qp=Connection)
    cpdef object marked(self, unsigned long long now)
    @cython.locals(qp=Connection)
    cdef int _controlled(self, Burst burst, unsigned long long now) except? -1
    @cython.locals(qp=Connection)
    cdef int _wait(self, Burst burst, unsigned long long now) except? -1
    @cython.locals(qp=Connection)
    cdef int _take_turn(self, Burst burst, unsigned long long now) except? -1
    @cython.locals(qp=Connection)
    @cython.locals(qp=Connection)
    cpdef object receive_raw(self, RawView view, Arrival arrival, unsigned long long now)
    @cython.locals(qp=Connection)
    cdef object _consider_path(self, PacketView view, Arrival arrival, unsigned long long now)
    cdef bint _requester_first(self) except -1
