cimport cython

from softhca.machine.primitives cimport fill
from softhca.memory.regions cimport Region

@cython.final
cdef class NullRegion(Region):
    cpdef int check(self, unsigned long long va, unsigned long long n) noexcept
