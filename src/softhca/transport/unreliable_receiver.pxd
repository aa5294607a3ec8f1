from softhca.memory.regions cimport Region
from softhca.transport.execution cimport MessageReceiver
from softhca.wire.burst cimport Arrival
from softhca.wire.packet_view cimport PacketView


cdef class UnreliableReceiver(MessageReceiver):
    cdef public unsigned int epsn
    cdef public bint told
    cdef unsigned int rkey

    cdef object missed(self)
    cdef object expect(self, unsigned int psn)
    cdef object drop(self, str reason, unsigned int psn, bint whole)
    cdef str refusal(self, PacketView view)
    cdef bint permitted(self, unsigned int n)
    cdef object carry_out(self, PacketView view, Arrival arrival)
    cdef int put(self, PacketView view, Arrival arrival)
