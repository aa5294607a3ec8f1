from softhca.machine.primitives cimport store64
from softhca.transport.requester cimport RequestTransmitter
from softhca.transport.request cimport Request
from softhca.wire.burst cimport Arrival
from softhca.wire.packet_view cimport PacketView
from softhca.wire.psn cimport distance


cdef class Sender(RequestTransmitter):
    cdef unsigned long long[::1] result
    cdef unsigned long long result_address

    cdef bint advance(self, unsigned int end)
    cdef object progressed(self)
    cdef object take_credits(self, PacketView view)
    cdef object acknowledged(self, PacketView view)
    cdef object rnr_nak(self, PacketView view)
    cdef object nak(self, PacketView view)
    cdef object read_response(self, PacketView view, Arrival arrival)
    cdef object atomic_response(self, PacketView view)
    cdef bint read_position_ok(self, Request request, PacketView view, unsigned int index)
    cdef bint carries_answer(self, PacketView view) noexcept
    cdef object placement_failed(self, int result)
    cdef object answered(self, Request request, unsigned int index)
    cdef object again(self, str reason)
    cdef object implied_nak(self)
    cdef bint goes_again(self) except -1
