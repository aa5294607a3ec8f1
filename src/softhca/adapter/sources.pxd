cimport cython

from softhca.adapter.counters cimport PortCounters
from softhca.transport.connection cimport Connection
from softhca.wire.arriving cimport ArrivingRoute
from softhca.wire.burst cimport Arrival
from softhca.wire.icrc cimport syndrome
from softhca.wire.identification cimport recover


cdef class Sender:
    cdef object __weakref__
    cdef public int identification
    cdef public unsigned long long seen_ns


@cython.final
cdef class Source:
    cdef object __weakref__
    cdef readonly bytes address
    cdef readonly unsigned int port
    cdef readonly bytes destination
    cdef readonly Sender sender
    cdef public int identification
    cdef public unsigned long long seen_ns
    cdef public bint counts
    cdef public int candidate

    cdef bint believes(self, int found, unsigned long long now) noexcept
    cdef void take(self, int found, unsigned long long now) noexcept
    cdef bint _expects(self, int found, unsigned long long now) noexcept
    cdef bint _jumps(self, int found) noexcept


@cython.final
cdef class Sources:
    cdef readonly unsigned int limit
    cdef readonly PortCounters counters
    cdef readonly tuple routes
    cdef readonly ArrivingRoute route
    cdef readonly dict unconnected
    cdef readonly object connected
    cdef readonly object senders
    cdef public Source last
    cdef readonly unsigned long long checked

    cpdef bint aim(self, Arrival arrival) except -1
    cpdef int check(self, Connection queue_pair, unsigned long long address, unsigned int n,
                    unsigned long long now) except -1
    cdef Source _known(self, Connection queue_pair)
    cdef Source _new(self, Connection queue_pair)
    cdef tuple _key(self)
    cdef bint _is(self, Source source) noexcept


cdef bint _near(int found, int last, unsigned long long window) noexcept
