cdef class PollBudget:
    cdef public unsigned long long limit_ns
    cdef unsigned long long _contended_until_ns
    cdef unsigned int _skipped

    cpdef unsigned long long begin(self, unsigned long long now) noexcept
    cpdef object missed(self, unsigned long long begin_ns, unsigned long long end_ns)
    cpdef bint contended(self, unsigned long long now) noexcept
    cpdef object found(self)
    cpdef object gave_up(self)
