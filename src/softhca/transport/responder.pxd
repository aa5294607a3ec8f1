from softhca.memory.regions cimport Region, RegionTable
from softhca.transport.connection cimport Connection
from softhca.transport.engines cimport ReceiveEngine
from softhca.transport.execution cimport MessageExecutor
from softhca.transport.flow cimport Flow
from softhca.transport.receiving cimport MessageSink
from softhca.transport.replay cimport Resource
from softhca.transport.replies cimport ResponseGenerator
from softhca.transport.window cimport DestinationWindow
from softhca.wire.burst cimport Arrival
from softhca.wire.packet_view cimport PacketView
from softhca.wire.psn cimport distance


cdef class Responder(ReceiveEngine):
    cdef Connection connection
    cdef Flow flow
    cdef readonly MessageSink sink
    cdef readonly MessageExecutor execution
    cdef readonly ResponseGenerator replies
    cdef unsigned long long now
    cdef public unsigned int epsn
    cdef unsigned int gap_psn
    cdef bint nak_sent

    cdef object gap(self, unsigned int psn)
    cdef object expected(self, PacketView view, Arrival arrival)
    cdef object message(self, PacketView view, Arrival arrival)
    cdef object not_ready(self, unsigned int psn)
    cdef object held_request(self, unsigned int psn)
    cdef object message_failed(self, PacketView view, int outcome)
    cdef object read_request(self, PacketView view)
    cdef object atomic_request(self, PacketView view)
    cdef object atomic_write(self, PacketView view, Arrival arrival)
    cdef object flush_request(self, PacketView view)
    cdef object answered_empty(self, PacketView view)
    cdef object empty_again(self, PacketView view)
    cdef object answered_later(self, Resource resource, unsigned int packets)
    cdef object refuse(self, unsigned int code)
    cdef object advance(self, unsigned int packets)
    cdef object duplicate(self, PacketView view)
    cdef object read_again(self, PacketView view)
    cdef object atomic_again(self, PacketView view)
    cdef bint same_range(self, Resource resource, PacketView view, unsigned int index) noexcept
