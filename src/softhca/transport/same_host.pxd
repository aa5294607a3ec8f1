from softhca.machine.primitives cimport (address_of, atomic_add64, atomic_cas64, read_process, store64,
                                          write_process_at)
from softhca.memory.shared_path cimport SharedPath
from softhca.transport.context cimport QueuePair
from softhca.transport.executor cimport Executor
from softhca.transport.request cimport Request


cdef class SameHostExecutor(Executor):
    cdef public SharedPath path
    cdef public bint inside
    cdef unsigned long long allowed
    cdef unsigned long long inside_bytes
    cdef object _result
    cdef unsigned long long result_address
    cdef bytearray _bounce
    cdef unsigned long long bounce_address

    cdef bint begin(self, unsigned long long n) except -1
    cdef unsigned long long find(self, Request request, unsigned long long n, unsigned int right) except? 0
    cdef bint move(self, Request request, unsigned long long n, unsigned int right) except -1
    cdef long long move_piece(self, Request request, unsigned long long n, unsigned int right,
                              unsigned long long done, unsigned long long piece) except? -1
    cdef int move_foreign(self, Request request, unsigned long long done, unsigned long long place,
                          unsigned long long n) except? -1
    cdef bint atomic(self, Request request) except -1
