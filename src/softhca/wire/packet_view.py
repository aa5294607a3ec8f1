"""The checked view of one packet's transport headers: refilled for every packet, allocates nothing."""

import cython

from softhca.wire import opcodes
from softhca.wire.drops import (
    DROP_LENGTH,
    DROP_OPCODE,
    DROP_PAD,
    DROP_TRUNCATED,
    DROP_VERSION,
)

_HAS_RDETH = cython.declare(cython.uint, opcodes.HAS_RDETH)
_HAS_DETH = cython.declare(cython.uint, opcodes.HAS_DETH)
_HAS_XRCETH = cython.declare(cython.uint, opcodes.HAS_XRCETH)
_HAS_RETH = cython.declare(cython.uint, opcodes.HAS_RETH)
_HAS_ATOMICETH = cython.declare(cython.uint, opcodes.HAS_ATOMICETH)
_HAS_AETH = cython.declare(cython.uint, opcodes.HAS_AETH)
_HAS_ATOMICACKETH = cython.declare(cython.uint, opcodes.HAS_ATOMICACKETH)
_HAS_IMMDT = cython.declare(cython.uint, opcodes.HAS_IMMDT)
_HAS_IETH = cython.declare(cython.uint, opcodes.HAS_IETH)
_HAS_FETH = cython.declare(cython.uint, opcodes.HAS_FETH)
_FRONT = cython.declare(cython.uint, opcodes.FRONT_BITS)
_PAYLOAD_BIT = cython.declare(cython.uint, opcodes.PACKED_PAYLOAD_BIT)
_VALID_BIT = cython.declare(cython.uint, opcodes.PACKED_VALID_BIT)
_BTH_BYTES = cython.declare(cython.uint, 12)
_ICRC_BYTES = cython.declare(cython.uint, 4)


def be16(data, o):
    """Big-endian 16-bit word at ``o``."""
    high: cython.uint = data[o]
    return high << 8 | data[o + 1]


def be24(data, o):
    """Big-endian 24-bit word at ``o``."""
    high: cython.uint = data[o]
    middle: cython.uint = data[o + 1]
    return high << 16 | middle << 8 | data[o + 2]


def be32(data, o):
    """Big-endian 32-bit word at ``o``."""
    high: cython.uint = be16(data, o)
    return high << 16 | be16(data, o + 2)


def be64(data, o):
    """Big-endian 64-bit word at ``o``."""
    high: cython.ulonglong = be32(data, o)
    return high << 32 | be32(data, o + 4)


