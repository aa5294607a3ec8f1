cimport cython

from softhca.fabric.switching.events cimport EventQueue
from softhca.fabric.switching.packet cimport Packet
from softhca.fabric.switching.port cimport Owner, Port


@cython.final
cdef class Switch(Owner):
    cdef public EventQueue events
    cdef public object settings
    cdef public list ports
    cdef public object forwarding
    cdef public dict multicast
    cdef public dict sl_to_vl
    cdef public dict pkeys
    cdef int _lanes
    cdef long long _latency_ps

    cdef object _replicate(self, Port port, Packet packet, long long now_ps, long long tail_ps)
    cdef object _forward(self, Port port, Port output, Packet packet, long long now_ps, long long tail_ps)
    cdef bint _may_pass(self, int number, Packet packet) except? -1
