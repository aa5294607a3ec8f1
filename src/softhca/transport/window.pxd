cdef class DestinationWindow:
    cdef public unsigned long long limit_bytes
    cdef public unsigned long long maximum_bytes
    cdef public unsigned long long minimum_bytes
    cdef public unsigned long long in_flight_bytes
    cdef public unsigned long long confirmed_bytes
    cdef public unsigned int packet_overhead_bytes
    cdef public unsigned int growth_windows
    cdef public unsigned long long losses
    cdef public object waiters
    cdef public object turn

    cpdef unsigned long long cost(self, unsigned long long length_bytes, unsigned int packets) noexcept
    cpdef unsigned long long room(self, object queue_pair)
    cpdef bint admits(self, object queue_pair, unsigned long long cost_bytes)
    cpdef object charge(self, unsigned long long cost_bytes)
    cpdef object credit(self, unsigned long long cost_bytes)
    cpdef object give_up(self, unsigned long long cost_bytes)
    cpdef object lost(self)
    cpdef object wait(self, object queue_pair)
    cpdef object pass_on(self)
    cpdef object leave(self, object queue_pair)
