from softhca.queues.completion cimport CompletionQueue
from softhca.queues.wqe cimport SendWork
from softhca.transport.context cimport QueuePair
from softhca.transport.flow cimport Flow
from softhca.transport.halves cimport Half
from softhca.transport.request cimport Request
from softhca.transport.segmentation cimport PacketWriter


cdef class SendQueue(Half):
    cdef public QueuePair qp
    cdef readonly Flow flow
    cdef public PacketWriter writer
    cdef public unsigned int operations
    cdef public unsigned long long head
    cdef public unsigned long long tail
    cdef list requests
    cdef list spare
    cdef unsigned long long mask
    cdef public unsigned long long now
    cdef public bint ready
    cdef public bint broken
    cdef unsigned int inline_bytes

    cdef Request at(self, unsigned long long place)
    cpdef Request take(self, bint flushing=*)
    cdef Request blank(self)
    cdef object place(self, Request request)
    cdef bint draw(self, Request request, bint flushing) except -1
    cdef bint shows(self, Request request) except -1
    cpdef object complete(self, Request request, int status)
    cpdef object retire(self, int status)
    cpdef object flush(self)
