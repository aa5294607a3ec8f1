"""Classic capture files: both byte orders, both resolutions, and files that lie."""

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.wire.capture_file import MAX_PACKET_BYTES, CapturedPacket
from softhca.wire.captures import read_capture
from softhca.wire.errors import CaptureError
from softhca.wire.pcap import PcapWriter, read_pcap

TIMES = st.integers(0, 2**32 * 10**9 - 1)


def pcap(
    order: str = "<", magic: int = 0xA1B2C3D4, link: int = 1, version: int = 2, records: bytes = b""
) -> io.BytesIO:
    return io.BytesIO(struct.pack(order + "IHHiIII", magic, version, 4, 0, 0, 65535, link) + records)


@given(st.lists(st.tuples(TIMES, st.binary(max_size=60)), max_size=5), st.sampled_from([1, 101, 247]))
def test_what_was_written_is_read(packets: list[tuple[int, bytes]], link_type: int) -> None:
    stream = io.BytesIO()
    writer = PcapWriter(stream, link_type)
    for time_ns, data in packets:
        writer.write(time_ns, data)
    stream.seek(0)
    assert list(read_capture(stream)) == [
        CapturedPacket(number, time_ns, link_type, data, len(data))
        for number, (time_ns, data) in enumerate(packets, 1)
    ]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("magic", "time_ns"), [(0xA1B2C3D4, 7_000_005_000), (0xA1B23C4D, 7_000_000_005)])
def test_both_byte_orders_and_resolutions_are_read(order: str, magic: int, time_ns: int) -> None:
    record = struct.pack(order + "IIII", 7, 5, 3, 90) + b"abc"
    packets = list(read_pcap(pcap(order, magic, 101, records=record)))
    assert packets == [CapturedPacket(1, time_ns, 101, b"abc", 90)]


def test_the_bits_above_the_link_type_are_not_part_of_it() -> None:
    assert next(read_pcap(pcap(link=0x24000065, records=bytes(16)))).link_type == 101


@pytest.mark.parametrize("cut", range(1, 16 + 16 + 3))
def test_a_file_that_ends_too_early_is_refused_after_its_whole_packets(cut: int) -> None:
    record = struct.pack("<IIII", 0, 0, 3, 3) + b"abc"
    whole = pcap(records=record * 2).getvalue()
    packets = read_pcap(io.BytesIO(whole[:-cut]))
    if cut != 19:  # there it ends between two packets
        if cut < 19:
            assert next(packets).number == 1
        with pytest.raises(CaptureError, match="ends inside"):
            list(packets)
    else:
        assert len(list(packets)) == 1


def test_a_file_header_cut_short_is_refused() -> None:
    for length in range(24):
        with pytest.raises(CaptureError):
            list(read_pcap(io.BytesIO(pcap().getvalue()[:length])))


def test_a_length_beyond_the_bound_is_refused_before_it_is_read() -> None:
    for length in (MAX_PACKET_BYTES + 1, 0xFFFFFFFF):
        with pytest.raises(CaptureError, match="claims"):
            list(read_pcap(pcap(records=struct.pack("<IIII", 0, 0, length, length))))
    record = struct.pack("<IIII", 0, 0, MAX_PACKET_BYTES, 1) + bytes(MAX_PACKET_BYTES)
    assert len(next(read_pcap(pcap(records=record))).data) == MAX_PACKET_BYTES


def test_an_unknown_version_or_kind_is_refused() -> None:
    for version in (1, 3):
        with pytest.raises(CaptureError, match=f"version {version}"):
            list(read_pcap(pcap(version=version)))
    with pytest.raises(CaptureError, match="not a pcap"):
        list(read_pcap(pcap(magic=0xA1B2C3D5)))
    for start in (b"", b"abc", b"not a capture file"):
        with pytest.raises(CaptureError, match="neither"):
            read_capture(io.BytesIO(start))


def test_a_packet_that_no_reader_takes_is_not_written() -> None:
    stream = io.BytesIO()
    with pytest.raises(CaptureError, match="longer"):
        PcapWriter(stream, 1).write(0, bytes(MAX_PACKET_BYTES + 1))
    assert len(stream.getvalue()) == 24


def test_the_longest_packet_that_readers_take_is_written() -> None:
    stream = io.BytesIO()
    PcapWriter(stream, 1).write(0, bytes(MAX_PACKET_BYTES))
    stream.seek(0)
    assert [len(packet.data) for packet in read_pcap(stream)] == [MAX_PACKET_BYTES]


@given(st.data())
def test_a_damaged_file_gives_packets_or_one_clear_error(data: st.DataObject) -> None:
    record = struct.pack("<IIII", 0, 0, 3, 3) + b"abc"
    raw = bytearray(pcap(records=record * 3).getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(list(read_capture(io.BytesIO(bytes(raw))))) <= 6
    except CaptureError:
        return
