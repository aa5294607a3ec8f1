"""Reading a capture file of either kind, told apart by how it starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from softhca.wire.capture_file import CapturedPacket
from softhca.wire.capture_links import unwrapped
from softhca.wire.errors import CaptureError
from softhca.wire.pcap import is_pcap, read_pcap
from softhca.wire.pcapng import is_pcapng, read_pcapng


class _Begun:
    """A stream whose first bytes have been read already; it may be a pipe."""

    def __init__(self, start: bytes, stream: BinaryIO) -> None:
        self._start = start
        self._stream = stream

    def read(self, length: int) -> bytes:
        """The next ``length`` bytes, fewer at the end."""
        start, self._start = self._start[:length], self._start[length:]
        return start + self._stream.read(length - len(start))


def read_capture(stream: BinaryIO) -> Iterator[CapturedPacket]:
    """Packets of a binary stream, which need not be seekable, without a wrapping that their link type has
    (`capture_links`); CaptureError when it is no capture file or damaged."""
    start = stream.read(4)
    begun = _Begun(start, stream)
    if is_pcapng(start):
        return map(unwrapped, read_pcapng(begun))
    if is_pcap(start):
        return map(unwrapped, read_pcap(begun))
    raise CaptureError("neither a pcap nor a pcapng file")
