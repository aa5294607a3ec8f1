cimport cython

from softhca.sockets.memory_management cimport RecordA, RecordB


@cython.final
cdef class StreamState:
    cdef public RecordA own
    cdef public RecordB peers
    cdef public bint finished, deaf, was_reset, said_fin, opened, peer_in_memory
    cdef public unsigned int received
    cdef public unsigned long long told

    cpdef int arrived(self, unsigned int immediate) except -1
    cdef void _count(self) noexcept
    cpdef object arrived_in_memory(self, unsigned int immediate)
    cpdef unsigned int next_number(self) except? 0
    cpdef tuple next_data(self, unsigned long long length, unsigned long long threshold)
    cpdef object next_credit(self, bint anyhow=*)
