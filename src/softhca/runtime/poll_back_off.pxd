cdef class PollBackOff:
    cdef public unsigned int at_once
    cdef public unsigned long long limit_ns
    cdef public unsigned int in_vain
    cdef public unsigned long long worked_ns
    cdef public unsigned long long contended_until_ns

    cpdef object worked(self, unsigned long long now)
    cpdef int missed(self, unsigned long long now) noexcept
    cpdef unsigned long long nap_ns(self, unsigned long long now) noexcept
    cpdef unsigned long long vain_ns(self, unsigned long long now) noexcept
    cpdef object gave_way(self, unsigned long long begin_ns, unsigned long long end_ns)
