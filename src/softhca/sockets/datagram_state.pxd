from softhca.sockets.datagram_credits cimport ReceiveCredits, Sender


cdef class DatagramState:
    cdef public Py_ssize_t slots, most_queued, _used, _most_used, _most_waiting, _waiting_slots
    cdef public object queue, dropped, only, sending, _partials, _believed
    cdef public list gone, free, _asks
    cdef public dict _holders, _waiting
    cdef public ReceiveCredits credits

    cpdef object arrived(self, long long slot, tuple source, long long length, bytes head, long long now_ns)
    cpdef object page_arrived(self, long long slot, tuple source, long long length, long long immediate,
                              long long now_ns)
    cpdef object _partial(self, tuple source, object number, long long now_ns)
    cpdef object expire(self, long long now_ns)
    cpdef object _overtake(self, tuple source)
    cpdef object _whole(self, object found, long long now_ns)
    cpdef Sender _credit(self, object found, long long now_ns)
    cpdef object _queue(self, object found, long long now_ns)
    cpdef bint believes(self, object claim, long long now_ns) except -1
    cpdef bint unsettled(self) except -1
    cpdef object give_back(self, list slots)
    cpdef object _drop(self, str why, list slots)
