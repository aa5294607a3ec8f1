cimport cython

from softhca.machine.primitives cimport address_of, copy, crc32, fill
from softhca.wire.vcrc cimport compute


cdef unsigned int _be16(unsigned char[::1] data, Py_ssize_t o) noexcept
cdef unsigned long long _be64(unsigned char[::1] data, Py_ssize_t o) noexcept


@cython.final
cdef class LinkView:
    cdef bytearray _scratch
    cdef unsigned char[::1] _scratch_data
    cdef unsigned long long _scratch_address
    cdef Py_ssize_t _start
    cdef bytes _source
    cdef bytes _destination
    cdef unsigned long long _source_high
    cdef unsigned long long _source_low
    cdef unsigned long long _destination_high
    cdef unsigned long long _destination_low
    cdef readonly unsigned int vl
    cdef readonly unsigned int sl
    cdef readonly unsigned int dlid
    cdef readonly unsigned int slid
    cdef readonly unsigned int packet_bytes
    cdef readonly unsigned int dest_qp
    cdef readonly Py_ssize_t grh
    cdef readonly Py_ssize_t transport
    cdef readonly Py_ssize_t transport_bytes
    cdef readonly bytes source
    cdef readonly bytes destination

    cpdef int decode(self, unsigned char[::1] data, Py_ssize_t offset, Py_ssize_t length) except -1
    cpdef int check_global(self, unsigned char[::1] data) except -1
    cdef object _gids(self, unsigned char[::1] data, Py_ssize_t o)
    cpdef int check_icrc(self, unsigned char[::1] data, unsigned long long address) except -1
