"""Worlds with one end in gates: a sample on Amaranth's simulator, and what their talks are judged by.

``make campaign`` plays more, on compiled gates.
"""

import asyncio
import importlib.util
import json
import random
from types import SimpleNamespace

import pytest

pytest.importorskip("amaranth")

from machine_speed import limit_s
from softhca.cli import campaign
from softhca.links.faults import FaultsError
from softhca.simulation.gates_sides import FOREIGN, ROOM_BYTES, Ended, Place
from softhca.simulation.gates_talks import RECEIVES, TOGETHER, Ground, Messages, Refusal, Withdrawal
from softhca.simulation.oracle import Report
from softhca.simulation.runner import ScenarioError, run_world
from softhca.simulation.scenarios import QUICK, SCENARIOS
from softhca.simulation.trace import Trace

QP, ROOM = 3, 4096
KEY, SUCCESS, FLUSHED, ACCESS, GIVEN_UP = 0x60, 0, 5, 10, 12


class EnoughError(BaseException):
    """Ends a world, which takes every other error for a rule that is broken."""


@pytest.mark.timeout(limit_s(600))
def test_gates_and_software_talk_are_refused_and_withdraw_keys_and_the_seed_decides_all():
    lines = []
    outcome = run_world("gates", 1, trace=Trace(lines.append))
    assert outcome.violations == ()
    events = [json.loads(line) for line in lines]
    done = [(one["adapter"], one["qp"], one["status"]) for one in events if one["event"] == "completion"]
    assert (2, Withdrawal.OWNER_QP, SUCCESS) in done
    assert (1, QP, ACCESS) in done
    assert {status for _, qp, status in done if qp == 2} > {SUCCESS, FLUSHED}
    # both adapters send requests and acknowledgements
    sent = {(one["adapter"], one["opcode"]) for one in events if one["event"] == "sent"}
    assert {(1, "RC_ACKNOWLEDGE"), (2, "RC_ACKNOWLEDGE")} < sent
    # once more, as far as a quarter of it
    again, enough = [], len(lines) // 4

    def note(line):
        again.append(line)
        if len(again) == enough:
            raise EnoughError

    with pytest.raises(EnoughError):
        run_world("gates", 1, trace=Trace(note))
    assert again[:enough] == lines[:enough]  # behind them its adapters close


def test_adapters_of_such_a_world_do_not_die():
    with pytest.raises(FaultsError, match="none of its adapters dies"):
        run_world("gates", 1, "crash=2@1.05ms..3ms")


def test_without_amaranth_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ScenarioError, match=r"needs amaranth: pip install 'softhca\[hardware\]'"):
        run_world("gates", 1)


def test_a_campaign_plays_gates_where_compiled_ones_are_named(monkeypatch):
    monkeypatch.delenv("SOFTHCA_GATES", raising=False)
    assert not [name for name in campaign._usual() if SCENARIOS[name].gates]
    assert {name for name, scenario in SCENARIOS.items() if scenario.gates}.isdisjoint(QUICK)
    monkeypatch.setenv("SOFTHCA_GATES", "build/gates")
    assert "gates" in campaign._usual()


# what the talks are judged by, with sides that do nothing


class Memory:
    """A side that notes what it is asked for."""

    def __init__(self, name):
        self.name = name
        self.memory, self.image = bytearray(4 * ROOM), bytearray(4 * ROOM)
        self.asked, self.received, self.invalidated = [], [], []
        self.host = self

    def place(self, offset, registration="open"):
        return Place(offset, {"open": 1, "foreign": 2, "closed": 3}[registration])

    def fill(self, offset, data):
        for memory in (self.memory, self.image):
            memory[offset : offset + len(data)] = data

    def content(self):
        return bytes(self.memory)

    async def ask(self, context, qp, wanted):
        self.asked.append(wanted)

    async def receive(self, context, qp, work, offset, length):
        self.received.append((work, offset, length))

    # the gates' host

    def region(self, va, length, pd, rights):
        self.window = bytearray(length)
        return SimpleNamespace(va=va, key=KEY, length=length)

    def write_bytes(self, region, offset, data):
        self.window[offset : offset + len(data)] = data

    def read_bytes(self, region, offset, length):
        return bytes(self.window[offset : offset + length])

    async def post_invalidate(self, context, qp, key, work):
        self.invalidated.append((qp, key, work))


