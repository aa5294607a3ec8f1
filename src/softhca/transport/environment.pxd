cimport cython

from softhca.memory.regions cimport RegionTable
from softhca.memory.windows cimport WindowTable
from softhca.transport.counters cimport TransportCounters


@cython.final
cdef class AddressHandle:
    cdef public unsigned int number
    cdef public unsigned int pd
    cdef public object route
    cdef readonly unsigned int port_number
    cdef public object window
    cdef public unsigned int service_level
    cdef public object vector


cdef class Environment:
    cdef public RegionTable regions
    cdef public WindowTable memory_windows
    cdef public TransportCounters counters
    cdef public unsigned int read_slice_bytes
    cdef public bint credits
    cdef public object uniform_bursts
    cdef public unsigned int withheld_operations
    cdef public object observer
    cdef public object same_host
    cdef public unsigned int last_doorbell
    cdef dict spare_requests
    cdef public dict queue_pairs
    cdef public dict ee_contexts
    cdef public object ee_errors

    cpdef list requests_like(self, unsigned int max_sge, unsigned int inline_bytes)
    cpdef object schedule(self, object flow)
    cpdef object arm(self, object flow, unsigned long long deadline_ns)
    cpdef object wait_for_memory(self, object flow)
    cpdef object event(self, int kind, unsigned int number)
    cpdef object wake_threads(self)
    cpdef bint port_usable(self, int number) except -1
    cpdef AddressHandle address_handle(self, unsigned int number)
    cpdef tuple frame_destinations(self, int port_number, bytes destination, bytes source)
    cpdef object window_for(self, object route)
    cpdef object control_for(self, object connection, object route)
