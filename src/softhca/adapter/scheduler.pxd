cimport cython

from softhca.transport.flow cimport Flow


@cython.final
cdef class Scheduler:
    cdef public list queues
    cdef public unsigned int waiting
    cdef public unsigned int length
    cdef public long long high_bytes
    cdef public int last_low
    cdef public int level
    cdef Flow lone
    cdef int level_of_lone

    cpdef object put(self, Flow flow)
    cpdef Flow next(self)
    cpdef Flow sole(self)
    cpdef Flow peek(self)
    cpdef object back(self, Flow flow)
    cpdef object charge(self, unsigned int sent_bytes)
    cdef int _level(self)
    cdef object _queue_lone(self)
