cimport cython

from softhca.queues.shared_receive cimport SharedReceiveQueue
from softhca.transport.acknowledgement cimport Sender
from softhca.transport.context cimport QueuePair
from softhca.transport.engines cimport ReceiveEngine, SendEngine
from softhca.transport.receiving cimport MessageSink, ReceiveQueue
from softhca.transport.request cimport Request
from softhca.transport.responder cimport Responder
from softhca.transport.window cimport DestinationWindow
from softhca.wire.burst cimport Arrival
from softhca.wire.packet_view cimport PacketView


@cython.final
cdef class XrcDomain:
    cdef dict _queues
    cdef set _targets

    cpdef SharedReceiveQueue find(self, unsigned int number)


@cython.final
cdef class XrcSender(Sender):
    pass


@cython.final
cdef class XrcSink(MessageSink):
    cdef readonly QueuePair qp
    cdef readonly XrcDomain domain
    cdef readonly dict queues

    cdef object forget_idle(self)
    cpdef object forget(self, unsigned int number)


@cython.final
cdef class XrcResponder(Responder):
    cdef XrcDomain domain
    cdef unsigned int srq

    cdef bint enter(self, PacketView view) except -1


@cython.final
cdef class NoSender(SendEngine):
    cdef QueuePair qp
    cdef readonly unsigned int una_psn


@cython.final
cdef class NoReceiver(ReceiveEngine):
    cdef QueuePair qp
    cdef readonly unsigned int epsn
