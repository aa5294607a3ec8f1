cimport cython
from cpython.object cimport PyObject, PyTypeObject

from softhca.driver.posting cimport swapped
from softhca.driver.standing cimport Standing
from softhca.driver.work_requests cimport Completion
from softhca.queues.completion cimport CompletionReader


cdef class CompletionPoller:
    cdef public CompletionReader reader
    cdef public Standing session
    cdef public object progress
    cdef public object failed
    cdef unsigned int taken
    cdef cython.pymutex _mutex

    cpdef object acquire(self)
    cpdef object release(self)
    cpdef list poll(self, Py_ssize_t limit, object kind=*, bint network_order=*)
    cdef list _take(self, Py_ssize_t limit, object kind, bint network_order)


cdef inline object new_of(object kind, tuple arguments):
    return (<PyTypeObject*> kind).tp_new(<type> kind, <PyObject*> arguments, NULL)


cdef Completion _new(object kind)
cdef object _fill(Completion entry, CompletionReader reader)
