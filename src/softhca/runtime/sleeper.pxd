cimport cython


@cython.final
cdef class Sleeper:
    cdef public object wake
    cdef public unsigned long long wakeup_ns
    cdef public int waiters
    cdef public unsigned long long events
    cdef public unsigned long long delivered
    cdef public unsigned long long background_ns
    cdef public bint parked

    cpdef bint deliver(self) noexcept
    cpdef bint cares(self, unsigned long long now) noexcept
    cpdef object settle(self, unsigned long long deadline_ns)
    cpdef unsigned long long begin_sleep(self, unsigned long long deadline_ns, unsigned long long until_ns,
                                       bint leads) noexcept
    cpdef object background_sleeps(self, unsigned long long until_ns)
    cpdef bint waiter_left(self, unsigned long long deadline_ns) noexcept
