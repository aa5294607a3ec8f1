cimport cython

cimport softhca_layout as abi
from softhca.driver.locked cimport Locked
from softhca.driver.liveness cimport Liveness
from softhca.driver.work_requests cimport ReceiveRequest, SendRequest, WorkRequest
from softhca.machine.primitives cimport address_of, bytes_at
from softhca.queues.doorbells cimport DoorbellFifo
from softhca.queues.ring cimport RingProducer
from softhca.queues.wqe cimport put_receive, put_run, put_send


cpdef unsigned int swapped(unsigned int value) except? 0
cdef bint _is_bare(SendRequest request) noexcept
cdef unsigned int _translated(unsigned int flags) noexcept
cdef unsigned long long _total(tuple sges) except? 0
cdef bytes _gathered(tuple sges)


cdef class RingPoster:
    cdef public RingProducer producer
    cdef public unsigned int max_wr
    cdef public unsigned int max_sge
    cdef public str refused
    cdef public object request
    cdef public unsigned long long written
    cdef bytearray _scratch
    cdef unsigned long long _capacity
    cdef unsigned long long _address

    cdef object _begin(self, object layout, unsigned int max_wr, unsigned int max_sge,
                       unsigned long long entry_bytes)
    cdef unsigned long long _entry(self) noexcept
    cpdef object write(self, object first)
    cdef int _post_request(self, WorkRequest request) except -1
    cdef int _refuse(self, int code, str reason) except -1


@cython.final
cdef class SendPoster(RingPoster):
    cdef public unsigned int max_inline_bytes
    cdef public bint binds

    cpdef int post(self, unsigned int opcode, unsigned int flags, unsigned int imm, unsigned long long wr_id,
                   unsigned long long remote_va, unsigned int rkey, unsigned long long compare,
                   unsigned long long swap, unsigned int ah, unsigned int qpn, unsigned int qkey, object sges,
                   bytes inline) except -1
    cpdef int post_run(self, unsigned int opcode, unsigned int flags, unsigned int imm, unsigned long long wr_id,
                       unsigned long long remote_va, unsigned int rkey, unsigned long long address,
                       unsigned long long length, unsigned int lkey) except -1
    cdef int _admit(self, unsigned int opcode, unsigned long long inline_bytes) except -1
    cdef int _push(self, unsigned long long address, long long n) except -1
    cdef int _post_send(self, SendRequest request) except -1
    cdef int _post_element(self, SendRequest request, unsigned int opcode, unsigned int flags, unsigned int imm,
                           tuple element) except -1


@cython.final
cdef class ReceivePoster(RingPoster):
    cpdef int post(self, unsigned long long wr_id, object sges) except -1


cdef class QueuePairPoster(Locked):
    cdef public int state
    cdef public Liveness _session
    cdef public object _kick
    cdef public SendPoster _send
    cdef public ReceivePoster _receive
    cdef public DoorbellFifo _doorbells
    cdef public unsigned int _doorbell

    cpdef object _open(self, Liveness session, int state)
    cpdef object _set_doorbell(self, DoorbellFifo doorbells, unsigned int doorbell, object kick)
    cpdef object post_run(self, unsigned int opcode, unsigned int flags, unsigned int imm,
                          unsigned long long wr_id, unsigned long long remote_va, unsigned int rkey,
                          unsigned long long address, unsigned long long length, unsigned int lkey)
    cpdef object post_chain(self, object first)
    cpdef object _notify(self)
    cpdef object post_receives(self, object first)
    cdef SendPoster _sender(self)
    cpdef ReceivePoster _receiver(self)
    cpdef object _notify_receives(self)
