"""The hot path's view against the representations: same verdict, same fields, also on damaged packets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import transports

from softhca.wire import drops
from softhca.wire.errors import WireError
from softhca.wire.layout import Header
from softhca.wire.opcodes import OPCODES
from softhca.wire.packet import EXTENSIONS, Transport, decode_transport
from softhca.wire.packet_view import PacketView

# what the view calls the fields of each extension header
VIEW_NAMES = {
    "rdeth": {"ee_context": "ee_context"},
    "deth": {"qkey": "qkey", "source_qp": "source_qp"},
    "xrceth": {"xrc_srq": "xrc_srq"},
    "feth": {"selectivity": "selectivity", "placement": "placement"},
    "reth": {"va": "reth_va", "rkey": "reth_rkey", "dma_length_bytes": "reth_length"},
    "atomiceth": {"va": "atomic_va", "rkey": "atomic_rkey", "swap_add": "swap_add", "compare": "compare"},
    "aeth": {"syndrome": "syndrome", "msn": "msn"},
    "atomicacketh": {"original": "atomic_original"},
    "immdt": {"immediate": "immediate"},
    "ieth": {"rkey": "invalidate_key"},
}
BTH_NAMES = (
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


def view_of(data: bytes, before: int = 0, behind: int = 0) -> tuple[PacketView, bytearray, int]:
    buffer = bytearray(b"\xaa" * before + data + b"\xbb" * behind)
    view = PacketView()
    return view, buffer, view.decode(buffer, before, len(data))


def check_same(view: PacketView, data: bytearray, transport: Transport) -> None:
    for name in BTH_NAMES:
        assert getattr(view, name) == getattr(transport.bth, name), name
    row = transport.opcode
    assert (view.service, view.operation, view.position) == (row.service, row.operation, row.position)
    for name in EXTENSIONS:
        assert getattr(view, f"has_{name}") == (name in row.headers), name
    headers: dict[str, Header] = dict(zip(row.headers, transport.extensions, strict=True))
    for name, header in headers.items():
        for field, ours in VIEW_NAMES[name].items():
            assert getattr(view, ours) == getattr(header, field), ours
    assert data[view.payload : view.payload + view.payload_bytes] == transport.payload


@given(transports(), st.integers(0, 9), st.integers(0, 9))
def test_the_view_reads_what_the_representation_encodes(
    transport: Transport, before: int, behind: int
) -> None:
    view, buffer, reason = view_of(transport.encode(), before, behind)
    assert reason == drops.DROP_NONE
    check_same(view, buffer, transport)


@given(transports(), transports())
def test_a_reused_view_keeps_no_header_of_the_last_packet(first: Transport, second: Transport) -> None:
    view = PacketView()
    for transport in (first, second, first):
        data = bytearray(transport.encode())
        assert view.decode(data, 0, len(data)) == 0
        check_same(view, data, transport)


@given(transports(), st.data())
def test_on_damaged_packets_view_and_representation_agree(transport: Transport, data: st.DataObject) -> None:
    raw = bytearray(transport.encode())
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, min(len(raw), 14) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw
    raw += bytes(data.draw(st.integers(0, 4)))
    view, buffer, reason = view_of(bytes(raw))
    try:
        decoded = decode_transport(bytes(raw))
    except WireError:
        assert reason != drops.DROP_NONE
        return
    assert reason == drops.DROP_NONE
    check_same(view, buffer, decoded)


@given(st.binary(max_size=64))
def test_any_bytes_give_a_verdict(data: bytes) -> None:
    _, _, reason = view_of(data)
    assert 0 <= reason < drops.COUNT


def packet(opcode: int, body: int, flags: int = 0x40) -> bytes:
    """A packet with ``body`` bytes between BTH and ICRC."""
    return bytes([opcode, flags]) + bytes(10) + bytes(body) + bytes(4)


@pytest.mark.parametrize("length", range(16))
def test_less_than_a_bth_and_an_icrc_is_truncated(length: int) -> None:
    assert view_of(bytes(length))[2] == drops.DROP_TRUNCATED


@pytest.mark.parametrize("row", OPCODES.values(), ids=lambda row: row.name)
def test_a_packet_without_room_for_its_headers_is_truncated(row) -> None:
    for body in range(0, row.extension_bytes, 4):
        assert view_of(packet(row.code, body))[2] == drops.DROP_TRUNCATED
    assert view_of(packet(row.code, row.extension_bytes))[2] == drops.DROP_NONE


@pytest.mark.parametrize("row", OPCODES.values(), ids=lambda row: row.name)
def test_payload_is_taken_only_where_the_opcode_allows_it(row) -> None:
    reason = view_of(packet(row.code, row.extension_bytes + 4))[2]
    assert reason == (drops.DROP_NONE if row.payload else drops.DROP_LENGTH)


@pytest.mark.parametrize("code", sorted(set(range(256)) - set(OPCODES)))
def test_a_reserved_opcode_is_dropped(code: int) -> None:
    assert view_of(packet(code, 40))[2] == drops.DROP_OPCODE


@pytest.mark.parametrize("version", range(1, 16))
def test_another_transport_header_version_is_dropped(version: int) -> None:
    assert view_of(packet(0x04, 8, version))[2] == drops.DROP_VERSION


@pytest.mark.parametrize("pad", range(4))
def test_pad_is_taken_off_the_payload_and_no_more_than_it(pad: int) -> None:
    view, _, reason = view_of(packet(0x04, 8, pad << 4))
    assert (reason, view.payload, view.payload_bytes) == (drops.DROP_NONE, 12, 8 - pad)
    assert view_of(packet(0x04, 0, pad << 4))[2] == (drops.DROP_PAD if pad else drops.DROP_NONE)
    assert view_of(packet(0x11, 4, pad << 4))[2] == (drops.DROP_PAD if pad else drops.DROP_NONE)


@pytest.mark.parametrize("odd", [1, 2, 3])
def test_a_packet_is_whole_words(odd: int) -> None:
    assert view_of(packet(0x04, 8 + odd))[2] == drops.DROP_LENGTH


@pytest.mark.parametrize(
    ("offset", "length"), [(1, 24), (0, 28), (-1, 24), (-4, 24), (24, 16), (2**40, 24), (0, 2**40)]
)
def test_a_packet_outside_its_buffer_is_dropped(offset: int, length: int) -> None:
    data = bytearray(packet(0x04, 8))
    assert PacketView().decode(data, offset, length) == drops.DROP_LENGTH


def test_lengths_below_zero_are_truncated() -> None:
    assert PacketView().decode(bytearray(24), 0, -24) == drops.DROP_TRUNCATED


def test_every_reason_has_a_name_of_its_own() -> None:
    reasons = {name: value for name, value in vars(drops).items() if name.startswith("DROP_")}
    assert sorted(reasons.values()) == list(range(drops.COUNT))
    assert len(set(drops.NAMES)) == drops.COUNT
    for name, value in reasons.items():
        assert drops.NAMES[value] == name.removeprefix("DROP_").lower()
