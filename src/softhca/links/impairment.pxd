cimport cython


@cython.final
cdef class Impairment:
    cdef public object faults
    cdef public object source
    cdef public object destination
    cdef public str lost_because
    cdef object _dice
    cdef object _script
    cdef object _repeat
    cdef long long _packet
    cdef object _free_ns
    cdef object _last_ns
    cdef bint _in_burst
    cdef object _sent_ns
    cdef object _flap_phase_ns
    cdef list _cuts
    cdef bint _lossy
    cdef bint _clean

    cpdef list send(self, bytes data, object now)
    cdef list _send_again(self, bytes data, object arrives_ns)
    cdef str _loss(self, object now)
