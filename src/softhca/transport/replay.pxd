cimport cython

from softhca.memory.regions cimport Region
from softhca.memory.windows cimport TrackedRegion
from softhca.wire.psn cimport distance


cdef class Resource:
    cdef public bint atomic
    cdef public bint pending
    cdef public bint answered
    cdef public bint resumed
    cdef public unsigned int first_psn
    cdef public unsigned int packets
    cdef public unsigned int next_index
    cdef public unsigned int end_index
    cdef public unsigned int begin_index
    cdef public unsigned long long end_bytes
    cdef public unsigned int msn
    cdef public unsigned int rkey
    cdef public unsigned long long va
    cdef public unsigned long long length_bytes
    cdef public unsigned long long result
    cdef public Region region
    cdef public unsigned int generation
    cdef public unsigned int pd

    cpdef object release(self)
    cpdef object answer(self, unsigned int begin, unsigned int end, unsigned long long end_bytes)


@cython.final
cdef class ReplayRing:
    cdef list resources
    cdef public unsigned int capacity
    cdef public unsigned int count
    cdef unsigned int newest
    cdef public unsigned int pending
    cdef public Resource current

    @cython.locals(oldest=Resource)
    cpdef bint has_place(self)
    @cython.locals(place=cython.uint, resource=Resource)
    cpdef Resource add(self, unsigned int psn, unsigned int packets)
    @cython.locals(i=cython.uint, gap=cython.int, resource=Resource)
    cpdef Resource find(self, unsigned int psn)
    cpdef object ask(self, Resource resource, unsigned int begin, unsigned int end, unsigned long long end_bytes)
    @cython.locals(i=cython.uint, resource=Resource)
    cpdef Resource next(self)
    cpdef object done(self, Resource resource)
    cpdef object clear(self)
