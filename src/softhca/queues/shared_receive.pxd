cimport cython

from softhca.queues.completion cimport CompletionQueue
from softhca.queues.ring cimport RingConsumer
from softhca.queues.wqe cimport ReceiveWork

@cython.final
cdef class SharedReceiveQueue:
    cdef readonly unsigned int number
    cdef readonly unsigned int pd
    cdef readonly CompletionQueue cq
    cdef readonly unsigned int max_sge
    cdef public object notify_hook
    cdef readonly RingConsumer consumer
    cdef readonly long long limit
    cdef readonly bint failed
    cpdef bint take(self, ReceiveWork work) except -1
    cpdef object set_limit(self, unsigned int limit)
    cpdef object check_limit(self)
    cpdef unsigned long long count(self)
    cpdef object fail(self)
