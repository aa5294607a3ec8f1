cimport cython


@cython.final
cdef class Part:
    cdef readonly str name, code
    cdef readonly list names, widths
    cdef readonly Py_ssize_t length, number_bytes
    cdef readonly bint shared, is_word
    cdef list shifts, masks
    cdef object join(self, tuple values, Py_ssize_t place)
    cdef object split(self, object found, dict values)

@cython.final
cdef class FieldPacking:
    cdef list parts
    cdef object packing, values
    cpdef object encode(self, object header)
    cpdef dict decode(self, object buffer, Py_ssize_t offset)
