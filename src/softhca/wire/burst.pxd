cimport cython

from softhca.wire.route cimport Route


cdef class SegmentBuffer:
    cdef readonly bytearray buffer
    cdef public unsigned char[::1] data
    cdef readonly unsigned long long address
    cdef readonly unsigned int capacity
    cdef public unsigned int length
    cdef public unsigned int stride


@cython.final
cdef class Burst(SegmentBuffer):
    cdef public unsigned int packets
    cdef public Route route
    cdef public bint counted
    cdef public bint closed
    cdef public bint has_icrc

    cpdef bint reliable(self)
    cpdef void reset(self) noexcept


@cython.final
cdef class Arrival(SegmentBuffer):
    cdef public int framing
    cdef public bytes source
    cdef public unsigned int source_port
    cdef public bytes destination
    cdef public unsigned int traffic_class
    cdef public bint has_icrc
    cdef public bint frames
    cdef public unsigned long long payload_address
    cdef public int grh
    cdef public unsigned int slid
    cdef public unsigned int sl
    cdef public unsigned int path_bits
