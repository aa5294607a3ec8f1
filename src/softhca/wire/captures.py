"""Reading a capture file of either kind, told apart by how it starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from softhca.wire.capture_file import CapturedPacket
from softhca.wire.errors import CaptureError
from softhca.wire.pcap import is_pcap, read_pcap
from softhca.wire.pcapng import is_pcapng, read_pcapng


def read_capture(stream: BinaryIO) -> Iterator[CapturedPacket]:
    """Packets of a seekable binary stream; CaptureError when it is no capture file or damaged."""
    start = stream.read(4)
    stream.seek(0)
    if is_pcapng(start):
        return read_pcapng(stream)
    if is_pcap(start):
        return read_pcap(stream)
    raise CaptureError("neither a pcap nor a pcapng file")
