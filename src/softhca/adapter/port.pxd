from softhca.adapter.counters cimport PortCounters
from softhca.wire.burst cimport Arrival
from softhca.wire.icrc cimport syndrome
from softhca.wire.identification cimport recover
from softhca.wire.route cimport Route


cdef class Source:
    cdef public Route route
    cdef public int identification
    cdef public int candidate
    cdef public PortCounters counters

    cpdef int check(self, unsigned long long address, unsigned int n) except -1
    cdef int _jump(self, unsigned int difference, unsigned int n) except? -1


cdef class Port:
    cdef public object config
    cdef public PortCounters counters
    cdef public object gids
    cdef public tuple pkeys
    cdef public object overhead_for
    cdef public dict sources
    cdef public dict windows
    cdef public Source last_source

    cpdef Source source_of(self, Arrival arrival)
    cpdef object window_for(self, bytes destination)
    cpdef object _forget_window(self)
    cpdef unsigned int pkey(self, int index)

cpdef bint pkeys_match(unsigned int ours, unsigned int theirs) noexcept
