from softhca.transport.request cimport Request
from softhca.transport.same_host cimport SameHostExecutor
from softhca.transport.sending cimport SendQueue


cdef class SameHostSource(SendQueue):
    cdef Request pending

    cdef Request next_here(self, SameHostExecutor executor, Request request, bint drawn, unsigned long long now)
