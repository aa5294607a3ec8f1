cimport cython


@cython.final
cdef class CreditSender:
    cdef readonly int limit[15]
    cdef readonly int sent[15]

    cpdef bint allows(self, int vl, int blocks) except? -1
    cpdef object send(self, int vl, int blocks)
    cpdef object hear(self, int vl, int limit)


cdef class CreditReceiver:
    cdef readonly int capacity_blocks[15]
    cdef readonly int received[15]
    cdef public int advertised[15]
    cdef readonly int used[15]

    cpdef bint take(self, int vl, int blocks) except? -1
    cpdef object free(self, int vl, int blocks)
    cpdef int limit(self, int vl) except? -1
    cpdef int advertise(self, int vl) except? -1
    cpdef int unadvertised(self, int vl) except? -1
    cpdef int hear(self, int vl, int sent) except? -1
