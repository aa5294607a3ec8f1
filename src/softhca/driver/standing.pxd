cdef class Standing:
    cdef public str dead
