cimport cython


cdef unsigned int be16(unsigned char[::1] data, Py_ssize_t o) noexcept
cdef unsigned int be24(unsigned char[::1] data, Py_ssize_t o) noexcept
cdef unsigned int be32(unsigned char[::1] data, Py_ssize_t o) noexcept
cdef unsigned long long be64(unsigned char[::1] data, Py_ssize_t o) noexcept


@cython.final
cdef class PacketView:
    cdef unsigned int[::1] _table
    cdef public unsigned int opcode
    cdef public unsigned int service
    cdef public unsigned int operation
    cdef public unsigned int position
    cdef public bint solicited
    cdef public bint migreq
    cdef public unsigned int pad
    cdef public unsigned int pkey
    cdef public bint fecn
    cdef public bint becn
    cdef public unsigned int dest_qp
    cdef public bint ack_request
    cdef public unsigned int reserved7
    cdef public unsigned int psn
    cdef public unsigned int payload
    cdef public unsigned int payload_bytes
    cdef public bint has_rdeth
    cdef public bint has_deth
    cdef public bint has_xrceth
    cdef public bint has_reth
    cdef public bint has_atomiceth
    cdef public bint has_aeth
    cdef public bint has_atomicacketh
    cdef public bint has_immdt
    cdef public bint has_ieth
    cdef public bint has_feth
    cdef public unsigned int ee_context
    cdef public unsigned int qkey
    cdef public unsigned int source_qp
    cdef public unsigned int xrc_srq
    cdef public unsigned int selectivity
    cdef public unsigned int placement
    cdef public unsigned long long reth_va
    cdef public unsigned int reth_rkey
    cdef public unsigned int reth_length
    cdef public unsigned long long atomic_va
    cdef public unsigned int atomic_rkey
    cdef public unsigned long long swap_add
    cdef public unsigned long long compare
    cdef public unsigned int syndrome
    cdef public unsigned int msn
    cdef public unsigned long long atomic_original
    cdef public unsigned int immediate
    cdef public unsigned int invalidate_key

    cdef void _forget(self) noexcept
    cpdef int decode(self, unsigned char[::1] data, Py_ssize_t offset, Py_ssize_t length) noexcept
    cdef void _extensions(self, unsigned char[::1] data, Py_ssize_t o, unsigned int row) noexcept
