cimport cython

from softhca.transport.flow cimport Flow

cdef int lowest_bit(unsigned long long word) noexcept


@cython.final
cdef class Timers:
    cdef public unsigned long long position
    cdef public list slots
    cdef public list occupied
    cdef public unsigned long long next_ns
    cdef int first_place

    cpdef object arm(self, Flow flow, unsigned long long deadline_ns)
    cpdef object disarm(self, Flow flow)
    cdef object _vacate(self, int place)
    cdef object _insert(self, Flow flow, unsigned long long deadline_ns)
    cdef object _place(self, Flow flow, unsigned long long tick)
    cdef long long _first(self)
    cpdef unsigned long long next_deadline(self) noexcept
    cpdef list expire(self, unsigned long long now)
    cdef object _settle(self, dict slot, list due)
    cdef object _advance(self, unsigned long long target)
