cimport cython

from softhca.machine.primitives cimport drop_held


@cython.final
cdef class HeldBursts:
    cdef readonly int fd
    cdef readonly unsigned int count
    cdef readonly unsigned int most

    cpdef void sent(self)
    cdef void _drop(self)
    cpdef object clear(self)
