cimport cython

from softhca.adapter.counters cimport PortCounters
from softhca.adapter.scheduler cimport Scheduler
from softhca.adapter.sources cimport Sources
from softhca.wire.link_view cimport LinkView
from softhca.wire.route cimport Route


@cython.final
cdef class Port:
    cdef readonly unsigned int number
    cdef public object config
    cdef readonly object own
    cdef readonly Scheduler scheduler
    cdef readonly object paths
    cdef public object source_port_for
    cdef public object link_counters
    cdef public tuple management
    cdef public PortCounters counters
    cdef readonly bint native
    cdef public object gids
    cdef readonly tuple gid_table
    cdef object _table
    cdef public tuple pkeys
    cdef public object overhead_for
    cdef readonly Sources sources
    cdef public dict windows
    cdef public object segment
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
    cpdef object window_for(self, bytes peer)
    cpdef object _forget_window(self)
    cpdef unsigned long long bad_pkeys(self)
    cpdef unsigned int pkey(self, int index)

cpdef bint pkeys_match(unsigned int ours, unsigned int theirs) noexcept
cpdef bint same_port(Route route, LinkView link) except -1
cpdef bint same_gid(bytes ours, bytes theirs) except -1
