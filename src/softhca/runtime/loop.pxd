from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from softhca.adapter.engine cimport Adapter
from softhca.links.roce_udp cimport RoceUdpLink
from softhca.runtime.same_host_ring cimport PacketReceiver, PacketSender
from softhca.runtime.turn_lock cimport TurnLock
from softhca.transport.context cimport QueuePair
from softhca.wire.burst cimport Arrival, Burst


cdef inline unsigned long long monotonic_ns() noexcept:
    cdef timespec at
    clock_gettime(CLOCK_MONOTONIC, &at)
    return <unsigned long long> at.tv_sec * 1_000_000_000 + <unsigned long long> at.tv_nsec


cdef class EngineLoop:
    cdef public Adapter adapter
    cdef public object link
    cdef public TurnLock lock
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
    cdef public unsigned long long round_ns
    cdef public unsigned long long notices
    cdef public unsigned long long told
    cdef public unsigned long long look_ns
    cdef public int waiters
    cdef public unsigned long long refusals
    cdef public unsigned long long tell_ns
    cdef bint polled
    cdef public QueuePair lone
    cdef unsigned long long lone_ns
    cdef public bint tarries
    cdef public long long rung
    cdef public unsigned long long rung_ns
    cdef public int steady
    cdef public unsigned int alike
    cdef public bint gathers
    cdef public int gathered
    cdef public unsigned long long sent_ns
    cdef public object neighbours
    cdef public unsigned long long neighbours_ns
    cdef public object take
    cdef public object give
    cdef dict senders
    cdef list receivers
    cdef public RoceUdpLink direct

    cpdef object have(self, object neighbours)
    cdef bint may_tarry(self, unsigned long long now)
    cpdef object answer(self, unsigned long long now)
    cpdef bint left(self, unsigned long long now)
    cdef bint gather(self, unsigned long long now)
    cdef object looked(self, unsigned long long now)
    cdef object posted(self, unsigned long long now)
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
    cdef unsigned long long now(self) except? 0
    cpdef object notice(self)
    cpdef object settle(self)
    cpdef unsigned long long deadline(self)
    cpdef bint soon(self, unsigned long long now)
