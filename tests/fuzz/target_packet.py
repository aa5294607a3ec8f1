"""One packet BTH … ICRC for the hot path's view, the tools' decoder and both builders: they must agree.

Input: a byte of how it lies in the buffer, then the packet.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuzz_choices import Choices
from fuzz_seeds import captured_transports

from softhca.wire import build
from softhca.wire.drops import (
    DROP_LENGTH,
    DROP_NONE,
    DROP_OPCODE,
    DROP_PAD,
    DROP_TRUNCATED,
    DROP_VERSION,
    NAMES,
)
from softhca.wire.errors import WireError
from softhca.wire.opcodes import OPCODES
from softhca.wire.packet import Transport, decode_transport
from softhca.wire.packet_view import PacketView

VIEW = PacketView()
OUT = bytearray(128)
# extension headers and their fields as the view calls them
FIELDS: dict[str, tuple[tuple[str, str], ...]] = {
    "rdeth": (("ee_context", "ee_context"),),
    "deth": (("qkey", "qkey"), ("source_qp", "source_qp")),
    "xrceth": (("xrc_srq", "xrc_srq"),),
    "feth": (("selectivity", "selectivity"), ("placement", "placement")),
    "reth": (("va", "reth_va"), ("rkey", "reth_rkey"), ("dma_length_bytes", "reth_length")),
    "atomiceth": (
        ("va", "atomic_va"),
        ("rkey", "atomic_rkey"),
        ("swap_add", "swap_add"),
        ("compare", "compare"),
    ),
    "aeth": (("syndrome", "syndrome"), ("msn", "msn")),
    "atomicacketh": (("original", "atomic_original"),),
    "immdt": (("immediate", "immediate"),),
    "ieth": (("rkey", "invalidate_key"),),
}
BASE = (
    "opcode",
    "solicited",
    "migreq",
    "pad",
    "pkey",
    "fecn",
    "becn",
    "dest_qp",
    "ack_request",
    "reserved7",
    "psn",
)


def one_input(data: bytes) -> None:
    choices = Choices(data)
    how = choices.byte()
    packet = choices.rest()
    if how & 8:
        packet = packet[: len(packet) & ~3]
    if how & 16 and len(packet) > 1:
        packet = packet[:1] + bytes([packet[1] & 0xF0]) + packet[2:]
    offset = how & 7
    buffer = bytearray(offset) + packet + bytes(how >> 5)
    check_bounds(buffer, offset, packet)
    reason = VIEW.decode(buffer, offset, len(packet))
    wanted = reason_for(packet)
    assert reason == wanted, f"dropped for {NAMES[reason]}, not for {NAMES[wanted]}"
    try:
        transport = decode_transport(bytes(packet))
    except WireError:
        assert reason, "the view takes what the decoder refuses"
        return
    assert reason == 0, f"the view drops ({NAMES[reason]}) what the decoder takes"
    assert transport.encode() == packet
    compare(transport, bytes(buffer), offset)
    rebuild(transport, packet)


def reason_for(packet: bytes) -> int:
    """The first promise of ``PacketView.decode`` that the packet breaks, from the opcode table."""
    if len(packet) < 16:
        return DROP_TRUNCATED
    if len(packet) % 4:
        return DROP_LENGTH
    row = OPCODES.get(packet[0])
    if row is None:
        return DROP_OPCODE
    if packet[1] & 0x0F:
        return DROP_VERSION
    behind = len(packet) - 16 - row.extension_bytes
    if behind < 0:
        return DROP_TRUNCATED
    if packet[1] >> 4 & 3 > behind:
        return DROP_PAD
    return DROP_LENGTH if behind and not row.payload else DROP_NONE


def check_bounds(buffer: bytearray, offset: int, packet: bytes) -> None:
    """A length or an offset beyond the buffer is refused."""
    beyond = len(buffer) - offset + 4
    assert VIEW.decode(buffer, offset, beyond & ~3) in (DROP_LENGTH, DROP_TRUNCATED)
    assert VIEW.decode(buffer, -4, len(packet)) in (DROP_LENGTH, DROP_TRUNCATED)


def compare(transport: Transport, buffer: bytes, offset: int) -> None:
    """Field for field."""
    for name in BASE:
        assert int(getattr(VIEW, name)) == getattr(transport.bth, name), name
    row = transport.opcode
    assert (VIEW.service, VIEW.operation, VIEW.position) == (row.service, row.operation, row.position)
    for name, header in zip(row.headers, transport.extensions, strict=True):
        assert getattr(VIEW, f"has_{name}"), name
        for theirs, ours in FIELDS[name]:
            assert getattr(VIEW, ours) == getattr(header, theirs), (name, theirs)
    for name in FIELDS:
        assert bool(getattr(VIEW, f"has_{name}")) == (name in row.headers), name
    start, length = VIEW.payload, VIEW.payload_bytes
    assert buffer[start : start + length] == transport.payload
    assert start + length + len(transport.padding) + 4 == offset + len(transport.encode())


def rebuild(transport: Transport, packet: bytes) -> None:
    """The hot path's builder writes the same headers, but for reserved bits and what it never sends."""
    bth = transport.bth
    at = build.put_bth(
        OUT, 0, bth.opcode, bth.solicited, bth.pad, bth.pkey, bth.dest_qp, bth.ack_request, bth.psn,
        packet[4], bth.reserved7,
    )  # fmt: skip
    for name in transport.opcode.headers:
        values = [getattr(VIEW, ours) for _, ours in FIELDS[name]]
        at = getattr(build, f"put_{name}")(OUT, at, *values)
    assert at == build.header_bytes(bth.opcode)
    written = decode_transport(bytes(OUT[:at]) + transport.payload + transport.padding + packet[-4:])
    assert written.bth.as_dict() == {**bth.as_dict(), "migreq": 1}
    for name, header in zip(transport.opcode.headers, written.extensions, strict=True):
        for theirs, ours in FIELDS[name]:
            assert getattr(header, theirs) == getattr(VIEW, ours)


def seeds() -> Iterator[bytes]:
    """Captured packets, short ones first."""
    for number, transport in enumerate(captured_transports()):
        yield bytes([number & 0xFF]) + transport[:200]
        yield b"\x18" + transport
