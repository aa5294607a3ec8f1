cimport cython

from softhca.queues.wqe cimport SendWork
from softhca.transport.acknowledgement cimport Sender
from softhca.transport.context cimport QueuePair
from softhca.transport.ee_context cimport EndToEndContext
from softhca.transport.engines cimport SendEngine
from softhca.transport.key_work cimport execute_local
from softhca.transport.request cimport Request
from softhca.transport.sending cimport RequestSource, SendQueue
from softhca.transport.window cimport DestinationWindow
from softhca.wire.burst cimport Burst
from softhca.wire.packet_view cimport PacketView
from softhca.wire.psn cimport distance


@cython.final
cdef class RdMessage:
    cdef readonly RdSender queue
    cdef readonly Request request
    cdef public EndToEndContext ee
    cdef public bint aside
    cdef public bint ended
    cdef public int status


@cython.final
cdef class RdSender(SendEngine):
    cdef readonly QueuePair qp
    cdef readonly SendQueue ring
    cdef readonly object order
    cdef readonly RdMessage current
    cdef unsigned long long now
    cdef readonly unsigned int una_psn

    cdef object ask_turn(self)
    cdef object begin_message(self, RdMessage message)
    cdef object give(self, RdMessage message)
    cpdef object set_aside(self, RdMessage message)
    cpdef object place_free(self)
    cpdef object end(self, RdMessage message, int status, unsigned long long now)
    cdef object let_go(self, RdMessage message)
    cdef object complete(self)
    cdef bint stays(self, int status) except -1
    cdef object abandon(self, RdMessage message)


@cython.final
cdef class EeSource(RequestSource):
    cdef readonly EndToEndContext ee
    cdef public RdMessage under_way
    cdef readonly object queue
    cdef public bint resync
    cdef Request resynchronisation


@cython.final
cdef class EeSender(Sender):
    cdef readonly EndToEndContext ee
    cdef readonly EeSource messages

    cpdef object waiting(self, RdMessage message)
    cdef int step_resync(self, Request request) except? -1
    cpdef object abort(self, RdMessage message)
    cdef object give_up_head(self)
    cdef unsigned long long slow_ns(self)
    cdef object report_stall(self)
