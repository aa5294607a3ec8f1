from softhca.wire.burst cimport Arrival, Burst


cdef class Link:
    cdef readonly int framing
    cdef readonly bint sees_packets
    cdef readonly bint needs_icrc

    cpdef int send(self, Burst burst) except? -1
    cpdef bint receive(self, Arrival arrival) except? -1
    cpdef object abandon(self, Burst burst)
    cpdef int fileno(self) except? -1
    cpdef int group_fileno(self) except? -1
    cpdef object join(self, bytes gid)
    cpdef object leave(self, bytes gid)
    cpdef unsigned long long next_deadline(self) except? 0
    cpdef bint expire(self, unsigned long long now) except? -1
    cpdef bint preserves_bursts(self, bytes destination) except? -1
    cpdef dict counters(self)
    cpdef dict shown_counters(self)
    cpdef object close(self)
