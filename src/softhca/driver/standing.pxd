cdef class Standing:
    cdef public str dead
    cdef public bint active
