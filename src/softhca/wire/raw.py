"""Raw datagrams: native packets without IBA transport headers (IBTA vol. 1, 5.3, 7.7.5 and 9.8.4).

Either an IPv6 packet follows the LRH (LNH 1), or an RWH and a payload of its EtherType (LNH 0).  There is no
ICRC, and nothing says how many bytes of the payload are padding: the payload's own protocol does.
"""

import cython

from softhca.wire import lrh, rwh
from softhca.wire.drops import DROP_LINK_HEADER, DROP_RAW_TRANSPORT, DROP_TRUNCATED
from softhca.wire.grh import NEXT_HEADER_IBA
from softhca.wire.ip import ETHERTYPE_IPV6

RAW_IPV6 = 0x1_0000
"""The raw service of LNH 1; the services of LNH 0 are the numbers of their EtherTypes."""

ALL_RAW = 0x1_FFFF
"""Stands for all raw services, where a queue pair says what it receives."""

IPV6_HEADER_BYTES = 40
LEAST_PACKET_BYTES = 20  # LRH and payload: PktLen is 5 at least in a raw packet (7.7.8)

_TRUNCATED = cython.declare(cython.int, DROP_TRUNCATED)
_LINK_HEADER = cython.declare(cython.int, DROP_LINK_HEADER)
_RAW_TRANSPORT = cython.declare(cython.int, DROP_RAW_TRANSPORT)
_LRH_BYTES = cython.declare(cython.Py_ssize_t, lrh.LENGTH_BYTES)
_RWH_BYTES = cython.declare(cython.Py_ssize_t, rwh.LENGTH_BYTES)
_LEAST = cython.declare(cython.Py_ssize_t, LEAST_PACKET_BYTES)
_IPV6_BYTES = cython.declare(cython.Py_ssize_t, IPV6_HEADER_BYTES)
_ETHERTYPE = cython.declare(cython.uint, ETHERTYPE_IPV6)
_RAW_IPV6 = cython.declare(cython.uint, RAW_IPV6)
_NEXT_HEADER = cython.declare(cython.uint, NEXT_HEADER_IBA)


def is_ipv6(service):
    """Whether a raw service carries IPv6: both encodings may (IBTA vol. 1, 9.8.4)."""
    return service in (_RAW_IPV6, _ETHERTYPE)


def check_ipv6(data, o, n):
    """What is wrong with ``n`` bytes at ``o`` as an IPv6 packet that goes raw; 0 or a drop reason.

    The header is whole, of version 6, and does not say that IBA transport follows (C9-208).  How long the
    packet is by its own header is for whoever reads it: up to three bytes behind it are padding.
    """
    if n < _IPV6_BYTES:
        return _TRUNCATED
    if data[o] >> 4 != 6:
        return _LINK_HEADER
    if data[o + 6] == _NEXT_HEADER:
        return _RAW_TRANSPORT
    return 0


class RawView:
    """The raw datagram last decoded; reused for every packet.

    ``service`` is `RAW_IPV6` or the RWH's EtherType, ``payload`` the offset of what follows LRH and RWH,
    ``payload_bytes`` its length with its padding.
    """

    def __init__(self):
        self.service = 0
        self.payload = 0
        self.payload_bytes = 0

    def decode(self, data, offset, packet_bytes):
        """Read the packet whose LRH stands at ``offset``, ``packet_bytes`` long without its VCRC; 0 or a
        reason.

        The caller knows that it lies in ``data``, that its LNH is 0 or 1 and that its LRH is sound.
        """
        if packet_bytes < _LEAST:
            return _TRUNCATED
        self.payload = offset + _LRH_BYTES
        self.payload_bytes = packet_bytes - _LRH_BYTES
        if data[offset + 1] & 3:
            self.service = _RAW_IPV6
        else:
            self.service = data[offset + 10] << 8 | data[offset + 11]
            self.payload += _RWH_BYTES
            self.payload_bytes -= _RWH_BYTES
        if is_ipv6(self.service):
            return check_ipv6(data, self.payload, self.payload_bytes)
        return 0
