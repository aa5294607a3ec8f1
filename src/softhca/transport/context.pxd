from softhca.queues.completion cimport CompletionQueue
from softhca.queues.ring cimport RingConsumer
from softhca.queues.shared_receive cimport SharedReceiveQueue
from softhca.transport.counters cimport TransportCounters
from softhca.transport.environment cimport Environment
from softhca.transport.halves cimport Half
from softhca.transport.window cimport DestinationWindow
from softhca.wire.burst cimport Arrival, Burst
from softhca.wire.packet_view cimport PacketView
from softhca.wire.raw cimport RawView
from softhca.wire.route cimport Route


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
    cdef public unsigned int service_level
    cdef public Route route
    cdef public DestinationWindow window
    # who its packets come from (the adapter's)
    cdef public object source
    cdef public unsigned int source_port
    cdef public dict attributes
    # draining: what SQD waits for, and whether the consumer wants to be told
    cdef public bint draining
    cdef public bint notify_drained
    cdef public bint established
    # scheduling (the adapter's), and the window's
    cdef public bint scheduled
    cdef public unsigned long long armed_ns
    cdef public int armed_place
    cdef public bint waiting
    cdef bint replied_last
    cdef bint overtaken
    cdef public unsigned int prompt
    # halves
    cdef public Half requester
    cdef public Half responder
    cdef public TransportCounters counters
    cdef public object executor

    cpdef object wake(self, bint sends)
    cpdef object receive(self, PacketView view, Arrival arrival, unsigned long long now)
    cpdef tuple heard(self)
    cpdef object receive_raw(self, RawView view, Arrival arrival, unsigned long long now)
    cpdef int produce(self, Burst burst, unsigned long long now)
    cpdef object doorbell(self, unsigned long long now)
    cpdef object resume(self, unsigned long long now)
    cpdef object expire(self, unsigned long long now)
    cpdef bint has_work(self)
    cdef bint _requester_first(self)
    cpdef bint may_tarry(self)
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
