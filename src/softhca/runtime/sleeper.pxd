cdef class Sleeper:
    cdef public object wake
    cdef public unsigned long long wakeup_ns
    cdef public int waiters
    cdef public unsigned long long events
    cdef public unsigned long long delivered
    cdef public unsigned long long background_ns
    cdef public bint parked

    cpdef object happened(self)
    cpdef bint deliver(self) noexcept
    cpdef object settle(self, unsigned long long deadline_ns)
    cpdef unsigned long long lies_down(self, unsigned long long deadline_ns, unsigned long long until_ns,
                                       bint leads) noexcept
    cpdef object keeps_off(self, unsigned long long until_ns)
    cpdef bint leaves(self, unsigned long long deadline_ns) noexcept
