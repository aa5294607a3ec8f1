cimport cython

from softhca.links.held_bursts cimport HeldBursts
from softhca.links.link cimport Link
from softhca.machine.primitives cimport ReceiveMeta, address_of, receive_burst, send_burst
from softhca.wire.burst cimport Arrival, Burst
from softhca.wire.route cimport Route


@cython.final
cdef class Path:
    cdef readonly bytes socket_address
    cdef readonly bint labelled
    cdef readonly bytes destination
    cdef readonly unsigned long long address
    cdef readonly unsigned int address_bytes
    cdef public bint segmenting
    cdef public bint counting
    cdef public bint holding

    cdef object _aim(self, bytes socket_address)
    cpdef object leave_label_out(self)


cdef class RoceUdpLink(Link):
    cdef readonly str address
    cdef readonly unsigned int port
    cdef readonly bytes gid
    cdef readonly str interface
    cdef readonly unsigned int interface_mtu_bytes
    cdef readonly unsigned int active_mtu
    cdef readonly unsigned int receive_buffer_bytes
    cdef readonly bint merges
    cdef readonly int blocked_fileno
    cdef public unsigned long long datagrams_sent
    cdef public unsigned long long bursts_sent
    cdef public unsigned long long bytes_sent
    cdef public unsigned long long send_calls
    cdef public unsigned long long send_errors
    cdef public unsigned long long send_blocked
    cdef public unsigned long long segmentation_refusals
    cdef public unsigned long long label_refusals
    cdef public unsigned long long datagrams_received
    cdef public unsigned long long bursts_received
    cdef public unsigned long long bytes_received
    cdef public unsigned long long receive_calls
    cdef public unsigned long long receive_drops
    cdef public unsigned long long receive_errors
    cdef public bint counts
    cdef Route _last_route
    cdef Path _last_path
    cdef int _last_fd
    cdef HeldBursts _last_held
    cdef dict _held
    cdef bint _holds
    cdef bint _held_lately
    cdef unsigned long long _drop_ns
    cdef int _fd
    cdef object _receiver
    cdef object _senders
    cdef object _groups
    cdef bint _has_groups
    cdef int _frames_fd
    cdef int _scope
    cdef bytes _packed
    cdef dict _fds
    cdef dict _paths
    cdef dict _near
    cdef set _marked
    cdef ReceiveMeta _meta
    cdef bytes _source
    cdef unsigned long long _source_high
    cdef unsigned long long _source_low
    cdef Burst _partial
    cdef unsigned int _partial_offset

    cpdef int send(self, Burst burst) except? -1
    cpdef bint receive(self, Arrival arrival) except? -1
    cpdef object abandon(self, Burst burst)
    cpdef int fileno(self) except? -1
    cpdef bint preserves_bursts(self, bytes destination) except? -1
    cpdef unsigned long long next_deadline(self) except? 0
    cpdef bint expire(self, unsigned long long now) except? -1
    cdef HeldBursts _held_of(self, int fd)
    cdef object _drop_held(self)
    cpdef dict counters(self)
    cpdef object close(self)
    cpdef int group_fileno(self) except? -1
    cpdef object join(self, bytes gid)
    cpdef object leave(self, bytes gid)
    cdef bint _take(self, int fd, Arrival arrival) except -1
    cdef bint _receive_from_groups(self, Arrival arrival) except -1
    cpdef int transmit(self, int fd, unsigned long long address, unsigned int n, unsigned int segment,
                       Path path, Route route)
    cdef Path _path(self, Route route)
    cdef bint _aim(self, Route route) except -1
    cdef bint _goes_whole(self, Burst burst, Path path)
