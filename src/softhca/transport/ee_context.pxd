cimport cython

from softhca.transport.connection cimport Connection


@cython.final
cdef class EndToEndContext(Connection):
    cdef readonly unsigned int ee_number
    cdef readonly unsigned int remote_ee
    cdef readonly object domain
    cdef public bint stalled

    cpdef bint takes_messages(self) except -1
    cpdef object put(self, object message, unsigned long long now)
    cpdef object abort(self, object message)
