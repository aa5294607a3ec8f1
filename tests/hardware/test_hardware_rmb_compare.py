"""``softhca rmb compare`` and ``rmb race``: figures that were counted, races that were found."""

from __future__ import annotations

import contextlib
import functools
import io
import json
from typing import NamedTuple

import pytest

from softhca.cli.main import main
from softhca.hardware import compare as comparing
from softhca.hardware import races as racing
from softhca.hardware.compare import Comparison, compare, rq_delays, walk_clocks
from softhca.hardware.designs import DESIGNS, FIXED, MANAGER, MICROCODE
from softhca.hardware.fixed_function import FixedFunctionManager
from softhca.hardware.key_memory import KEYS, VALID
from softhca.hardware.microcode_files import microcode_program
from softhca.hardware.microcode_walk import CASES, MicrocodeWalk, search_stall
from softhca.hardware.races import (
    BIND,
    KEY,
    LOOK_UP_CLOCKS,
    LOST,
    MISSED,
    Interleaving,
    Operation,
    interleaving,
    search,
)
from softhca.hardware.rmb import RemoteKeyManager

OTHER, NONE, ALL = CASES
play = functools.cache(racing.play)
"""What an interleaving does to a design, played once: searches, commands and tests ask for the same ones."""


@pytest.fixture(autouse=True)
def played_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racing, "play", play)


class Told(NamedTuple):
    """What the command measured, and what it printed, on both streams."""

    measured: Comparison
    out: str
    err: str


@pytest.fixture(scope="module")
def told() -> Told:
    """A small comparison."""
    measured = []

    def kept(*words: object) -> Comparison:
        measured.append(compare(*words))  # type: ignore[arg-type]
        return measured[-1]

    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(comparing, "compare", kept)
        patch.setattr(racing, "play", play)
        assert main(["rmb", "compare", "--vis", "4", "--interleavings", "12", "--json"]) == 0
    return Told(*measured, out.getvalue(), err.getvalue())


def test_gates_take_two_six_and_ten_clocks_a_vi() -> None:
    vis = 256
    counted = {case: walk_clocks(RemoteKeyManager(vis, KEYS, row * vis)) for case, row in CASES.items()}
    assert counted == {OTHER: 2 * vis, NONE: 6 * vis, ALL: 10 * vis}


def test_the_shortest_walk_is_counted_whole() -> None:
    assert walk_clocks(RemoteKeyManager(1, KEYS, CASES[OTHER])) == 2


@pytest.mark.parametrize("matching", range(KEYS + 1))
def test_each_key_that_matches_costs_one_clock(matching: int) -> None:
    row = (7, *(VALID | 0x123,) * matching, *(VALID | 1,) * (KEYS - matching))
    assert walk_clocks(RemoteKeyManager(3, KEYS, row * 3)) == 3 * (6 + matching)


def test_the_comparison_counts_microcode_by_running_it_and_stalls_only_there(told: Told) -> None:
    measured = told.measured
    clocks = {(walk.design, walk.case): walk.clocks for walk in measured.walks}
    microcode = MicrocodeWalk(4)
    for case in CASES:
        assert clocks[MICROCODE, case] == microcode.case(case).clocks
        assert clocks[MANAGER, case] == clocks[FIXED, case]
    assert clocks[MICROCODE, ALL] >= 9 * 4
    for walk in measured.walks:
        assert walk.stall_clocks == (walk.clocks if walk.design == MICROCODE else 4)
        assert walk.rq_stall_clocks == (None if walk.design == MICROCODE else 0)


def test_a_search_that_holds_the_engine_up_would_be_counted() -> None:
    """Four instructions until the next turn; each one more is one clock more."""
    program = microcode_program("search")
    assert search_stall(RemoteKeyManager(2, KEYS)) == search_stall(FixedFunctionManager(2, KEYS)) == 4
    assert program.labels["wait"] == 4


def test_an_rq_that_is_delayed_would_be_counted() -> None:
    class Late(RemoteKeyManager):
        """Tells the RQ a word that it did not ask for."""

        def elaborate(self, platform: object) -> object:
            m = super().elaborate(platform)
            m.d.comb += self.rq_read_data.eq(0)
            return m

    assert rq_delays(RemoteKeyManager(4), 40) == 0
    assert rq_delays(Late(4), 40) > 0


def test_the_search_counts_genuine_races_of_each_design_in_both_orders() -> None:
    races = search(4, first_seed=78)
    assert set(races.spoiled) == {(design, order) for design in DESIGNS for order in (False, True)}
    for (design, order), spoiled in races.spoiled.items():
        kinds = [kinds_of(design, order, (seed,)) for seed in range(78, 82)]
        assert spoiled.runs == sum(map(bool, kinds))
        assert spoiled[1:] == tuple(sum(kind in one for one in kinds) for kind in (LOST, MISSED))
    assert races.spoiled[MICROCODE, False].lost == 1


def kinds_of(design: str, enters_first: bool, seeds: tuple[int, ...]) -> set[str]:
    return {kind for seed in seeds for kind, _ in play(interleaving(seed), design, enters_first).races}


def test_the_manager_needs_an_rq_engine_that_enters_a_key_before_it_looks_at_the_window() -> None:
    seeds = (9, 12, 20, 21, 36, 37, 72, 78, 82)
    assert kinds_of(MANAGER, False, seeds) == {MISSED}
    assert kinds_of(MANAGER, True, seeds) == set()


