from softhca.transport.execution cimport MessageReceiver
from softhca.transport.replay cimport ReplayRing, Resource
from softhca.transport.segmentation cimport PacketWriter
from softhca.transport.window cimport DestinationWindow
from softhca.wire.build cimport put_aeth, put_pad
from softhca.wire.burst cimport Burst
from softhca.wire.psn cimport distance


cdef class ReplyingReceiver(MessageReceiver):
    cdef public PacketWriter writer
    cdef public ReplayRing ring
    cdef public unsigned int epsn
    cdef public unsigned int msn
    cdef public bint ack_pending
    cdef public bint asked_again
    cdef public unsigned int ack_psn
    cdef public unsigned int nak_pending
    cdef public unsigned int nak_psn
    cdef public unsigned int gap_psn
    cdef public bint nak_sent
    cdef public bint dying
    cdef public bint held
    cdef public bint paced
    cdef unsigned long long departure_ns
    cdef bint departs
    cdef unsigned int held_psn

    cdef unsigned int credit_code(self)
    cdef bint may_depart(self, Resource resource)
    cdef int answer(self, Resource resource)
    cdef int read_packet(self, Resource resource, unsigned int index)
    cdef object acknowledge_through(self, unsigned int psn)
    cdef object acknowledge(self)
    cdef bint acknowledge_executed(self)
    cdef object fatal(self, unsigned int code, int event)
