from softhca.transport.request cimport Request
from softhca.transport.sending cimport SendQueue
from softhca.transport.window cimport DestinationWindow
from softhca.wire.burst cimport Burst


cdef class UnreliableQueue(SendQueue):
    cdef public unsigned int next_psn
    cdef public unsigned int index
    cdef Request request
    cdef public DestinationWindow window
    cdef public bint blocked
    cdef public bint held
    cdef public object holds
    cdef unsigned long long armed_ns

    cdef object aim(self, Burst burst, object route, DestinationWindow window)
    cdef object hold(self, Burst burst)
    cdef object rearm(self)
    cdef object release(self, unsigned long long now)
    cdef object give_back(self)
    cdef object leave(self)
    cdef object quit(self)
    cdef object forget(self)
    cdef object wait_memory(self)
    cdef object unreadable(self, int result)
    cdef bint write(self, Request request, Burst burst)
    cdef Request current(self)
    cdef object fail_head(self, int status)


cdef class UnreliableSender(UnreliableQueue):
    pass
