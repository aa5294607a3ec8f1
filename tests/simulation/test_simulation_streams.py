"""Worlds of streams: every byte arrives, in order, by each way; what breaks the ring is found out."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from softhca.simulation import streams
from softhca.simulation.runner import run_world
from softhca.simulation.streams import StreamEnd
from softhca.simulation.trace import Trace
from softhca.sockets import work_requests
from softhca.sockets.behind_pool import BehindPool
from softhca.sockets.memory_management import RecordA, RecordB
from softhca.sockets.protocol import CREDIT

SEEDS = (1, 2, 5, 6)


def ends_of(seed, faults=""):
    """The outcome, and what each end says when the world is at rest."""
    lines = []
    outcome = run_world("stream-under-loss", seed, faults, Trace(lines.append))
    return outcome, [line for line in map(json.loads, lines) if line["event"] == "stream"]


def rules_of(seeds=SEEDS):
    return {found.rule for seed in seeds for found in ends_of(seed)[0].violations}


def test_every_byte_arrives_copied_mapped_and_lent_and_pools_are_filled_again_and_again():
    counts = Counter()
    laps = 0
    for seed in SEEDS:
        outcome, ends = ends_of(seed)
        assert outcome.violations == ()
        assert len(ends) == 4
        for end in ends:
            counts.update({kind: end.get(kind, 0) for kind in ("copied", "mapped", "lent")})
            counts["in memory"] += 1000 * end["told_in_memory"]
            laps += end["received"] // end["pool"]
    assert min(counts.values()) > 20_000
    assert laps > 10


@pytest.mark.parametrize(
    "faults", ["loss=40%", "corrupt=5%,truncate=2%,duplicate=10%,reorder=10%", "crash=2@1.05ms..3ms"]
)
def test_worse_networks_break_no_rule(faults):
    for seed in (1, 3):
        assert ends_of(seed, faults)[0].violations == ()


def with_records(monkeypatch, own=RecordA, peers=RecordB):
    """Have each end keep its accounts in records of these classes."""
    meet = StreamEnd.meet

    def meet_with(self, peer):
        meet(self, peer)
        before = self.state.peers
        self.state.own = own(self.state.own.length)
        self.state.peers = peers(before.address, before.length, before.rkey)

    monkeypatch.setattr(StreamEnd, "meet", meet_with)


def test_a_writer_that_has_no_account_of_the_room_is_found_out(monkeypatch):
    class Careless(RecordB):
        def room(self, aligned=False):
            return self.length - self.tail % self.length

    with_records(monkeypatch, peers=Careless)
    assert "peers keep to the protocol of streams" in rules_of()


def test_pages_that_are_granted_while_they_are_held_are_found_out(monkeypatch):
    class Careless(RecordA):
        """What is not read yet, without what is held."""

        def head(self):
            return self.tail - self.available

    with_records(monkeypatch, own=Careless)
    assert "pages that are held stay" in rules_of(range(1, 9))


def test_an_event_that_is_asked_for_in_vain_is_found_out(monkeypatch):
    """Whoever tells in memory looks whether its peer sleeps, behind what it has written."""

    class Careless(BehindPool):
        def take_event_request(self):
            return False

    monkeypatch.setattr(streams, "BehindPool", Careless)
    assert "every byte arrives" in rules_of(range(1, 9))


def test_an_immediate_that_overtakes_what_was_told_in_memory_is_found_out(monkeypatch):
    def arrived(self, immediate):
        if self.state.arrived(immediate) == CREDIT:
            self.state.peers.credited(*self._behind.record())

    monkeypatch.setattr(StreamEnd, "_arrived", arrived)
    assert rules_of(range(1, 9)) & {"bytes arrive once, in order", "every byte arrives"}


def test_credit_that_is_not_given_is_found_out(monkeypatch):
    monkeypatch.setattr(StreamEnd, "_give_credit", lambda self: False)
    assert rules_of() == {"every byte arrives"}


def test_pieces_in_a_wrong_place_are_found_out(monkeypatch):
    cut = work_requests._cut

    def shifted(runs, places):
        return [(run, 0 if number else offset) for number, (run, offset) in enumerate(cut(runs, places))]

    monkeypatch.setattr(work_requests, "_cut", shifted)
    assert "bytes arrive once, in order" in rules_of()
