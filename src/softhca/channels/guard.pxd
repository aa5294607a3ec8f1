cdef class Guard:
    cdef object _link
    cdef object _lock
