from softhca.adapter.port cimport pkeys_match, same_port
from softhca.transport.connection cimport Connection
from softhca.transport.flow cimport Flow
from softhca.wire.burst cimport Arrival
from softhca.wire.link_view cimport LinkView
from softhca.wire.packet_view cimport PacketView
from softhca.wire.route cimport Route


cpdef bint receives(Connection queue_pair) noexcept
cpdef bint expects(Connection queue_pair, int port_number) except -1
cpdef bint from_peer(Connection queue_pair, Arrival arrival, LinkView link, int port_number) except -1
cdef bint _along(Connection queue_pair, Route route, Arrival arrival, LinkView link) except -1
cpdef int admitted(Connection queue_pair, Arrival arrival, PacketView view, LinkView link, int port_number) except -1
