from softhca.driver.poll_back_off cimport PollBudget


cdef class Waiting:
    cdef public bint _polls
    cdef public PollBudget _budget
    cdef public object _progress

    cpdef bint wait(self, object ready, object deadline_s) except -1
    cpdef bint _has_ended(self, object ready) except -1
    cpdef bint _poll(self, object ready) except -1
