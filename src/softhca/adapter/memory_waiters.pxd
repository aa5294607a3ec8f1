cimport cython


@cython.final
cdef class MemoryWaiters:
    cdef public object waiting
    cdef public unsigned long long next_ns

    cpdef object put(self, object flow, unsigned long long now)
    cpdef object remove(self, object flow)
    cpdef list due(self, unsigned long long now)
    cpdef list all(self)
    cdef object _first(self)
