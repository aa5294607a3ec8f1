"""Worlds of datagram sockets: what arrives is whole and from whom it says; what breaks that is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from softhca.simulation import datagram_sockets, runner
from softhca.simulation.datagram_sockets import DatagramSocketEnd
from softhca.simulation.runner import run_world
from softhca.simulation.trace import Trace
from softhca.sockets.datagram_credits import ReceiveCredits, SendCredit
from softhca.sockets.datagram_state import DatagramState

SEEDS = (1, 2, 3)


def ends_of(seed, faults="", name="datagram-sockets"):
    """The outcome, and what the ends say in sum when the world is at rest."""
    lines = []
    outcome = run_world(name, seed, faults, Trace(lines.append))
    counts = Counter()
    for line in map(json.loads, lines):
        if line["event"] == "datagrams":
            counts.update({name: value for name, value in line.items() if isinstance(value, int)})
    return outcome, counts


def rules_of(seeds=SEEDS, faults=""):
    return {found.rule for seed in seeds for found in ends_of(seed, faults)[0].violations}


def test_datagrams_of_any_length_arrive_whole_and_some_are_lost_and_repeated():
    counts = Counter()
    for seed in SEEDS:
        outcome, found = ends_of(seed)
        assert outcome.violations == ()
        counts += found
    assert counts["sent"] == 3 * 180
    assert counts["sent"] * 0.85 < counts["received"] - counts["again"] < counts["sent"]
    assert counts["again"]
    assert counts["credits"]
    assert counts["unanswered"] < counts["sent"] * 0.05
    assert counts["dropped_incomplete"]
    assert counts["dropped_malformed"]


QUIET = "loss=0%,reorder=0%,duplicate=0%"


def test_nothing_is_lost_where_no_link_loses():
    for seed in (1, 3, 4):
        outcome, counts = ends_of(seed, QUIET)
        assert outcome.violations == ()
        assert counts["received"] == counts["sent"] == 180
        assert counts["unanswered"] == 0


def have_credits(monkeypatch, kind):
    """Have all ends tell their senders what a ``kind`` of `ReceiveCredits` says."""

    class Spoilt(DatagramState):
        def __init__(self, slots):
            super().__init__(slots)
            self.credits = kind(slots // 2)

    monkeypatch.setattr(datagram_sockets, "DatagramState", Spoilt)


def test_readers_that_tell_more_room_than_there_is_are_found_out(monkeypatch):
    class Generous(ReceiveCredits):
        def hold(self, sender, pages):
            super().hold(sender, 0)

    have_credits(monkeypatch, Generous)
    assert "receive queues are not overrun" in rules_of((1, 3, 4), QUIET)


def test_credit_that_is_never_told_hangs_nobody(monkeypatch):
    class Silent(ReceiveCredits):
        def due(self, now_ns):
            return []

    have_credits(monkeypatch, Silent)
    outcome, counts = ends_of(1)
    assert outcome.violations == ()
    assert counts["sent"] == 180
    assert counts["unanswered"]


def test_datagrams_arrive_over_native_links():
    for seed in (1, 5):
        outcome, counts = ends_of(seed, "loss=0%,duplicate=0%,corrupt=0%", "native-datagram-sockets")
        assert outcome.violations == ()
        assert counts["received"] == counts["sent"] == 180
    outcome, counts = ends_of(1, "", "native-datagram-sockets")
    assert outcome.violations == ()
    assert counts["sent"] * 0.85 < counts["received"] < counts["sent"]
    assert not counts["dropped_forged"]


@pytest.mark.parametrize("crash", ["crash=1@1.1ms..", "crash=2@1.05ms..3ms"])
@pytest.mark.parametrize("name", ["datagram-sockets", "native-datagram-sockets"])
def test_nobody_waits_for_an_end_that_crashes(name, crash):
    """Those that live send all that they have to send, also to it, and hear each other; two that start again
    where it was send theirs as well.
    """
    outcome, counts = ends_of(1, crash, name)
    assert outcome.violations == ()
    assert counts["unanswered"]
    begun_again = 180 if crash.endswith("3ms") else 0
    assert 120 + begun_again <= counts["sent"] <= 180 + begun_again
    assert counts["received"] > counts["sent"] * 0.3


def test_a_wait_without_end_for_a_crashed_one_is_found_out(monkeypatch):
    class Patient(SendCredit):
        def give_up(self):
            """Wait on."""

    monkeypatch.setattr(runner, "PATIENCE", 1)  # events enough for one that ends; the other asks on and on
    assert rules_of((1,), "crash=1@1.1ms..") == set()
    monkeypatch.setattr(datagram_sockets, "SendCredit", Patient)
    assert "every slot comes back" in rules_of((1,), "crash=1@1.1ms..")


def test_a_seed_has_one_digest_whatever_the_process():
    """Sets and hashes have no say in it."""
    text = "from softhca.simulation.runner import run_world\nprint(run_world('datagram-sockets', 1).digest)"
    here = run_world("datagram-sockets", 1).digest
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", text], env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert done.stdout.strip() == here
    assert run_world("datagram-sockets", 2).digest != here


@pytest.mark.parametrize("faults", ["loss=30%", "corrupt=5%,truncate=2%,duplicate=10%,reorder=20%"])
def test_worse_networks_break_no_rule(faults):
    assert rules_of((1,), faults) == set()


def test_slots_that_are_given_back_while_they_are_held_are_found_out(monkeypatch):
    receive = DatagramSocketEnd._receive

    def careless(self):
        before = list(self.state.queue)[:1]
        worked = receive(self)
        if worked:
            self.state.free += before[0].slots
        return worked

    monkeypatch.setattr(DatagramSocketEnd, "_receive", careless)
    assert rules_of()


def test_parts_of_two_datagrams_that_are_joined_are_found_out(monkeypatch):
    class Joining(DatagramState):
        def _partial(self, source, number, now_ns):
            return super()._partial(source, number & 1, now_ns)

        def _join(self, source, number, now_ns, indices):
            super()._join(source, number & 1, now_ns, indices)

    monkeypatch.setattr(datagram_sockets, "DatagramState", Joining)
    assert "datagrams arrive whole" in rules_of()


def test_slots_of_dropped_datagrams_that_are_forgotten_are_found_out(monkeypatch):
    class Forgetting(DatagramState):
        def _drop(self, why, slots):
            super()._drop(why, slots[1:])

    monkeypatch.setattr(datagram_sockets, "DatagramState", Forgetting)
    assert "every slot comes back" in rules_of()
