from softhca.memory.regions cimport Region, RegionTable
from softhca.queues.wqe cimport Work


cdef class BufferList:
    cdef public Work work
    cdef unsigned int[::1] generation
    cdef public unsigned long long total_bytes
    cdef unsigned int hint
    cdef unsigned long long hint_start

    cpdef bint resolve(self, Work work, RegionTable table, unsigned int pd, unsigned int access) except *
    cpdef int gather(self, unsigned long long offset, unsigned long long n, unsigned long long address) except? -1
    cpdef int scatter(self, unsigned long long offset, unsigned long long n, unsigned long long address) except? -1
    cdef int move(self, unsigned long long offset, unsigned long long n, unsigned long long address,
                  bint writing) except? -1
