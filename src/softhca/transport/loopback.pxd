cimport cython

from softhca.machine.primitives cimport address_of, store64
from softhca.memory.regions cimport Region
from softhca.transport.context cimport QueuePair
from softhca.transport.environment cimport Environment
from softhca.transport.executor cimport Executor
from softhca.transport.request cimport Request


@cython.final
cdef class LoopbackExecutor(Executor):
    cdef QueuePair _peer
    cdef bytearray _bounce
    cdef unsigned long long bounce_address

    cdef bint grants(self, unsigned int right) except -1
    cdef Region region_for(self, Request request, unsigned int right)
    cdef int move(self, Request request, unsigned long long place) except? -1
    cdef int move_through(self, Request request, Region region) except? -1
    cdef object have_buffer(self)
    cdef bint atomic(self, Request request, Region region) except -1
