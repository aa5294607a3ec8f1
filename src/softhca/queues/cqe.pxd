cimport cython

cimport softhca_layout as abi

from softhca.machine.primitives cimport address_of

@cython.final
cdef class CompletionEntry:
    cdef unsigned long long[::1] words
    cdef readonly unsigned long long address
    cpdef void fill(self, unsigned long long wr_id, unsigned int status, unsigned int opcode, unsigned int wc_flags,
                    unsigned int qp_num, unsigned int byte_len, unsigned int imm_or_key, unsigned int src_qp,
                    unsigned int vendor_err, unsigned int pkey_index, unsigned int sl, unsigned int slid,
                    unsigned int path_bits, unsigned long long now) noexcept
