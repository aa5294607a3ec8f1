from softhca.transport.context cimport QueuePair
from softhca.transport.request cimport Request


cdef class Executor:
    cdef public QueuePair queue_pair
    cdef public unsigned long long operations
    cdef public unsigned long long moved_bytes
    cdef public unsigned long long turn_bytes
    cdef public bint succeeded

    cpdef bint execute(self, Request request) except -1
    cpdef bint waits_for_earlier(self, Request request) except -1
    cpdef bint turn_over(self) except -1
    cpdef void leave(self) noexcept
    cpdef bint is_open(self) except -1
    cdef bint carry_out(self, Request request, unsigned int right) except -1
    cdef object wake_peer(self)
    cdef unsigned int right_for(self, Request request) except? 0
