cimport cython

cimport softhca_layout as abi

from softhca.machine.primitives cimport atomic_add64, atomic_cas64, load64, store64

@cython.final
cdef class DoorbellFifo:
    cdef readonly unsigned int slots
    cdef readonly unsigned long long control
    cdef unsigned long long[::1] pending_pages
    cdef unsigned long long[::1] place_pages
    cdef readonly unsigned long long head
    cdef readonly unsigned long long malformed
    cpdef bint ring(self, unsigned long long slot) noexcept
    cpdef long long next(self) noexcept
    cpdef bint empty(self) noexcept
