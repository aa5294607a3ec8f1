"""The stored corpora and a bounded number of inputs made from them, in the mode that this run is in: all of
these inputs compiled, where no index is checked, a fourth interpreted."""

from __future__ import annotations

from pathlib import Path

import fuzz_corpus
import fuzz_run
import pytest
from fuzz_choices import Choices

from suite_plan import random_inputs

GENERATED = {
    "captures": 4_000,
    "channels": 6_000,
    "commands": 500,
    "congestion": 25,
    "connections": 3_000,
    "control": 30_000,
    "datagrams": 150,
    "engine": 2_000,
    "ethernet": 150,
    "exchange": 25_000,
    "fabric_mads": 500,
    "fabric_packets": 200,
    "frames": 6_000,
    "handshake": 15_000,
    "headers": 20_000,
    "identification": 2_500,
    "lines": 30,
    "link": 6_000,
    "mads": 3_000,
    "mailbox": 10_000,
    "messages": 7_500,
    "pacing": 100,
    "packet": 10_000,
    "private_data": 4_000,
    "rings": 6_000,
    "sockets": 4_000,
    "steering": 4_000,
    "storage": 1_000,
    "text": 20_000,
    "topologies": 1_500,
    "work": 40_000,
}
SEED = 2026


@pytest.mark.parametrize("name", fuzz_run.TARGETS)
def test_no_input_of_the_stored_corpus_breaks_a_promise(name: str) -> None:
    assert fuzz_run.replay(name, []) > 0


@pytest.mark.parametrize("name", fuzz_run.TARGETS)
def test_no_seed_breaks_a_promise(name: str) -> None:
    target = fuzz_run.load(name)
    inputs = list(target.seeds())
    assert inputs
    for data in (b"", b"\xff" * 64, *inputs):
        target.one_input(data)


@pytest.mark.parametrize("name", GENERATED)
def test_generated_inputs_break_no_promise(name: str) -> None:
    count = random_inputs(GENERATED[name])
    assert fuzz_run.plain(name, count, 0, SEED) == count


def test_every_target_has_its_share_of_generated_inputs() -> None:
    assert sorted(GENERATED) == list(fuzz_run.TARGETS)


def test_generated_inputs_follow_from_the_seed() -> None:
    def first(seed: int) -> list[bytes]:
        inputs = fuzz_run.generated("packet", seed)
        return [next(inputs) for _ in range(200)]

    assert first(1) == first(1)
    assert first(1) != first(2)
    assert max(map(len, first(3))) <= fuzz_run.MAX_INPUT_BYTES


def test_an_input_that_fails_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(data: bytes) -> None:
        assert len(data) < 40, "too long"

    monkeypatch.setattr(fuzz_run.load("packet"), "one_input", broken)
    with pytest.raises(AssertionError, match="too long"):
        fuzz_run.plain("packet", 1000, 0, 1)
    assert "packet fails with seed 1, input" in capsys.readouterr().err


def test_choices_are_read_from_front_to_back_and_end_in_zeros() -> None:
    choices = Choices(bytes([5, 1, 2, 3, 4, 2, 9, 8, 255, 0, 3, 7, 7, 7, 6]))
    assert choices.below(3) == 2
    assert choices.number(2) == 0x0102
    assert choices.take(2) == b"\x03\x04"
    assert choices.run() == b"\x09\x08"
    assert choices.run() == b"\x07\x07\x07"
    assert choices.more
    assert choices.block(3) == b"\x06\0\0"
    assert not choices.more
    assert (choices.byte(), choices.number(4), choices.run(), choices.rest()) == (0, 0, b"", b"")
    assert choices.pick("ab") == "a"
    assert not choices.once_in(1)
    assert Choices(b"\x03").once_in(4)
    assert Choices(b"\x01\x02").below(1000) == 0x0102


def test_a_packed_corpus_is_unpacked_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = [b"", b"one", b"\0" * fuzz_corpus.MAX_INPUT_BYTES, b"two", b"one"]
    fuzz_corpus.store("packet", inputs, tmp_path)
    assert sorted(fuzz_corpus.stored("packet", tmp_path)) == sorted(set(inputs))
    folder, extra = tmp_path / "files", tmp_path / "extra"
    extra.write_bytes(b"three")
    place = ["--corpus", str(tmp_path)]
    assert fuzz_corpus.main(["unpack", "packet", str(folder), *place]) == 0
    assert sorted(path.read_bytes() for path in folder.iterdir()) == sorted(set(inputs))
    assert fuzz_corpus.main(["add", "packet", str(extra), *place]) == 0
    assert b"three" in fuzz_corpus.stored("packet", tmp_path)
    assert fuzz_corpus.main(["pack", "packet", str(folder), *place]) == 0
    assert b"three" not in fuzz_corpus.stored("packet", tmp_path)
    assert capsys.readouterr().out.splitlines() == [f"packet: {count} inputs" for count in (4, 5, 4)]
    with pytest.raises(ValueError, match="at most"):
        fuzz_corpus.packed([bytes(fuzz_corpus.MAX_INPUT_BYTES + 1)])


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_a_broken_corpus_is_told(cut: int) -> None:
    with pytest.raises(ValueError, match="corpus"):
        fuzz_corpus.unpacked(fuzz_corpus.packed([b"input!"])[:-cut])
    with pytest.raises(ValueError, match="no corpus"):
        fuzz_corpus.unpacked(b"softhca")


def test_every_stored_corpus_is_packed_in_order() -> None:
    assert {path.stem for path in fuzz_corpus.CORPUS.iterdir()} == set(fuzz_run.TARGETS)
    for path in fuzz_corpus.CORPUS.iterdir():
        assert path.read_bytes() == fuzz_corpus.packed(fuzz_corpus.stored(path.stem)), path
