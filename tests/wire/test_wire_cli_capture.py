"""``softhca capture decode``."""

import argparse
import json
import os
from pathlib import Path

import pytest
from wire_samples import CAPTURES, sample_route

from softhca.cli import capture
from softhca.cli.errors import CommandError
from softhca.wire.bth import Bth
from softhca.wire.capture_file import LINKTYPE_INFINIBAND, LINKTYPE_RAW
from softhca.wire.deth import Deth
from softhca.wire.packet import assemble
from softhca.wire.pcapng import PcapngWriter


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    capture.add_options(parser)
    return capture.run(parser.parse_args(words))


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A good packet, another protocol's, one cut short, one of wrong ICRC, a native one of wrong VCRC."""
    good = assemble(sample_route(), Bth(0x04, dest_qp=0x1234, psn=77), (), b"abcde").encode()
    native = bytearray(assemble(sample_route("native"), Bth(0x04, dest_qp=9), (), b"x").encode())
    native[-1] ^= 1
    path = tmp_path / "mixed.pcapng"
    with path.open("wb") as stream:
        writer = PcapngWriter(stream)
        writer.add_interface(LINKTYPE_RAW)
        writer.add_interface(LINKTYPE_INFINIBAND)
        writer.write(0, 1_000_000_001, good)
        writer.write(0, 2, good[:9] + b"\x06" + good[10:])
        writer.write(0, 3, good[:-1])
        writer.write(0, 4, good[:-1] + bytes([good[-1] ^ 1]))
        writer.write(1, 5, bytes(native))
    return path


def test_json_lists_the_rdma_packets(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("decode", str(mixed), "--json") == 0
    records = json.loads(capsys.readouterr().out)
    assert [record["number"] for record in records] == [1, 3, 4, 5]
    first = records[0]
    assert first["headers"].keys() == {"ipv4", "udp", "bth"}
    assert first["headers"]["bth"]["psn"] == 77
    assert {key: value for key, value in first.items() if key != "headers"} == {
        "number": 1,
        "time_ns": 1_000_000_001,
        "source": "10.0.0.1",
        "destination": "10.0.0.2",
        "opcode": "RC_SEND_ONLY",
        "dest_qp": 0x1234,
        "psn": 77,
        "payload_bytes": 5,
        "icrc_ok": True,
        "vcrc_ok": None,
    }
    assert records[1].keys() == {"number", "time_ns", "error"}
    assert "captured" in records[1]["error"]
    assert (records[2]["icrc_ok"], records[3]["icrc_ok"], records[3]["vcrc_ok"]) == (False, True, False)
    assert records[3]["source"] == "lid 6098"


def test_a_kernels_capture_is_decoded_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("decode", str(CAPTURES / "mix_ipv6.pcap"), "--json") == 0
    records = json.loads(capsys.readouterr().out)
    assert len(records) == 32
    assert all(record["icrc_ok"] and "error" not in record for record in records)


def test_the_table_shows_opcodes_verdicts_and_errors(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("decode", str(mixed)) == 0
    text = capsys.readouterr().out
    assert "4 RDMA packets" in text
    assert text.count("RC_SEND_ONLY") == 3
    assert text.count("BAD") == 2
    assert "0x001234" in text


def test_a_row_has_the_time_since_the_first_packet_and_a_verdict_of_each_checksum(
    mixed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[tuple[str, ...]] = []
    monkeypatch.setattr(capture, "print_table", lambda title, columns, found: rows.extend(found))
    run("decode", str(mixed))
    assert [row[1] for row in rows] == ["0.000000", "-1.000000", "-1.000000", "-1.000000"]
    assert [row[8:10] for row in rows] == [("ok", "–"), ("", ""), ("BAD", "–"), ("ok", "BAD")]
    assert "captured" in rows[1][-1]


def test_reserved_fields_of_extensions_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packet = assemble(
        sample_route(), Bth(0x64, dest_qp=5), (Deth(qkey=7, source_qp=9, reserved8=0x5A),), b"four"
    )
    path = tmp_path / "ud.pcapng"
    with path.open("wb") as stream:
        writer = PcapngWriter(stream)
        writer.write(writer.add_interface(LINKTYPE_RAW), 1, packet.encode())
    rows: list[tuple[str, ...]] = []
    monkeypatch.setattr(capture, "print_table", lambda title, columns, found: rows.extend(found))
    run("decode", str(path))
    assert rows[0][-1] == "deth qkey=0x7 source_qp=0x9"


def test_extension_headers_stand_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("decode", str(CAPTURES / "bad_rkey.pcap")) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "reth" in text
    assert "aeth" in text


def test_a_capture_without_rdma_is_an_empty_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.pcapng"
    with path.open("wb") as stream:
        PcapngWriter(stream)
    assert run("decode", str(path), "--json") == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run("decode", str(path)) == 0


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a capture")
    broken = tmp_path / "cut.pcap"
    broken.write_bytes((CAPTURES / "mix.pcap").read_bytes()[:30])
    for path, message in (
        (tmp_path / "absent", "No such file"),
        (tmp_path, "directory"),
        (text, "neither"),
        (broken, "ends inside"),
    ):
        with pytest.raises(CommandError, match=message) as caught:
            run("decode", str(path), "--json")
        assert "\n" not in str(caught.value)
        assert caught.value.status == 1
    assert capsys.readouterr().out == ""


def test_of_a_file_that_is_cut_short_the_whole_packets_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where a capture is read that is still being written."""
    assert run("decode", str(CAPTURES / "mix.pcap"), "--json") == 0
    whole = json.loads(capsys.readouterr().out)
    cut = tmp_path / "cut.pcap"
    cut.write_bytes((CAPTURES / "mix.pcap").read_bytes()[:-3])
    with pytest.raises(CommandError, match=r"ends inside .* the packets before it are shown") as caught:
        run("decode", str(cut), "--json")
    assert caught.value.status == 1
    assert json.loads(capsys.readouterr().out) == whole[:-1]
    with pytest.raises(CommandError, match="ends inside"):
        run("decode", str(cut))
    assert f"{len(whole) - 1} RDMA packets" in capsys.readouterr().out


def test_a_capture_may_come_through_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (CAPTURES / "bad_rkey.pcap").read_bytes()
    for word in ("/dev/fd/{}", "-"):
        read_end, write_end = os.pipe()
        with open(write_end, "wb") as stream:
            stream.write(content)
        with open(read_end, "rb") as stream:
            monkeypatch.setattr("sys.stdin", argparse.Namespace(buffer=stream))
            assert run("decode", word.format(read_end), "--json") == 0
        assert len(json.loads(capsys.readouterr().out)) == 2
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(CommandError, match="standard input is closed"):
        run("decode", "-")


def test_usage_errors_have_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["decode"], ["encode", "x"]):
        with pytest.raises(SystemExit) as caught:
            run(*words)
        assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err
