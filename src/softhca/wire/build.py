"""Headers written straight into a packet buffer, for the hot path.

Each ``put_…`` writes one header at offset ``o`` and returns the offset behind it.  Values are cut to their
fields' widths; the caller makes sure that the buffer is long enough.
"""

import cython

from softhca.wire.opcodes import OPCODES

_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)


def put16(data, o, value):
    """Big-endian 16 bits."""
    data[o] = (value >> 8) & 0xFF
    data[o + 1] = value & 0xFF
    return o + 2


def put24(data, o, value):
    """Big-endian 24 bits."""
    data[o] = (value >> 16) & 0xFF
    data[o + 1] = (value >> 8) & 0xFF
    data[o + 2] = value & 0xFF
    return o + 3


def put32(data, o, value):
    """Big-endian 32 bits."""
    data[o] = (value >> 24) & 0xFF
    data[o + 1] = (value >> 16) & 0xFF
    data[o + 2] = (value >> 8) & 0xFF
    data[o + 3] = value & 0xFF
    return o + 4


def put64(data, o, value):
    """Big-endian 64 bits."""
    put32(data, o, (value >> 32) & _WORD)
    return put32(data, o + 4, value & _WORD)


def put_bth(
    data, o, opcode, solicited, pad, pkey, dest_qp, ack_request, psn, congestion=0, reserved7=0, migreq=True
):
    """BTH with version 0; ``congestion`` is its whole byte 4 (FECN 0x80, BECN 0x40)."""
    data[o] = opcode & 0xFF
    data[o + 1] = (0x80 if solicited else 0) | (0x40 if migreq else 0) | (pad & 3) << 4
    put16(data, o + 2, pkey)
    data[o + 4] = congestion & 0xFF
    put24(data, o + 5, dest_qp)
    data[o + 8] = (0x80 if ack_request else 0) | (reserved7 & 0x7F)
    return put24(data, o + 9, psn)


def put_reth(data, o, va, rkey, length):
    """RETH; ``length`` of the whole operation in bytes."""
    put64(data, o, va)
    put32(data, o + 8, rkey)
    return put32(data, o + 12, length)


def put_atomiceth(data, o, va, rkey, swap_add, compare):
    """AtomicETH; a FetchAdd takes ``compare`` 0."""
    put64(data, o, va)
    put32(data, o + 8, rkey)
    put64(data, o + 12, swap_add)
    return put64(data, o + 20, compare)


def put_aeth(data, o, syndrome, msn):
    """AETH."""
    data[o] = syndrome & 0xFF
    return put24(data, o + 1, msn)


def put_atomicacketh(data, o, original):
    """AtomicAckETH."""
    return put64(data, o, original)


def put_immdt(data, o, immediate):
    """ImmDt, the four bytes read as a big-endian number."""
    return put32(data, o, immediate)


def put_ieth(data, o, rkey):
    """IETH."""
    return put32(data, o, rkey)


def put_deth(data, o, qkey, source_qp):
    """DETH."""
    put32(data, o, qkey)
    data[o + 4] = 0
    return put24(data, o + 5, source_qp)


def put_rdeth(data, o, ee_context):
    """RDETH."""
    data[o] = 0
    return put24(data, o + 1, ee_context)


def put_xrceth(data, o, xrc_srq):
    """XRCETH."""
    data[o] = 0
    return put24(data, o + 1, xrc_srq)


def put_feth(data, o, selectivity, placement):
    """FETH."""
    return put32(data, o, (selectivity & 3) << 4 | placement & 0xF)


def put_pad(data, o, pad):
    """``pad`` zero bytes (0…3) behind the payload."""
    i: cython.Py_ssize_t
    for i in range(pad & 3):
        data[o + i] = 0
    return o + (pad & 3)


def put_icrc(data, o, icrc):
    """ICRC, least significant byte first."""
    data[o] = icrc & 0xFF
    data[o + 1] = (icrc >> 8) & 0xFF
    data[o + 2] = (icrc >> 16) & 0xFF
    data[o + 3] = (icrc >> 24) & 0xFF
    return o + 4


def put_vcrc(data, o, vcrc):
    """VCRC, least significant byte first."""
    data[o] = vcrc & 0xFF
    data[o + 1] = (vcrc >> 8) & 0xFF
    return o + 2


def header_bytes(opcode):
    """Length of BTH and extension headers together; KeyError for a reserved opcode.  Not for the hot path."""
    return 12 + OPCODES[opcode].extension_bytes
