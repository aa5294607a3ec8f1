from softhca.memory.regions cimport Region, RegionTable
from softhca.queues.wqe cimport Work


cdef class BufferList:
    cdef Work entry
    cdef list regions
    cdef Region region
    cdef public unsigned long long total_bytes
    cdef unsigned long long start
    cdef unsigned long long va
    cdef unsigned int length
    cdef unsigned int index
    cdef unsigned int generation

    cpdef bint resolve(self, Work work, RegionTable table, unsigned int pd, unsigned int access) except *
    cdef object turn_to(self, unsigned int i, unsigned long long start)
    cpdef int gather(self, unsigned long long offset, unsigned long long n, unsigned long long address) except? -1
    cpdef int scatter(self, unsigned long long offset, unsigned long long n, unsigned long long address) except? -1
    cdef int move(self, unsigned long long offset, unsigned long long n, unsigned long long address,
                  bint writing) except? -1
