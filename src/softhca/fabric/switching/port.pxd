from softhca.fabric.switching.arbitration cimport Arbiter
from softhca.fabric.switching.credits cimport CreditReceiver, CreditSender
from softhca.fabric.switching.events cimport EventQueue, Handler
from softhca.fabric.switching.packet cimport FlowControl, Held, Packet
from softhca.fabric.switching.transmit_queues cimport TransmitQueue


cdef class Owner(Handler):
    cpdef object arrived(self, Port port, Packet packet, long long now_ps, long long tail_ps)
    cpdef object sent(self, Port port, int vl, long long now_ps)


cdef class PortCounters:
    cdef public long long transmitted_packets
    cdef public long long transmitted_data
    cdef public long long received_packets
    cdef public long long received_data
    cdef public long long discarded
    cdef public long long marked
    cdef public long long errors
    cdef public long long overruns
    cdef public long long refused_pkeys
    cdef public long long waited_ps
    cdef public dict reasons

    cpdef object discard(self, object reason)


cdef class Port(Handler):
    cdef public EventQueue events
    cdef public Owner owner
    cdef public int number
    cdef public object settings
    cdef public PortCounters counters
    cdef long long _propagation_ps
    cdef int _mark_blocks
    cdef public Port peer
    cdef public bint up
    cdef public long long mbps
    cdef public double loss
    cdef public object random
    cdef public CreditSender credits
    cdef public CreditReceiver receiver
    cdef public Arbiter arbiter
    cdef public list queues
    cdef public object lost
    cdef public int _active
    cdef public long long _epoch
    cdef public long long _busy_until_ps
    cdef public long long _planned_ps
    cdef public long long _waiting_since_ps
    cdef public long long _blocked_since_ps[15]
    cdef int _discards_in_a_row[15]
    cdef long long _stalled_until_ps[15]
    cdef public bint _resync_planned

    cpdef long long transmission_ps(self, long long length_bytes) except? -1
    cpdef object link_up(self)
    cpdef object link_down(self)
    cpdef int queued_blocks(self, int vl) except? -1
    cpdef object send(self, Packet packet, long long ready_ps)
    cdef object _transmit(self, long long now_ps)
    cpdef object _send_now(self, Packet packet, int vl, long long now_ps)
    cdef object _plan(self, long long time_ps)
    cpdef object discard(self, Packet packet, object reason)
    cdef object _has_lost(self, Packet packet, object reason)
    cdef object _wait_for_credits(self, int blocked, bint others, long long now_ps)
    cdef object _end_waiting(self, long long now_ps)
    cdef object _head_of_queue_expired(self, int vl, long long since_ps, long long now_ps)
    cdef object _say_count(self, long long now_ps)
    cdef object _head_arrives(self, Packet packet, long long now_ps)
    cpdef object freed(self, int vl, int blocks)
    cdef object _flow_control(self, int vl, long long now_ps)
    cdef object _hear(self, FlowControl told, long long now_ps)


cpdef object release(Held held)
