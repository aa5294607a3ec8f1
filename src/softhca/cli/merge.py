"""The captures of several processes as one, in the order of time."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from softhca.cli.errors import CommandError
from softhca.wire.capture_file import CapturedPacket
from softhca.wire.errors import CaptureError
from softhca.wire.pcapng import PcapngWriter, read_pcapng

RECEIVED = ".received.pcapng"

_IPV4_SOURCE = slice(12, 16)
_IPV6_SOURCE = slice(8, 24)

_log = logging.getLogger("softhca.capture")


def merge_captures(files: Sequence[Path], target: Path) -> int:
    """Write the packets of ``files`` into ``target``; returns how many.

    A packet from one of these processes to another was both sent and received: what one of them sent is taken
    from its sender.  A file that ends early, because its process was killed, gives what it has.
    Raises :class:`CommandError` when ``target`` cannot be written.
    """
    senders = {
        source_address(packet.data)
        for file in files
        if not file.name.endswith(RECEIVED)
        for packet in _packets(file)
    }
    streams = [_wanted(file, senders) for file in files]
    count = 0
    try:
        with target.open("wb") as stream:
            writer = PcapngWriter(stream)
            interfaces: dict[int, int] = {}
            for packet in heapq.merge(*streams, key=lambda packet: packet.time_ns):
                if packet.link_type not in interfaces:
                    interfaces[packet.link_type] = writer.add_interface(packet.link_type, "softhca run")
                writer.write(interfaces[packet.link_type], packet.time_ns, packet.data)
                count += 1
    except OSError as error:
        raise CommandError(f"cannot write {target}: {error.strerror}") from error
    return count


def _wanted(file: Path, senders: set[bytes]) -> Iterable[CapturedPacket]:
    """The packets of ``file`` without those that a sender's own file has."""
    packets = _packets(file)
    if not file.name.endswith(RECEIVED):
        return packets
    return (packet for packet in packets if source_address(packet.data) not in senders)


def _packets(file: Path) -> Iterator[CapturedPacket]:
    with file.open("rb") as stream:
        try:
            yield from read_pcapng(stream)
        except CaptureError as error:
            _log.warning("%s: %s", file.name, error)


def source_address(packet: bytes) -> bytes:
    """The source address of a raw IP packet, 4 or 16 bytes; empty where there is none."""
    version = packet[0] >> 4 if packet else 0
    return packet[_IPV4_SOURCE] if version == 4 else packet[_IPV6_SOURCE] if version == 6 else b""
