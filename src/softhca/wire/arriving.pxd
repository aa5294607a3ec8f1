cimport cython

from softhca.wire.route cimport Route


@cython.final
cdef class ArrivingRoute(Route):
    cpdef bint aim(self, bytes source, bytes destination, unsigned int source_port) except -1
    cdef bint _addresses(self, bytes source, bytes destination) except -1
