from softhca.transport.counters cimport TransportCounters
from softhca.transport.engines cimport ReceiveEngine, SendEngine
from softhca.transport.environment cimport Environment
from softhca.transport.flow cimport Flow


cdef class Connection:
    # identity
    cdef public Environment environment
    cdef public unsigned int number
    cdef public object row
    cdef public int service
    cdef readonly bint connected
    cdef public int state
    cdef public unsigned int pd
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
    cdef public unsigned int rate_limit_kbps
    # the connection's among those of the two end nodes; 0: it has none
    cdef public unsigned int instance
    # path migration: ibv_mig_state, and the path that is not in use
    cdef public int migration
    cdef public object alternate
    # draining: what SQD waits for, and whether the consumer wants the event
    cdef public bint draining
    cdef public bint notify_drained
    cdef public bint established
    # route, window and turns
    cdef readonly Flow flow
    cdef public TransportCounters counters
    # who its packets come from (the adapter's)
    cdef public object source
    cdef public unsigned int source_port
    cdef public dict attributes
    # engines
    cdef public SendEngine requester
    cdef public ReceiveEngine responder

    cdef object open(self)
    cpdef bint has_requests(self) except -1
    cpdef bint has_receives(self) except -1
    cpdef SendEngine send_engine(self)
    cpdef ReceiveEngine receive_engine(self)
    cpdef tuple heard(self)
    cdef object move(self, int target, str reason)
    cpdef object flush(self)
    cpdef object raise_event(self, int event)

    cpdef object count_sent(self, unsigned int packets, unsigned int length_bytes)
    cpdef object count(self, str name)
    cpdef object drop(self, str name, long long psn)
    cpdef object observe(self, str event, long long psn=*, str reason=*, long long value=*)
    cpdef object fail(self, int event=*, str reason=*)
    cpdef object drained(self)
    cpdef bint migrate(self, str event, unsigned long long now) except -1
