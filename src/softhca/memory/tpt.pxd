cimport cython

cimport softhca_bits as bits
from softhca.machine.primitives cimport address_of, fill

@cython.final
cdef class TranslationTable:
    cdef unsigned long long[::1] entries
    cdef readonly unsigned long long address
    cdef readonly unsigned int capacity
    cdef public bint stopped
    cdef object _free
    cpdef int set(self, unsigned int i, unsigned long long frame, unsigned int rights, unsigned int pd) except -1
    cpdef int set_run(self, unsigned int first, unsigned long long frame, unsigned int count, unsigned int rights,
                      unsigned int pd) except -1
    cpdef int protect_run(self, unsigned int first, unsigned int count, unsigned int rights,
                          unsigned int pd) except -1
    cpdef unsigned long long entry(self, unsigned long long i) noexcept

cdef unsigned long long _placed(unsigned int rights, unsigned int pd) noexcept
