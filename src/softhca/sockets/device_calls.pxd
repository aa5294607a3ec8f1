cimport cython

from softhca.queues.ring cimport RingConsumer


@cython.final
cdef class DeviceCalls:
    cdef public unsigned long long begun
    cdef RingConsumer _events
    cdef object _dispatch

    cpdef object begin(self)
    cpdef object take_events(self)
