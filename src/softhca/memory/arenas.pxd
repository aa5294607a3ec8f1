cimport cython

cimport softhca_bits as bits

@cython.final
cdef class AddressMap:
    cdef unsigned long long[::1] bases
    cdef unsigned long long[::1] pages
    cdef unsigned long long[::1] pids
    cpdef unsigned long long address(self, unsigned long long frame) noexcept
    cpdef unsigned int pid(self, unsigned long long frame) noexcept
