from softhca.machine.primitives cimport copy


cdef class Staging:
    cdef object _region
    cdef public unsigned long long _address, length, head, tail
    cdef public unsigned int lkey

    cpdef unsigned long long room(self, unsigned long long wanted) noexcept
    cpdef unsigned long long free(self) noexcept
    cpdef object skip(self, unsigned long long length)
    cpdef unsigned long long put(self, unsigned long long source, unsigned long long length) except? 0
