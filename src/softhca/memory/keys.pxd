cimport cython


@cython.final
cdef class KeyIndex:
    cdef unsigned short[::1] rounds
    cdef readonly unsigned int half_bits
    cdef unsigned int mask
    cpdef unsigned int index(self, unsigned int slot) noexcept
    cpdef unsigned int slot(self, unsigned int index) noexcept

@cython.final
cdef class KeySequence:
    cdef readonly KeyIndex permutation
    cdef readonly object generator
    cdef readonly unsigned int indices, capacity, live, places, place_mask
    cdef unsigned int _next
    cdef bint _gone_round
    cdef bytearray _upper, _taken
    cdef int[::1] _slots
    cdef object _set_places(self, unsigned int places, object live)
    cdef unsigned int _key(self, unsigned int slot) except? 0