class Judged:
    """A talk of ``kind`` between such sides; `end` tells it of completions."""

    def __init__(self, kind, seed=1, lossy=False, **given):
        self.gates, self.software = Memory("gates"), Memory("software")
        self.report = Report()
        ground = Ground(self.gates, self.software, self.report, lossy)
        self.talk = kind(ground, QP, 0, ROOM, random.Random(seed), **given)
        asyncio.run(self.talk.begin(None))

    def end(self, side, work, status=SUCCESS, immediate=None):
        asyncio.run(self.talk.ended(None, side, Ended(QP, work, status, immediate)))

    @property
    def rules(self):
        return [found.rule for found in self.report.violations]


def messages(seed=1, operations=1, **given):
    scenario = SimpleNamespace(operations=operations, largest_bytes=100)
    return Judged(Messages, seed, scenario=scenario, **given)


def carry(judged, side):
    """What a side asked for is done: bytes, and completions of both."""
    peer = judged.software if side is judged.gates else judged.gates
    wanted = side.asked[-1]
    here, there = slice(wanted.here, wanted.here + wanted.length), wanted.there.va
    if wanted.kind == "read":
        side.memory[here] = peer.memory[there : there + wanted.length]
    else:
        peer.memory[there : there + wanted.length] = side.memory[here]
    if peer.received:
        judged.end(peer, peer.received[-1][0], immediate=wanted.immediate)
    judged.end(side, wanted.work)


@pytest.mark.parametrize("seed", range(8))
def test_messages_that_arrive_are_right(seed):
    judged = messages(seed)
    for side in (judged.gates, judged.software):
        carry(judged, side)
    assert judged.rules == []
    assert judged.talk.finished
    assert judged.gates.content() == judged.gates.image
    assert judged.software.content() == judged.software.image


def of_kind(kind):
    """A seed whose gates ask for such a message first."""
    return next(seed for seed in range(200) if messages(seed).gates.asked[0].kind == kind)


def test_a_message_that_has_not_arrived_has_not_succeeded():
    judged = messages(of_kind("write"))
    judged.end(judged.gates, 1)
    assert judged.rules == ["success means delivered"]


def test_a_message_that_completes_twice_or_with_an_error_is_wrong():
    judged = messages(of_kind("send"))
    judged.end(judged.gates, 1, ACCESS)
    judged.end(judged.gates, 1)
    assert judged.rules == ["the right status", "every request completes once, in order"]


def test_four_messages_are_under_way_in_memory_of_their_own_and_complete_in_their_order():
    judged = messages(of_kind("write"), operations=TOGETHER + 1)
    asked = judged.gates.asked
    assert [wanted.work for wanted in asked] == [1, 2, 3, 4]
    spans = [range(wanted.here, wanted.here + wanted.length) for wanted in asked]
    assert len(set().union(*spans)) == sum(map(len, spans))
    judged.end(judged.gates, 2)
    assert judged.rules == ["every request completes once, in order"]
    wanted = asked[0]
    judged.software.memory[wanted.there.va : wanted.there.va + wanted.length] = judged.gates.memory[
        wanted.here : wanted.here + wanted.length
    ]
    judged.end(judged.gates, 1)
    assert len(judged.rules) == 1
    # the fifth takes the place of the first
    assert [one.work for one in asked] == [1, 2, 3, 4, 5]
    assert abs(asked[4].here - wanted.here) < 8
    assert not judged.talk.finished


