cimport cython

from softhca.machine.primitives cimport fill
from softhca.transport.datagram cimport DatagramSender
from softhca.transport.environment cimport AddressHandle
from softhca.transport.context cimport QueuePair
from softhca.transport.engines cimport ReceiveEngine
from softhca.transport.receiving cimport ReceiveQueue
from softhca.transport.request cimport Request
from softhca.wire.build cimport put_vcrc
from softhca.wire.burst cimport Arrival, Burst
from softhca.wire.raw cimport RawView, check_ipv6, is_ipv6
from softhca.wire.vcrc cimport compute as variant_crc


cdef unsigned int front_bytes(unsigned int service) noexcept
cdef unsigned long long packet_bytes(unsigned int service, unsigned long long length_bytes) noexcept


@cython.final
cdef class RawSender(DatagramSender):
    pass


@cython.final
cdef class RawReceiver(ReceiveEngine):
    cdef QueuePair qp
    cdef ReceiveQueue queue
    cdef bint ends_short
    cdef unsigned long long now
