cimport cython


@cython.final
cdef class TransportCounters:
    cdef public unsigned long long packets_sent
    cdef public unsigned long long bytes_sent
    cdef public unsigned long long packets_received
    cdef public unsigned long long bytes_received
    cdef public unsigned long long retransmissions
    cdef public unsigned long long timeouts
    cdef public unsigned long long acks_sent
    cdef public unsigned long long acks_received
    cdef public unsigned long long naks_sent
    cdef public unsigned long long naks_received
    cdef public unsigned long long rnr_naks_sent
    cdef public unsigned long long rnr_naks_received
    cdef public unsigned long long implied_naks
    cdef public unsigned long long out_of_sequence
    cdef public unsigned long long duplicates
    cdef public unsigned long long ghost_acks
    cdef public unsigned long long send_errors
    cdef public unsigned long long receive_errors
    cdef public unsigned long long drops_state
    cdef public unsigned long long drops_service
    cdef public unsigned long long drops_opcode
    cdef public unsigned long long drops_length
    cdef public unsigned long long drops_sequence
    cdef public unsigned long long drops_qkey
    cdef public unsigned long long drops_no_receive
    cdef public unsigned long long drops_receive_length
    cdef public unsigned long long drops_protection
    cdef public unsigned long long drops_resources
    cdef public unsigned long long drops_unexpected_response
    cdef public unsigned long long drops_held
    cdef public unsigned long long drops_instance
    cdef public unsigned long long key_refusals
    cdef public unsigned long long packets_marked
    cdef public unsigned long long cnps_sent
    cdef public unsigned long long cnps_received
    cdef public unsigned long long cnps_ignored
