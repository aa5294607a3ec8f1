cpdef long long ahead(long long one, long long other) noexcept


cdef class SendCredit:
    cdef object __weakref__
    cdef public long long position, limit, window
    cdef public bint free
    cdef public long long _patience_ns, _longest_ns, _wanted
    cdef public object _since_ns
    cdef public bint _heard

    cpdef bint may_send(self, long long messages, long long now_ns) except -1
    cpdef long long _until(self) except? -1
    cpdef object spend(self, long long messages)
    cpdef bint told(self, long long limit, long long window) except -1


cdef class Sender:
    cdef public tuple source, address
    cdef public long long window, seen, told, held, last_ns
    cdef public bint begun


cdef class ReceiveCredits:
    cdef public long long _room, _active, _counted_ns
    cdef public object _senders
    cdef public dict touched

    cpdef long long first(self, long long now_ns) except? -1
    cpdef long long _at_least(self, long long window) except? -1
    cpdef long long share(self, long long now_ns) except? -1
    cpdef Sender _sender(self, tuple source, tuple address)
    cpdef Sender whole(self, tuple source, tuple address, long long position, long long messages,
                       long long now_ns)
    cpdef object hold(self, Sender sender, long long pages)
    cpdef object release(self, Sender sender, long long pages)
    cpdef list due(self, long long now_ns)
    cpdef object tell(self, Sender sender, long long limit)
