from softhca.queues.completion cimport CompletionQueue
from softhca.queues.wqe cimport SendWork
from softhca.transport.context cimport QueuePair
from softhca.transport.request cimport Request


cdef class RequestSource:
    cdef readonly unsigned int capacity
    cdef public bint waits

    cpdef Request next(self, bint at_rest, unsigned long long now)
    cpdef object retire(self, Request request, int status, unsigned long long now)
    cpdef object fail(self, Request request, int status, unsigned long long now)
    cpdef object drop(self, Request request)
    cpdef bint can_wait(self) except -1
    cpdef object flush(self, unsigned long long now)
    cpdef object reset(self)


cdef class SendQueue(RequestSource):
    cdef QueuePair qp
    cdef unsigned int operations
    cdef list spare
    cdef public bint broken
    cdef unsigned int inline_bytes

    cdef Request take(self, bint flushing)
    cdef Request blank(self)
    cdef bint draw(self, Request request, bint flushing) except -1
    cdef object complete(self, Request request, int status, unsigned long long now)
