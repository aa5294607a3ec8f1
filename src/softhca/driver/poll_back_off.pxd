cimport cython


cdef class PollBackOff:
    cdef public unsigned int at_once
    cdef public unsigned long long limit_ns
    cdef public unsigned long long contended_ns
    cdef public unsigned long long memory_ns
    cdef public unsigned int empty_polls
    cdef public unsigned long long worked_ns
    cdef public unsigned long long contended_until_ns
    cdef public bint shares
    cdef unsigned long long _yield_ns
    cdef unsigned int _long_yields

    cpdef object begins(self)
    cpdef object worked(self, unsigned long long now)
    cpdef int missed(self, unsigned long long now) noexcept
    cpdef unsigned long long sleep_ns(self, unsigned long long now) noexcept
    cpdef unsigned long long idle_ns(self, unsigned long long now) noexcept
    cpdef object yielded(self, unsigned long long begin_ns, unsigned long long end_ns)
    cpdef bint contended(self, unsigned long long now) noexcept


@cython.final
cdef class PollBudget(PollBackOff):
    cdef public unsigned long long longest_ns
    cdef unsigned int _skipped

    cpdef unsigned long long until(self, unsigned long long now) noexcept
    cpdef object found(self)
    cpdef object gave_up(self)
