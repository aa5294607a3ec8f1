"""Capture files of both kinds: a refusal or packets, which both writers write so that they read back.

Input: a byte that says whether the rest is a file or a list of blocks whose lengths are put right.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator

from fuzz_choices import Choices
from fuzz_seeds import capture_files

from softhca.wire import pcapng
from softhca.wire.capture_file import MAX_PACKET_BYTES, CapturedPacket
from softhca.wire.captures import read_capture
from softhca.wire.errors import CaptureError
from softhca.wire.pcap import MAGIC_NS, MAGIC_US, PcapWriter

KINDS = (
    pcapng.BLOCK_SECTION, pcapng.BLOCK_INTERFACE, pcapng.BLOCK_ENHANCED_PACKET, pcapng.BLOCK_SIMPLE_PACKET,
    pcapng.BLOCK_PACKET, 5, 0x0BAD,
)  # fmt: skip
MAX_READ = 4096


def one_input(data: bytes) -> None:
    choices = Choices(data)
    how = choices.byte() & 7
    if how < 4:
        content = choices.rest()
    else:
        content = classic(choices, how & 1) if how < 6 else blocks(choices, "<>"[how & 1])
    packets: list[CapturedPacket] = []
    try:
        for packet in read_capture(io.BytesIO(content)):
            packets.append(packet)
            assert packet.number == len(packets) <= MAX_READ
            assert len(packet.data) <= min(MAX_PACKET_BYTES, len(content))
    except CaptureError as error:
        assert "\n" not in str(error)
    write_back(packets)


def write_back(packets: list[CapturedPacket]) -> None:
    """What was read can be written and read again."""
    first, second = io.BytesIO(), io.BytesIO()
    classic_writer, writer = PcapWriter(first, 1), pcapng.PcapngWriter(second)
    interface = writer.add_interface(1, "a")
    for packet in packets:
        time_ns = packet.time_ns % (1 << 61)
        classic_writer.write(time_ns % (1 << 32) * 1_000_000_000 + time_ns % 1_000_000_000, packet.data)
        writer.write(interface, time_ns, packet.data)
    for stream in (first, second):
        stream.seek(0)
        assert [packet.data for packet in read_capture(stream)] == [packet.data for packet in packets]
    second.seek(0)
    times = [packet.time_ns % (1 << 61) for packet in packets]
    assert [packet.time_ns for packet in read_capture(second)] == times


def classic(choices: Choices, order: int) -> bytes:
    """A classic file with right lengths."""
    prefix = "<>"[order]
    magic = choices.pick((MAGIC_US, MAGIC_NS))
    out = struct.pack(prefix + "IHHiIII", magic, 2, 4, 0, 0, 65535, choices.number(4))
    while choices.more and len(out) < 4096:
        head = choices.number(4), choices.number(4)
        packet = choices.run()
        out += struct.pack(prefix + "IIII", *head, len(packet), choices.number(2)) + packet
    return out


def blocks(choices: Choices, order: str) -> bytes:
    """Blocks of the next generation with right lengths, but for one in 16."""
    out = b""
    body = struct.pack(order + "IHHq", pcapng.BYTE_ORDER_MAGIC, 1, 0, -1)
    kind = pcapng.BLOCK_SECTION
    while True:
        body += bytes(-len(body) % 4)
        length = len(body) + 12
        second = choices.number(4) if choices.once_in(16) else length
        out += struct.pack(order + "II", kind, length) + body + struct.pack(order + "I", second)
        if not choices.more or len(out) > 4096:
            return out
        kind = choices.pick(KINDS)
        body = choices.run()
        if kind == pcapng.BLOCK_ENHANCED_PACKET and choices.byte() & 1:
            body = (
                struct.pack(order + "IIIII", 0, choices.number(4), choices.number(4), len(body), len(body))
                + body
            )
        elif kind == pcapng.BLOCK_INTERFACE and choices.byte() & 1:
            option = choices.byte() & 0x0F
            body = struct.pack(order + "HHI", 1, 0, 0) + struct.pack(order + "HH", option, len(body)) + body


def seeds() -> Iterator[bytes]:
    """Small captures, a file of our writer, and block lists."""
    for content in capture_files():
        yield b"\x00" + content
    stream = io.BytesIO()
    writer = pcapng.PcapngWriter(stream)
    for number in range(3):
        writer.write(writer.add_interface(1, "net"), number, bytes(61 + number))
    yield b"\x00" + stream.getvalue()
    for how in (4, 5, 6, 7):
        yield bytes([how]) + bytes(range(1, 120))
