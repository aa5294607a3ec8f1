cimport cython


@cython.final
cdef class RateMachine:
    cdef readonly double line_mbps
    cdef public double rate_mbps
    cdef public double target_mbps
    cdef public double alpha
    cdef public bint limited
    cdef public unsigned long long cuts
    cdef double _gain
    cdef unsigned long long _alpha_timer_ns
    cdef unsigned long long _increase_ns
    cdef unsigned long long _increase_bytes
    cdef unsigned int _fast_stages
    cdef double _additive_mbps
    cdef double _hyper_mbps
    cdef double _least_mbps
    cdef unsigned long long _cut_interval_ns
    cdef unsigned long long _alpha_ns
    cdef unsigned long long _timer_ns
    cdef unsigned long long _cut_ns
    cdef unsigned int _time_stages
    cdef unsigned int _byte_stages
    cdef unsigned long long _bytes

    cpdef bint notified(self, unsigned long long now) noexcept
    cpdef void pass_time(self, unsigned long long now) noexcept
    cpdef void count(self, unsigned long long sent_bytes) noexcept
    cdef void _increase(self) noexcept
    cpdef unsigned long long time_of(self, unsigned long long length_bytes) noexcept


cdef class CongestionControl:
    cpdef unsigned long long departure(self, unsigned long long now) except? 0
    cpdef unsigned int burst_limit(self) except? 0
    cpdef object sent(self, unsigned long long length_bytes, unsigned int packets, unsigned long long now)
    cpdef bint notified(self, unsigned long long now) except -1
    cpdef bint marked(self, unsigned long long now) except -1


@cython.final
cdef class Dcqcn(CongestionControl):
    cdef readonly RateMachine machine
    cdef public unsigned long long free_ns
    cdef readonly unsigned long long notify_ns
    cdef unsigned long long told_ns
    cdef bint told
