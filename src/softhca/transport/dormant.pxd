cimport cython

from softhca.transport.connection cimport Connection
from softhca.transport.engines cimport ReceiveEngine, SendEngine


@cython.final
cdef class DormantSender(SendEngine):
    cdef Connection qp

    cdef bint waiting(self)


@cython.final
cdef class DormantReceiver(ReceiveEngine):
    cdef Connection qp

    cdef bint waiting(self)
