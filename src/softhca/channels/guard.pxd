from softhca.machine cimport deferred_signals


cdef class Guard:
    cdef object _link
    cdef object _lock
