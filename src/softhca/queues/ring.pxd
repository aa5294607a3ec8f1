cimport cython

cimport softhca_layout as abi

from softhca.machine.primitives cimport copy, load64, store64

@cython.final
cdef class PageTable:
    cdef unsigned long long[::1] references
    cdef unsigned long long[::1] bodies

cdef class RingLayout:
    cdef readonly unsigned int entries
    cdef readonly unsigned long long body_bytes
    cdef readonly unsigned long long control
    cdef PageTable pages
    cdef unsigned long long reference_base
    cdef unsigned long long body_base
    cpdef unsigned long long reference(self, unsigned int index) noexcept
    cpdef unsigned long long place_of(self, unsigned long long offset, unsigned long long n) noexcept
    cpdef void transfer(self, unsigned long long offset, unsigned long long address, unsigned long long n,
                        bint inward) noexcept
    cpdef void clear(self) noexcept

@cython.final
cdef class RingProducer:
    cdef readonly RingLayout layout
    cdef public unsigned long long tail, head
    cdef unsigned int[::1] lengths
    cdef unsigned int index, oldest
    cdef unsigned long long body_tail, body_used
    cdef readonly bint broken
    cpdef void reset(self) noexcept
    cpdef unsigned long long place(self, unsigned long long n) noexcept
    cpdef bint push(self, unsigned long long address, unsigned long long n) noexcept
    cpdef bint fits(self, unsigned long long n) noexcept
    cpdef void refresh(self) noexcept
    cpdef unsigned long long count(self) noexcept
    cpdef unsigned long long space(self) noexcept

@cython.final
cdef class RingConsumer:
    cdef readonly RingLayout layout
    cdef public unsigned long long seen, taken, released
    cdef unsigned int index
    cdef readonly unsigned long long body
    cdef readonly bint broken
    cpdef void reset(self) noexcept
    cpdef long long take(self, unsigned long long address, unsigned long long capacity) noexcept
    cpdef long long take_in_place(self, unsigned long long capacity) noexcept
    cpdef bint idle(self) noexcept
    cpdef long long count(self) noexcept
    cpdef bint release(self, unsigned long long count) noexcept
