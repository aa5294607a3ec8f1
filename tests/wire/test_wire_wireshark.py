"""The dissector for Wireshark: tshark, given it, reads every field of RD, XRC, ATOMIC WRITE, FLUSH and CNP
as it was written, in every framing; marks what is cut short; and reads all else by its own dissectors.
"""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from wire_samples import FRAMINGS, every_opcode, sample_route

from machine_speed import limit_s
from softhca.cli.capture import decoded
from softhca.cli.main import main
from softhca.wire.bth import Bth
from softhca.wire.capture_file import LINKTYPE_RAW
from softhca.wire.captures import read_capture
from softhca.wire.layout import Header
from softhca.wire.opcodes import OPCODES, RC, RD, RD_ACKNOWLEDGE, SERVICE_NAMES, UC, UD
from softhca.wire.packet import EXTENSIONS, Packet, assemble
from softhca.wire.pcap import PcapWriter
from softhca.wire.wireshark import HEADERS, dissector, is_read_by_us

LINKTYPE_USER0 = 147
NATIVE = ("-o", 'uat:user_dlts:"User 0 (DLT=147)","softhca_native","0","","0",""')
MARKS = "_ws.malformed || _ws.lua.error || softhca.cut_short || softhca.bad_length"
OURS = [row for row in OPCODES.values() if is_read_by_us(row)]


