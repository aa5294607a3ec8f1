cimport cython

from softhca.transport.context cimport QueuePair
from softhca.transport.flow cimport Flow
from softhca.transport.engines cimport SendEngine
from softhca.transport.request cimport Request
from softhca.transport.segmentation cimport PacketWriter
from softhca.transport.sending cimport RequestSource
from softhca.transport.window cimport DestinationWindow
from softhca.wire.burst cimport Burst


cdef class UnreliableTransmitter(SendEngine):
    cdef public QueuePair qp
    cdef readonly Flow flow
    cdef readonly RequestSource source
    cdef public PacketWriter writer
    cdef public unsigned long long now
    cdef public int condition
    cdef public unsigned int next_psn
    cdef public unsigned int index
    cdef Request request
    cdef public DestinationWindow window
    cdef public object charges
    cdef unsigned long long armed_ns

    cdef object aim(self, Burst burst, object route, DestinationWindow window)
    cdef object charge(self, Burst burst)
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
    cdef object retire(self, int status)
    cdef object fail_head(self, int status)


@cython.final
cdef class UnreliableSender(UnreliableTransmitter):
    pass
