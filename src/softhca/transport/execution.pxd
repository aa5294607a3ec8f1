from softhca.memory.regions cimport Region
from softhca.memory.windows cimport TrackedRegion
from softhca.transport.receiving cimport ReceiveQueue
from softhca.wire.burst cimport Arrival
from softhca.wire.packet_view cimport PacketView


cdef class MessageReceiver(ReceiveQueue):
    cdef public int operation
    cdef public unsigned long long received_bytes
    cdef public int failure
    cdef public Region region
    cdef public unsigned int generation
    cdef unsigned long long va
    cdef unsigned long long length_bytes

    cdef bint in_sequence(self, PacketView view)
    cdef bint length_ok(self, PacketView view)
    cdef int execute(self, PacketView view, Arrival arrival)
    cdef int place_send(self, PacketView view, Arrival arrival)
    cdef int place_write(self, PacketView view, Arrival arrival)
    cdef int begin_write(self, PacketView view)
    cdef bint resolve_target(self, unsigned int rkey, unsigned long long va, unsigned long long n)
    cdef object release_target(self)
    cdef int hold(self)
    cdef object ended(self, PacketView view, unsigned int opcode)
    cdef object abandon(self)
