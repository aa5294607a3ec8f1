cimport cython


@cython.final
cdef class NapChoice:
    cdef public bint naps
    cdef public unsigned long long until_ns
    cdef readonly unsigned long long naps_rate
    cdef readonly unsigned long long polls_rate
    cdef unsigned long long _begin_ns
    cdef unsigned long long _done
    cdef unsigned int _spells

    cpdef object done(self, unsigned long long now)
    cpdef object begins(self, unsigned long long now, unsigned long long until_ns)
    cdef object _weigh(self)
