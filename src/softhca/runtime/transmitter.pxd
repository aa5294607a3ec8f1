cimport cython

from softhca.adapter.engine cimport Adapter
from softhca.links.link cimport Link
from softhca.wire.burst cimport Burst
from softhca.wire.icrc cimport seal
from softhca.wire.route cimport Route


@cython.final
cdef class Transmitter:
    cdef public Adapter adapter
    cdef public Link link
    cdef readonly int port_number
    cdef public Burst burst
    cdef public bint pending
    cdef public unsigned long long pending_ns
    cdef public unsigned long long tried_ns
    cdef public Link waits_for
    cdef public unsigned long long dropped
    cdef readonly list rings
    cdef public object ring_of
    cdef public unsigned int epoch

    cpdef object use_rings(self, object port)
    cpdef object links_changed(self)
    cpdef bint transmit(self, unsigned long long now) except -1
    cpdef int carry(self, Burst burst, unsigned long long now) except? -1
    cdef int send_sealed(self, Burst burst) except? -1
    cpdef Link link_of(self, Route route)
    cpdef unsigned long long deadline(self) noexcept
