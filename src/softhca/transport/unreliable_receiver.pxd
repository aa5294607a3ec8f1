cimport cython

from softhca.transport.connection cimport Connection
from softhca.transport.engines cimport ReceiveEngine
from softhca.transport.execution cimport MessageExecutor
from softhca.transport.receiving cimport MessageSink, ReceiveQueue
from softhca.wire.burst cimport Arrival
from softhca.wire.packet_view cimport PacketView


@cython.final
cdef class UnreliableExecutor(MessageExecutor):
    cdef unsigned int rkey

    cdef bint posted(self, PacketView view) except -1
    cdef str refusal(self, PacketView view)
    cdef bint permitted(self, unsigned int n) except -1


@cython.final
cdef class UnreliableReceiver(ReceiveEngine):
    cdef Connection connection
    cdef readonly MessageSink sink
    cdef readonly UnreliableExecutor execution
    cdef unsigned long long now
    cdef public unsigned int epsn
    cdef public bint reported

    cdef object missed(self)
    cdef object expect(self, unsigned int psn)
    cdef object drop(self, str reason, unsigned int psn, bint whole)
    cdef object execute(self, PacketView view, Arrival arrival)
