cimport cython

from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from softhca.adapter.engine cimport Adapter
from softhca.runtime.delayed_acknowledgement cimport DelayedAcknowledgement
from softhca.runtime.doorbell_batching cimport DoorbellBatching
from softhca.driver.poll_back_off cimport PollBackOff
from softhca.runtime.nap_choice cimport NapChoice
from softhca.runtime.refusals cimport RefusalReport
from softhca.runtime.same_host_ring cimport PacketReceiver
from softhca.runtime.sleeper cimport Sleeper
from softhca.runtime.transmitter cimport Transmitter
from softhca.runtime.turn_lock cimport TurnLock
from softhca.wire.burst cimport Arrival


cdef inline unsigned long long monotonic_ns() noexcept:
    cdef timespec at
    clock_gettime(CLOCK_MONOTONIC, &at)
    return <unsigned long long> at.tv_sec * 1_000_000_000 + <unsigned long long> at.tv_nsec


@cython.final
cdef class EngineLoop:
    cdef public Adapter adapter
    cdef public object clock
    cdef public bint sees_polls
    cdef public TurnLock lock
    cdef public Sleeper sleeper
    cdef readonly list ports
    cdef public DelayedAcknowledgement acknowledgement
    cdef public DoorbellBatching batching
    cdef public PollBackOff back_off
    cdef public RefusalReport refusals
    cdef public object yield_processor
    cdef public NapChoice nap_choice
    cdef public object nap
    cdef unsigned int quick_polls
    cdef unsigned long long empty_ns
    cdef public Arrival arrival
    cdef readonly Arrival ring_arrival
    cdef bint polled
    cdef public unsigned long long polls
    cdef public unsigned long long rounds
    cdef public unsigned long long round_ns
    cdef public bint dead
    cdef public object same_host
    cdef public unsigned long long same_host_ns
    cdef public object clients
    cdef public unsigned long long clients_ns
    cdef public bint attached

    cpdef object share(self, object same_host)
    cpdef bint turn(self, unsigned long long now) except -1
    cpdef bint serve(self, unsigned long long now) except -1
    cpdef bint serve_hosts(self, unsigned long long now) except -1
    cpdef bint progress(self, unsigned long long now) except -1
    cdef bint _round(self, unsigned long long now) except -1
    cdef int receive(self, Transmitter port, unsigned long long now) except -1
    cdef bint _sends(self, bint single, bint worked, unsigned long long now) except -1
    cdef bint receive_rings(self, unsigned long long now) except -1
    cdef bint receive_ring(
        self, Transmitter port, PacketReceiver receiver, int most, unsigned long long now
    ) except -1
    cpdef object take_rest(self, int port_number, PacketReceiver receiver)
    cdef object drain(self, Transmitter port, unsigned long long now)
    cpdef bint transmit(self, unsigned long long now) except -1
    cpdef object flush(self, unsigned long long now)
    cpdef object send_rest(self)
    cpdef bint overdue(self, unsigned long long now) noexcept
    cpdef bint poll(self) except -1
    cpdef bint look(self) except -1
    cdef bint _poll(self, bint naps) except -1
    cdef object _give_way(self, unsigned long long now, bint naps)
    cpdef object kick(self)
    cdef unsigned long long now(self) except? 0
    cpdef object fail(self, object error)
    cpdef object settle(self, unsigned long long now)
    cpdef unsigned long long deadline(self) except? 0
    cdef unsigned long long _held_by_links_ns(self) except? 0
    cdef unsigned long long _held_back_ns(self) noexcept
    cpdef bint soon(self, unsigned long long now) except -1


cdef bint is_single_request(Arrival arrival) noexcept
