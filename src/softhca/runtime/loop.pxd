from softhca.adapter.engine cimport Adapter
from softhca.runtime.same_host_ring cimport PacketReceiver, PacketSender
from softhca.wire.burst cimport Arrival, Burst


cdef class EngineLoop:
    cdef public Adapter adapter
    cdef public object link
    cdef public object lock
    cdef public object clock
    cdef public object wake
    cdef public Burst burst
    cdef public Arrival arrival
    cdef public bint kept
    cdef public bint holds
    cdef public bint dead
    cdef public object give_way
    cdef public unsigned int idle
    cdef public unsigned int missed
    cdef public unsigned long long polls
    cdef public unsigned long long rounds
    cdef public unsigned long long notices
    cdef public unsigned long long told
    cdef public unsigned long long look_ns
    cdef public int waiters
    cdef public unsigned long long refusals
    cdef public unsigned long long tell_ns
    cdef public object neighbours
    cdef public unsigned long long neighbours_ns
    cdef public object take
    cdef public object give
    cdef dict senders
    cdef list receivers
    cdef object acquire
    cdef object release

    cpdef object have(self, object neighbours)
    cdef bint receive_near(self, unsigned long long now)
    cdef bint send_near(self, Burst burst)
    cpdef bint progress(self, unsigned long long now)
    cdef bint _round(self, unsigned long long now)
    cpdef object tell_refusals(self, unsigned long long now)
    cpdef object fail(self, object error)
    cpdef bint transmit(self, unsigned long long now)
    cpdef bint poll(self)
    cdef bint _take_lock(self) except -1
    cpdef object kick(self)
    cpdef object notice(self)
    cpdef object settle(self)
    cpdef unsigned long long deadline(self)
    cpdef bint soon(self, unsigned long long now)
