cimport cython

from softhca.memory.regions cimport RegionTable
from softhca.queues.completion cimport CompletionQueue
from softhca.queues.ring cimport RingConsumer
from softhca.queues.shared_receive cimport SharedReceiveQueue
from softhca.queues.wqe cimport ReceiveWork
from softhca.transport.context cimport QueuePair
from softhca.transport.credits cimport encode
from softhca.transport.flow cimport Flow
from softhca.transport.scatter cimport BufferList
from softhca.wire.packet_view cimport PacketView

cdef class MessageSink
cdef class ReceiveQueue(MessageSink)


cdef class MessageSink:
    cpdef ReceiveQueue receive_queue(self, PacketView view)
    cpdef unsigned int credit_code(self) except? 0
    cpdef object flush(self, unsigned long long now)
    cpdef object reset(self)


@cython.final
cdef class ReceiveQueue(MessageSink):
    cdef readonly QueuePair qp
    cdef readonly Flow flow
    cdef RingConsumer ring
    cdef SharedReceiveQueue shared
    cdef CompletionQueue cq
    cdef public ReceiveWork work
    cdef public BufferList buffers
    cdef bint connected
    cdef public bint acquired
    cdef public bint resolved
    cdef public bint broken
    cdef public unsigned int slid
    cdef public unsigned int service_level
    cdef public unsigned int path_bits
    cdef public unsigned int ee_context

    cpdef bint posted(self) except -1
    cpdef int acquire(self) except? -2
    cpdef int resolve(self) except? -2
    cpdef object complete(self, int status, unsigned int opcode, unsigned int flags, unsigned int length_bytes,
                          unsigned int imm_or_key, unsigned int source_qp, bint solicited, unsigned long long now)
