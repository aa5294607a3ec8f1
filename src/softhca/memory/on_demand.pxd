from softhca.machine.primitives cimport address_of, copy, read_process, write_process
from softhca.memory.regions cimport Region

cdef class OnDemandRegion(Region):
    cdef readonly unsigned int pid
    cdef public unsigned long long address
    cdef public bint held
    cpdef int move(self, unsigned long long va, unsigned long long local, unsigned long long n,
                   bint writing) noexcept
