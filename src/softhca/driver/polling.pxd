from softhca.driver.work_requests cimport Completion
from softhca.queues.completion cimport CompletionReader


cdef class CompletionPoller:
    cdef public CompletionReader reader
    cdef public object session
    cdef public object progress
    cdef public object failed
    cdef public object lock

    cpdef list poll(self, Py_ssize_t limit, object kind=*)
    cdef list _take(self, Py_ssize_t limit, object kind)


cdef object _fill(Completion entry, CompletionReader reader)
