cimport cython

from softhca.queues.ring cimport RingConsumer, RingProducer


cdef class MessageRing:
    cdef readonly RingProducer producer
    cdef readonly RingConsumer consumer
    cdef object _scratch
    cdef unsigned long long _address, _longest_bytes
    cpdef bint _push(self, bytes message) except -1
    cpdef bytes _pull(self)
    cpdef int count(self) except -1

@cython.final
cdef class CommandRing(MessageRing):
    pass

@cython.final
cdef class ReplyRing(MessageRing):
    cpdef bint room(self) except -1

@cython.final
cdef class EventRing(MessageRing):
    cdef readonly dict pending
