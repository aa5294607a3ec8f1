cimport cython


@cython.final
cdef class Run:
    cdef tuple fields
    cdef list names, gids, empty
    cdef object packing
    cdef Py_ssize_t size
    cdef int encode(self, dict values, list parts) except -1
    cdef Py_ssize_t decode(self, bytes data, Py_ssize_t offset, dict values) except -1

@cython.final
cdef class Codec:
    cdef tuple fields
    cdef list runs
    cdef object known
    cpdef bytes encode(self, object given)
    cpdef dict decode(self, bytes data)

cdef dict _CODECS

cpdef Codec codec_of(tuple fields)
