"""Where inputs begin: the packets of the captures."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from softhca.wire.captures import read_capture
from softhca.wire.packet import decode

CAPTURES = Path(__file__).parents[1] / "data" / "captures"


@cache
def captured_frames() -> tuple[bytes, ...]:
    """Ethernet frames, two of every length, opcode and file."""
    frames: dict[tuple[str, int, int], list[bytes]] = {}
    for path in sorted(CAPTURES.glob("*.pcap")):
        with path.open("rb") as stream:
            for packet in read_capture(stream):
                if len(packet.data) > 62:
                    kept = frames.setdefault((path.name, len(packet.data), packet.data[42]), [])
                    if len(kept) < 2:
                        kept.append(packet.data)
    return tuple(frame for kept in frames.values() for frame in kept)


@cache
def captured_transports() -> tuple[bytes, ...]:
    """BTH … ICRC of every captured kind of packet, one of each opcode and length."""
    found: dict[tuple[int, int], bytes] = {}
    for frame in captured_frames():
        packet = decode(frame, 1)
        if packet is not None:
            data = packet.transport.encode()
            found.setdefault((data[0], len(data)), data)
    return tuple(sorted(found.values(), key=len))


def capture_files() -> Iterator[bytes]:
    """Whole small capture files."""
    for path in sorted(CAPTURES.glob("*.pcap")):
        if path.stat().st_size < 1500:
            yield path.read_bytes()