def test_a_walk_that_is_not_told_of_writes_loses_keys_in_either_order() -> None:
    assert kinds_of(FIXED, True, (82, 103)) == kinds_of(MICROCODE, True, (72, 104)) == {LOST}
    assert kinds_of(FIXED, False, (20, 9)) == {LOST, MISSED}
    assert kinds_of(MICROCODE, False, (78, 116)) == {LOST}


def one_operation(word: int) -> Interleaving:
    """An operation that enters ``word`` as the first row's first key in clock 10, or looks then."""
    memory = tuple((7, *(VALID | 1,) * KEYS) * 4)
    return Interleaving(0, memory, (Operation(10, 0, 0, word),))


def test_what_a_late_clear_leaves_in_a_word_that_nobody_uses_is_no_loss() -> None:
    """The operation is refused and takes its key away in the clock in which the walk has compared it."""
    assert Operation(10, 0, 0, KEY).refused(True)
    run = play(one_operation(KEY), FIXED, True)
    accesses = [
        (row.clock, row.mem_we) for row in run.rows if 1 in (row.rq_addr, row.mem_we * row.mem_wr_addr)
    ]
    assert accesses == [(10, False), (19, False), (20, True)]
    assert run.races == ()


def test_who_looks_in_the_clock_in_which_the_window_goes_is_refused() -> None:
    """One clock earlier it stands: an RQ engine that looks first enters the key behind the walk then."""
    memory = tuple((7, *(VALID | 1,) * KEYS) * 4)
    for looks, races in ((BIND - 1, ((MISSED, 1),)), (BIND, ())):
        operation = Operation(looks, 0, 0, KEY)
        assert operation.refused(False) == (not races)
        assert Operation(looks - LOOK_UP_CLOCKS, 0, 0, KEY).refused(True) == (not races)
        assert play(Interleaving(0, memory, (operation,)), MANAGER, False).races == races


def test_a_valid_key_that_a_late_clear_takes_is_one() -> None:
    memory = (7, VALID | KEY, *(VALID | 1,) * 3, *(7, *(VALID | 1,) * KEYS) * 3)
    shown = Interleaving(0, memory, (Operation(19, 0, 0, KEY ^ 1),))
    assert play(shown, FIXED, True).races == ((LOST, 1),)
    assert play(shown, MANAGER, True).races == ()


@pytest.mark.parametrize("kind", [LOST, MISSED])
def test_a_race_found_is_there_again_by_its_seed(kind: str) -> None:
    seed = search(30, designs=(FIXED,), orders=(False,)).found[kind]
    spoiled = play(interleaving(seed), FIXED, False)
    word = next(address for found, address in spoiled.races if found == kind)
    assert not play(interleaving(seed), MANAGER, True).races
    entered = next(row.clock for row in spoiled.rows if row.rq_write and row.rq_addr == word)
    read = next(row.clock for row in spoiled.rows if row.mem_re and row.mem_rd_addr == word)
    cleared = [row.clock for row in spoiled.rows if row.mem_we and row.mem_wr_addr == word]
    if kind == LOST:
        assert read < entered < cleared[0]
    else:
        assert read < entered
        assert not [clock for clock in cleared if clock > entered]


def test_the_fixed_hardware_walks_as_the_manager_does_when_it_is_alone() -> None:
    row = (7, VALID | 0x123, VALID | 5, 0, VALID | 0x123)
    assert walk_clocks(FixedFunctionManager(5, KEYS, row * 5)) == 5 * 8


def test_compare_prints_walks_and_races(
    told: Told, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = json.loads(told.out)
    done = 20, 50, 80, 90, 100  # three of walks, then of interleavings
    assert told.err.splitlines() == [f"rmb compare: {tenths} %" for tenths in done]
    assert len(printed["walks"]) == 9
    first = printed["walks"][0]
    assert (first["design"], first["clocks"], first["walk_us"]) == (MANAGER, 8, 0.064)
    assert first["stall_us"] == 0.032
    assert (first["rq_stall_us"], printed["walks"][1]["rq_stall_us"]) == (0, None)
    spoiled = {(row["design"], row["rq_engine"]): row["runs"] for row in printed["interleavings"]["spoiled"]}
    assert len(spoiled) == 6
    assert spoiled[MANAGER, "enters first"] == 0 < spoiled[FIXED, "looks first"]
    monkeypatch.setattr(comparing, "compare", lambda *words: told.measured)
    assert main(["rmb", "compare", "--vis", "4", "--interleavings", "12"]) == 0
    assert "microcode alone" in capsys.readouterr().out


def test_race_shows_the_interleaving_clock_by_clock(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rmb", "race", "--interleavings", "30", "--json"]) == 0
    out, told = capsys.readouterr()
    found = json.loads(out)
    assert told.splitlines() == [f"rmb race: {done} %" for done in range(10, 101, 10)]
    assert [race["kind"] for race in found] == [LOST, MISSED]
    assert all(race["rows"][0]["clock"] == 1 and race["words"] for race in found)
    assert main(["rmb", "race", "--interleavings", "30"]) == 0
    printed = capsys.readouterr().out
    assert "the withdrawn key stays valid in word" in printed
    assert main(["rmb", "race", "--interleavings", "1"]) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["compare", "--vis", "0"], "1 to 65536 VIs, not 0"),
        (["compare", "--interleavings", "0"], "--interleavings is 1 to 1000000, not 0"),
        (["race", "--interleavings", "-1"], "--interleavings is 1 to 1000000, not -1"),
    ],
)
def test_numbers_out_of_bounds_are_refused_in_one_line(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rmb", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert told in error
