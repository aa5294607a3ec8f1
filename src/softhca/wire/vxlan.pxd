cimport cython

from softhca.wire.raw cimport RawView


cpdef object put_vxlan(unsigned char[::1] data, Py_ssize_t offset, unsigned int vni)


@cython.final
cdef class FrameView(RawView):
    cpdef int open(self, unsigned char[::1] data, Py_ssize_t offset, Py_ssize_t n, unsigned int vni) except -1
