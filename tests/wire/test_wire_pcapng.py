"""Capture files of the next generation: interfaces, time resolutions, byte orders, and files that lie."""

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.wire.capture_file import MAX_PACKET_BYTES, CapturedPacket
from softhca.wire.captures import read_capture
from softhca.wire.errors import CaptureError
from softhca.wire.pcapng import MAX_BLOCK_BYTES, MAX_INTERFACES, PcapngWriter, read_pcapng


def block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", 12 + len(body))
    return struct.pack(order + "I", kind) + length + body + length


def section(order: str = "<", major: int = 1) -> bytes:
    return block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, major, 0, -1))


def option(order: str, code: int, value: bytes) -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def interface(order: str = "<", link: int = 101, snapshot: int = 0, options: bytes = b"") -> bytes:
    return block(order, 1, struct.pack(order + "HHI", link, 0, snapshot) + options)


def enhanced(order: str, ticks: int, data: bytes, number: int = 0, original: int | None = None) -> bytes:
    original = len(data) if original is None else original
    fields = (number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), original)
    return block(order, 6, struct.pack(order + "IIIII", *fields) + data)


def read(*parts: bytes) -> list[CapturedPacket]:
    return list(read_pcapng(io.BytesIO(b"".join(parts))))


both_orders = pytest.mark.parametrize("order", ["<", ">"])


@given(
    st.lists(st.sampled_from([1, 101, 247]), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**64 - 1), st.binary(max_size=60)), max_size=6),
)
def test_what_was_written_is_read(links: list[int], packets: list[tuple[int, int, bytes]]) -> None:
    stream = io.BytesIO()
    writer = PcapngWriter(stream)
    numbers = [writer.add_interface(link, f"softhca{index}") for index, link in enumerate(links)]
    assert numbers == list(range(len(links)))
    expected = []
    for index, time_ns, data in packets:
        number = index % len(links)
        writer.write(number, time_ns, data)
        expected.append(CapturedPacket(len(expected) + 1, time_ns, links[number], data, len(data)))
    stream.seek(0)
    assert list(read_capture(stream)) == expected


@both_orders
def test_the_default_resolution_is_a_microsecond(order: str) -> None:
    packets = read(section(order), interface(order), enhanced(order, 2**32 + 5, b"abc", original=99))
    assert packets == [CapturedPacket(1, (2**32 + 5) * 1000, 101, b"abc", 99)]


@both_orders
@pytest.mark.parametrize(
    ("resolution", "time_ns"),
    [(0, 7_000_000_000), (3, 7_000_000), (9, 7), (12, 0), (0x80, 7 * 10**9), (0x81, 35 * 10**8),
     (64, 0), (0xC0, 0), (127, 0), (0xFF, 0)],
)
def test_an_interface_tells_its_resolution_and_offset(order: str, resolution: int, time_ns: int) -> None:
    options = option(order, 9, bytes([resolution])) + option(order, 14, struct.pack(order + "q", -2))
    options += option(order, 2, b"eth0x") + option(order, 0, b"")
    packets = read(section(order), interface(order, options=options), enhanced(order, 7, b""))
    assert packets[0].time_ns == time_ns - 2 * 10**9


def test_options_behind_the_end_mark_do_not_count() -> None:
    options = option("<", 0, b"") + option("<", 9, b"\x00")
    assert read(section(), interface(options=options), enhanced("<", 7, b""))[0].time_ns == 7000


@both_orders
def test_simple_packets_are_cut_by_the_snapshot_length_and_have_no_time(order: str) -> None:
    simple = block(order, 3, struct.pack(order + "I", 10) + b"0123")
    packets = read(section(order), interface(order, 247, 4), simple)
    assert packets == [CapturedPacket(1, 0, 247, b"0123", 10)]
    whole = block(order, 3, struct.pack(order + "I", 3) + b"012")
    assert read(section(order), interface(order, 247, 0), whole)[0].data == b"012"


@both_orders
def test_obsolete_packet_blocks_are_read(order: str) -> None:
    body = struct.pack(order + "HHIIII", 1, 0, 0, 5, 3, 9) + b"abc"
    packets = read(section(order), interface(order, 1), interface(order, 101), block(order, 2, body))
    assert packets == [CapturedPacket(1, 5000, 101, b"abc", 9)]


def test_a_new_section_begins_anew_in_its_own_byte_order() -> None:
    packets = read(
        section("<"),
        interface("<", 1),
        enhanced("<", 1, b"a"),
        section(">"),
        interface(">", 247),
        enhanced(">", 2, b"b"),
    )
    assert [(p.number, p.link_type, p.time_ns) for p in packets] == [(1, 1, 1000), (2, 247, 2000)]
    with pytest.raises(CaptureError, match="interface 0"):
        read(section("<"), interface("<"), section("<"), enhanced("<", 1, b"a"))


