"""Ethernet frames, as raw packet queue pairs send and receive them: destination, source, EtherType, payload.

The frame check sequence is not part of them.  What rules of flow steering look at is gathered in a *key* of
``KEY_BYTES`` at fixed places, so that a rule is a value and a mask over it.  A field that the frame has not
is zero there; ``L3`` and ``L4`` say which headers there are.
"""

import cython

HEADER_BYTES = 14
"""Destination, source, EtherType."""
VLAN_BYTES = 4
"""An 802.1Q tag."""

KEY_BYTES = 64
DST_MAC, SRC_MAC, ETHER_TYPE, VLAN_TAG = 0, 6, 12, 14
L3, PROTOCOL, TRAFFIC_CLASS, HOP_LIMIT = 16, 17, 18, 19
FLAGS, FLOW_LABEL = 20, 21  # IPv4: 2 do not fragment, 4 more fragments
SRC_IP, DST_IP = 24, 40  # IPv4 in the first four of 16 bytes
SRC_PORT, DST_PORT, L4 = 56, 58, 60

IPV4, IPV6 = 4, 6
"""What ``L3`` says; 0: neither, or its header is cut short."""
TCP, UDP = 6, 17
"""What ``L4`` says; 0: neither, a later fragment, or behind extension headers of IPv6."""

_HEADER_BYTES = cython.declare(cython.Py_ssize_t, HEADER_BYTES)
_VLAN_BYTES = cython.declare(cython.Py_ssize_t, VLAN_BYTES)
_KEY_BYTES = cython.declare(cython.Py_ssize_t, KEY_BYTES)
_TCP = cython.declare(cython.uint, TCP)
_UDP = cython.declare(cython.uint, UDP)


def frame_key(data, offset, n):
    """The key of the frame of ``n`` bytes, 14 at least, at ``offset`` of ``data``."""
    key: bytearray = bytearray(_KEY_BYTES)
    k: cython.uchar[::1] = key
    o: cython.Py_ssize_t = offset + _HEADER_BYTES
    end: cython.Py_ssize_t = offset + n
    i: cython.Py_ssize_t
    ethertype: cython.uint
    for i in range(12):
        k[i] = data[offset + i]
    ethertype = data[offset + 12] << 8 | data[offset + 13]
    if ethertype == 0x8100 and end - o >= _VLAN_BYTES:
        k[14] = data[o]
        k[15] = data[o + 1]
        ethertype = data[o + 2] << 8 | data[o + 3]
        o += _VLAN_BYTES
    k[12] = ethertype >> 8
    k[13] = ethertype & 0xFF
    if ethertype == 0x0800:
        _ipv4(k, data, o, end)
    elif ethertype == 0x86DD:
        _ipv6(k, data, o, end)
    return bytes(key)


def _ipv4(k, data, o, end):
    """The fields of an IPv4 header, and of what follows it."""
    i: cython.Py_ssize_t
    header_bytes: cython.Py_ssize_t
    if end - o < 20 or data[o] >> 4 != 4:
        return
    header_bytes = (data[o] & 15) * 4
    if header_bytes < 20:
        return
    k[16] = 4
    k[17] = data[o + 9]
    k[18] = data[o + 1]
    k[19] = data[o + 8]
    k[20] = (data[o + 6] & 0x40) >> 5 | (data[o + 6] & 0x20) >> 3
    for i in range(4):
        k[24 + i] = data[o + 12 + i]
        k[40 + i] = data[o + 16 + i]
    if (data[o + 6] & 0x1F) == 0 and data[o + 7] == 0:
        _ports(k, data, o + header_bytes, end)


def _ipv6(k, data, o, end):
    """The fields of an IPv6 header, and of what follows it at once."""
    i: cython.Py_ssize_t
    if end - o < 40 or data[o] >> 4 != 6:
        return
    k[16] = 6
    k[17] = data[o + 6]
    k[18] = (data[o] & 15) << 4 | data[o + 1] >> 4
    k[19] = data[o + 7]
    k[21] = data[o + 1] & 15
    k[22] = data[o + 2]
    k[23] = data[o + 3]
    for i in range(16):
        k[24 + i] = data[o + 8 + i]
        k[40 + i] = data[o + 24 + i]
    _ports(k, data, o + 40, end)


def _ports(k, data, o, end):
    """The ports of TCP or UDP."""
    i: cython.Py_ssize_t
    if (k[17] != _TCP and k[17] != _UDP) or end - o < 4:
        return
    k[60] = k[17]
    for i in range(4):
        k[56 + i] = data[o + i]
