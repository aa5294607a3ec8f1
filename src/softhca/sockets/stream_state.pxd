from softhca.sockets.memory_management cimport RecordA, RecordB


cdef class StreamState:
    cdef public RecordA own
    cdef public RecordB peers
    cdef public bint finished, deaf, was_reset, said_fin, opened

    cpdef int arrived(self, unsigned int immediate) except -1
    cpdef tuple next_data(self, unsigned long long length, unsigned long long threshold)
    cpdef object next_credit(self, bint anyhow=*)
