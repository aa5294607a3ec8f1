cimport cython


cdef class Handler:
    cpdef object fire(self, int what, object argument, long long now_ps)


@cython.final
cdef class EventQueue:
    cdef public long long now_ps
    cdef public long long executed
    cdef Py_ssize_t _done
    cdef list _heap
    cdef dict _planned

    cpdef object plan(self, long long time_ps, object handler, int what, object argument=*)
    cpdef object next_ps(self)
    cpdef object run(self, long long until_ps)
    cpdef bint run_all(self, long long limit) except? -1
    cdef object _happen(self)
