"""``softhca rmb asm``, ``disasm`` and ``listing`` from the command line."""

import json
import sys

import pytest

pytest.importorskip("amaranth")

from softhca.cli.main import main
from softhca.cli.rmb_files import read_text
from softhca.hardware.assembler import assemble
from softhca.hardware.microcode_files import microcode_names, microcode_program, microcode_source

GOOD = "start: move r1, 64 ; a number\n       add.keep r1, HOST_DATA\n       jump start\n"
WORDS = ["80400000040", "01444700000"]


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.asm"
    path.write_text(GOOD, encoding="utf-8")
    return path


def words_of(halves):
    return [f"{upper << 22 | lower:011x}" for upper, lower in zip(halves[::2], halves[1::2], strict=True)]


def test_asm_prints_the_memorys_words(good, capsys):
    assert main(["rmb", "asm", str(good)]) == 0
    halves = [0b10_0000_000001_0000000000, 64, 0b00_0001_000001_010001_0_000, 0b11 << 20]
    assert capsys.readouterr().out.split() == words_of(halves)


def test_asm_writes_an_image_that_disasm_turns_back(good, tmp_path, capsys):
    image, again = tmp_path / "image.hex", tmp_path / "again.asm"
    assert main(["rmb", "asm", str(good), "-o", str(image)]) == 0
    assert capsys.readouterr().out == ""
    assert main(["rmb", "disasm", str(image)]) == 0
    text = capsys.readouterr().out
    assert text.split("\n")[:4] == [
        "L0:",
        "    move r1, 0x00000040",
        "    add.keep r1, HOST_DATA",
        "    jump L0",
    ]
    again.write_text(text, encoding="utf-8")
    assert main(["rmb", "asm", str(again)]) == 0
    assert capsys.readouterr().out == image.read_text(encoding="ascii")


def test_asm_and_disasm_as_json(good, tmp_path, capsys):
    assert main(["rmb", "asm", str(good), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["instructions"] == 4
    assert document["labels"] == {"start": 0}
    image = tmp_path / "image.hex"
    image.write_text("\n".join(document["words"]), encoding="ascii")
    assert main(["rmb", "disasm", str(image), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == "L0:"


@pytest.mark.parametrize("name", microcode_names())
def test_listing_of_the_packages_microcode(name, capsys):
    assert main(["rmb", "listing", name]) == 0
    out = capsys.readouterr().out
    assert f"{name}: {len(microcode_program(name).halves)} instructions" in out
    assert any(prefix in out for prefix in ("HOST_", "RQ_", "RX_", "RMB_"))


def test_listing_as_json_and_of_a_file(tmp_path, capsys):
    path = tmp_path / "walk.asm"
    path.write_text(microcode_source("walk"), encoding="utf-8")
    documents = []
    for name in ("walk", str(path)):
        assert main(["rmb", "listing", name, "--json"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert documents[0] == documents[1]
    row = next(row for row in documents[0] if "row" in row["labels"])
    assert (row["source"], row["clocks"], row["since_label"]) == ("cmp     RQ_KEY_DATA, pd", 1, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "move r1, 2\nmove.z r1, 64\n",
            "bad.asm:2:12: a number above 63 leaves no room for a condition and always sets the flags: "
            "put it into a register first",
        ),
        ("halt\njump 9\n", "bad.asm:2:6: jump to 9, outside the program's 0 … 1"),
        ("move r0, r0\n" * 4096 + "halt\n", "bad.asm:4097:1: the program does not fit"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["asm", "listing"])
def test_bad_microcode_is_refused_with_its_place(tmp_path, capsys, monkeypatch, command, text, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.asm").write_text(text, encoding="utf-8")
    assert main(["rmb", command, "bad.asm"]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"softhca rmb: {said}")
    assert err.count("\n") == 1


def test_an_image_that_is_none_is_refused(tmp_path, capsys):
    image = tmp_path / "image.hex"
    image.write_text("0\n fffffffffff0\n", encoding="ascii")
    assert main(["rmb", "disasm", str(image)]) == 1
    assert capsys.readouterr().err == f"softhca rmb: {image}:2:2: fffffffffff0 has more than 44 bits\n"


def test_files_that_cannot_be_read_or_written(good, tmp_path, capsys):
    assert main(["rmb", "asm", str(tmp_path / "none.asm")]) == 1
    assert "none.asm: No such file" in capsys.readouterr().err
    assert main(["rmb", "asm", str(good), "-o", str(tmp_path / "no" / "image")]) == 1
    assert "No such file" in capsys.readouterr().err
    (tmp_path / "bytes.asm").write_bytes(b"\xff\xfe")
    assert main(["rmb", "asm", str(tmp_path / "bytes.asm")]) == 1
    assert "not a text file" in capsys.readouterr().err


def test_a_name_that_is_neither_microcode_nor_a_file(capsys):
    assert main(["rmb", "listing", "nothing"]) == 2
    assert "no microcode 'nothing'" in capsys.readouterr().err


def test_without_the_extra_one_line_says_so(good, capsys, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("softhca.hardware.", "amaranth"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "amaranth", None)
    assert main(["rmb", "asm", str(good)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_constants_that_are_set(tmp_path, capsys):
    path = tmp_path / "two.asm"
    path.write_text(".set ONE, 1\n.set TWO, 2\nmove r1, ONE\nmove r2, TWO\nhalt", encoding="utf-8")
    assert main(["rmb", "listing", str(path), "--set", "TWO=0x22", "--set", "ONE=3", "--json"]) == 0
    found = [row["code"] for row in json.loads(capsys.readouterr().out)]
    assert found[:2] == [f"{half:06x}" for half in assemble("move r1, 3\nmove r2, 34\nhalt").halves[:2]]
    assert main(["rmb", "asm", str(path), "--set", "TWO=0x22", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["instructions"] == 3
    assert main(["rmb", "listing", "send", "--set", "ALONE=1"]) == 0
    assert "cmp     RQ_KEY_DATA, pd" in capsys.readouterr().out
    assert main(["rmb", "listing", "send", "--set", "NOBODY=1"]) == 2
    assert "--set: no constant 'NOBODY'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["rmb", "asm", str(path), "--set", "ONE=many"])
    assert "argument --set: NAME=N, not 'ONE=many'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["rmb", "asm", str(path), "--set", "ONE=0x100000000"])
    assert "argument --set: 0x100000000 has more than 32 bits" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["asm", "disasm"])
def test_a_file_without_an_end_is_refused(action, capsys):
    assert main(["rmb", action, "/dev/zero"]) == 1
    assert "/dev/zero: more than 4 MiB" in capsys.readouterr().err


def test_lines_may_end_as_on_other_systems(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"one\r\ntwo\rthree\n")
    assert read_text(path) == "one\ntwo\nthree\n"
