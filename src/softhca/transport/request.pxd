cimport cython

from softhca.machine.primitives cimport copy
from softhca.memory.regions cimport RegionTable
from softhca.queues.ring cimport RingConsumer
from softhca.queues.wqe cimport SendWork
from softhca.transport.scatter cimport BufferList


@cython.final
cdef class Request(BufferList):
    cdef public SendWork work
    cdef public int kind
    cdef public unsigned int first_psn
    cdef public unsigned int packets
    cdef public unsigned int received
    cdef public unsigned int ssn
    cdef public bint limited
    cdef public bint separate
    cdef public unsigned int slice_packets
    cdef public unsigned long long length_bytes
    cdef public int status

    cpdef object prepare(self, RegionTable regions, unsigned int pd, unsigned int operations)
    cpdef object segment(self, unsigned int pmtu_bytes, unsigned int first_psn)
    cdef bint flushes(self) noexcept
    cdef bint takes_word(self) noexcept
    cpdef int payload(self, unsigned long long offset, unsigned long long n, unsigned long long address) except? -1
