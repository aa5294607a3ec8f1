cimport cython

from softhca.transport.response_pacing cimport ResponsePacing


@cython.final
cdef class RoundTrips:
    cdef public unsigned long long awaited_bytes
    cdef public unsigned long long begin_ns
    cdef public unsigned long long least_ns
    cdef public unsigned long long former_ns
    cdef public unsigned long long period_end_ns
    cdef public unsigned int count

    cpdef void forget(self) noexcept
    cpdef void depart(self, unsigned long long in_flight_bytes, unsigned long long now) noexcept
    cpdef void answer(self, unsigned long long cost_bytes, unsigned long long now) noexcept
    cpdef unsigned long long shortest(self) noexcept

cdef class DestinationWindow:
    cdef public unsigned long long limit_bytes
    cdef public unsigned long long maximum_bytes
    cdef public unsigned long long minimum_bytes
    cdef public unsigned long long in_flight_bytes
    cdef public unsigned int epoch
    cdef public unsigned long long answers
    cdef public unsigned long long heard_ns
    cdef public object sender
    cdef public unsigned long long stall_ns
    cdef public unsigned long long confirmed_bytes
    cdef public unsigned int packet_overhead_bytes
    cdef public unsigned int growth_windows
    cdef public unsigned long long far_maximum_bytes
    cdef public unsigned long long slow_start_threshold_bytes
    cdef public unsigned long long recovery_target_bytes
    cdef public RoundTrips trips
    cdef readonly ResponsePacing responses
    cdef public bint wanted
    cdef public unsigned long long losses
    cdef public object waiters
    cdef public object turn
    cdef public object watcher
    cdef public unsigned long long watch_ns
    cdef unsigned long long watch_answers

    cpdef unsigned long long cost(self, unsigned long long length_bytes, unsigned int packets) noexcept
    cpdef unsigned long long near_available(self, object flow)
    cpdef unsigned long long near_limit(self) noexcept
    cpdef unsigned long long room(self, object flow)
    cpdef bint admits(self, object flow, unsigned long long cost_bytes)
    cpdef object charge(self, unsigned long long cost_bytes)
    cpdef object depart(self, unsigned long long cost_bytes, unsigned long long now)
    cpdef object on_ack(self, unsigned long long cost_bytes, unsigned long long now)
    cpdef bint quiet(self, unsigned long long interval_ns, unsigned long long now) noexcept
    cdef void grow(self, unsigned long long cost_bytes) noexcept
    cpdef object give_up(self, unsigned long long cost_bytes)
    cpdef object on_stall(self)
    cpdef object lost(self)
    cpdef object wait(self, object flow, unsigned long long now)
    cdef object watch(self, object flow, unsigned long long now)
    cpdef object check_stall(self, object flow, unsigned long long now)
    cpdef object pass_on(self)
    cpdef object leave(self, object flow)
    cpdef object quit(self, object flow)
