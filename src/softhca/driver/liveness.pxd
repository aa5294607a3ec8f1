cdef class Liveness:
    cdef public str dead
    cdef public bint active
