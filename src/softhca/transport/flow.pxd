from softhca.transport.congestion cimport CongestionControl
from softhca.transport.environment cimport Environment
from softhca.transport.pacing cimport PacketPacing
from softhca.transport.window cimport DestinationWindow
from softhca.wire.burst cimport Arrival, Burst
from softhca.wire.packet_view cimport PacketView
from softhca.wire.route cimport Route


cdef class Flow:
    cdef public Environment environment
    cdef public unsigned int number
    cdef public unsigned int port_number
    cdef public Route route
    cdef public DestinationWindow window
    cdef public CongestionControl control
    cdef public PacketPacing pacing
    cdef public unsigned long long not_before_ns
    cdef public unsigned int burst_limit_bytes
    cdef public unsigned int service_level
    cdef public bint shares_bursts
    cdef public bint multicasts
    cdef public bint closed
    cdef public bint scheduled
    cdef public bint waiting
    cdef public unsigned long long armed_ns
    cdef public int armed_place
    cdef public unsigned int quick_replies

    cpdef object receive(self, PacketView view, Arrival arrival, unsigned long long now)
    cpdef int produce(self, Burst burst, unsigned long long now) except? -1
    cpdef object expire(self, unsigned long long now)
    cpdef object resume(self, unsigned long long now)
    cpdef bint has_work(self) except -1
    cpdef bint has_requests(self) except -1
    cpdef bint may_delay_ack(self) except -1
