from softhca.queues.completion cimport CompletionQueue
from softhca.queues.ring cimport RingConsumer
from softhca.queues.shared_receive cimport SharedReceiveQueue
from softhca.transport.counters cimport TransportCounters
from softhca.transport.environment cimport Environment
from softhca.transport.flow cimport Flow
from softhca.transport.halves cimport Half


cdef class QueuePair:
    # identity
    cdef public Environment environment
    cdef public unsigned int number
    cdef public int service
    cdef public int state
    cdef public unsigned int pd
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
    cdef public bint tells_losses
    # attributes (ibv_qp_attr)
    cdef public int port_number
    cdef public unsigned int pkey
    cdef public unsigned int pkey_index
    cdef public unsigned int qkey
    cdef public unsigned int access
    cdef public unsigned int path_mtu_bytes
    cdef public unsigned int dest_qp
    cdef public unsigned int rq_psn
    cdef public unsigned int sq_psn
    cdef public unsigned int max_rd_atomic
    cdef public unsigned int max_dest_rd_atomic
    cdef public unsigned int min_rnr_timer
    cdef public unsigned int timeout
    cdef public unsigned int retry_count
    cdef public unsigned int rnr_retry
    # who its packets come from (the adapter's)
    cdef public object source
    cdef public unsigned int source_port
    cdef public dict attributes
    # draining: what SQD waits for, and whether the consumer wants to be told
    cdef public bint draining
    cdef public bint notify_drained
    cdef public bint established
    # route, window and turns
    cdef readonly Flow flow
    # halves
    cdef public Half requester
    cdef public Half responder
    cdef public TransportCounters counters
    cdef public object executor

    cpdef Half send_engine(self)
    cpdef Half receive_engine(self)
    cpdef object wake(self, bint sends)
    cpdef tuple heard(self)
    cpdef object doorbell(self, unsigned long long now)
    cpdef object count_sent(self, unsigned int packets, unsigned int length_bytes)
    cpdef object count(self, str name)
    cpdef object drop(self, str name, long long psn)
    cpdef object observe(self, str event, long long psn=*, str reason=*, long long value=*)
    cdef object move(self, int target, str reason)
    cpdef object flush(self)
    cpdef object fail(self, int event=*, str reason=*)
    cpdef object fail_sending(self)
    cpdef object completion_lost(self)
    cpdef object drained(self)
