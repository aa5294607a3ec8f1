"""What an end of datagrams knows of its peers: who is asked, believed, told, forgotten; without a device."""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.sockets import datagrams
from softhca.sockets.datagram_credits import SMALLEST_WINDOW
from softhca.sockets.datagram_peer import Peer, agrees
from softhca.sockets.datagram_state import Claim, DatagramState
from softhca.sockets.datagrams import AGAIN_S, MOST_ADMISSIONS, RENEW_S, DatagramEnd
from softhca.sockets.waiting import Guard

HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
GID, OTHER = bytes(15) + b"\x02", bytes(15) + b"\x03"
PLACE: Any = SimpleNamespace(device="softhca0", port=1)
FAR: Any = SimpleNamespace(device="softhca0", port=2)


class Port:
    """A port of a device; ``noted`` is what is sent by it."""

    def __init__(self, place: Any) -> None:
        self.place, self.state = place, DatagramState(64)
        self.failed, self.number, self.noted = False, 77, list[tuple[Any, ...]]()
        self.idle, self.room, self.says = True, True, True

    def has_room(self) -> bool:
        return self.room

    def send_credit(self, way: Any, limit: int, window: int) -> bool:
        self.noted.append(("credit", way.source, limit, window))
        return self.says

    def send_closed(self, way: Any) -> None:
        self.noted.append(("closed", way.source))


class Way:
    """A way to a queue pair."""

    def __init__(self, port: Any, found: Any, host: bytes, own_port: int) -> None:
        self.port, self.found, self.source = port, found, (found.gid, found.qp_num)
        self.closed = False

    def end(self) -> None:
        self.closed = True


def found(gid: bytes = GID, qp_num: int = 7, place: Any = PLACE) -> Any:
    return SimpleNamespace(gid=gid, qp_num=qp_num, place=place)


