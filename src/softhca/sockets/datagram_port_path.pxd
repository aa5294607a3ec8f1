from softhca.driver.polling cimport CompletionPoller
from softhca.driver.work_requests cimport Completion
from softhca.machine cimport deferred_signals
from softhca.machine.primitives cimport address_of, bytes_at
from softhca.sockets.datagram_state cimport DatagramState
from softhca.sockets.staging cimport Staging


cdef class DatagramPortPath:
    cdef public bint failed
    cdef public unsigned long long copied_bytes, direct_bytes, retired
    cdef public unsigned long long _number, _signaled, _signaled_tail, _base, _heads, _threshold
    cdef public long long _datagrams
    cdef public Py_ssize_t _posted_sends, _unsignaled, _cursor
    cdef public unsigned int _lkey
    cdef public DatagramState state
    cdef public Staging _staging
    cdef public CompletionPoller _poller
    cdef public Completion _completion
    cdef public object _inflight, _given_back, _queue_pair
    cdef public list _receives
    cdef public bytes _last_grh, _last_gid

    cpdef bint waits(self) except -1
    cpdef object pump(self)
    cpdef object _take(self)
    cpdef object _arrived(self, Completion each)
    cpdef bytes _source(self, long long slot)
    cpdef list _pieces(self, object found)
    cpdef bytes bytes_of(self, object found, long long length)
    cpdef object _post_receives(self)
    cpdef object _retire(self, unsigned long long number)
    cpdef bint has_room(self) except -1
    cpdef long long send(self, object way, object view, bint blocking) except? -2
    cpdef tuple _run(self, unsigned long long address, unsigned long long length, bint direct)
    cpdef object _say(self, object way, bytes text, bint signaled)
    cpdef object _post(self, object way, list parts, object holder, bint signaled)
    cpdef unsigned int _next(self, Py_ssize_t messages, object holder, bint signaled) except? 0xFFFFFFFF
