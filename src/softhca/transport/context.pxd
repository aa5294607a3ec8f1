from softhca.queues.completion cimport CompletionQueue
from softhca.queues.ring cimport RingConsumer
from softhca.queues.shared_receive cimport SharedReceiveQueue
from softhca.transport.connection cimport Connection
from softhca.transport.engines cimport ReceiveEngine, SendEngine


cdef class QueuePair(Connection):
    cdef public object owner
    # queues
    cdef public RingConsumer send_ring
    cdef public RingConsumer receive_ring
    cdef public SharedReceiveQueue shared_receive
    cdef public CompletionQueue send_cq
    cdef public CompletionQueue receive_cq
    cdef public unsigned int max_send_wr
    cdef public unsigned int max_recv_wr
    cdef public unsigned int max_send_sge
    cdef public unsigned int max_recv_sge
    cdef public unsigned int max_inline_bytes
    cdef public bint signal_all
    cdef readonly object xrc_domain
    # who its packets come from (the adapter's)
    cdef public object source
    cdef public unsigned int source_port
    cdef public dict attributes
    # engines
    cdef public SendEngine requester
    cdef public ReceiveEngine responder
    cdef public object executor
    # path migration
    cdef public object alternate

    cpdef SendEngine send_engine(self)
    cpdef ReceiveEngine receive_engine(self)
    cpdef tuple heard(self)
    cpdef object doorbell(self, unsigned long long now)
    cdef object move(self, int target, str reason)
    cpdef object flush(self)
    cpdef object fail_sending(self)
    cpdef object completion_lost(self)