class PacketView:
    """BTH and extension headers of the packet last decoded, in host numbers.

    Names are the standard's.  ``payload`` is the payload's offset in the buffer, ``payload_bytes`` its length
    without pad.  The fields of an extension header mean something only where its ``has_…`` is set.
    ``reserved7`` are the bits beside the AckReq bit, which the ICRC covers.  ``operation``, ``position`` and
    ``service`` are ``opcodes.py``'s.
    """

    def __init__(self):
        self._table = opcodes.packed_table()
        self.opcode = 0
        self.service = 0
        self.operation = 0
        self.position = 0
        self.solicited = False
        self.migreq = False
        self.pad = 0
        self.pkey = 0
        self.fecn = False
        self.becn = False
        self.dest_qp = 0
        self.ack_request = False
        self.reserved7 = 0
        self.psn = 0
        self.payload = 0
        self.payload_bytes = 0
        self._forget()
        self.ee_context = 0
        self.qkey = 0
        self.source_qp = 0
        self.xrc_srq = 0
        self.selectivity = 0
        self.placement = 0
        self.reth_va = 0
        self.reth_rkey = 0
        self.reth_length = 0
        self.atomic_va = 0
        self.atomic_rkey = 0
        self.swap_add = 0
        self.compare = 0
        self.syndrome = 0
        self.msn = 0
        self.atomic_original = 0
        self.immediate = 0
        self.invalidate_key = 0

    def _forget(self):
        self.has_rdeth = False
        self.has_deth = False
        self.has_xrceth = False
        self.has_reth = False
        self.has_atomiceth = False
        self.has_aeth = False
        self.has_atomicacketh = False
        self.has_immdt = False
        self.has_ieth = False
        self.has_feth = False

    def decode(self, data, offset, length):
        """Read the packet BTH…ICRC of ``length`` bytes at ``offset`` of ``data``; 0, or a reason of
        ``drops.py``.

        Checked: it lies inside the buffer, is whole words, holds its headers and the ICRC's four bytes, has a
        known opcode and transport header version 0, pads no more than it carries, and carries nothing where
        the opcode allows no payload.  Reserved bits are ignored (IBTA 9.2).  The ICRC's value is not looked
        at.  When a reason is returned the fields mean nothing.
        """
        row: cython.uint
        flags: cython.uint
        extension: cython.uint
        rest: cython.uint
        if length < 16:
            return DROP_TRUNCATED
        if offset < 0 or offset + length > len(data) or length & 3:
            return DROP_LENGTH
        self.opcode = data[offset]
        row = self._table[self.opcode]
        flags = data[offset + 1]
        if not row & _VALID_BIT:
            return DROP_OPCODE
        if flags & 0x0F:
            return DROP_VERSION
        extension = (row >> 20) & 0xFF
        if length < _BTH_BYTES + extension + _ICRC_BYTES:
            return DROP_TRUNCATED
        rest = length - _BTH_BYTES - extension - _ICRC_BYTES
        self.pad = (flags >> 4) & 3
        if self.pad > rest:
            return DROP_PAD
        if rest and not row & _PAYLOAD_BIT:
            return DROP_LENGTH
        self.service = self.opcode >> 5
        self.operation = (row >> 12) & 0xF
        self.position = (row >> 16) & 3
        self.solicited = (flags & 0x80) != 0
        self.migreq = (flags & 0x40) != 0
        self.pkey = be16(data, offset + 2)
        self.fecn = (data[offset + 4] & 0x80) != 0
        self.becn = (data[offset + 4] & 0x40) != 0
        self.dest_qp = be24(data, offset + 5)
        self.ack_request = (data[offset + 8] & 0x80) != 0
        self.reserved7 = data[offset + 8] & 0x7F
        self.psn = be24(data, offset + 9)
        self.payload = offset + _BTH_BYTES + extension
        self.payload_bytes = rest - self.pad
        self._extensions(data, offset + _BTH_BYTES, row)
        return 0

    def _extensions(self, data, o, row):
        """Read the extension headers that ``row`` of the opcode table lists; their length is checked."""
        self._forget()
        if row & _FRONT:
            if row & _HAS_RDETH:
                self.has_rdeth = True
                self.ee_context = be24(data, o + 1)
                o += 4
            if row & _HAS_DETH:
                self.has_deth = True
                self.qkey = be32(data, o)
                self.source_qp = be24(data, o + 5)
                o += 8
            if row & _HAS_XRCETH:
                self.has_xrceth = True
                self.xrc_srq = be24(data, o + 1)
                o += 4
            if row & _HAS_FETH:
                self.has_feth = True
                self.selectivity = (data[o + 3] >> 4) & 3
                self.placement = data[o + 3] & 0xF
                o += 4
        if row & _HAS_RETH:
            self.has_reth = True
            self.reth_va = be64(data, o)
            self.reth_rkey = be32(data, o + 8)
            self.reth_length = be32(data, o + 12)
            o += 16
        elif row & _HAS_ATOMICETH:
            self.has_atomiceth = True
            self.atomic_va = be64(data, o)
            self.atomic_rkey = be32(data, o + 8)
            self.swap_add = be64(data, o + 12)
            self.compare = be64(data, o + 20)
            o += 28
        elif row & _HAS_AETH:
            self.has_aeth = True
            self.syndrome = data[o]
            self.msn = be24(data, o + 1)
            o += 4
            if row & _HAS_ATOMICACKETH:
                self.has_atomicacketh = True
                self.atomic_original = be64(data, o)
                o += 8
        if row & _HAS_IMMDT:
            self.has_immdt = True
            self.immediate = be32(data, o)
        elif row & _HAS_IETH:
            self.has_ieth = True
            self.invalidate_key = be32(data, o)
