cimport cython

from softhca.queues.doorbells cimport DoorbellFifo
from softhca.queues.ring cimport RingConsumer
from softhca.transport.context cimport QueuePair


@cython.final
cdef class Host:
    cdef public int number
    cdef public object address_map
    cdef public int pid
    cdef public bint foreign
    cdef public object commands
    cdef public object replies
    cdef public object events
    cdef public RingConsumer asked
    cdef public int due
    cdef public dict pending_events
    cdef public DoorbellFifo doorbells
    cdef public list queue_pairs
    cdef public object take_descriptor
    cdef public object event_channel
    cdef public object asynchronous
    cdef public bint stops_data_access
    cdef public dict arenas
    cdef public bint notified
    cdef public bint failed
    cdef list _free_slots
    cdef object _notify
    cdef object _observe

    cpdef bint ring(self, unsigned long long now) except -1