@both_orders
def test_unknown_blocks_are_passed_over(order: str) -> None:
    packets = read(
        section(order),
        block(order, 0xBAD, b"xyz"),
        interface(order),
        block(order, 5, bytes(8)),
        enhanced(order, 1, b"a"),
    )
    assert [packet.number for packet in packets] == [1]


@both_orders
def test_other_blocks_may_be_longer_than_any_packet(order: str) -> None:
    """Secrets of TLS (10) and custom blocks, say."""
    long = block(order, 10, bytes(2 * MAX_BLOCK_BYTES + 4))
    packets = read(section(order), interface(order), long, enhanced(order, 1, b"a"), long)
    assert [packet.data for packet in packets] == [b"a"]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([section()[:4]], "ends inside"),
        ([section()[:8]], "magic"),
        ([section()[:20]], "ends inside"),
        ([section(major=2)], "version 2"),
        ([b"\n\r\r\n" + bytes(24)], "magic"),
        ([section(), enhanced("<", 0, b"a")], "interface 0"),
        ([section(), interface(), enhanced("<", 0, b"a", 1)], "interface 1"),
        ([section(), struct.pack("<II", 6, 8)], "claims 8"),
        ([section(), struct.pack("<II", 6, 13)], "claims 13"),
        ([section(), struct.pack("<II", 6, 2**31)], "claims"),
        ([section(), struct.pack("<II", 6, 16)], "ends inside"),
        ([section(), struct.pack("<IIII", 0xBAD, 16, 0, 12)], "lengths differ"),
        ([section(), struct.pack("<II", 0xBAD, 8)], "claims 8"),
        ([section(), struct.pack("<II", 0xBAD, 14)], "claims 14"),
        ([section(), struct.pack("<II", 0xBAD, 0xFFFFFFFC) + bytes(9)], "ends inside"),
        ([section(), struct.pack("<II", 0xBAD, 16) + bytes(4)], "ends inside"),
        ([section(), struct.pack("<II", 0xBAD, 16) + bytes(6)], "ends inside"),
        ([section(), block("<", 1, bytes(4))], "too short"),
        ([section(), interface(), block("<", 6, bytes(8))], "too short"),
        (
            [section(), interface(), block("<", 6, struct.pack("<IIIII", 0, 0, 0, 5, 5) + bytes(4))],
            "claims 5",
        ),
        ([section(), interface(), block("<", 3, struct.pack("<I", 9) + bytes(8))], "claims 9"),
        ([section(), block("<", 3, bytes(8))], "interface 0"),
        ([section(), interface(options=struct.pack("<HH", 2, 90))], "option runs"),
        ([section(), interface(options=struct.pack("<HH", 2, 1))], "option runs"),
        ([section(), interface(options=struct.pack("<HH", 2, 5) + bytes(4))], "option runs"),
        ([interface()], "not a pcapng"),
        ([b""], "not a pcapng"),
        ([block("<", 0x0A0D0D0A, b"\x4d\x3c\x2b\x1a")], "too short"),
    ],
)
def test_a_file_that_lies_is_refused(parts: list[bytes], message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        read(*parts)


@pytest.mark.parametrize("more_bytes", [0, 4])
def test_a_block_that_is_kept_has_its_longest_length(more_bytes: int) -> None:
    long = interface(options=bytes(MAX_BLOCK_BYTES - 20 + more_bytes))
    assert len(long) == MAX_BLOCK_BYTES + more_bytes
    if more_bytes:
        with pytest.raises(CaptureError, match=f"claims {len(long)}"):
            read(section(), long)
    else:
        assert len(read(section(), long, enhanced("<", 7, b"a"))) == 1


def test_interfaces_are_bounded() -> None:
    with pytest.raises(CaptureError, match="interfaces"):
        read(section(), interface() * (MAX_INTERFACES + 1))
    assert read(section(), interface() * MAX_INTERFACES) == []
    writer = PcapngWriter(io.BytesIO())
    for _ in range(MAX_INTERFACES):
        writer.add_interface(1)
    with pytest.raises(CaptureError, match="interfaces"):
        writer.add_interface(1)


def test_a_packet_that_no_reader_takes_is_not_written() -> None:
    stream = io.BytesIO()
    writer = PcapngWriter(stream)
    writer.add_interface(1)
    before = stream.getvalue()
    for interface_number, data in ((1, b""), (-1, b""), (0, bytes(MAX_PACKET_BYTES + 1))):
        with pytest.raises(CaptureError):
            writer.write(interface_number, 0, data)
    assert stream.getvalue() == before
    writer.write(0, 0, bytes(MAX_PACKET_BYTES))
    stream.seek(0)
    assert len(next(read_pcapng(stream)).data) == MAX_PACKET_BYTES


@given(st.data())
def test_a_damaged_file_gives_packets_or_one_clear_error(data: st.DataObject) -> None:
    whole = section() + interface(options=option("<", 9, b"\x09")) + enhanced("<", 1, b"abcde") * 3
    raw = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        assert len(list(read_capture(io.BytesIO(bytes(raw))))) <= 3
    except CaptureError:
        return
