"""One direction of an impaired link, packet by packet: what befalls them is taken down, and a list of it
makes the same befall them again."""

from __future__ import annotations

import pytest

from softhca.links import impairment
from softhca.links.decisions import Script, parse_decisions
from softhca.links.faults import Faults, FaultsError
from softhca.links.impairment import BURST_QUIET_NS, Delivery, Impairment, is_off

DATA = bytes(range(200))
EVERYTHING = Faults(
    loss=0.1, duplication=0.2, reordering=0.2, corruption=0.2, truncation=0.2, delay_ns=700, jitter_ns=300,
    reorder_ns=2_000, bandwidth_bytes_per_s=10**9,
)  # fmt: skip


Fate = tuple[list[Delivery], bool]


def fates(faults: Faults, script: Script | None = None, count: int = 600) -> list[Fate]:
    """What becomes of ``count`` packets, and whether each is said to be lost.  Every second one comes while
    the line is busy with the one before."""
    link = Impairment(faults, "seed", 1, 2, script)
    return [
        (link.send(DATA[: 50 + number % 150], number // 2 * 400), bool(link.lost_because))
        for number in range(count)
    ]


def test_what_was_taken_down_befalls_the_same_packets_again() -> None:
    taken = Script()
    told = fates(EVERYTHING, taken)
    assert {one.kind for one in taken.taken} == {
        "lost", "delayed", "reordered", "duplicated", "truncated", "corrupted",
    }  # fmt: skip
    repeated = Script(parse_decisions(",".join(map(str, taken.taken))))
    assert fates(EVERYTHING, repeated) == told
    assert [str(one) for one in repeated.taken] == [str(one) for one in taken.taken]


def test_of_a_packet_that_something_befell_the_headers_are_kept() -> None:
    """IPv6, UDP and BTH are 60 bytes."""
    script = Script(parse_decisions("1>2#2:lost"))
    fates(Faults(), script, 2)
    assert script.heads == {(1, 2, 2): DATA[:51]}
    longer = Script(parse_decisions("1>2#100:lost"))
    fates(Faults(), longer, 100)
    assert longer.heads == {(1, 2, 100): DATA[:64]}


def test_who_takes_down_changes_nothing() -> None:
    assert fates(EVERYTHING, Script()) == fates(EVERYTHING)


def test_a_packet_is_said_to_be_lost_where_no_copy_of_it_arrives() -> None:
    for script in (None, Script(parse_decisions("1>2#1:lost,1>2#3:lost"))):
        told = fates(EVERYTHING, script)
        assert any(lost for _, lost in told)
        assert all(lost == (not copies) for copies, lost in told)


def test_where_a_list_decides_no_die_falls() -> None:
    faults = Faults.parse("loss=1.0,burst=1.0,corrupt=1.0,delay=5ns,jitter=9ns,flap=9ns/8ns")
    assert fates(faults, Script([]), 3) == fates(Faults(delay_ns=5), None, 3)


def test_a_held_packet_is_passed_by_others_which_keep_their_order() -> None:
    script = Script(parse_decisions("1>2#1:reordered+5000ns,1>2#2:delayed+300ns"))
    times = [copies[0].time_ns for copies, _ in fates(Faults(delay_ns=10), script, 6)]
    assert times == [5_010, 310, 410, 410, 810, 810]


def test_jitter_is_anything_up_to_its_length() -> None:
    link = Impairment(Faults(delay_ns=10, jitter_ns=2), "seed", 1, 2)
    assert {link.send(DATA, now)[0].time_ns - now for now in range(0, 2_000, 10)} == {10, 11, 12}


def test_a_clean_link_keeps_the_order_of_packets_whose_times_are_not_in_order() -> None:
    link = Impairment(Faults(delay_ns=10), "seed", 1, 2)
    assert [link.send(DATA, now)[0].time_ns for now in (100, 50, 101, 100)] == [110, 110, 111, 111]


def test_what_was_cut_to_nothing_has_no_bits_that_flip() -> None:
    link = Impairment(Faults(truncation=1.0, corruption=1.0), "seed", 1, 2)
    kinds = {(each.what, bool(each.data)) for now in range(300) for each in link.send(DATA[:4], now)}
    assert kinds == {("corrupted", True), ("truncated", False)}


def test_bits_behind_a_packet_s_end_do_not_flip() -> None:
    script = Script(parse_decisions("1>2#1:truncated@2B,1>2#1:corrupted@3+16+4000"))
    assert fates(Faults(), script, 1)[0][0][0].data == bytes([DATA[0] ^ 8, DATA[1]])


def test_a_run_of_losses_has_its_mean_length_whatever_the_time_is() -> None:
    link = Impairment(Faults(burst_loss=0.02, burst_length_packets=8), "seed", 1, 2)
    start_ns = 1_000 * BURST_QUIET_NS
    lost = "".join("x" if not link.send(DATA, start_ns + number) else " " for number in range(20_000))
    runs = lost.split()
    assert 6 < sum(map(len, runs)) / len(runs) < 10
    assert 0.01 < len(runs) / lost.count(" ") < 0.03


def test_a_quiet_link_ends_a_run_of_losses_and_a_busy_one_does_not() -> None:
    for pause_ns, ends in ((BURST_QUIET_NS, False), (BURST_QUIET_NS + 1, True)):
        link = Impairment(Faults(burst_loss=0.5, burst_length_packets=10**6), "seed", 1, 2)
        now, passed = 10**9, 0
        while link.send(DATA, now):
            pass
        for _ in range(50):
            now += pause_ns
            passed += bool(link.send(DATA, now))
        assert (passed > 0) == ends


@pytest.mark.parametrize(("moment_ns", "off"), [(0, False), (69, False), (70, True), (99, True)])
def test_a_link_is_down_in_the_last_part_of_each_period(moment_ns: int, off: bool) -> None:
    assert is_off(moment_ns, 100, 30) is off
    assert is_off(moment_ns + 1_000, 100, 30) is off
    assert not is_off(moment_ns, 0, 0)


def test_a_list_that_damages_bytes_is_known() -> None:
    damages = {word: Script(parse_decisions(word)).damages for word in (
        "1>2#1:lost", "1>2#1:reordered+1ns,2>1#1:truncated@1B", "1>2#1:corrupted@1", "1>2#1:duplicated+1ns",
    )}  # fmt: skip
    assert list(damages.values()) == [False, True, True, False]
    assert not Script().damages


def test_a_decision_s_numbers_have_bounds() -> None:
    bits = "+".join(map(str, range(64)))
    good = [f"corrupted@{bits}", f"corrupted@{8 * 65_536 - 1}", "truncated@65536B", f"delayed+{10**10}ns"]
    bad = [f"corrupted@{bits}+64", f"corrupted@{8 * 65_536}", "truncated@65537B", f"delayed+{10**10 + 1}ns"]
    for each in good:
        assert [str(one) for one in parse_decisions(f"1>2#1:{each}")] == [f"1>2#1:{each}"]
    for each in bad:
        with pytest.raises(FaultsError, match="expected something like"):
            parse_decisions(f"1>2#1:{each}")


def test_a_phase_lies_within_its_period() -> None:
    phases = {impairment.phase_ns(str(seed), 3) for seed in range(50)}
    assert phases == {0, 1, 2}
    assert impairment.phase_ns("seed", 0) == 0
