from softhca.memory.regions cimport RegionTable
from softhca.queues.wqe cimport ReceiveWork
from softhca.transport.context cimport QueuePair
from softhca.transport.flow cimport Flow
from softhca.transport.halves cimport Half
from softhca.transport.scatter cimport BufferList


cdef class ReceiveQueue(Half):
    cdef public QueuePair qp
    cdef readonly Flow flow
    cdef public ReceiveWork work
    cdef public BufferList buffers
    cdef bint connected
    cdef public bint holding
    cdef public bint resolved
    cdef public bint broken
    cdef public unsigned long long now
    cdef unsigned int slid
    cdef unsigned int service_level
    cdef unsigned int path_bits

    cpdef bint posted(self)
    cpdef int acquire(self)
    cpdef int resolve(self)
    cpdef object finish(self, int status, unsigned int opcode, unsigned int flags, unsigned int length_bytes,
                        unsigned int imm_or_key, unsigned int source_qp, bint solicited)
    cpdef object flush(self)
