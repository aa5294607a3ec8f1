from softhca.driver.poll_back_off cimport PollBudget
from softhca.sockets.device_calls cimport DeviceCalls


cdef class Waiting:
    cdef public object _lock, _progress
    cdef public list _calls
    cdef public bint _news, _pumping, _missed, _polls
    cdef public PollBudget _budget

    cpdef bint _has_news(self) except -1
    cpdef object _pump(self)
    cdef bint _is_due(self) except -1
    cpdef object _serve(self)
    cdef bint _is_over(self) except -1
    cpdef object _wake(self)
    cpdef bint _may_receive(self) except -1
    cpdef bint _may_send(self) except -1
    cpdef object unlock(self)
    cpdef object leave_lock(self)
    cpdef bint wait(self, object ready, object deadline_s) except -1
    cpdef bint _has_ended(self, object ready) except -1
    cpdef bint _poll(self, object ready) except -1
