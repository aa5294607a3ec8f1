cimport cython

from softhca.adapter.admission cimport admitted, expects, from_peer, receives
from softhca.adapter.keyed cimport KeyedConnections
from softhca.adapter.port cimport Port, pkeys_match
from softhca.transport.connection cimport Connection
from softhca.transport.context cimport QueuePair
from softhca.transport.environment cimport Environment
from softhca.transport.flow cimport Flow
from softhca.wire.burst cimport Arrival
from softhca.wire.link_view cimport LinkView
from softhca.wire.packet_view cimport PacketView
from softhca.wire.raw cimport RawView


@cython.final
cdef class ReceivePath:
    cdef readonly Environment environment
    cdef dict queue_pairs
    cdef KeyedConnections keyed
    cdef object groups
    cdef object raw_services
    cdef bint strict_source_port
    cdef Port _at
    cdef QueuePair _last
    cdef bint _marked
    cdef bytes _keys
    cdef PacketView _view
    cdef LinkView _link
    cdef RawView _raw

    cdef object receive(self, Port port, Arrival arrival, unsigned long long now)
    cdef int _packet(self, Arrival arrival, unsigned int offset, unsigned int n, bint local,
                     unsigned long long now) except -1
    cdef int _notified(self, Connection queue_pair, unsigned int n, unsigned long long now) except -1
    cdef Connection _at_port(self, unsigned int number)
    cdef Connection _named(self, PacketView view)
    cdef int _refused(self, Connection queue_pair, Arrival arrival, unsigned int offset, unsigned int n,
                      bint local) except -1
    cdef int _begin(self, Connection queue_pair, Arrival arrival, unsigned long long now) except -1
    cdef int _manage_roce(self, Arrival arrival, unsigned int offset, unsigned int n,
                          unsigned long long now) except -1
    cdef int _manage(self, Arrival arrival, unsigned long long now) except -1
    cdef int _native_packet(self, Arrival arrival, unsigned int offset, unsigned int n,
                            unsigned long long now) except -1
    cdef int _raw_packet(self, Arrival arrival, unsigned int offset, unsigned long long now) except -1
    cdef int _dispatch(self, Arrival arrival, unsigned long long now) except -1
    cdef int _multicast(self, Arrival arrival, unsigned long long now) except -1
    cdef object _dropped(self, int reason, Arrival arrival, unsigned int offset, unsigned int n)
