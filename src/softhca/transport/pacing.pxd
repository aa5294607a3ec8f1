cimport cython

from softhca.transport.congestion cimport CongestionControl


cdef class PacketPacing(CongestionControl):
    cdef readonly unsigned int rate_kbps
    cdef readonly unsigned int max_burst_bytes
    cdef readonly unsigned long long slack_ns
    cdef readonly unsigned int turn_limit_bytes
    cdef readonly unsigned long long free_ns
    cdef unsigned long long rest

    cdef object spend(self, unsigned long long length_bytes, unsigned long long now)
    cpdef bint admits(self, unsigned int frame_bytes) except -1
    cpdef object frame(self, unsigned int frame_bytes, unsigned long long now)


@cython.final
cdef class FramePacing(PacketPacing):
    cdef unsigned long long turn_bytes


@cython.final
cdef class Both(CongestionControl):
    cdef readonly CongestionControl control
    cdef readonly PacketPacing pacing
