cimport cython


@cython.final
cdef class RefusalReport:
    cdef public unsigned long long reported
    cdef public unsigned long long next_ns

    cpdef object report(self, unsigned long long count, unsigned long long now)
