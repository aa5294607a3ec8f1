from softhca.queues.wqe cimport SendWork
from softhca.transport.connection cimport Connection
from softhca.transport.flow cimport Flow
from softhca.transport.engines cimport SendEngine
from softhca.transport.key_work cimport execute_local
from softhca.transport.request cimport Request
from softhca.transport.retry cimport InFlightTable, RetryState
from softhca.transport.segmentation cimport PacketWriter
from softhca.transport.sending cimport RequestSource
from softhca.transport.uniform cimport UniformMessages
from softhca.transport.window cimport DestinationWindow
from softhca.wire.burst cimport Burst
from softhca.wire.psn cimport distance


cdef class RequestTransmitter(SendEngine):
    cdef readonly Connection connection
    cdef readonly Flow flow
    cdef readonly RequestSource source
    cdef public PacketWriter writer
    cdef list requests
    cdef unsigned long long mask
    cdef public unsigned long long head
    cdef public unsigned long long tail
    cdef public unsigned long long now
    cdef public int condition
    cdef public int recovery
    cdef public RetryState retry
    cdef public InFlightTable in_flight
    cdef public unsigned long long stalled_until_ns
    cdef public unsigned long long cursor
    cdef public unsigned int cursor_packet
    cdef public unsigned int una_psn
    cdef public unsigned int next_psn
    cdef public unsigned int high_psn
    cdef public unsigned int asked_psn
    cdef public unsigned int next_ssn
    cdef public unsigned int lsn
    cdef public bint limited
    cdef public bint informed
    cdef public unsigned int rd_outstanding
    cdef unsigned int slice_packets
    cdef readonly UniformMessages uniform
    cdef unsigned int begun
    cdef bint pushed
    cdef bint beyond
    cdef public bint probe
    cdef unsigned long long unrequested_bytes
    cdef unsigned long long armed_ns

    cdef Request at(self, unsigned long long place)
    cdef Request current(self)
    cpdef object retire(self, int status)
    cdef unsigned int cursor_psn(self)
    cdef int step(self, Request request, DestinationWindow window) except? -1
    cdef int step_local(self, Request request) except? -1
    cdef object number(self, Request request)
    cdef int step_message(self, Request request, DestinationWindow window) except? -1
    cdef int step_read(self, Request request, DestinationWindow window) except? -1
    cdef int step_atomic(self, Request request, DestinationWindow window) except? -1
    cdef unsigned long long budget(self, DestinationWindow window)
    cdef bint must_wait(self, DestinationWindow window) except -1
    cdef int block(self, int reason) except? -1
    cdef int wait_memory(self) except? -1
    cdef bint admitted(self, DestinationWindow window, unsigned long long cost_bytes) except -1
    cdef object persist(self)
    cdef object sent(self, unsigned long long cost_bytes, bint joined)
    cdef bint must_ask(self, Request request, DestinationWindow window) except? -1
    cdef unsigned long long full_burst(self, DestinationWindow window) noexcept
    cdef bint must_request_ack(self) except -1
    cpdef object rewind(self, bint lost)
    cdef object go_on(self)
    cpdef object fail_head(self, int status)
    cpdef object settle(self)
    cdef int stall(self, DestinationWindow window, bint already) except? -1
    cdef object end_stall(self, unsigned long long now)
    cdef object rearm(self)
    cdef object check_drained(self)
