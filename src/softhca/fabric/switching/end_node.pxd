cimport cython

from softhca.fabric.switching.events cimport EventQueue
from softhca.fabric.switching.packet cimport Packet, PacketLine
from softhca.fabric.switching.port cimport Owner, Port


@cython.final
cdef class _Flow:
    cdef public object control
    cdef public PacketLine waiting
    cdef public long long next_ps
    cdef public bint planned


@cython.final
cdef class EndNode(Owner):
    cdef public EventQueue events
    cdef public Port port
    cdef public long long notifications
    cdef object _lanes
    cdef object _deliver
    cdef object _congestion
    cdef long long _notify_ps
    cdef dict _notified_ps
    cdef dict _flows
    cdef list _behind
    cdef long long _turns

    cpdef object send(self, Packet packet)
    cdef object _next(self, _Flow flow, bint is_turn, long long now_ps)
    cdef object _notify(self, Packet packet, long long now_ps)
