from softhca.adapter.counters cimport PortCounters
from softhca.wire.burst cimport Arrival
from softhca.wire.icrc cimport syndrome
from softhca.wire.identification cimport recover
from softhca.wire.link_view cimport LinkView
from softhca.wire.route cimport Route


cdef class Sender:
    cdef public int identification
    cdef public unsigned long long seen_ns


cdef class Source:
    cdef public Route route
    cdef public Sender sender
    cdef public int identification
    cdef public unsigned long long seen_ns
    cdef public bint counts
    cdef public int candidate
    cdef public PortCounters counters

    cpdef int check(self, unsigned long long address, unsigned int n, unsigned long long now) except -1
    cdef bint _expects(self, int found, unsigned long long now) noexcept
    cdef bint _jumps(self, int found) noexcept


cdef class Port:
    cdef public object config
    cdef public PortCounters counters
    cdef readonly bint native
    cdef public object gids
    cdef readonly tuple gid_table
    cdef public tuple pkeys
    cdef public object overhead_for
    cdef public dict sources
    cdef public dict senders
    cdef public dict windows
    cdef public Source last_source
    cdef readonly unsigned int lid
    cdef readonly unsigned int lmc
    cdef readonly unsigned int sm_lid
    cdef readonly unsigned int sm_sl
    cdef readonly unsigned int subnet_timeout
    cdef readonly unsigned long long gid_prefix
    cdef readonly int state
    cdef readonly unsigned int longest_packet_bytes

    cpdef unsigned int source_lid(self, unsigned int path_bits)
    cpdef bint owns_lid(self, unsigned int lid) noexcept
    cpdef unsigned int path_bits(self, unsigned int dlid) noexcept
    cpdef bint is_own(self, Route route) except -1
    cpdef int admit(self, LinkView link) except -1
    cpdef int admit_raw(self, LinkView link) except -1
    cpdef int admit_global(self, LinkView link) except -1
    cpdef Source source_of(self, Arrival arrival)
    cdef Sender _sender(self, object address)
    cpdef object window_for(self, bytes peer)
    cpdef object _forget_window(self)
    cpdef unsigned int pkey(self, int index)

cdef bint _near(int found, int last, unsigned long long window) noexcept
cpdef bint pkeys_match(unsigned int ours, unsigned int theirs) noexcept
cpdef bint same_port(Route route, LinkView link) except -1
cpdef bint same_gid(bytes ours, bytes theirs) except -1
