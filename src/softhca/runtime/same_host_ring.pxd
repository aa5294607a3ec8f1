from softhca.machine.primitives cimport atomic_cas64, load64, store64
from softhca.queues.ring cimport RingConsumer, RingProducer
from softhca.wire.burst cimport Arrival, Burst
from softhca.wire.route cimport Route


cdef class PacketSender:
    cdef unsigned long long asleep
    cdef unsigned long long closed
    cdef object wake
    cdef readonly RingProducer producer
    cdef object _words
    cdef unsigned long long[::1] words
    cdef unsigned long long words_address
    cdef public unsigned long long bursts

    cpdef bint send(self, Burst burst) except -1


cdef class PacketReceiver:
    cdef unsigned long long asleep
    cdef unsigned long long closed
    cdef public bytes source
    cdef public bytes destination
    cdef readonly RingConsumer consumer
    cdef object _words
    cdef unsigned long long[::1] words
    cdef unsigned long long words_address
    cdef bint described
    cdef public bint broken
    cdef public unsigned long long bursts

    cpdef bint receive(self, Arrival arrival) except -1
    cdef bint give_up(self) noexcept
    cpdef bint rest(self)
    cpdef object rise(self)
