cimport cython

cimport softhca_layout as abi

from softhca.machine.primitives cimport address_of, copy, length_of, store64
from softhca.queues.ring cimport RingConsumer

cdef class Work:
    cdef readonly bytearray buffer
    cdef readonly unsigned long long address
    cdef unsigned long long* longs
    cdef readonly unsigned int capacity
    cdef readonly unsigned int max_sge
    cdef readonly unsigned int first
    cdef readonly unsigned int notes
    cdef public unsigned int num_sge
    cdef public int status
    cdef public unsigned long long total_bytes
    cdef public unsigned long long wr_id
    cpdef int load(self, object data, unsigned long long n) except -1
    cpdef long long fetch(self, RingConsumer consumer) noexcept
    cpdef int check(self, unsigned long long n) noexcept
    cdef int take_elements(self, unsigned long long n) noexcept

@cython.final
cdef class SendWork(Work):
    cdef public unsigned int opcode, flags, imm_or_key, rkey
    cdef public unsigned long long remote_va
    cdef public unsigned int inline_bytes
    cdef readonly unsigned int max_inline_bytes
    cdef readonly unsigned int inline_offset
    cdef public unsigned int ah, remote_qpn, remote_qkey
    cdef public unsigned long long compare_add, swap
    cdef int decode(self, unsigned long long n) noexcept

@cython.final
cdef class ReceiveWork(Work):
    pass

cpdef long long encode_send(object out, unsigned int opcode, unsigned int flags, unsigned int imm,
                            unsigned long long wr_id, unsigned long long remote_va, unsigned int rkey,
                            unsigned long long compare, unsigned long long swap, unsigned int ah, unsigned int qpn,
                            unsigned int qkey, object sges, bytes inline=*) except? -1
cpdef long long put_send(unsigned long long address, unsigned long long capacity, unsigned int opcode,
                         unsigned int flags, unsigned int imm, unsigned long long wr_id,
                         unsigned long long remote_va, unsigned int rkey, unsigned long long compare,
                         unsigned long long swap, unsigned int ah, unsigned int qpn, unsigned int qkey, object sges,
                         bytes inline) except? -1
cpdef long long put_run(unsigned long long address, unsigned long long capacity, unsigned int opcode,
                        unsigned int flags, unsigned int imm, unsigned long long wr_id,
                        unsigned long long remote_va, unsigned int rkey, unsigned long long source,
                        unsigned long long length, unsigned int lkey, bint inline) except? -1
cpdef long long encode_receive(object out, unsigned long long wr_id, object sges) except? -1
cpdef long long put_receive(unsigned long long address, unsigned long long capacity, unsigned long long wr_id,
                            object sges) except? -1
cdef int _put_head(unsigned long long address, unsigned int opcode, unsigned int flags, unsigned long long elements,
                   unsigned int imm, unsigned long long wr_id, unsigned long long remote_va, unsigned int rkey,
                   unsigned long long payload, unsigned long long compare, unsigned long long swap,
                   unsigned int ah, unsigned int qpn, unsigned int qkey) except -1
cdef int _put_elements(unsigned long long address, object sges) except -1
cdef int _put_element(unsigned long long address, unsigned long long va, unsigned int length,
                      unsigned int key) except -1
cdef unsigned long long _whole(unsigned long long value) noexcept
cdef unsigned long long _at(unsigned int value, unsigned int shift) noexcept
