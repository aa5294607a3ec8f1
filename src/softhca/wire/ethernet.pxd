cpdef bytes frame_key(unsigned char[::1] data, Py_ssize_t offset, Py_ssize_t n)
cdef void _ipv4(unsigned char[::1] k, unsigned char[::1] data, Py_ssize_t o, Py_ssize_t end) noexcept
cdef void _ipv6(unsigned char[::1] k, unsigned char[::1] data, Py_ssize_t o, Py_ssize_t end) noexcept
cdef void _ports(unsigned char[::1] k, unsigned char[::1] data, Py_ssize_t o, Py_ssize_t end) noexcept
