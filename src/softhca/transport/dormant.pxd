from softhca.transport.context cimport QueuePair
from softhca.transport.engines cimport ReceiveEngine, SendEngine


cdef class DormantSender(SendEngine):
    cdef QueuePair qp

    cdef bint waiting(self)


cdef class DormantReceiver(ReceiveEngine):
    cdef QueuePair qp

    cdef bint waiting(self)
