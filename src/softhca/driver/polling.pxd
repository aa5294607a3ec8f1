cimport cython

cimport softhca_layout as abi
from cpython.object cimport PyObject, PyTypeObject

from softhca.driver.locked cimport Locked
from softhca.driver.posting cimport swapped
from softhca.driver.liveness cimport Liveness
from softhca.driver.turns cimport Turn
from softhca.driver.work_requests cimport Completion
from softhca.queues.completion cimport CompletionReader
from softhca.queues.ring cimport RingLayout


cdef class CompletionPoller(Locked):
    cdef public CompletionReader reader
    cdef public Liveness session
    cdef public object progress
    cdef public object failed
    cdef unsigned int taken
    cdef bint moving
    cdef bint ended
    cdef unsigned int asked
    cdef dict dropped
    cdef unsigned long long dropped_until

    cpdef object leave(self)
    cpdef object move_to(self, RingLayout layout)
    cpdef bint end(self) except -1
    cpdef object arm(self, bint solicited)
    cpdef object drop(self, unsigned int qp_num)
    cdef object _release_dropped(self)
    cdef bint _takes_dropped(self) except -1
    cdef bint _is_dropped(self) except -1
    cpdef long long waiting(self)
    cpdef list poll(self, Py_ssize_t limit, object kind=*, bint network_order=*)
    cpdef bint advance(self, Completion entry) except -1
    cdef Py_ssize_t _poll(self, Py_ssize_t limit, list found, Completion into, object kind,
                          bint network_order) except -1
    cdef Py_ssize_t _take(self, Py_ssize_t limit, list found, Completion into, object kind,
                          bint network_order) except -1


@cython.final
cdef class CompletionRound(Turn):
    cdef Completion _entry
    cdef unsigned long long _fields
    cdef bint _found

    cpdef bint next(self, object advance) except -1
    cpdef Completion look(self, unsigned long long field)
    cpdef object finish(self)


cdef inline object new_of(object kind, tuple arguments):
    return (<PyTypeObject*> kind).tp_new(<type> kind, <PyObject*> arguments, NULL)


cdef Completion _new(object kind)
cdef object _fill(Completion entry, CompletionReader reader)
