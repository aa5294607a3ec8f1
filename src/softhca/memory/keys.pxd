cdef class KeyIndex:
    cdef unsigned short[::1] rounds
    cdef readonly unsigned int half_bits
    cdef unsigned int mask
    cpdef unsigned int index(self, unsigned int slot) noexcept
    cpdef unsigned int slot(self, unsigned int index) noexcept
