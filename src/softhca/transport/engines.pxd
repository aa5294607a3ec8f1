from softhca.wire.burst cimport Arrival, Burst
from softhca.wire.packet_view cimport PacketView
from softhca.wire.raw cimport RawView


cdef class SendEngine:
    cpdef object receive(self, PacketView view, Arrival arrival, unsigned long long now)
    cpdef int produce(self, Burst burst, unsigned long long now)
    cpdef object expire(self, unsigned long long now)
    cpdef object resume(self, unsigned long long now)
    cpdef object doorbell(self, unsigned long long now)
    cpdef object begin(self, unsigned int psn)
    cpdef object start(self, unsigned long long now)
    cpdef object flush(self)
    cpdef object reset(self)
    cpdef object leave_window(self)
    cpdef object path_changed(self, unsigned long long now)
    cpdef object give_way(self)
    cpdef bint has_work(self)
    cpdef bint drained(self)


cdef class ReceiveEngine:
    cpdef object receive(self, PacketView view, Arrival arrival, unsigned long long now)
    cpdef object receive_raw(self, RawView view, Arrival arrival, unsigned long long now)
    cpdef int produce(self, Burst burst, unsigned long long now)
    cpdef object expire(self, unsigned long long now)
    cpdef object resume(self, unsigned long long now)
    cpdef object begin(self, unsigned int psn)
    cpdef object start(self, unsigned long long now)
    cpdef object flush(self)
    cpdef object reset(self)
    cpdef object announce(self)
    cpdef bint has_work(self)
    cpdef bint may_delay_ack(self)
    cpdef int join(self, Burst burst, unsigned long long now)