class World:
    """An end that asks nobody: ``asked`` are questions, ``later`` what the hub is to do, ``now_s`` the time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, bytes, Callable[[Any], object]]] = []
        self.later: list[Callable[[], object]] = []
        self.called_off = self.woken = 0
        self.now_s = 100.0
        self.resolution: Any = type("Resolution", (), {"call_off": lambda _: self._call_off()})()
        clock = SimpleNamespace(monotonic=lambda: self.now_s, monotonic_ns=lambda: int(self.now_s * 1e9))
        monkeypatch.setattr(datagrams, "time", clock)
        monkeypatch.setattr(datagrams, "HUB", SimpleNamespace(soon=self.later.append))
        monkeypatch.setattr(datagrams, "PeerPath", Way)
        monkeypatch.setattr(datagrams.resolving, "resolve", self._resolve)
        self.end = end = DatagramEnd.__new__(DatagramEnd)
        self.fd = os.eventfd(0)
        end._begin_path(4, self.fd)
        end._guard = Guard(end)
        end._peers, end._resolutions = OrderedDict(), weakref.WeakSet()
        end._admissions, end._serving = 0, True
        end._make_locks()
        end._wakes = 0
        end.settings = SimpleNamespace(connect_s=1.0)  # type: ignore[assignment]
        end.version, end.host, end.port = 4, HERE, 9
        self.port: Any = Port(PLACE)
        end.ports = [self.port]
        monkeypatch.setattr(DatagramEnd, "_wake", lambda _: self._wake())
        monkeypatch.setattr(DatagramEnd, "_pump", lambda _: None)

    def _wake(self) -> None:
        self.woken += 1

    def _call_off(self) -> None:
        self.called_off += 1

    def _resolve(self, host: str, port: int, hint: bytes, introduce: Any, done: Any) -> Any:
        self.asked.append((host, hint, done))
        return self.resolution

    def known(self, host: str = HERE, port: int = 5, **what: Any) -> Peer:
        """A peer that was asked for, and is reached."""
        peer = self.end.peer_at(host, port)
        way: Any = Way(self.port, found(**what), b"", 9)
        peer.way, peer.asked, peer.since_s = way, True, self.now_s
        return peer


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(monkeypatch)
    yield made
    made.end.ports = []
    os.close(made.fd)


def claim_of(peer: Peer, gid: bytes = GID, qp_num: int = 7) -> Claim:
    return Claim((gid, qp_num), peer.key)


def test_who_was_spoken_to_last_is_kept_and_no_question_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datagrams, "MOST_PEERS", 4)
    peers = [world.known(port=number) for number in range(1, 5)]
    peers[0].asking, peers[1].checking = True, True
    assert world.end.peer_at(HERE, 3) is peers[2]
    world.end.peer_at(HERE, 5)
    assert list(world.end._peers) == [peers[at].key for at in (0, 1, 2)] + [(peers[0].key[0], 5)]
    assert [each.way.closed for each in peers] == [False, False, False, True]  # type: ignore[union-attr]


def test_a_way_is_asked_for_again_while_it_is_used_and_not_more_often(world: World) -> None:
    peer = world.known()
    world.now_s += RENEW_S - 0.01
    assert world.end.way_to(peer, None, True) is peer.way
    assert world.later == []
    world.now_s += 0.02
    assert world.end.way_to(peer, None, True) is peer.way, "what is known is used meanwhile"
    assert len(world.later) == 1
    world.later.pop()()
    assert (len(world.asked), peer.asking) == (1, True)
    assert world.end.way_to(peer, None, True) is peer.way
    assert world.later == [], "it is asked already"
    world.end._ask(peer)
    assert len(world.asked) == 1
    world.asked[0][2](found())
    assert (peer.asking, peer.since_s) == (False, world.now_s)


def test_what_is_served_no_more_and_a_port_that_has_failed_lead_nowhere(world: World) -> None:
    peer = world.known()
    assert world.end.reaches((HERE, 5))
    world.port.failed = True
    assert world.end.way_to(peer, None, True) is None
    assert not world.end.reaches((HERE, 5))
    assert world.end.number_at(PLACE) is None
    world.port.failed = False
    assert world.end.number_at(PLACE) == 77
    assert world.end.number_at(FAR) is None
    world.end._serving = False
    assert world.end.way_to(peer, None, True) is None
    assert not world.end.reaches((HERE, 5))
    assert world.end.number_at(PLACE) is None


def test_a_way_stays_while_it_leads_to_the_same_queue_pair_by_the_same_port(world: World) -> None:
    world.end.ports.append(Port(FAR))  # type: ignore[arg-type]
    peer = world.known()
    for change in ({}, {"gid": OTHER}, {"qp_num": 8}, {"place": FAR}):
        before: Any = Way(world.port, found(), b"", 9)
        peer.way = before
        world.end._found(peer, found(**change))
        assert (peer.way is before, before.closed) == (not change, bool(change))
    assert peer.way is not None
    last: Any = peer.way
    world.end._found(peer, None)
    assert (peer.way, last.closed) == (None, True)


def test_what_is_found_behind_a_close_is_no_way(world: World) -> None:
    peer = world.end.peer_at(HERE, 5)
    world.end.closed = True
    world.end._found(peer, found())
    assert (peer.way, peer.asked) == (None, True)
    world.end._checked(peer, found())
    assert peer.way is None
    world.end._resolve(peer, b"", lambda *_: None, lambda *_: None)  # type: ignore[arg-type]
    assert (world.called_off, len(world.end._resolutions)) == (1, 0)


def test_a_closed_end_asks_for_no_way(world: World) -> None:
    peer = world.end.peer_at(HERE, 5)
    world.end.closed = True
    world.end._ask(peer)
    assert (world.asked, peer.asking) == ([], False)


def test_a_claim_is_asked_for_where_it_says_and_decided_by_the_answer(world: World) -> None:
    peer = world.end.peer_at(HERE, 5)
    told: list[bool] = []
    for qp_num in (7, 8):
        world.end._ask_for(world.port, claim_of(peer, qp_num=qp_num), told.append)
    assert [each[:2] for each in world.asked] == [(HERE, GID)], "one question answers both"
    assert told == []
    world.asked[0][2](found())
    assert told == [True, False]
    now_ns = int(world.now_s * 1e9)
    believed = [world.port.state.believes(claim_of(peer, qp_num=each), now_ns) for each in (7, 8)]
    assert believed == [True, False]
    assert peer.claims == []
    assert (peer.asked, peer.checking, peer.way is not None) == (True, False, True)


def test_who_answers_nothing_is_not_believed_and_keeps_its_way(world: World) -> None:
    peer = world.known()
    way = peer.way
    world.now_s += AGAIN_S + 0.01
    told: list[bool] = []
    world.end._ask_for(world.port, claim_of(peer, OTHER), told.append)
    world.asked[0][2](None)
    assert (told, peer.way is way, peer.since_s) == ([False], True, 100.0)


def test_nobody_is_asked_more_often_than_every_50_ms_whatever_comes(world: World) -> None:
    peer = world.known()
    told: list[bool] = []
    world.end._ask_for(world.port, claim_of(peer, OTHER), told.append)
    assert (told, world.asked) == ([False], [])
    world.now_s += AGAIN_S + 0.01
    world.end._ask_for(world.port, claim_of(peer), told.append)
    assert (told, world.asked) == ([False, True], []), "what is known agrees"
    peer.checked_s = world.now_s
    world.end._ask_for(world.port, claim_of(peer, OTHER), told.append)
    assert (told, world.asked) == ([False, True, False], [])


def test_an_address_of_another_family_and_a_closed_end_believe_nobody(world: World) -> None:
    told: list[bool] = []
    ipv6 = Claim((GID, 7), (bytes(15) + b"\x01", 5))
    world.end._ask_for(world.port, ipv6, told.append)
    peer = world.known()
    world.end.closed = True
    world.end._ask_for(world.port, claim_of(peer), told.append)
    assert (told, world.asked) == ([False, False], [])


def test_so_many_that_are_going_to_send_are_asked_for_at_a_time(world: World) -> None:
    told: list[bool] = []
    peer = world.end.peer_at(HERE, 5)
    for qp_num in range(MOST_ADMISSIONS + 1):
        world.end.admit(PLACE, claim_of(peer, qp_num=qp_num), told.append)
    assert told == [False]
    world.end.admit(FAR, claim_of(peer, qp_num=7), told.append)
    assert told == [False] * 2, "there is nobody at that port"
    world.asked[0][2](found())
    assert told.count(True) == 1
    assert world.end._admissions == 0
    world.end.admit(PLACE, claim_of(peer), told.append)
    assert (told.count(True), world.end._admissions, len(world.asked)) == (2, 0, 1), "it is believed already"


def test_who_asks_for_a_way_has_a_share_and_who_does_not_say_who_it_is_a_first_one(world: World) -> None:
    credits = world.port.state.credits
    assert world.end.window_at(FAR, None) == SMALLEST_WINDOW
    peer = world.end.peer_at(HERE, 5)
    assert world.end.window_at(PLACE, None) == 32 // 4
    assert list(credits._senders) == []
    assert world.end.window_at(PLACE, claim_of(peer)) == 32 // 4
    assert list(credits._senders) == [(GID, 7)]


@pytest.mark.parametrize("way", ["this", "none", "other source", "other port", "unsaid"])
def test_credit_is_told_to_whom_datagrams_would_go_alone(world: World, way: str) -> None:
    peer = world.known(gid=OTHER if way == "other source" else GID)
    if way == "none":
        peer.way = None
    elif way == "other port":
        peer.way.port = Port(FAR)  # type: ignore[union-attr]
    world.port.says = way != "unsaid"
    state = world.port.state
    state.decide(claim_of(peer), True, int(world.now_s * 1e9))
    sender = state.credits.whole((GID, 7), peer.key, 100, 1, int(world.now_s * 1e9))
    before = sender.told
    world.end._settle(world.port)
    said = [("credit", (GID, 7), 101 + 32, 32)]
    assert world.port.noted == (said if way in ("this", "unsaid") else [])
    assert sender.told == (133 if way == "this" else before)


def test_who_says_that_it_is_closed_is_reached_no_more_and_asked_for_at_once(world: World) -> None:
    peer = world.known()
    way: Any = peer.way
    world.port.idle = False
    world.port.state.gone.append(claim_of(peer))
    world.port.state.gone.append(Claim((GID, 7), (peer.key[0], 6)))  # nobody knows that one
    world.end._settle(world.port)
    assert (peer.way, peer.since_s, way.closed) == (None, 0.0, True)
    assert world.port.noted == [("closed", (GID, 7))]
    assert world.port.state.gone == []


@pytest.mark.parametrize("why", ["idle", "no room", "closed"])
def test_a_last_word_is_for_what_may_be_under_way(world: World, why: str) -> None:
    way: Any = Way(world.port, found(), b"", 9)
    world.port.idle, world.port.room, way.closed = why == "idle", why != "no room", why == "closed"
    world.end._end_last(way)
    assert (world.port.noted, way.closed) == ([], True)


def test_claims_that_wait_are_asked_for_by_the_hub_and_a_failed_port_ends_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    retired: list[bool] = []
    monkeypatch.setattr(DatagramEnd, "retire", lambda _: retired.append(True))
    peer = world.end.peer_at(HERE, 5)
    world.port.state._asks.append(claim_of(peer))
    world.end._settle(world.port)
    assert (len(world.later), retired) == (1, [])
    world.later[0]()
    assert [each[:2] for each in world.asked] == [(HERE, GID)]
    world.port.failed = True
    world.end._settle(world.port)
    assert retired == [True]


def test_two_queue_pairs_with_one_number_are_told_apart() -> None:
    way: Any = Way(None, found(), b"", 9)
    key = bytes(16), 5
    assert agrees(way, Claim((GID, 7), key))
    for source in ((OTHER, 7), (GID, 8)):
        assert not agrees(way, Claim(source, key))
    assert not agrees(None, Claim((GID, 7), key))


def test_goodbyes_go_to_those_that_are_reached_and_where_there_is_room(world: World) -> None:
    world.known(port=5)
    world.known(port=6).way = None
    world.known(port=7, qp_num=8)
    world.end._notify_peers()
    assert world.port.noted == [("closed", (GID, 7)), ("closed", (GID, 8))]
    for name, value in (("room", False), ("failed", True)):
        world.port.noted.clear()
        setattr(world.port, name, value)
        world.end._notify_peers()
        assert world.port.noted == []
        setattr(world.port, name, not value)
