cimport cython


@cython.final
cdef class DoorbellBatching:
    cdef public int most
    cdef public unsigned long long limit_ns
    cdef public bint sees_polls
    cdef public long long last
    cdef public unsigned long long last_ns
    cdef public unsigned int repeats
    cdef public int expected
    cdef public bint waits
    cdef public int waiting
    cdef public unsigned long long sent_ns

    cpdef bint on_doorbell(self, long long number, unsigned long long now, bint expecting=*) noexcept
    cpdef object sent(self, unsigned long long now)
    cpdef object polled(self, unsigned long long now)
    cpdef bint overdue(self, unsigned long long now) noexcept
    cpdef unsigned long long deadline(self) noexcept
