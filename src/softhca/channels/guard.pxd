cimport cython

from softhca.machine cimport deferred_signals


@cython.final
cdef class Guard:
    cdef object _link
    cdef object _lock
