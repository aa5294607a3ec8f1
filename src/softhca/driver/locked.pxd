cimport cython

cdef extern from "pythread.h":
    unsigned long thread_ident "PyThread_get_thread_ident"()


cdef class Locked:
    cdef cython.pymutex _mutex
    cdef unsigned long _owner
    cdef unsigned int _depth

    cpdef bint acquire(self) except -1
    cpdef object release(self)
