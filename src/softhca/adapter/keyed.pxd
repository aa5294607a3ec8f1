from softhca.transport.context cimport QueuePair
from softhca.wire.packet_view cimport PacketView


cdef class KeyedQueuePairs:
    cdef dict _found

    cpdef object add(self, QueuePair queue_pair)
    cpdef object forget(self, QueuePair queue_pair)
    cpdef QueuePair named(self, PacketView view, int key, unsigned int port_number)
