"""Recorded conversations of softhca and the kernel (`record_interop.py`): every byte of them is explained."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from softhca.wire import opcodes
from softhca.wire.captures import read_capture
from softhca.wire.packet import Packet, decode

FOLDER = Path(__file__).parents[1] / "data" / "interop"
SEED, PATTERN_BYTES = 5, 65_521  # of the cell that was recorded
MTU_BYTES = {"v4": 1024, "v6": 4096}
NO_CREDIT_LIMIT = 31


def packets(path: Path) -> list[Packet]:
    """All packets of a recording, their ICRCs verified."""
    with path.open("rb") as stream:
        found = [decode(frame.data, frame.link_type) for frame in read_capture(stream)]
    assert all(packet is not None and packet.icrc_ok for packet in found)
    return [packet for packet in found if packet is not None]


def fields(packet: Packet) -> dict[str, object]:
    """The fields of the headers behind the BTH."""
    return {name: value for header in packet.transport.extensions for name, value in header.as_dict().items()}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.pcap")), ids=lambda path: path.stem)
def test_a_recording_holds_the_three_writes_and_their_acknowledgements(path: Path) -> None:
    _, family, asks, _ = path.stem.split("_")
    mtu = MTU_BYTES[family]
    found = packets(path)
    requests = [packet for packet in found if not packet.transport.opcode.is_response]
    replies = [packet for packet in found if packet.transport.opcode.is_response]
    block = random.Random(SEED).randbytes(PATTERN_BYTES)
    sizes = (0, 3, 2 * mtu + 5)
    sent = b"".join(packet.transport.payload for packet in requests)
    assert sent == b"".join(block[:size] for size in sizes)
    immediates = [fields(packet)["immediate"] for packet in requests if "immediate" in fields(packet)]
    assert immediates == [int.from_bytes((0x01020300 + n).to_bytes(4, "little"), "big") for n in range(3)]
    assert all(packet.transport.opcode.operation == opcodes.ACKNOWLEDGE for packet in replies)
    assert fields(replies[-1])["msn"] == len(sizes)
    psns = [packet.transport.bth.psn for packet in requests]
    assert psns == list(range(psns[0], psns[0] + 5))
    assert replies[-1].transport.bth.psn == psns[-1]
    ours, theirs = (requests, replies) if asks == "ours" else (replies, requests)
    assert {packet.transport.bth.migreq for packet in ours} == {1}
    assert {packet.transport.bth.migreq for packet in theirs} == {0}
    unlimited = {fields(packet)["syndrome"] == NO_CREDIT_LIMIT for packet in replies}
    assert unlimited == {asks == "ours"}


def test_both_kernels_ask_and_answer_over_both_versions_of_ip() -> None:
    named = {f"linux{series}_{family}_{asks}_asks" for series in ("6.1", "6.12")
             for family in MTU_BYTES for asks in ("ours", "kernel")}  # fmt: skip
    assert {path.stem for path in FOLDER.glob("*.pcap")} == named
