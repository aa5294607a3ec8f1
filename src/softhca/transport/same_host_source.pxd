cimport cython

from softhca.transport.request cimport Request
from softhca.transport.executor cimport Executor
from softhca.transport.sending cimport SendQueue


@cython.final
cdef class SameHostSource(SendQueue):
    cdef Request pending

    cdef Request next_here(self, Executor executor, Request request, bint drawn, unsigned long long now)
