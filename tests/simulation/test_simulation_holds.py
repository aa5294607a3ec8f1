"""Worlds whose memory is held: every kind of hold occurs, anywhere the same, and their rules find bugs."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from judged_wire import ACK, FETCH_ADD, FIRST_PSN, NO_LIMIT, ONE, READ_ONLY, RNR, TWO, Wire

from softhca.memory.paged_memory import OUT
from softhca.simulation.oracle import GUARD
from softhca.simulation.pageable import Pageable
from softhca.simulation.runner import run_world
from softhca.simulation.scenarios import SCENARIOS
from softhca.simulation.trace import Trace

REQUEST, ANSWER, SOURCE, RESULT = "request", "answer", "source", "result"
HELD_NS, RETRY_NS = 200_000, 300_000

PROGRAM = """
import sys
from softhca.simulation.runner import run_world
print(*(run_world(name, 3).digest for name in sys.argv[1:]))
"""


def lines_of(name, seed):
    lines = []
    outcome = run_world(name, seed, "", Trace(lines.append))
    assert outcome.violations == ()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", ["swap-under-load", "migrate-under-load"])
def test_every_kind_of_wait_occurs_and_nothing_fails(name):
    told, what = Counter(), Counter()
    for seed in range(20, 26):
        for line in lines_of(name, seed):
            what[line["event"]] += 1
            if line["event"] == "memory_held":
                told[line["reason"]] += 1
            assert line["event"] not in ("send_failed", "receive_failed", "retry_exhausted")
    assert set(told) == {REQUEST, ANSWER, SOURCE, RESULT}
    assert what["rnr_nak_sent"] >= told[REQUEST] > 20
    assert what["held"] > 20
    assert what["moved" if name == "migrate-under-load" else "fetched"] > 0


@pytest.mark.parametrize("name", ["uc-swap", "uc-migrate", "ud-swap", "ud-migrate"])
def test_unreliable_services_drop_what_meets_held_memory(name):
    lines = [line for seed in range(20, 26) for line in lines_of(name, seed)]
    dropped = [line for line in lines if line["event"] == "message_dropped"]
    assert {line["reason"] for line in dropped} >= {"held"}
    assert not any("drops_held" in line for line in lines)  # it is the queue pair that drops


def test_a_fresh_process_with_other_hashes_gives_the_same_digests():
    names = [name for name, scenario in SCENARIOS.items() if scenario.holds]
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == [run_world(name, 3).digest for name in names]


def test_what_is_swapped_out_is_read_where_it_is():
    content = bytes(range(256)) * 40
    pageable = Pageable(content, 15, False)
    pageable.memory.swap_out()
    assert pageable.memory.state == OUT
    assert pageable.missing
    for offset, length in ((0, len(content)), (5, 4090), (4095, 2), (8192, 0), (len(content) - 1, 1)):
        assert pageable.read(offset, length) == content[offset : offset + length]
    pageable.memory.swap_in()
    assert not pageable.missing
    assert pageable.read(0, len(content)) == content
    pageable.close()


def test_pages_on_demand_come_when_a_program_looks():
    content = bytes([GUARD]) * 4096 + b"second page"
    pageable = Pageable(content, 15, True)
    assert not pageable.missing
    pageable.memory.swap_out(first=0, count=1)
    assert (pageable.missing, pageable.present) == (True, 1)
    assert pageable.read(4096, 11) == b"second page"
    assert pageable.missing
    assert pageable.read(4095, 2) == bytes([GUARD]) + b"s"
    assert not pageable.missing
    pageable.close()


# the rules


def held(wire, one, number, what, truly=True):
    wire.oracle.held(wire.now, one, (FIRST_PSN + number) & 0xFFFFFF, what, truly)


@pytest.mark.parametrize("what", [REQUEST, ANSWER, SOURCE, RESULT])
def test_only_what_is_held_waits(what):
    wire = Wire()
    wire.read(0)
    wire.oracle.hold(wire.now, 2)
    held(wire, TWO if what in (REQUEST, ANSWER) else ONE, 0, what, truly=False)
    assert "only what is held waits" in wire.rules


@pytest.mark.parametrize("told", [False, True])
def test_a_held_request_is_refused_though_there_are_receives(told):
    wire = Wire(posted=5)
    if told:
        held(wire, TWO, 0, REQUEST)
    wire.send(0, ask=True)
    wire.answer(0, RNR)
    wire.now += 20_000
    wire.send(0, ask=True)
    wire.answer(0, msn=1)
    assert wire.rules == ([] if told else ["who has receives does not refuse"])


def test_a_held_request_may_not_be_acknowledged():
    wire = Wire()
    held(wire, TWO, 0, REQUEST)
    wire.request(FETCH_ADD, 0, bytes(28), ask=True)
    wire.answer(0, msn=1)
    assert "a message without a receive is refused" in wire.rules


def test_credits_do_not_count_what_is_refused():
    wire = Wire(posted=2)
    held(wire, TWO, 1, REQUEST)
    wire.read(0)
    wire.send(1, ask=True)
    wire.answer(0, 2, 1, READ_ONLY, b"data")
    wire.answer(1, RNR, 1)
    assert wire.rules == []


@pytest.mark.parametrize(("after_ns", "answered", "rules"), [
    (RETRY_NS, True, []),
    (RETRY_NS + 1, True, ["what asks for an answer gets one"]),
    (0, False, ["what asks for an answer gets one"]),
])  # fmt: skip
def test_a_held_answer_comes_soon_after_the_hold(after_ns, answered, rules):
    wire = Wire()
    wire.oracle.hold(wire.now, 2)
    wire.read(0)
    held(wire, TWO, 0, ANSWER)
    wire.now += 1_000_000
    wire.request(8, 1, payload=b"late", arrives=False)  # time has passed, and is looked at
    wire.oracle.lifted(wire.now, 2)
    wire.now += after_ns
    if answered:
        wire.answer(0, msn=1, opcode=READ_ONLY, payload=b"data")
    assert [rule for rule in wire.rules if "answer" in rule] == rules


def test_what_comes_behind_an_answer_that_is_held_again_waits_with_it():
    wire = Wire()
    wire.read(0)
    wire.answer(0, msn=1, opcode=READ_ONLY, payload=b"data", arrives=False)
    wire.now += 5_000_000
    wire.oracle.hold(wire.now, 2)
    wire.read(0)
    held(wire, TWO, 0, ANSWER)
    wire.oracle.lifted(wire.now, 2)
    wire.send(1, ask=True)
    wire.now += 100_000
    wire.send(2, ask=True)
    wire.answer(0, msn=1, opcode=READ_ONLY, payload=b"data")
    wire.answer(2, msn=3)
    assert wire.rules == []


def dropped(wire):
    """A READ is answered, and its data cannot be placed."""
    wire.read(0)
    wire.oracle.hold(wire.now, 1)
    held(wire, ONE, 0, RESULT)
    wire.answer(0, msn=1, opcode=READ_ONLY, payload=b"data")


@pytest.mark.parametrize(("after_ns", "rules"), [
    (0, []),
    (HELD_NS + 100_000, []),
    (3 * HELD_NS, ["what could not be placed is asked for again"]),
])  # fmt: skip
def test_what_could_not_be_placed_is_asked_for_again_in_time(after_ns, rules):
    wire = Wire(quiet=True, retries=0)
    for _ in range(3):
        dropped(wire)
        wire.now += after_ns
        if rules:
            break
    wire.read(0)
    wire.answer(0, msn=1, opcode=READ_ONLY, payload=b"data")
    assert wire.rules == rules


def test_what_could_not_be_placed_goes_before_anything_else():
    wire = Wire()
    dropped(wire)
    wire.send(1)
    assert wire.rules == ["what could not be placed is asked for again"]


def test_without_a_word_of_a_hold_asking_again_needs_a_cause():
    wire = Wire()
    wire.read(0)
    wire.answer(0, msn=1, opcode=READ_ONLY, payload=b"data")
    wire.now += HELD_NS
    wire.read(0)
    assert wire.rules != []


def test_what_is_not_awaited_cannot_be_dropped():
    wire = Wire()
    wire.read(0)
    held(wire, ONE, 1, RESULT)
    assert wire.rules[0] == "only what is held waits"


@pytest.mark.parametrize("is_held", [False, True])
def test_a_hold_at_either_end_excuses_a_time_out(is_held):
    wire = Wire()
    if is_held:
        wire.oracle.hold(wire.now, 2)
    wire.send(0, ask=True)
    wire.answer(0, msn=1, opcode=ACK, syndrome=NO_LIMIT, arrives=False)
    wire.losses.clear()
    wire.now += 2 * 4_096 << 8
    wire.send(0, ask=True)
    wire.answer(0, msn=1)
    assert wire.rules == ([] if is_held else ["nothing is sent again without cause"])
