cimport cython

from softhca.machine.primitives cimport address_of, bytes_at, copy, length_of, load32, load64, store32, store64

@cython.final
cdef class Sealer:
    cdef readonly unsigned long long address
    cdef readonly Py_ssize_t room
    cdef bytearray _buffer
    cdef object _view
    cdef object _digest
    cdef object _argument
    cdef object _indicator
    cdef Py_ssize_t _indicator_bytes
    cdef Py_ssize_t _digest_bytes
    cdef readonly Py_ssize_t largest_bytes
    cdef unsigned int _mark
    cpdef Py_ssize_t measure(self, tuple parts) except? -1
    cpdef bytes block(self, Py_ssize_t length)
    cpdef Py_ssize_t seal(self, unsigned long long sequence, unsigned int kind, tuple parts) except? -1

@cython.final
cdef class Opener:
    cdef readonly unsigned long long[::1] verdicts
    cdef readonly Py_ssize_t room
    cdef readonly unsigned int kind
    cdef readonly bytes message
    cdef readonly Py_ssize_t block_bytes
    cdef object _digest
    cdef object _argument
    cdef Py_ssize_t _digest_bytes
    cdef Py_ssize_t _indicator_bytes
    cdef Py_ssize_t _largest_bytes
    cdef Py_ssize_t _fixed_bytes
    cdef unsigned int _first_kind
    cdef unsigned int _last_kind
    cdef bint _keyed
    cdef unsigned int _mark
    cpdef int open(self, unsigned long long address, Py_ssize_t room, unsigned long long sequence) except? -1
    cdef int _open(self, unsigned long long address, Py_ssize_t room, unsigned long long sequence) except? -1
    cdef int _judge(self, bytes block, unsigned long long sequence, Py_ssize_t length, Py_ssize_t covered) except? -1
