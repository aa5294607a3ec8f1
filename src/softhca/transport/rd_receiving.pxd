cimport cython

from softhca.queues.ring cimport RingConsumer
from softhca.transport.context cimport QueuePair
from softhca.transport.ee_context cimport EndToEndContext
from softhca.transport.engines cimport ReceiveEngine
from softhca.transport.receiving cimport MessageSink, ReceiveQueue
from softhca.transport.replay cimport Resource
from softhca.transport.replies cimport ResponseGenerator
from softhca.transport.responder cimport Responder
from softhca.wire.burst cimport Arrival, Burst
from softhca.wire.packet_view cimport PacketView
from softhca.wire.psn cimport distance


@cython.final
cdef class RdReceiver(ReceiveEngine):
    cdef readonly QueuePair qp
    cdef readonly ReceiveQueue queue
    cdef readonly set sinks
    cdef readonly unsigned int incarnation
    cdef readonly unsigned int epsn
    cdef unsigned long long now

    cdef object release(self, bint flushed)


@cython.final
cdef class EeSink(MessageSink):
    cdef readonly EndToEndContext ee
    cdef public QueuePair qp
    cdef readonly dict queues

    cdef object forget_idle(self)
    cpdef object forget(self, QueuePair qp, bint flushed)


@cython.final
cdef class EeReplies(ResponseGenerator):
    cdef readonly EndToEndContext ee
    cdef public unsigned int peer_qp
    cdef public unsigned int refused

    cdef object aim(self)


@cython.final
cdef class EeResponder(Responder):
    cdef readonly EndToEndContext ee
    cdef readonly EeSink messages
    cdef readonly EeReplies answers
    cdef readonly QueuePair qp
    cdef readonly QueuePair begun
    cdef unsigned int source_qp
    cdef unsigned int incarnation
    cdef bint resynced
    cdef unsigned int floor

    cdef bint was_passed_over(self, unsigned int psn) noexcept
    cdef object resync(self, PacketView view, int gap)
    cdef object abort_message(self)
    cdef bint continues(self, PacketView view) except -1
    cdef bint enter(self, PacketView view) except -1


cdef RdReceiver receiver_of(QueuePair qp)
