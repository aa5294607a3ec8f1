cimport cython

from softhca.runtime.loop cimport EngineLoop, monotonic_ns
from softhca.driver.poll_back_off cimport PollBackOff
from softhca.machine.processor cimport Readable


@cython.final
cdef class ServedTurns:
    cdef public EngineLoop loop
    cdef public PollBackOff back_off
    cdef Readable ended
    cdef object dismiss_ended
    cdef object notify
    cdef public unsigned int most
    cdef unsigned int left
    cdef object clock
    cdef public object yield_processor

    cpdef bint turn(self, unsigned long long now) except -1
    cpdef bint run(self) except -1
    cpdef bint may_sleep(self, unsigned long long now) except -1
    cdef unsigned long long now(self) except? 0
