cimport cython

cimport softhca_bits as bits
from softhca.machine.primitives cimport atomic_add64, atomic_cas64, copy, load64, store64, wake_word
from softhca.memory.regions cimport Region

@cython.final
cdef class PagedAccess:
    cdef readonly object mapping
    cdef readonly unsigned int number
    cdef readonly unsigned long long header, line, table, frames, pages, frame_count
    cdef public object on_fault
    cpdef bint enter(self) noexcept
    cpdef void leave(self) noexcept
    cpdef unsigned long long rights(self) noexcept
    cpdef int ready(self, unsigned long long offset, unsigned long long n) noexcept
    cpdef void ask(self, unsigned long long page, unsigned long long count) noexcept
    cpdef unsigned long long place(self, unsigned long long offset) noexcept
    cpdef int move(self, unsigned long long offset, unsigned long long local, unsigned long long n,
                   bint writing) noexcept

@cython.final
cdef class PagedRegion(Region):
    cdef readonly PagedAccess memory
    cdef readonly unsigned int granted
    cdef readonly unsigned long long seen
    cpdef int move(self, unsigned long long va, unsigned long long local, unsigned long long n,
                   bint writing) noexcept
    cpdef int begin(self, unsigned long long offset, unsigned long long n) noexcept
    cpdef unsigned long long atomic(self, unsigned long long va, unsigned long long compare,
                                    unsigned long long operand, bint swapping) noexcept
    cpdef unsigned long long aligned(self, unsigned long long offset, unsigned long long compare,
                                     unsigned long long operand, bint swapping) noexcept
    cpdef unsigned long long unaligned(self, unsigned long long offset, unsigned long long compare,
                                       unsigned long long operand, bint swapping) noexcept

cpdef list scan_entries(unsigned long long table, unsigned long long first, unsigned long long count)
cpdef int put_entries(unsigned long long table, unsigned long long page, unsigned long long frame,
                      unsigned long long count) except -1
cpdef int clear_entries(unsigned long long table, unsigned long long page, unsigned long long count) except -1
