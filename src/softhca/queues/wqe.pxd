from softhca.machine.primitives cimport address_of, copy, store64
from softhca.queues.ring cimport RingConsumer

cdef class Work:
    cdef readonly bytearray buffer
    cdef readonly unsigned long long address
    cdef readonly unsigned int capacity
    cdef readonly unsigned int max_sge
    cdef unsigned char[::1] data
    cdef unsigned int[::1] words
    cdef unsigned long long[::1] longs
    cdef public unsigned long long[::1] sge_va
    cdef public unsigned int[::1] sge_length
    cdef public unsigned int[::1] sge_key
    cdef public list regions
    cdef public unsigned int num_sge
    cdef public unsigned long long total_bytes
    cdef public unsigned long long wr_id
    cdef public int status
    cpdef int load(self, const unsigned char[::1] data, unsigned long long n) except -1
    cpdef long long fetch(self, RingConsumer consumer) noexcept
    cpdef int check(self, unsigned long long n) noexcept
    cpdef int take_elements(self, unsigned int first, unsigned long long n) noexcept

cdef class SendWork(Work):
    cdef readonly unsigned int max_inline_bytes
    cdef readonly unsigned int inline_offset
    cdef public unsigned int opcode, flags, imm_or_key, rkey, inline_bytes, ah, remote_qpn, remote_qkey
    cdef public unsigned long long remote_va, compare_add, swap
    cpdef int decode(self, unsigned long long n) noexcept

cdef class ReceiveWork(Work):
    cdef public unsigned long long received_bytes

cpdef long long encode_send(object out, unsigned int opcode, unsigned int flags, unsigned int imm,
                            unsigned long long wr_id, unsigned long long remote_va, unsigned int rkey,
                            unsigned long long compare, unsigned long long swap, unsigned int ah, unsigned int qpn,
                            unsigned int qkey, object sges, bytes inline=*) except? -1
cpdef long long put_send(unsigned long long address, unsigned long long capacity, unsigned int opcode,
                         unsigned int flags, unsigned int imm, unsigned long long wr_id,
                         unsigned long long remote_va, unsigned int rkey, unsigned long long compare,
                         unsigned long long swap, unsigned int ah, unsigned int qpn, unsigned int qkey, object sges,
                         bytes inline) except? -1
cpdef long long encode_receive(object out, unsigned long long wr_id, object sges) except? -1
cpdef long long put_receive(unsigned long long address, unsigned long long capacity, unsigned long long wr_id,
                            object sges) except? -1
cdef int _put_elements(unsigned long long address, object sges) except -1
cdef unsigned long long _whole(unsigned long long value) noexcept
cdef unsigned long long _pair(unsigned int low, unsigned int high) noexcept
