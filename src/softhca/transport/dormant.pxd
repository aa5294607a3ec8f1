from softhca.transport.context cimport QueuePair
from softhca.transport.halves cimport Half


cdef class DormantHalf(Half):
    cdef QueuePair qp
    cdef bint sends

    cdef bint waiting(self)
    cdef Half real(self)
