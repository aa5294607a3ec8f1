from softhca.adapter.engine cimport Adapter
from softhca.links.link cimport Link
from softhca.runtime.same_host_ring cimport PacketSender
from softhca.wire.burst cimport Burst


cdef class Transmitter:
    cdef public Adapter adapter
    cdef public Link link
    cdef public Burst burst
    cdef public bint pending
    cdef public unsigned long long tried_ns
    cdef public dict rings

    cpdef bint transmit(self, unsigned long long now) except -1
    cdef bint send_near(self, Burst burst) except -1
    cpdef unsigned long long deadline(self) noexcept
