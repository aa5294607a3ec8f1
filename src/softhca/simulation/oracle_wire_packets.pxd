cimport cython


@cython.locals(gap=cython.longlong)
cpdef long long near_to(long long value, long long near) noexcept

cpdef long long position_of(bytes data, long long near) noexcept

cpdef long long packets_of(long long length_bytes, long long mtu_bytes) noexcept

@cython.locals(value=cython.ulonglong, at=cython.Py_ssize_t)
cpdef unsigned long long be(bytes data, Py_ssize_t first, Py_ssize_t end) noexcept

cpdef long long payload_bytes(bytes data, int code) noexcept

cpdef bint inside(int before) noexcept

cpdef bint follows(int code, int before) noexcept

@cython.locals(count=cython.longlong)
cpdef str wrong_length(bytes data, int code, long long mtu_bytes)


cdef class Checksums:
    cdef dict _known

    @cython.locals(key=tuple, known=tuple)
    cpdef bint is_right(self, bytes data, object route) except -1
