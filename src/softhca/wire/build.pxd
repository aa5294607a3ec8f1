cdef Py_ssize_t put16(unsigned char[::1] data, Py_ssize_t o, unsigned int value) noexcept
cdef Py_ssize_t put24(unsigned char[::1] data, Py_ssize_t o, unsigned int value) noexcept
cdef Py_ssize_t put32(unsigned char[::1] data, Py_ssize_t o, unsigned int value) noexcept
cdef Py_ssize_t put64(unsigned char[::1] data, Py_ssize_t o, unsigned long long value) noexcept

cpdef Py_ssize_t put_bth(unsigned char[::1] data, Py_ssize_t o, unsigned int opcode, bint solicited, unsigned int pad,
                         unsigned int pkey, unsigned int dest_qp, bint ack_request, unsigned int psn,
                         unsigned int congestion=*, unsigned int reserved7=*, bint migreq=*) noexcept
cpdef Py_ssize_t put_reth(unsigned char[::1] data, Py_ssize_t o, unsigned long long va, unsigned int rkey,
                          unsigned int length) noexcept
cpdef Py_ssize_t put_atomiceth(unsigned char[::1] data, Py_ssize_t o, unsigned long long va, unsigned int rkey,
                               unsigned long long swap_add, unsigned long long compare) noexcept
cpdef Py_ssize_t put_aeth(unsigned char[::1] data, Py_ssize_t o, unsigned int syndrome, unsigned int msn) noexcept
cpdef Py_ssize_t put_atomicacketh(unsigned char[::1] data, Py_ssize_t o, unsigned long long original) noexcept
cpdef Py_ssize_t put_immdt(unsigned char[::1] data, Py_ssize_t o, unsigned int immediate) noexcept
cpdef Py_ssize_t put_ieth(unsigned char[::1] data, Py_ssize_t o, unsigned int rkey) noexcept
cpdef Py_ssize_t put_deth(unsigned char[::1] data, Py_ssize_t o, unsigned int qkey, unsigned int source_qp) noexcept
cpdef Py_ssize_t put_rdeth(unsigned char[::1] data, Py_ssize_t o, unsigned int ee_context) noexcept
cpdef Py_ssize_t put_xrceth(unsigned char[::1] data, Py_ssize_t o, unsigned int xrc_srq) noexcept
cpdef Py_ssize_t put_feth(unsigned char[::1] data, Py_ssize_t o, unsigned int selectivity, unsigned int placement) noexcept
cpdef Py_ssize_t put_pad(unsigned char[::1] data, Py_ssize_t o, unsigned int pad) noexcept
cpdef Py_ssize_t put_icrc(unsigned char[::1] data, Py_ssize_t o, unsigned int icrc) noexcept
cpdef Py_ssize_t put_vcrc(unsigned char[::1] data, Py_ssize_t o, unsigned int vcrc) noexcept
cpdef int header_bytes(unsigned int opcode) except -1
