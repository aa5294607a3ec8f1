"""Who waits where a peer has no room, for how long, and who hears that it is over; time is the test's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.sockets import datagram_room
from softhca.sockets.datagram_credits import SendCredit
from softhca.sockets.datagram_room import PeerRoom

PATIENCE_S = 0.5


class End:
    """An end of datagrams: ``waits`` are the deadlines of its waits, ``later`` what the hub is to do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.closed = 10.0, False
        self.later: list[tuple[float, Callable[[], object]]] = []
        self.waits: list[float] = []
        self.changes = self.pumps = self.woken = 0
        self._guard = threading.RLock()
        self.meanwhile: Callable[[], object] = lambda: None
        self.credit = SendCredit(0, 1, int(PATIENCE_S * 1e9))
        self.credit.spend(1)
        self.way: Any = SimpleNamespace(credit=self.credit, port=SimpleNamespace(failed=False))
        clock = SimpleNamespace(monotonic=lambda: self.now_s, monotonic_ns=lambda: int(self.now_s * 1e9))
        monkeypatch.setattr(datagram_room, "time", clock)
        after = SimpleNamespace(after=lambda seconds, what: self.later.append((round(seconds, 6), what)))
        monkeypatch.setattr(datagram_room, "HUB", after)
        self.room = PeerRoom(self)  # type: ignore[arg-type]

    def _pump(self) -> None:
        self.pumps += 1
        self.meanwhile()

    def _changed(self) -> None:
        self.changes += 1

    def _wake(self) -> None:
        self.woken += 1

    def wait(self, ready: Callable[[], bool], deadline_s: float) -> bool:
        self.waits.append(round(deadline_s, 6))
        self.meanwhile()
        return ready()

    def at(self, blocking: bool, deadline_s: float | None = None) -> bool:
        return self.room.at(self.way, 1, deadline_s, blocking)


@pytest.fixture
def end(monkeypatch: pytest.MonkeyPatch) -> End:
    return End(monkeypatch)


def test_who_finds_room_waits_for_nothing(end: End) -> None:
    end.credit.told(2, 1)
    assert end.at(True)
    assert (end.pumps, end.waits) == (0, [])


def test_room_that_one_look_brings_is_not_waited_for(end: End) -> None:
    end.meanwhile = lambda: end.credit.told(2, 1)
    assert end.at(False)
    assert (end.pumps, end.waits, end.later) == (1, [], [])


@pytest.mark.parametrize(("deadline_s", "waited_s"), [(None, 10.5), (10.2, 10.2), (11.0, 10.5)])
def test_nobody_waits_longer_than_his_socket_or_a_datagram_may(
    end: End, deadline_s: float | None, waited_s: float
) -> None:
    assert end.at(True, deadline_s)
    assert end.waits == [waited_s]
    assert end.credit.free, "it goes all the same"
    assert not end.credit.stalled(int(end.now_s * 1e9))


def test_who_was_told_room_meanwhile_has_not_given_up(end: End) -> None:
    end.meanwhile = lambda: end.credit.told(2, 1) if end.waits else None
    assert end.at(True)
    assert not end.credit.free


def test_room_at_a_failed_port_is_not_waited_for(end: End) -> None:
    end.way.port.failed = True
    assert end.at(True)
    assert end.waits == []


def test_who_is_not_to_wait_is_told_once_by_the_hub(end: End) -> None:
    for _ in range(2):
        assert not end.at(False)
    assert [seconds for seconds, _ in end.later] == [PATIENCE_S]
    assert (end.room.missing, end.changes) == (True, 2)
    end.now_s += PATIENCE_S
    end.later.pop()[1]()
    assert (end.later, end.changes, end.woken) == ([], 3, 1)
    assert not end.room.missing


def test_the_hub_looks_again_while_somebody_is_to_wait(end: End) -> None:
    assert not end.at(False)
    end.now_s += 0.2
    other = SendCredit(0, 1, int(PATIENCE_S * 1e9))
    other.spend(1)
    way: Any = SimpleNamespace(credit=other, port=end.way.port)
    assert not end.room.at(way, 1, None, False)
    assert [seconds for seconds, _ in end.later] == [PATIENCE_S] * 2
    end.now_s += 0.3
    changes = end.changes
    end.later.pop(0)[1]()
    assert [seconds for seconds, _ in end.later] == [PATIENCE_S, 0.2]
    assert (end.changes, end.woken) == (changes, 1)
    other.told(2, 1)
    assert not end.room.missing


def test_a_closed_end_is_looked_at_no_more(end: End) -> None:
    assert not end.at(False)
    end.closed = True
    end.later.pop()[1]()
    assert end.later == []
