cimport cython


@cython.final
cdef class PortCounters:
    cdef public unsigned long long packets_received
    cdef public unsigned long long bytes_received
    cdef public unsigned long long packets_sent
    cdef public unsigned long long bytes_sent
    cdef public unsigned long long bursts_received
    cdef public unsigned long long bursts_sent
    cdef public unsigned long long loopback_packets
    cdef public unsigned long long multicast_copies
    cdef public unsigned long long identifications_recovered
    cdef public unsigned long long packets_discarded
    cdef public list drops

    cpdef object drop(self, int reason)