class Tshark:
    """tshark with the dissector, on one file."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("tshark")
        if program is None:
            pytest.skip("tshark is not installed (Debian package tshark)")
        self.program = program
        self.path = folder / "packets.pcap"
        self.script = folder / "softhca.lua"
        self.script.write_text(dissector(), encoding="utf-8")

    def write(self, frames: list[bytes], kind: str = "ipv4") -> None:
        with self.path.open("wb") as stream:
            writer = PcapWriter(stream, LINKTYPE_USER0 if "native" in kind else LINKTYPE_RAW)
            for index, frame in enumerate(frames):
                writer.write(10**18 + index, frame)

    def __call__(self, *options: str) -> list[str]:
        command = [self.program, "-X", f"lua_script:{self.script}", "-r", str(self.path), *NATIVE, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s(60), check=True)
        assert "Lua" not in done.stdout, done.stdout
        return done.stdout.splitlines()

    def fields(self, *names: str) -> list[list[str]]:
        """Of each packet its values of these fields."""
        options = [word for name in names for word in ("-e", name)]
        return [line.split("\t") for line in self("-T", "fields", "-E", "separator=/t", *options)]


@pytest.fixture
def tshark(tmp_path: Path) -> Tshark:
    return Tshark(tmp_path)


def random_header(random: Random, header: type[Header]) -> Header:
    return header.decode(random.randbytes(header.LENGTH_BYTES))


def random_packets(kind: str) -> list[Packet]:
    """Of each opcode that the dissector takes, packets with any values and payloads of any padding."""
    random = Random(18)
    made = []
    for row in OURS:
        for length in range(1, 5) if row.payload else (0,):
            drawn = random_header(random, Bth)
            assert isinstance(drawn, Bth)
            bth = replace(drawn, opcode=row.code, tver=0)
            extensions = tuple(random_header(random, EXTENSIONS[name]) for name in row.headers)
            made.append(assemble(sample_route(kind), bth, extensions, random.randbytes(length)))
    return made


def field_names(headers: list[str]) -> list[str]:
    return [f"softhca.{name}.{field.name}" for name in headers for field in HEADERS[name].LAYOUT]


@pytest.mark.parametrize("kind", FRAMINGS)
def test_every_field_is_read_as_it_was_written(tshark: Tshark, kind: str) -> None:
    packets = random_packets(kind)
    tshark.write([packet.encode() for packet in packets], kind)
    names = field_names(["bth", *EXTENSIONS])
    read = [
        {name: int(cell, 0) for name, cell in zip(names, row, strict=True) if cell}
        for row in tshark.fields(*names)
    ]
    written = []
    for packet in packets:
        headers = {"bth": packet.transport.bth, **dict(packet.headers())}
        headers = {name: header for name, header in headers.items() if name in ("bth", *EXTENSIONS)}
        written.append({
            f"softhca.{name}.{field.name}": getattr(header, field.name)
            for name, header in headers.items()
            for field in header.LAYOUT
        })
    assert read == written
    assert not tshark("-Y", MARKS)


@pytest.mark.parametrize("kind", FRAMINGS)
def test_payload_padding_and_crcs_are_read_where_they_stand(tshark: Tshark, kind: str) -> None:
    packets = random_packets(kind)
    tshark.write([packet.encode() for packet in packets], kind)
    rows = tshark.fields("softhca.payload", "softhca.padding", "softhca.icrc", "softhca.vcrc")
    for packet, (payload, padding, icrc, vcrc) in zip(packets, rows, strict=True):
        transport = packet.transport
        assert payload.replace(":", "") == transport.payload.hex()
        assert padding.replace(":", "") == transport.padding.hex()
        assert int(icrc, 0).to_bytes(4, "big") == transport.icrc.to_bytes(4, "little")
        assert bool(vcrc) == (packet.vcrc is not None)
        if packet.vcrc is not None:
            assert int(vcrc, 0).to_bytes(2, "big") == packet.vcrc.to_bytes(2, "little")


@pytest.mark.parametrize("kind", ["native", "native_grh"])
def test_the_headers_of_native_frames_are_read(tshark: Tshark, kind: str) -> None:
    packets = random_packets(kind)[:4]
    tshark.write([packet.encode() for packet in packets], kind)
    headers = ["lrh", "grh"] if kind == "native_grh" else ["lrh"]
    read = tshark.fields(*field_names(headers))
    written = []
    for packet in packets:
        values = [
            getattr(header, field.name) for header in packet.network for field in type(header).LAYOUT
        ]
        written.append([value.hex() if isinstance(value, bytes) else str(value) for value in values])
    assert read == written


def test_the_columns_name_service_and_operation(tshark: Tshark) -> None:
    packets = random_packets("ipv4")
    tshark.write([packet.encode() for packet in packets])
    rows = tshark.fields("_ws.col.Protocol", "_ws.col.Info")
    for packet, (protocol, info) in zip(packets, rows, strict=True):
        row, bth = packet.transport.opcode, packet.transport.bth
        assert protocol == SERVICE_NAMES[row.service]
        assert info.startswith(f"{row.name} QP=0x{bth.dest_qp:06x} PSN={bth.psn}")
        rdeth = dict(packet.headers()).get("rdeth")
        assert (row.service == RD) == (rdeth is not None)
        if rdeth:
            assert f"EEC={rdeth.as_dict()['ee_context']}" in info


def test_what_is_cut_short_is_marked_and_nothing_fails(tshark: Tshark) -> None:
    """Every packet, cut after each word: marked wherever headers or ICRC are missing."""
    frames, marked = [], []
    for packet in random_packets("ipv4"):
        transport = packet.transport.encode()
        headers = 12 + packet.transport.opcode.extension_bytes
        route = sample_route("ipv4")
        for length in range(4, len(transport), 4):
            frames.append(route.headers(length) + transport[:length])
            short = length < headers + 4 or packet.transport.bth.pad > length - headers - 4
            marked.append(short)
    tshark.write(frames)
    found = set(map(int, tshark("-Y", MARKS, "-T", "fields", "-e", "frame.number")))
    assert found == {number for number, short in enumerate(marked, 1) if short}


def test_payload_where_none_may_be_and_a_wrong_pad_count_are_marked(tshark: Tshark) -> None:
    route = sample_route("ipv4")
    headers = tuple(EXTENSIONS[name].decode(bytes(4)) for name in ("rdeth", "aeth"))
    request = assemble(route, Bth(RD_ACKNOWLEDGE), headers)
    with_payload = replace(request.transport, payload=bytes(4))
    padded = replace(request.transport, bth=replace(request.transport.bth, pad=1))
    plain = request.transport.encode()
    frames = [plain, with_payload.encode(), padded.encode(), plain + bytes(1)]
    tshark.write([route.headers(len(frame)) + frame for frame in frames])
    assert tshark("-Y", "softhca.bad_length", "-T", "fields", "-e", "frame.number") == ["2", "3", "4"]


def test_a_native_frame_whose_length_is_wrong_is_marked(tshark: Tshark) -> None:
    frame = bytearray(random_packets("native")[0].encode())
    longer, shorter = bytearray(frame), bytearray(frame)
    longer[5] += 4
    shorter[4:6] = (2).to_bytes(2, "big")
    tshark.write([bytes(frame), bytes(longer), bytes(shorter)], "native")
    assert tshark("-Y", "softhca.bad_length", "-T", "fields", "-e", "frame.number") == ["2", "3"]


@pytest.mark.parametrize("kind", FRAMINGS)
def test_all_else_stays_with_wireshark(tshark: Tshark, kind: str) -> None:
    packets = [packet for packet in every_opcode(kind) if not is_read_by_us(packet.transport.opcode)]
    tshark.write([packet.encode() for packet in packets], kind)
    rows = tshark.fields("infiniband.bth.opcode", "softhca.bth.opcode")
    assert [(int(theirs, 0), ours) for theirs, ours in rows] == [
        (packet.transport.bth.opcode, "") for packet in packets
    ]


def test_the_dissector_takes_what_wireshark_does_not_know() -> None:
    left = [row for row in OPCODES.values() if not is_read_by_us(row)]
    assert {row.service for row in left} == {RC, UC, UD}
    assert not [row.name for row in left if "FLUSH" in row.name or "ATOMIC_WRITE" in row.name]
    assert len(OURS) == 22 + 23 + 1 + 2


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "softhca.lua"
    assert main(["capture", "wireshark", "--out", str(path)]) == 0
    assert main(["capture", "wireshark"]) == 0
    assert path.read_text(encoding="utf-8") + "\n" == capsys.readouterr().out
    assert path.read_text(encoding="utf-8") == dissector()


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "wireshark", "--out", str(tmp_path / "no" / "such" / "folder.lua")]) != 0
    assert "No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("scenario", ["rd-chaos", "native-rd"])
def test_a_world_of_reliable_datagrams_is_read_as_rd(tshark: Tshark, scenario: str) -> None:
    """A whole capture of the simulator, with loss and duplication; in native-rd bits flip, too, and what
    becomes malformed so is marked.
    """
    capture = tshark.path.with_name("world.pcapng")
    assert main(["simulate", "--scenario", scenario, "--seed", "1", "--capture", str(capture)]) == 0
    link_type = ("-T", "user0") if scenario == "native-rd" else ()
    converted = ["editcap", *link_type, str(capture), str(tshark.path)]
    # a sanitizer's library that is preloaded for us hangs it
    unwatched = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run(converted, check=True, timeout=limit_s(60), env=unwatched)
    rows = tshark.fields("_ws.col.Protocol", "softhca.rdeth.ee_context", "softhca.bth.opcode")
    assert len(rows) > 500
    assert {row[0] for row in rows} == {"RD"}
    assert all(row[1] for row in rows)
    assert len({row[2] for row in rows}) > 10
    with capture.open("rb") as stream:
        damaged = [record["number"] for record in decoded(read_capture(stream)) if "error" in record]
    assert bool(damaged) == (scenario == "native-rd")
    assert [int(number) for number in tshark("-Y", MARKS, "-T", "fields", "-e", "frame.number")] == damaged
