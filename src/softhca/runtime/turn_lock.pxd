from softhca.machine cimport deferred_signals

cdef extern from "pythread.h":
    unsigned long thread_ident "PyThread_get_thread_ident"()


cdef class TurnLock:
    cdef unsigned long owner
    cdef unsigned int depth
    cdef unsigned int waiting
    cdef unsigned int missed
    cdef object gate

    cpdef bint take(self) except -1
    cpdef bint take_soon(self) except -1
    cpdef bint acquire(self, bint blocking=*, double timeout=*) except -1
    cdef object open_gate(self)
    cpdef object release(self)
    cpdef bint mine(self) except -1
