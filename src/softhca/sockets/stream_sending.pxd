from softhca.machine.primitives cimport address_of
from softhca.sockets.behind_pool cimport BehindPool
from softhca.sockets.staging cimport Staging
from softhca.sockets.stream_state cimport StreamState
from softhca.sockets.work_requests cimport WorkRequests


cdef class Sender:
    cdef dict __dict__  # tests put methods of their own in place
    cdef public unsigned long long direct_bytes, number, retired, taken
    cdef public Staging staging
    cdef public object inflight
    cdef public WorkRequests requests
    cdef public StreamState _state
    cdef public unsigned int _lkey, _misses, _copies, _immediates, _late, _wanted
    cdef public bint in_memory
    cdef public unsigned long long unconfirmed, _immediate, _event_request, _requested_at
    cdef public unsigned long long _threshold, _direct, _chunk, _signaled, _signaled_tail

    cpdef unsigned long long next(self, unsigned long long staged=*, object holder=*, bint signaled=*,
                                  bint immediate=*) except? 0
    cdef bint _is_full(self) except -1
    cpdef object retire(self, unsigned long long number)
    cpdef object _let_go(self)
    cpdef tuple post(self, object view, bint frozen, bint blocking)
    cpdef tuple _post_in_memory(self, object view, bint frozen, bint blocking)
    cpdef object tell_in_memory(self)
    cpdef object confirm(self, BehindPool behind)
    cpdef bint request_event(self, unsigned long long told, unsigned int wanted) except -1
    cpdef object _post_copy(self, unsigned long long address, unsigned long long length, list places,
                            unsigned int immediate, unsigned int flags)
    cpdef object _try_again(self)
    cpdef object credit(self, tuple found, bint signaled=*)
