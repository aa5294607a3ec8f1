"""VXLAN (RFC 7348): an Ethernet frame behind a header of 8 bytes, in a UDP datagram to port 4789.

The header is a byte of flags, of which I (0x08) says that there is a VNI, three reserved bytes, the VNI
(24 bits, which segment the frame is of) and another reserved byte.
"""

import cython

from softhca.wire.drops import DROP_FRAME, DROP_TRUNCATED
from softhca.wire.ethernet import HEADER_BYTES as ETHERNET_BYTES
from softhca.wire.raw import RawView

VXLAN_PORT = 4789
"""UDP destination port (IANA)."""
HEADER_BYTES = 8
MOST_VNI = (1 << 24) - 1

_FLAG_VNI = cython.declare(cython.uint, 0x08)
_FRAME = cython.declare(cython.int, DROP_FRAME)
_TRUNCATED = cython.declare(cython.int, DROP_TRUNCATED)
_HEADER_BYTES = cython.declare(cython.Py_ssize_t, HEADER_BYTES)
_ETHERNET_BYTES = cython.declare(cython.Py_ssize_t, ETHERNET_BYTES)


def put_vxlan(data, offset, vni):
    """Write the header of a frame of the segment ``vni``."""
    i: cython.Py_ssize_t
    for i in range(_HEADER_BYTES):
        data[offset + i] = 0
    data[offset] = _FLAG_VNI
    data[offset + 4] = vni >> 16 & 0xFF
    data[offset + 5] = vni >> 8 & 0xFF
    data[offset + 6] = vni & 0xFF


class FrameView(RawView):
    """The frame last decoded; reused for every one.  ``payload`` is where it begins, ``payload_bytes`` how
    long it is.
    """

    def open(self, data, offset, n, vni):
        """Read a datagram of ``n`` bytes at ``offset``; 0, or why it is no frame of the segment ``vni``.

        Reserved bits are not looked at, as RFC 7348 says.  The caller knows that it lies in ``data``.
        """
        if n < _HEADER_BYTES + _ETHERNET_BYTES:
            return _TRUNCATED
        found: cython.uint = data[offset + 4]
        found = found << 16 | data[offset + 5] << 8 | data[offset + 6]
        if not data[offset] & _FLAG_VNI or found != vni:
            return _FRAME
        self.service = 0
        self.payload = offset + _HEADER_BYTES
        self.payload_bytes = n - _HEADER_BYTES
        return 0
