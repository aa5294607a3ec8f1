from softhca.transport.context cimport QueuePair


cdef class Scheduler:
    cdef public list queues
    cdef public unsigned int waiting
    cdef public unsigned int length
    cdef public long long high_bytes
    cdef public int last_low
    cdef public int level

    cpdef object put(self, QueuePair queue_pair)
    cpdef QueuePair next(self)
    cpdef QueuePair sole(self)
    cpdef QueuePair peek(self)
    cpdef object back(self, QueuePair queue_pair)
    cpdef object charge(self, unsigned int sent_bytes)
    cdef int _level(self)
