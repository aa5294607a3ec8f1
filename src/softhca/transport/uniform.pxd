cimport cython

from softhca.transport.connection cimport Connection
from softhca.transport.request cimport Request


@cython.final
cdef class UniformMessages:
    cdef readonly unsigned int write_packets
    cdef readonly unsigned int read_packets
    cdef dict _proven

    cpdef object choose(self, Connection connection)
    cpdef object forget(self)
    cpdef bint takes(self, Request request) except -1
    cpdef object succeeded(self, Request request)
    cdef bint proven(self, Request request) except -1


cdef unsigned long long _right(Request request)
