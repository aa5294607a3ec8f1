from softhca.driver.polling cimport CompletionPoller
from softhca.driver.work_requests cimport Completion
from softhca.machine cimport deferred_signals
from softhca.sockets.behind_pool cimport BehindPool
from softhca.sockets.stream_receiving cimport Receiver
from softhca.sockets.stream_sending cimport Sender
from softhca.sockets.stream_state cimport StreamState
from softhca.sockets.waiting cimport Waiting
from softhca.sockets.work_requests cimport WorkRequests


cdef class StreamPath(Waiting):
    cdef public int error
    cdef public object on_change, on_stall
    cdef public bint receiving_ended, used
    cdef public Sender sender
    cdef public Receiver receiver
    cdef public bint _closed, _lost, _goodbye, _watched
    cdef public unsigned int _owed, _sleeping
    cdef public bint _may_tell_in_memory
    cdef public unsigned long long _next_look, _woken
    cdef public StreamState _state
    cdef public WorkRequests _requests
    cdef public CompletionPoller _poller
    cdef public Completion _completion
    cdef public object _given_back, _driver

    cdef bint _is_due(self) except -1
    cdef bint _is_over(self) except -1
    cpdef object _answer(self)
    cpdef object _request_event(self)
    cpdef object _take(self)
    cpdef object _take_told(self, StreamState state)
    cpdef object _look_for_place(self)
    cpdef object _arrived(self, unsigned int immediate)
    cpdef object _changed(self)
    cpdef object _credit(self, bint anyhow=*, bint empty=*)
    cpdef StreamState _look(self)
    cpdef object receive(self, object take, object deadline_s, bint blocking)
    cpdef bint shows_more(self) except -1
    cpdef object _after_receive(self)
    cpdef object send(self, object views, object deadline_s, bint blocking)
    cpdef object _wait_taken(self, unsigned long long number)
    cpdef bint _is_taken(self, unsigned long long number) except -1
    cpdef object _send_view(self, object view, object deadline_s, bint blocking, list last)
    cpdef bint _finds_room(self) except -1
    cpdef tuple _send_some(self, object view, bint frozen, bint blocking)
