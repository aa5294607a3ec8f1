cimport cython

from softhca.transport.connection cimport Connection
from softhca.wire.packet_view cimport PacketView


@cython.final
cdef class KeyedConnections:
    cdef dict _found

    cpdef object add(self, Connection queue_pair)
    cpdef object forget(self, Connection queue_pair)
    cpdef Connection named(self, PacketView view, int key, unsigned int port_number)
