cimport cython

cimport softhca_layout as abi

from softhca.machine.primitives cimport address_of, atomic_add64, atomic_cas64, load64
from softhca.queues.cqe cimport CompletionEntry
from softhca.queues.ring cimport RingConsumer, RingLayout, RingProducer

cdef class CompletionQueue:
    cdef readonly unsigned int number
    cdef public object notify_hook
    cdef readonly RingProducer producer
    cdef CompletionEntry entry
    cdef readonly bint overflowed
    cdef public object watcher
    cdef readonly unsigned long long posted
    cpdef bint post(self, unsigned long long wr_id, unsigned int status, unsigned int opcode, unsigned int wc_flags,
                    unsigned int qp_num, unsigned int byte_len, unsigned int imm_or_key, unsigned int src_qp,
                    unsigned int vendor_err, unsigned int pkey_index, unsigned int sl, unsigned int slid,
                    unsigned int path_bits, unsigned long long now, bint solicited=*) except -1
    cpdef object fire(self, unsigned long long arm)

@cython.final
cdef class CompletionReader:
    cdef public unsigned long long[::1] words
    cdef unsigned long long _address
    cdef unsigned long long _control
    cdef readonly RingConsumer consumer
    cpdef bint take(self) except -1
    cpdef object release(self, unsigned long long count)
    cpdef list poll(self, Py_ssize_t limit)
    cpdef object arm(self, bint solicited=*)
    cpdef long long pending(self)