def test_immediate_data_must_be_those_that_were_sent():
    judged = messages(of_kind("send_imm"))
    judged.end(judged.software, RECEIVES + 1, immediate=judged.gates.asked[0].immediate ^ 1)
    assert judged.rules == ["immediate data arrive"]


def test_who_gives_up_is_wrong_only_where_nothing_is_lost():
    for lossy, expected in ((True, []), (False, ["the right status"])):
        judged = messages(of_kind("send"), lossy=lossy)
        judged.end(judged.gates, 1, GIVEN_UP)
        assert judged.rules == expected
        assert judged.talk.finished == lossy


def test_what_may_not_be_must_be_refused():
    for seed in range(20):
        judged = Judged(Refusal, seed)
        refused = judged.talk.expected[1]
        assert [wanted.work for wanted in judged.talk.asker.asked] == [0, 1, 2]
        for work, status in ((0, SUCCESS), (1, SUCCESS), (2, FLUSHED)):
            judged.end(judged.talk.asker, work, status)
        assert judged.rules == ["what may not be is refused"]
        judged = Judged(Refusal, seed)
        for work, status in ((0, SUCCESS), (1, refused), (2, FLUSHED)):
            judged.end(judged.talk.asker, work, status)
        assert judged.rules == []
        assert judged.talk.finished == (judged.talk.fault != "length")


def test_each_fault_is_asked_for():
    found = {}
    for seed in range(60):
        talk = Judged(Refusal, seed).talk
        found[talk.fault] = talk.asker.asked[1]
    assert set(found) == set(Refusal.FAULTS)
    assert found["key"].there.key == 0x5A5A5A
    assert found["domain"].there.key == Memory("").place(0, FOREIGN).key
    assert found["right"].there.key == 3
    assert found["range"].there.va + found["range"].length == ROOM_BYTES + 1
    assert found["length"].kind == "send"


def withdrawal():
    """One whose withdrawal is posted: what the software asked for before has succeeded."""
    judged = Judged(Withdrawal)
    for number in range(judged.talk.before):
        wanted = judged.software.asked[number]
        at = wanted.there.va - 0x2000_0000_0040
        if wanted.kind == "write":
            data = judged.software.memory[wanted.here : wanted.here + wanted.length]
            judged.gates.window[at : at + wanted.length] = data
        else:
            judged.software.memory[wanted.here : wanted.here + wanted.length] = bytes(wanted.length)
        judged.end(judged.software, number)
    assert judged.gates.invalidated == [(Withdrawal.OWNER_QP, KEY, Withdrawal.WITHDRAW)]
    assert judged.rules == []
    return judged, judged.talk.before


def test_a_withdrawal_that_is_kept_is_right():
    judged, under_way = withdrawal()
    judged.end(judged.gates, Withdrawal.WITHDRAW)
    judged.end(judged.software, under_way, ACCESS)
    assert not judged.talk.finished
    for late in range(under_way + 1, len(judged.software.asked)):
        judged.end(judged.software, late, FLUSHED)
    judged.talk.finish()
    assert judged.rules == []
    assert judged.talk.finished


def test_a_dead_key_that_writes_or_answers_is_found():
    judged, under_way = withdrawal()
    judged.end(judged.gates, Withdrawal.WITHDRAW)
    late = len(judged.software.asked) - 1
    assert late > under_way
    judged.end(judged.software, late)
    judged.gates.window[-1] ^= 1
    judged.talk.finish()
    assert judged.rules == ["a dead key gives nothing"] * 2


def test_a_key_that_lives_is_not_refused_and_what_succeeds_is_there():
    judged = Judged(Withdrawal)
    judged.software.fill(0, bytes(16))
    first = judged.software.asked[0]
    judged.end(judged.software, 0)
    judged.end(judged.software, 1, ACCESS)
    rule = "success means written" if first.kind == "write" else "a read returns what memory held"
    assert judged.rules == [rule, "a key that lives gives its rights"]
