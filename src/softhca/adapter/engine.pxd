from softhca.adapter.memory_waiters cimport MemoryWaiters
from softhca.adapter.frame_path cimport FramePath
from softhca.adapter.hosts cimport Host
from softhca.adapter.keyed cimport KeyedConnections
from softhca.adapter.port cimport Port
from softhca.adapter.receive_path cimport ReceivePath
from softhca.adapter.scheduler cimport Scheduler
from softhca.adapter.timers cimport Timers
from softhca.machine.primitives cimport copy
from softhca.transport.connection cimport Connection
from softhca.transport.context cimport QueuePair
from softhca.transport.environment cimport AddressHandle, Environment
from softhca.transport.flow cimport Flow
from softhca.wire.burst cimport Arrival, Burst
from softhca.wire.route cimport Route


cdef class Adapter(Environment):
    cdef public object config
    cdef public dict device_attributes
    cdef public object notify
    cdef readonly tuple ports
    cdef readonly Port port
    cdef public object groups
    cdef public object raw_services
    cdef public object xrc_domains
    cdef public object resources
    cdef public Timers timers
    cdef public MemoryWaiters memory_waiters
    cdef public KeyedConnections keyed
    cdef public dict handles
    cdef public dict hosts
    cdef public unsigned long long now
    cdef tuple _kicked
    cdef public int commanded
    cdef int _next_host
    cdef ReceivePath _receive_path
    cdef FramePath _frame_path
    cdef Arrival _loop

    cpdef Port port_of(self, long long number, str name=*)
    cpdef int attach_host(self, object side) except -1
    cpdef object _on_notify(self)
    cpdef object detach_host(self, int number)
    cpdef object set_data_access(self, bint allowed)
    cpdef object memory_available(self)
    cpdef bint kick(self, unsigned long long now) except -1
    cpdef bint ring(self, unsigned long long now) except -1
    cpdef bint command(self, unsigned long long now) except -1
    cpdef object receive(self, int port_number, Arrival arrival, unsigned long long now)
    cpdef object expire(self, unsigned long long now)
    cpdef bint transmit(self, int port_number, Burst burst, unsigned long long now) except -1
    cdef int _share(self, Scheduler scheduler, Flow first, Burst burst, unsigned long long now) except -1
    cdef object _loop_back(self, Port port, Burst burst, unsigned long long now)
    cpdef Flow flow_delaying_ack(self)
    cpdef list take_notifications(self)
    cpdef unsigned long long next_deadline(self, int port_number=*)
    cpdef dict port_counters(self, int number=*)
