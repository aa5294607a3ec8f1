from softhca.transport.connection cimport Connection
from softhca.transport.engines cimport ReceiveEngine, SendEngine


cdef class DormantSender(SendEngine):
    cdef Connection qp

    cdef bint waiting(self)


cdef class DormantReceiver(ReceiveEngine):
    cdef Connection qp

    cdef bint waiting(self)
