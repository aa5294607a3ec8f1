cimport cython

from softhca.transport.context cimport QueuePair


@cython.final
cdef class Scaling:
    cdef readonly tuple queues
    cdef readonly unsigned int fields
    cdef readonly bytes key
    cdef unsigned int _window
    cdef unsigned int _hash
    cdef Py_ssize_t _used

    cdef QueuePair queue(self, bytes frame)
    cpdef unsigned int hash(self, bytes frame) except? 0
    cdef int _take(self, bytes frame, Py_ssize_t first, Py_ssize_t count, unsigned int wanted) except -1
