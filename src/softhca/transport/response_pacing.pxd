cimport cython


@cython.final
cdef class ResponsePacing:
    cdef readonly unsigned long long burst_bytes
    cdef public unsigned long long rate
    cdef public unsigned long long free_ns
    cdef public unsigned long long answered_bytes
    cdef public unsigned long long excused_bytes

    cpdef unsigned long long departure(self, unsigned long long depth_bytes, unsigned long long now) noexcept
    cpdef void sent(self, unsigned long long cost_bytes) noexcept
    cpdef void answered(self, unsigned long long length_bytes) noexcept
    cpdef void asked_on(self, unsigned long long depth_bytes) noexcept
    cpdef bint lost(self, unsigned long long depth_bytes) noexcept
    cdef unsigned long long time_of(self, unsigned long long length_bytes) noexcept
