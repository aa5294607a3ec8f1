"""Wireshark's tshark finds nothing malformed, unknown or reserved in the captures that we write.

It is asked about RC, UC and UD: its 4.0 knows no XRC opcode, no ATOMIC WRITE, no FLUSH and no CNP, and
looks for the RDETH eight bytes too late; a dissector of ours reads those (test_wire_wireshark.py).  It knows
no LINKTYPE_INFINIBAND either; native packets are shown to it under a user's link type instead.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from wire_samples import FRAMINGS, every_opcode

from machine_speed import limit_s
from softhca.wire.capture_file import LINKTYPE_RAW
from softhca.wire.opcodes import RC, RC_ATOMIC_WRITE, RC_FLUSH, UC, UD
from softhca.wire.packet import Packet
from softhca.wire.pcap import PcapWriter
from softhca.wire.pcapng import PcapngWriter

LINKTYPE_USER0 = 147
NATIVE_AS_USER0 = ("-o", 'uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""')
# guesses at what the payload might be are none of our business
COMMON = ("--disable-protocol", "rpcordma")

Tshark = Callable[..., list[str]]


@pytest.fixture
def tshark() -> Tshark:
    """Runs tshark on a file; its lines of output."""
    program = shutil.which("tshark")
    if program is None:
        pytest.skip("tshark is not installed (Debian package tshark)")

    def run(path: Path, *options: str) -> list[str]:
        command = [program, "-r", str(path), *NATIVE_AS_USER0, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s(60), check=True)
        return done.stdout.splitlines()

    return run


NEWER = (RC_ATOMIC_WRITE, RC_FLUSH)


def shown(kind: str) -> list[Packet]:
    return [
        packet
        for packet in every_opcode(kind)
        if packet.transport.opcode.service in (RC, UC, UD) and packet.transport.bth.opcode not in NEWER
    ]


@pytest.fixture(params=FRAMINGS)
def capture(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[Packet]]:
    """A pcapng file with every opcode that tshark knows, in each framing, and the packets in it."""
    packets = shown(request.param)
    path = tmp_path / f"{request.param}.pcapng"
    with path.open("wb") as stream:
        writer = PcapngWriter(stream)
        number = writer.add_interface(
            LINKTYPE_USER0 if "native" in request.param else LINKTYPE_RAW, "softhca0"
        )
        for index, packet in enumerate(packets):
            writer.write(number, 1_700_000_000_123_456_789 + index, packet.encode())
    return path, packets


def test_tshark_reads_the_fields_that_we_wrote(tshark: Tshark, capture: tuple[Path, list[Packet]]) -> None:
    path, packets = capture
    fields = (
        "frame.time_epoch",
        "infiniband.bth.opcode",
        "infiniband.bth.destqp",
        "infiniband.bth.psn",
        "infiniband.bth.m",
    )
    options = [word for field in fields for word in ("-e", field)]
    rows = [line.split("\t") for line in tshark(path, "-T", "fields", *options, "-E", "separator=/t")]
    assert [row[0] for row in rows] == [f"1700000000.{123_456_789 + index}" for index in range(len(packets))]
    bths = [packet.transport.bth for packet in packets]
    assert [[int(cell, 0) for cell in row[1:]] for row in rows] == [
        [bth.opcode, bth.dest_qp, bth.psn, bth.migreq] for bth in bths
    ]


def test_tshark_finds_nothing_malformed_unknown_or_reserved(
    tshark: Tshark, capture: tuple[Path, list[Packet]]
) -> None:
    path, packets = capture
    text = "\n".join(tshark(path, "-V", *COMMON))
    assert text.count("Base Transport Header") == len(packets)
    assert not re.search(
        r"malformed|vendor specific|opcode: (unknown|reserved)|exception", text, re.IGNORECASE
    )
    reserved = re.findall(r"Reserved(?: \(\d bits\))?: (\w+)$", text, re.MULTILINE)
    assert len(reserved) >= 2 * len(packets)
    assert {int(value, 16) for value in reserved} == {0}


def test_tshark_reads_the_crcs_where_we_put_them(tshark: Tshark, capture: tuple[Path, list[Packet]]) -> None:
    path, packets = capture
    fields = ("infiniband.bth.opcode", "infiniband.invariant.crc", "infiniband.variant.crc")
    options = [word for field in fields for word in ("-e", field)]
    rows = [line.split("\t") for line in tshark(path, *COMMON, "-T", "fields", *options)]
    seen = {int(opcode): (icrc, vcrc) for opcode, icrc, vcrc in rows}
    checked = 0
    for packet in packets:
        icrc, vcrc = seen[packet.transport.bth.opcode]
        if icrc:  # it leaves them out of some opcodes' trees
            checked += 1
            assert int(icrc, 16).to_bytes(4, "big") == packet.transport.icrc.to_bytes(4, "little")
        if vcrc and packet.vcrc is not None:
            assert int(vcrc, 16).to_bytes(2, "big") == packet.vcrc.to_bytes(2, "little")
    assert checked > 20


def test_tshark_reads_classic_files_too(tshark: Tshark, tmp_path: Path) -> None:
    path = tmp_path / "classic.pcap"
    with path.open("wb") as stream:
        writer = PcapWriter(stream, LINKTYPE_RAW)
        for index, packet in enumerate(shown("ipv4")):
            writer.write(10**18 + index, packet.encode())
    rows = tshark(path, "-T", "fields", "-e", "frame.time_epoch")
    assert rows == [f"1000000000.{index:09}" for index in range(len(shown("ipv4")))]
