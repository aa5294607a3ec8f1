cpdef bint is_ipv6(unsigned int service) noexcept
cpdef int check_ipv6(unsigned char[::1] data, Py_ssize_t o, Py_ssize_t n) except -1


cdef class RawView:
    cdef readonly unsigned int service
    cdef readonly Py_ssize_t payload
    cdef readonly Py_ssize_t payload_bytes

    cpdef int decode(self, unsigned char[::1] data, Py_ssize_t offset, Py_ssize_t packet_bytes) except -1
