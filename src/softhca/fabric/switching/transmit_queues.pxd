cimport cython

from softhca.fabric.switching.packet cimport Packet, PacketLine


cdef class TransmitQueue:
    cdef public int blocks
    cdef public long long wake_ps

    cpdef object push(self, Packet packet, int blocks)
    cpdef Packet head(self, long long now_ps)
    cpdef object pop(self, long long now_ps, int blocks)
    cpdef list drain(self)


@cython.final
cdef class ArrivalOrder(TransmitQueue):
    cdef PacketLine _waiting


cdef class SegmentOrder(TransmitQueue):
    cdef public long long timeouts
    cdef long long _timeout_ps
    cdef public dict _waiting
    cdef public object _open
    cdef long long _open_since_ps
    cdef public object _head

    cdef Packet _ready(self, object key, Packet packet, long long now_ps)
