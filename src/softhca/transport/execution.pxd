from softhca.memory.regions cimport Region
from softhca.memory.windows cimport TrackedRegion
from softhca.transport.connection cimport Connection
from softhca.transport.receiving cimport MessageSink, ReceiveQueue
from softhca.wire.burst cimport Arrival
from softhca.wire.packet_view cimport PacketView


cdef class MessageExecutor:
    cdef Connection connection
    cdef MessageSink sink
    cdef readonly ReceiveQueue queue
    cdef unsigned long long now
    cdef public int operation
    cdef public unsigned long long received_bytes
    cdef public int failure
    cdef public Region region
    cdef public unsigned int generation
    cdef unsigned long long va
    cdef unsigned long long length_bytes

    cdef bint in_sequence(self, PacketView view) noexcept
    cdef bint length_ok(self, PacketView view) noexcept
    cdef int execute(self, PacketView view, Arrival arrival, unsigned long long now) except? -1
    cdef int place_send(self, PacketView view, Arrival arrival) except? -1
    cdef int place_write(self, PacketView view, Arrival arrival) except? -1
    cdef int begin_write(self, PacketView view) except? -1
    cdef bint resolve_target(self, unsigned int rkey, unsigned long long va, unsigned long long n) except -1
    cdef object release_target(self)
    cdef int acquire(self, PacketView view) except? -1
    cdef bint complete(self, int status, unsigned int length_bytes, unsigned long long now) except -1
    cdef object ended(self, PacketView view, unsigned int opcode)
    cdef object abandon(self)
