from softhca.machine.primitives cimport address_of, bytes_at, copy
from softhca.sockets.behind_pool cimport BehindPool
from softhca.sockets.memory_management cimport RecordA


cdef class Receiver:
    cdef public object pool, given_back
    cdef public RecordA own
    cdef public BehindPool behind
    cdef public unsigned long long copied_bytes, mapped_bytes, lent_bytes, _threshold
    cdef public object _release
    cdef public bint _mapping, _relieving
    cdef public dict _mapped

    cpdef object relieve(self)
    cpdef object take_bytes(self, length, bint peek)
    cpdef object take_into(self, view, bint peek)
    cpdef object _map(self, view, unsigned long long length)
    cdef object _mappable(self)
    cpdef bint reclaim(self) except -1
