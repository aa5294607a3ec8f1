from softhca.driver.locked cimport Locked, thread_ident


cdef class Turn(Locked):
    cdef unsigned long _thread
    cdef unsigned int _waiting
    cdef bint closed
    cdef object _news
    cdef object _news_lock

    cpdef bint mine(self) except -1
    cdef bint _taken(self) except -1
    cpdef bint begin(self) except -1
    cpdef object end(self)
    cpdef object call_off(self)


cdef unsigned long _me() except? 0
