from softhca.machine.primitives cimport (address_of, atomic_add64, atomic_cas64, read_process, store64,
                                          write_process)
from softhca.memory.shared_path cimport SharedPath
from softhca.transport.context cimport QueuePair
from softhca.transport.request cimport Request


cdef class SameHostExecutor:
    cdef public QueuePair queue_pair
    cdef public SharedPath path
    cdef public unsigned long long operations
    cdef public unsigned long long moved_bytes
    cdef public unsigned long long turn_bytes
    cdef public bint hopeful
    cdef object _result
    cdef unsigned long long result_address
    cdef bytearray _bounce
    cdef unsigned long long bounce_address

    cpdef bint carry_out(self, Request request) except -1
    cpdef bint worth_waiting(self, Request request)
    cpdef bint turn_over(self)
    cdef unsigned int right_for(self, Request request)
    cdef unsigned long long find(self, Request request, unsigned long long n, unsigned int right)
    cdef bint move(self, Request request, unsigned long long n, unsigned int right) except -1
    cdef int move_foreign(self, Request request, unsigned long long done, unsigned long long place,
                          unsigned long long n)
    cdef bint atomic(self, Request request) except -1
