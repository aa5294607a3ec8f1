cimport cython

from softhca.queues.completion cimport CompletionQueue
from softhca.queues.ring cimport RingConsumer
from softhca.queues.shared_receive cimport SharedReceiveQueue
from softhca.transport.connection cimport Connection


@cython.final
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
    cdef readonly object domain
    cdef public object executor

    cpdef object doorbell(self, unsigned long long now)
    cpdef object fail_sending(self)
    cpdef object completion_lost(self)
