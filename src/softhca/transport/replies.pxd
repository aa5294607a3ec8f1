from softhca.transport.connection cimport Connection
from softhca.transport.flow cimport Flow
from softhca.transport.receiving cimport MessageSink
from softhca.transport.replay cimport ReplayRing, Resource
from softhca.transport.segmentation cimport PacketWriter
from softhca.transport.window cimport DestinationWindow
from softhca.wire.build cimport put_aeth, put_pad
from softhca.wire.burst cimport Burst
from softhca.wire.psn cimport distance


cdef class ResponseGenerator:
    cdef Connection connection
    cdef Flow flow
    cdef MessageSink sink
    cdef unsigned long long now
    cdef public PacketWriter writer
    cdef public ReplayRing ring
    cdef public unsigned int msn
    cdef public bint ack_pending
    cdef public bint asked_again
    cdef public unsigned int ack_psn
    cdef public unsigned int nak_pending
    cdef public unsigned int nak_psn
    cdef public bint dying
    cdef public bint held
    cdef public bint paced
    cdef unsigned long long departure_ns
    cdef bint departs
    cdef unsigned int held_psn

    cdef object clear(self)
    cdef bint has_work(self) noexcept
    cdef bint may_delay_ack(self) noexcept
    cdef object expire(self, unsigned long long now)
    cdef bint may_depart(self, Resource resource) except -1
    cdef int produce(self, Burst burst, unsigned long long now) except? -1
    cdef int join(self, Burst burst) except? -1
    cdef object resume(self)
    cdef int answer(self, Resource resource) except? -1
    cdef int read_packet(self, Resource resource, unsigned int index) except? -1
    cdef object acknowledge_through(self, unsigned int psn)
    cdef object acknowledge(self)
    cdef bint acknowledge_executed(self) except -1
    cdef object refuse(self, unsigned int psn, unsigned int syndrome)
    cdef object fatal(self, unsigned int psn, unsigned int code, int event)
    cdef object flush(self)
