cimport cython

from softhca.transport.context cimport QueuePair
from softhca.transport.halves cimport Half


cdef class DormantHalf(Half):
    cdef QueuePair qp
    cdef bint sends

    cdef bint waiting(self)
    @cython.locals(qp=QueuePair, sends=cython.bint)
    cdef Half real(self)
