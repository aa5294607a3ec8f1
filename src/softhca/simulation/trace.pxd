cdef class Trace:
    cdef public bint raw
    cdef object _write
    cdef object _hash
    cdef bytearray _pending
    cdef public long long packets

    cpdef inside(self, object time_ns, str event, int adapter, long long qp, long long psn, str state,
                 str reason)
    cdef _line(self, str line)
    cpdef packet(self, object time_ns, str event, int adapter, bytes data, str reason=*, long long number=*)
    cpdef arrivals(self, object time_ns, int adapter, list packets, list numbers)
