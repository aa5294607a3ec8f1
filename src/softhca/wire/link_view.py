"""The link layer's side of an arriving native packet: LRH, GRH and both CRCs.

What is checked here is seen from the packet alone; whose packet it is, is the port's to say.  The three
steps stand apart because the port's checks come between them (IBTA vol. 1, 7.8, 8.3 and 9.6).
"""

import cython

from softhca.machine.primitives import address_of, copy, crc32, fill
from softhca.wire import grh, lrh
from softhca.wire.drops import (
    DROP_ICRC,
    DROP_LENGTH,
    DROP_LINK_HEADER,
    DROP_RAW,
    DROP_TRUNCATED,
    DROP_VCRC,
)
from softhca.wire.vcrc import compute

_TRUNCATED = cython.declare(cython.int, DROP_TRUNCATED)
_LENGTH = cython.declare(cython.int, DROP_LENGTH)
_ICRC = cython.declare(cython.int, DROP_ICRC)
_VCRC = cython.declare(cython.int, DROP_VCRC)
_LINK_HEADER = cython.declare(cython.int, DROP_LINK_HEADER)
_RAW = cython.declare(cython.int, DROP_RAW)
_LRH_BYTES = cython.declare(cython.Py_ssize_t, lrh.LENGTH_BYTES)
_GRH_BYTES = cython.declare(cython.Py_ssize_t, grh.LENGTH_BYTES)
_BTH_BYTES = cython.declare(cython.Py_ssize_t, 12)
_ICRC_BYTES = cython.declare(cython.Py_ssize_t, 4)
_VCRC_BYTES = cython.declare(cython.Py_ssize_t, 2)
_VERSION = cython.declare(cython.uint, grh.VERSION)
_NEXT_HEADER = cython.declare(cython.uint, grh.NEXT_HEADER_IBA)


def _be16(data, o):
    """Big-endian 16-bit word at ``o``."""
    high: cython.uint = data[o]
    return high << 8 | data[o + 1]


def _be64(data, o):
    """Big-endian 64-bit word at ``o``."""
    word: cython.ulonglong = 0
    i: cython.Py_ssize_t
    for i in range(o, o + 8):
        word = word << 8 | data[i]
    return word


class LinkView:
    """LRH and GRH of the packet last decoded, in host numbers; reused for every packet.

    ``grh`` and ``transport`` are offsets in the buffer of the GRH (−1: there is none) and of the BTH,
    ``transport_bytes`` the length of BTH … ICRC, ``dest_qp`` the BTH's, which the link's rules ask for.
    ``packet_bytes`` is LRH … ICRC.  ``source`` and ``destination`` are the GRH's GIDs as bytes, None
    without one.
    """

    def __init__(self):
        self._scratch = bytearray(lrh.LENGTH_BYTES + grh.LENGTH_BYTES + 12)
        self._scratch_data = self._scratch
        self._scratch_address = address_of(self._scratch)
        self.vl = 0
        self.sl = 0
        self.dlid = 0
        self.slid = 0
        self.packet_bytes = 0
        self.dest_qp = 0
        self.grh = -1
        self.transport = 0
        self.transport_bytes = 0
        self.source = None
        self.destination = None
        self._start = 0
        self._source = bytes(16)
        self._destination = bytes(16)
        self._source_high = 0
        self._source_low = 0
        self._destination_high = 0
        self._destination_low = 0

    def decode(self, data, offset, length):
        """Read LRH … VCRC, ``length`` bytes at ``offset`` of ``data``; 0, or a reason of ``drops.py``.

        In the standard's order: VCRC, link version, length, next header.  The GRH's fields are
        ``check_global``'s, the ICRC is ``check_icrc``'s.  When a reason is returned the fields mean nothing,
        but for DROP_RAW: a raw packet with a sound LRH, whose fields and ``packet_bytes`` are set.
        """
        next_header: cython.uint
        if length < _LRH_BYTES + _VCRC_BYTES:
            return _TRUNCATED
        if offset < 0 or offset + length > len(data):
            return _LENGTH
        end: cython.Py_ssize_t = offset + length - _VCRC_BYTES
        if compute(data, offset, length - _VCRC_BYTES) != (data[end] | data[end + 1] << 8):
            return _VCRC
        if data[offset] & 0x0F:
            return _LINK_HEADER
        self.packet_bytes = 4 * (_be16(data, offset + 4) & 0x7FF)
        if self.packet_bytes != length - _VCRC_BYTES:
            return _LENGTH
        next_header = data[offset + 1] & 3
        self._start = offset
        self.vl = data[offset] >> 4
        self.sl = data[offset + 1] >> 4
        self.dlid = _be16(data, offset + 2)
        self.slid = _be16(data, offset + 6)
        if next_header < 2:
            return _RAW
        self.transport = offset + _LRH_BYTES
        self.grh = -1
        self.source = self.destination = None
        if next_header == 3:
            self.grh = self.transport
            self.transport += _GRH_BYTES
        self.transport_bytes = end - self.transport
        if self.transport_bytes < _BTH_BYTES + _ICRC_BYTES:
            return _TRUNCATED
        self.dest_qp = data[self.transport + 5] << 16 | _be16(data, self.transport + 6)
        return 0

    def check_global(self, data):
        """The GRH's version, next header and length (8.3); 0 or a reason.  Makes its GIDs known."""
        o: cython.Py_ssize_t = self.grh
        if o < 0:
            return 0
        if data[o] >> 4 != _VERSION or data[o + 6] != _NEXT_HEADER:
            return _LINK_HEADER
        if _be16(data, o + 4) != self.transport_bytes:
            return _LINK_HEADER
        self._gids(data, o)
        return 0

    def _gids(self, data, o):
        """The GIDs as bytes; those of the packet before are used again when they are the same."""
        high: cython.ulonglong = _be64(data, o + 8)
        low: cython.ulonglong = _be64(data, o + 16)
        if high != self._source_high or low != self._source_low:
            self._source_high = high
            self._source_low = low
            self._source = bytes(data[o + 8 : o + 24])
        high = _be64(data, o + 24)
        low = _be64(data, o + 32)
        if high != self._destination_high or low != self._destination_low:
            self._destination_high = high
            self._destination_low = low
            self._destination = bytes(data[o + 24 : o + 40])
        self.source = self._source
        self.destination = self._destination

    def check_icrc(self, data, address):
        """The ICRC over the headers as ``framing.masked`` says, ``address`` that of ``data``; 0 or a
        reason.
        """
        state: cython.uint
        front: cython.Py_ssize_t = self.transport + _BTH_BYTES - self._start
        end: cython.Py_ssize_t = self.transport + self.transport_bytes - _ICRC_BYTES
        copy(self._scratch_address, address + self._start, front)
        if self.grh < 0:
            self._scratch_data[0] |= 0xF0
        else:
            fill(self._scratch_address, 0xFF, 8)
            self._scratch_data[8] |= 0x0F
            fill(self._scratch_address + 9, 0xFF, 3)
            self._scratch_data[15] = 0xFF
        self._scratch_data[front - 8] = 0xFF
        state = crc32(0, self._scratch_address, front)
        state = crc32(state, address + self._start + front, end - self._start - front)
        # sent with its least significant byte first
        if state & 0xFFFF != (data[end] | data[end + 1] << 8):
            return _ICRC
        if state >> 16 != (data[end + 2] | data[end + 3] << 8):
            return _ICRC
        return 0
