from softhca.machine.primitives cimport address_of, copy, crc32


cdef class Route:
    cdef readonly int framing
    cdef readonly bytes source
    cdef readonly bytes destination
    cdef readonly unsigned int source_port
    cdef readonly unsigned int destination_port
    cdef public unsigned int traffic_class
    cdef public unsigned int flow_label
    cdef public unsigned int hop_limit
    cdef public unsigned int identification
    cdef public bint counted
    cdef public object link
    cdef public unsigned int link_epoch
    cdef public bint needs_icrc
    cdef readonly unsigned int slid
    cdef readonly unsigned int dlid
    cdef readonly unsigned int sl
    cdef readonly bint has_grh
    cdef public unsigned int vl
    cdef readonly unsigned int scope
    cdef readonly unsigned int port_number
    cdef readonly bytes socket_address
    cdef readonly bytes peer
    cdef readonly unsigned int prefix_bytes
    cdef readonly unsigned int suffix_bytes
    cdef unsigned long long _scratch_address
    cdef bytearray _front
    cdef unsigned char[::1] _front_data
    cdef unsigned long long _front_address
    cdef bytearray _pseudo
    cdef bytearray _scratch
    cdef unsigned char[::1] _data
    cdef unsigned char[::1] _scratch_data
    cdef unsigned long long _address
    cdef unsigned int _pseudo_bytes
    cdef int _seed_bytes
    cdef unsigned int _seed_identification
    cdef unsigned int _seed
    cdef int _former_bytes
    cdef unsigned int _former_identification
    cdef unsigned int _former

    cpdef bytes headers(self, int transport_bytes, unsigned int vl=*)
    cpdef void put_front(self, unsigned long long address, unsigned int transport_bytes) noexcept
    cpdef unsigned int seed(self, int transport_bytes) noexcept
    cdef void _put16(self, Py_ssize_t offset, unsigned int value) noexcept
    cdef unsigned long long masked_bth(self, unsigned long long bth_address) noexcept
    cdef unsigned int word(self, unsigned long long address) noexcept
