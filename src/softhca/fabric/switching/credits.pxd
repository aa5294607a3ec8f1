cdef class CreditSender:
    cdef public list limit
    cdef public list sent

    cpdef bint allows(self, int vl, int blocks) except? -1
    cpdef object send(self, int vl, int blocks)


cdef class CreditReceiver:
    cdef public list capacity_blocks
    cdef public list received
    cdef public list advertised
    cdef public list used

    cpdef bint take(self, int vl, int blocks) except? -1
    cpdef object free(self, int vl, int blocks)
    cpdef int limit(self, int vl) except? -1
    cpdef int unadvertised(self, int vl) except? -1
    cpdef int hear(self, int vl, int sent) except? -1
