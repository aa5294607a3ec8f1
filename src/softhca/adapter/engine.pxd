from softhca.adapter.admission cimport admitted, expects, from_peer, receives
from softhca.adapter.memory_waiters cimport MemoryWaiters
from softhca.adapter.hosts cimport Host
from softhca.adapter.keyed cimport KeyedConnections
from softhca.adapter.port cimport Port, pkeys_match
from softhca.adapter.scheduler cimport Scheduler
from softhca.adapter.timers cimport Timers
from softhca.machine.primitives cimport copy
from softhca.transport.connection cimport Connection
from softhca.transport.context cimport QueuePair
from softhca.transport.environment cimport AddressHandle, Environment
from softhca.transport.flow cimport Flow
from softhca.wire.burst cimport Arrival, Burst
from softhca.wire.link_view cimport LinkView
from softhca.wire.packet_view cimport PacketView
from softhca.wire.raw cimport RawView
from softhca.wire.route cimport Route


cdef class Adapter(Environment):
    cdef public object config
    cdef public dict device_attributes
    cdef readonly bint strict_source_port
    cdef public object notify
    cdef readonly tuple ports
    cdef readonly Port port
    cdef Port _at
    cdef public object groups
    cdef public object raw_services
    cdef public object xrc_domains
    cdef public object resources
    cdef public Timers timers
    cdef public MemoryWaiters memory_waiters
    cdef public KeyedConnections keyed
    cdef bytes _keys
    cdef public dict handles
    cdef public dict hosts
    cdef public unsigned long long now
    cdef tuple _kicked
    cdef public int commanded
    cdef int _next_host
    cdef PacketView _view
    cdef LinkView _link
    cdef RawView _raw
    cdef Arrival _loop

    cpdef Port port_of(self, int number)
    cpdef int attach_host(self, object side) except -1
    cpdef object _on_notify(self)
    cpdef object detach_host(self, int number)
    cpdef object set_data_access(self, bint allowed)
    cpdef object memory_available(self)
    cpdef bint kick(self, unsigned long long now) except -1
    cpdef bint ring(self, unsigned long long now) except -1
    cpdef bint command(self, unsigned long long now) except -1
    cpdef object receive(self, int port_number, Arrival arrival, unsigned long long now)
    cdef int _packet(self, Arrival arrival, unsigned int offset, unsigned int n, bint local,
                     unsigned long long now) except -1
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
    cpdef object expire(self, unsigned long long now)
    cpdef bint transmit(self, int port_number, Burst burst, unsigned long long now) except -1
    cdef int _share(self, Scheduler scheduler, Flow first, Burst burst, unsigned long long now) except -1
    cdef object _loop_back(self, Port port, Burst burst, unsigned long long now)
    cpdef Flow flow_delaying_ack(self)
    cpdef list take_notifications(self)
    cpdef unsigned long long next_deadline(self, int port_number=*)
    cpdef dict port_counters(self, int number=*)
