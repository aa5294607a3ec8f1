cimport cython


@cython.final
cdef class FlowControl:
    cdef readonly int vl
    cdef readonly int sent
    cdef readonly int limit
    cdef readonly long long epoch


@cython.final
cdef class Held:
    cdef public object port
    cdef public int vl
    cdef public int blocks
    cdef public int copies


@cython.final
cdef class Packet:
    cdef public int slid
    cdef public int dlid
    cdef public int length_bytes
    cdef public int sl
    cdef public int vl
    cdef public int pkey
    cdef public object message
    cdef public bint begins
    cdef public bint ends
    cdef public bint becn
    cdef public bint fecn
    cdef public object content
    cdef public long long born_ps
    cdef public long long ready_ps
    cdef public long long tail_ps
    cdef public long long epoch
    cdef public int hops
    cdef public Held held

    cpdef Packet copy(self)


@cython.final
cdef class PacketLine:
    cdef list _packets
    cdef Py_ssize_t _gone

    cpdef object append(self, Packet packet)
    cpdef Packet first(self)
    cpdef Packet take(self)
    cpdef list take_all(self)


cpdef int blocks_of(int length_bytes) noexcept
