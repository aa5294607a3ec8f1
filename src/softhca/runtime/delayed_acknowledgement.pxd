from softhca.transport.flow cimport Flow


cdef class DelayedAcknowledgement:
    cdef public unsigned long long limit_ns
    cdef public Flow flow
    cdef public unsigned long long received_ns
    cdef public bint waits

    cpdef bint received(self, Flow flow, unsigned long long now) except -1
    cpdef object posted(self, bint replies, unsigned long long now)
    cpdef bint end(self) noexcept
    cpdef bint overdue(self, unsigned long long now) noexcept
    cpdef unsigned long long deadline(self) noexcept
