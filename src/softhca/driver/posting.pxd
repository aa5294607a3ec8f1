from softhca.machine.primitives cimport address_of
from softhca.queues.ring cimport RingProducer
from softhca.queues.wqe cimport encode_receive, encode_send


cdef class SendPoster:
    cdef public RingProducer producer
    cdef public unsigned int max_wr
    cdef public unsigned int max_sge
    cdef public unsigned int max_inline_bytes
    cdef public str refused
    cdef bytearray _scratch
    cdef unsigned char[::1] _view
    cdef unsigned long long _address

    cpdef int post(self, unsigned int opcode, unsigned int flags, unsigned int imm, unsigned long long wr_id,
                   unsigned long long remote_va, unsigned int rkey, unsigned long long compare,
                   unsigned long long swap, unsigned int ah, unsigned int qpn, unsigned int qkey, object sges,
                   bytes inline) except -1
    cdef int _refuse(self, int code, str reason) except -1


cdef class ReceivePoster:
    cdef public RingProducer producer
    cdef public unsigned int max_wr
    cdef public unsigned int max_sge
    cdef public str refused
    cdef bytearray _scratch
    cdef unsigned char[::1] _view
    cdef unsigned long long _address

    cpdef int post(self, unsigned long long wr_id, object sges) except -1
