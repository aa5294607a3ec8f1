from softhca.queues.ring cimport RingConsumer


cdef class DeviceCalls:
    cdef public unsigned long long begun
    cdef RingConsumer _events
    cdef object _dispatch

    cpdef object begin(self)
    cpdef object take_events(self)
