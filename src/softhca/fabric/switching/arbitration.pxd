cimport cython


@cython.final
cdef class _Table:
    cdef bytes lanes
    cdef bytes weights
    cdef public int left
    cdef public int turn

    cpdef int choose(self, int eligible) except? -2
    cpdef object sent(self, int length_bytes)


@cython.final
cdef class Arbiter:
    cdef public int high_limit
    cdef _Table _high
    cdef _Table _low
    cdef long long _high_left
    cdef _Table _chosen

    cdef int _allowance(self)
    cpdef int choose(self, int eligible) except? -2
    cpdef object sent(self, int vl, int length_bytes)
