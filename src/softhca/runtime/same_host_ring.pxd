cimport cython

from softhca.links.link cimport Link
from softhca.machine.primitives cimport atomic_cas64, copy, load64, store64
from softhca.queues.ring cimport RingConsumer, RingProducer
from softhca.wire.burst cimport Arrival, Burst
from softhca.wire.route cimport Route


@cython.final
cdef class PacketSender(Link):
    cdef unsigned long long asleep
    cdef unsigned long long closed
    cdef object wake
    cdef readonly RingProducer producer
    cdef object _words
    cdef unsigned long long[::1] words
    cdef unsigned long long words_address
    cdef public bint stalled
    cdef public unsigned long long bursts



cdef class PacketReceiver(Link):
    cdef unsigned long long asleep
    cdef unsigned long long wake_request
    cdef unsigned long long closed
    cdef public bytes source
    cdef public bytes destination
    cdef readonly RingConsumer consumer
    cdef object _words
    cdef unsigned long long[::1] words
    cdef unsigned long long words_address
    cdef bint described
    cdef bint held
    cdef public bint broken
    cdef public bint fresh
    cdef public unsigned long long bursts

    cpdef bint receive(self, Arrival arrival) except? -1
    cdef void fetch(self, Arrival arrival) noexcept
    cpdef void done(self) noexcept
    cpdef bint waiting(self) noexcept
    cpdef dict counters(self)
    cdef bint give_up(self) noexcept
    cpdef bint take_wake_request(self) noexcept
    cpdef bint arm_wakeup(self)
    cpdef object disarm_wakeup(self)
