from softhca.transport.context cimport QueuePair


cdef class DelayedAcknowledgement:
    cdef public unsigned long long limit_ns
    cdef public QueuePair queue_pair
    cdef public unsigned long long received_ns
    cdef public bint waits

    cpdef bint received(self, QueuePair queue_pair, unsigned long long now) except -1
    cpdef object posted(self, bint replies, unsigned long long now)
    cpdef bint end(self) noexcept
    cpdef bint overdue(self, unsigned long long now) noexcept
    cpdef unsigned long long deadline(self) noexcept
