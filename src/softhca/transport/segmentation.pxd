cimport cython

from softhca.machine.primitives cimport address_of, copy
from softhca.memory.on_demand cimport OnDemandRegion
from softhca.transport.connection cimport Connection
from softhca.transport.request cimport Request
from softhca.wire.build cimport (put_aeth, put_atomicacketh, put_atomiceth, put_bth, put_deth, put_feth, put_icrc, put_ieth,
                                 put_immdt, put_pad, put_rdeth, put_reth, put_vcrc, put_xrceth)
from softhca.wire.burst cimport Burst
from softhca.wire.icrc cimport compute
from softhca.wire.route cimport Route
from softhca.wire.vcrc cimport compute as variant_crc


@cython.final
cdef class PacketWriter:
    cdef public Connection connection
    cdef public Burst burst
    cdef public Route route
    cdef public unsigned long long budget_bytes
    cdef public unsigned int packet_overhead_bytes
    cdef unsigned int most_bytes
    cdef bint acknowledged
    cdef unsigned int service_code
    cdef public unsigned int ee_context
    cdef public unsigned int qkey
    cdef public unsigned int source_qp
    cdef public unsigned int xrc_srq
    cdef unsigned int start
    cdef unsigned int prefix_bytes
    cdef unsigned int frame_bytes
    cdef public bint held
    cdef unsigned long long ahead_from, ahead_end, ahead_address

    cpdef object begin(self, Burst burst, Route route, unsigned long long budget_bytes,
                       unsigned int packet_overhead_bytes=*)
    cpdef object aim(self, Route route)
    cdef bint fits(self, unsigned int size) noexcept
    cdef bint fits_after(self, unsigned int size, unsigned int following) noexcept
    cdef Py_ssize_t open(self, unsigned int opcode, bint solicited, unsigned int pad, bint ack_request,
                         unsigned int psn, unsigned int dest_qp) noexcept
    cdef unsigned int close(self, Py_ssize_t o) except 0
    cdef object frame(self, unsigned int n)
    cdef unsigned int packet_bytes(self, unsigned int opcode, unsigned int payload_bytes) noexcept
    cdef unsigned int opcode_of(self, Request request, unsigned int index) noexcept
    cdef unsigned int size_of(self, Request request, unsigned int index, unsigned int code) noexcept
    cpdef int message(self, Request request, unsigned int index, unsigned int limit, bint ack_at_end) except? -1
    cdef object read_ahead(self, Request request, unsigned int index, unsigned int limit, bytearray buffer)
    cdef int packets(self, Request request, unsigned int index, unsigned int limit, bint ack_at_end) except? -1
    cdef int data_packet(self, Request request, unsigned int index, unsigned int code, bint ack_request) except? -1
    cpdef object ask_last(self)
    cpdef bint read_request(self, Request request, unsigned int index, unsigned int end) except *
    cpdef bint atomic_request(self, Request request) except *
    cpdef int atomic_write_request(self, Request request) except? -1
    cpdef bint flush_request(self, Request request) except *
    cpdef bint resync(self, unsigned int psn) except *
    cpdef bint acknowledge(self, unsigned int psn, unsigned int syndrome, unsigned int msn) except *
    cpdef bint atomic_response(self, unsigned int psn, unsigned int syndrome, unsigned int msn,
                               unsigned long long original) except *
