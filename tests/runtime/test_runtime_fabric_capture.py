"""Captures of links: which directions they have, how many packets, and what they leave behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.fabric.topology import End, Link, NodeKind, Topology, make_node
from softhca.runtime import fabric_capture
from softhca.runtime.fabric_capture import LinkCapture
from softhca.wire.capture_file import LINKTYPE_INFINIBAND
from softhca.wire.pcapng import read_pcapng

TOPOLOGY = Topology(
    (make_node("s", NodeKind.SWITCH, 3, 0x100), make_node("a", NodeKind.CHANNEL_ADAPTER, 1, 0x200),
     make_node("b", NodeKind.CHANNEL_ADAPTER, 1, 0x300)),
    (Link(End(0, 1), End(1, 1)), Link(End(0, 2), End(2, 1))),
)  # fmt: skip


class Packets:
    """A fabric's packets: who looks at each end, and how often it was told that this has changed."""

    topology = TOPOLOGY
    link_type = LINKTYPE_INFINIBAND

    def __init__(self) -> None:
        self.sides: dict[End, Any] = {}
        self.told = 0

    def side(self, end: End) -> Any:
        return self.sides.setdefault(End(*end), SimpleNamespace(taps=[]))

    def changed(self) -> None:
        self.told += 1

    def send(self, end: End, data: bytes) -> None:
        for tap in self.side(end).taps:
            tap(data, 0)

    @property
    def tapped(self) -> dict[End, int]:
        return {end: len(side.taps) for end, side in self.sides.items() if side.taps}


def capture(
    packets: Packets, ends: list[End], file: Path, most: int = 0, one_way: bool = False
) -> LinkCapture:
    with file.open("wb") as stream:
        return LinkCapture(packets, ends, stream.fileno(), most, one_way)  # type: ignore[arg-type]


def payloads(file: Path) -> list[bytes]:
    with file.open("rb") as stream:
        return [bytes(each.data) for each in read_pcapng(stream)]


def test_both_directions_of_a_link_are_written_once_or_one_alone(tmp_path: Path) -> None:
    for one_way, ends, expected in (
        (False, [End(1, 1), End(0, 1)], {End(1, 1), End(0, 1)}), (True, [End(1, 1), End(1, 1)], {End(1, 1)}),
        (False, [End(0, 3)], {End(0, 3)}),
    ):  # fmt: skip
        packets, file = Packets(), tmp_path / "links"
        made = capture(packets, ends, file, one_way=one_way)
        assert packets.tapped == dict.fromkeys(expected, 1)
        assert packets.told == 1
        assert file.stat().st_size > 0  # who looks finds an empty capture
        for end in sorted(expected):
            packets.send(end, bytes(end) * 20)
        assert made.close() == {"captured": len(expected)}
        assert (packets.tapped, packets.told) == ({}, 2)
        assert payloads(file) == [bytes(end) * 20 for end in sorted(expected)]
        assert made.close() == {"captured": len(expected)}


def test_so_many_packets_are_written_and_no_more(tmp_path: Path) -> None:
    packets, file = Packets(), tmp_path / "links"
    made = capture(packets, [End(1, 1)], file, most=2)
    for number in range(4):
        assert made.is_complete == (number >= 2)
        packets.send(End(1, 1), bytes([number]) * 40)
    assert made.close() == {"captured": 2}
    assert payloads(file) == [bytes([number]) * 40 for number in range(2)]


def test_a_capture_goes_into_a_file_and_has_so_many_directions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packets = Packets()
    reads, writes = os.pipe()
    with pytest.raises(OSError, match="to a file") as told:
        LinkCapture(packets, [End(1, 1)], writes)  # type: ignore[arg-type]
    assert told.value.errno == errno.EINVAL
    for each in (reads, writes):
        os.close(each)
    monkeypatch.setattr(fabric_capture, "MAX_INTERFACES", 2)
    assert capture(packets, [End(1, 1)], tmp_path / "two").close() == {"captured": 0}
    with pytest.raises(OSError, match="2 directions") as told:
        capture(packets, [End(1, 1), End(2, 1)], tmp_path / "four")
    assert told.value.errno == errno.E2BIG
    assert packets.tapped == {}


def test_a_disk_that_is_full_ends_a_capture_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    packets = Packets()
    made = capture(packets, [End(1, 1)], tmp_path / "links")
    packets.send(End(1, 1), bytes(40))
    with monkeypatch.context() as patch:
        patch.setattr(fabric_capture.PcapngWriter, "write", full)
        packets.send(End(1, 1), bytes(40))
    assert made.is_complete
    packets.send(End(1, 1), bytes(40))
    assert made.close() == {"captured": 1, "error": os.strerror(errno.ENOSPC)}
