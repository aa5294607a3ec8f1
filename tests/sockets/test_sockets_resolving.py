"""Finding who takes datagrams: who is asked, whose answer counts, and who is told, without a device."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.driver.rdmacm import events
from softhca.sockets import resolving
from softhca.sockets.connecting import mapped
from softhca.sockets.datagram_protocol import Hello, decode_answer, encode_answer
from softhca.sockets.protocol import ProtocolError
from softhca.sockets.resolving import DatagramListener, Found, Resolution
from softhca.verbs.pyverbs_error import PyverbsRDMAError

GIDS = [mapped(f"192.0.2.{number}") for number in range(1, 4)]
HELLO = Hello(mapped("192.0.2.9"))


class Event:
    """What the connection manager says."""

    def __init__(self, kind: Any, status: int = 0, answer: bytes = b"") -> None:
        self.kind, self.status, self.private_data = kind, status, answer


class Channel:
    """One request's events, of which somebody is told."""

    def __init__(self) -> None:
        self.come: deque[Event] = deque()
        self.closed = 0
        self.channel = self
        self.on_post: Callable[[], object] | None = None

    def next_event(self, _: int) -> Event | None:
        return self.come.popleft() if self.come else None

    def close(self) -> None:
        self.closed += 1


class Network:
    """Everything that a resolution asks; identifiers and channels in the order of their making."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[Found | None] = []
        self.soon_called: list[Callable[[], object]] = []
        self.unreached: list[bytes] = []
        self.cmids: list[Any] = []
        self.channels: list[Channel] = []
        self.fails: set[str] = set()
        self.place = SimpleNamespace(address=SimpleNamespace(is_loopback=False), mtu=5)
        monkeypatch.setattr(resolving, "HUB", SimpleNamespace(soon=self.soon_called.append))
        monkeypatch.setattr(resolving, "CMEventChannel", self._channel)
        monkeypatch.setattr(resolving, "CMID", self._cmid)
        monkeypatch.setattr(resolving.devices, "keep", lambda _: self.place)
        monkeypatch.setattr(resolving.connecting, "remember_unreached", self.unreached.append)
        monkeypatch.setattr(resolving, "CMEvent", SimpleNamespace(of=lambda event: event))
        how = SimpleNamespace(qp_num=7, qkey=8, ah_attr="the way")
        monkeypatch.setattr(resolving, "UDParam", lambda _: how)
        self.one = Resolution(5, lambda _: HELLO, self.told.append)

    def _channel(self) -> Channel:
        self.channels.append(Channel())
        return self.channels[-1]

    def _cmid(self, **_: object) -> Any:
        noted: list[Any] = []

        def note(name: str) -> Callable[..., None]:
            def noting(*what: Any) -> None:
                noted.append((name, *what))
                if name in self.fails:
                    raise PyverbsRDMAError(name, errno.ENETUNREACH)

            return noting

        names = ("resolve_addr", "resolve_route", "connect", "close", "reject", "accept")
        self.cmids.append(SimpleNamespace(noted=noted, **{name: note(name) for name in names}))
        return self.cmids[-1]

    @property
    def closed(self) -> list[bool]:
        """Of each request, whether nothing of it is left."""
        return [
            cmid.noted[-1] == ("close",) and channel.closed == 1
            for cmid, channel in zip(self.cmids, self.channels, strict=True)
        ]

    def hears(self, *said: Event) -> None:
        """The last that was asked says something."""
        self.channels[-1].come.extend(said)
        self.one._hear()


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    return Network(monkeypatch)


def test_an_answer_ends_the_question_and_is_told_once(network: Network) -> None:
    network.one.begin(GIDS)
    network.hears(Event(events.ESTABLISHED, answer=encode_answer(5, 9)))
    assert network.told == [Found(GIDS[0], 7, 8, 5, 9, "the way", network.place)]  # type: ignore[arg-type]
    assert network.closed == [True]
    network.one.call_off()
    network.one._hear()
    assert len(network.told) == 1


@pytest.mark.parametrize(
    ("said", "unreached"),
    [(Event(events.REJECTED, 28), False), (Event(events.UNREACHABLE, -errno.ETIMEDOUT), True),
     (Event(events.CONNECT_ERROR, 0), False), (Event(events.ESTABLISHED, answer=b"nonsense"), False)],
)  # fmt: skip
def test_who_says_no_makes_way_for_the_next_one(network: Network, said: Event, unreached: bool) -> None:
    network.one.begin(GIDS[:2])
    network.hears(Event(events.ADDR_RESOLVED), said)
    assert (network.told, network.closed) == ([], [True, False])
    assert network.unreached == ([GIDS[0]] if unreached else [])
    network.hears(said)
    assert (network.told, network.closed) == ([None], [True, True])


def test_one_that_cannot_be_asked_leaves_nothing(network: Network) -> None:
    network.fails = {"resolve_route"}
    network.one.begin(GIDS)
    assert (network.told, network.closed) == ([None], [True] * 3)
    assert network.unreached == []


def test_another_host_is_not_asked_by_a_loopback_device(network: Network) -> None:
    network.place.address.is_loopback = True
    network.one.begin([GIDS[0], mapped("127.0.0.1")])
    assert (network.unreached, network.closed) == ([GIDS[0]], [True, False])
    assert network.told == []


def test_who_calls_off_is_told_of_nothing_and_nobody_else_is_asked(network: Network) -> None:
    network.one.begin(GIDS)
    heard = len(network.soon_called)
    network.one.call_off()
    assert (network.told, len(network.soon_called)) == ([], heard + 1)
    network.channels[-1].come.append(Event(events.REJECTED))
    network.soon_called[-1]()
    assert (network.told, network.closed) == ([None], [True])
    network.one.go_on()
    assert len(network.cmids) == 1


def asked(
    monkeypatch: pytest.MonkeyPatch, host: str, hint: bytes, found: list[bytes] | None, here: bool
) -> tuple[list[list[bytes]], list[Any]]:
    """Whom a resolution asks; ``found`` None: nobody says that the port is served."""
    begun: list[list[bytes]] = []
    questions: list[Any] = []

    class Question:
        def __init__(self, _: object, port: int, addresses: list[bytes], then: Any, **how: Any) -> None:
            questions.append((port, addresses, how))
            self.then = then

        def begin(self) -> bool:
            if found is not None:
                self.then(found)
            return found is not None

    monkeypatch.setattr(Resolution, "begin", lambda _, gids: begun.append(gids))
    monkeypatch.setattr(resolving.port_lookup, "Question", Question)
    monkeypatch.setattr(resolving.connecting, "is_here", lambda _: here)
    monkeypatch.setattr(resolving.connecting, "candidates", lambda *_: found)
    resolving.resolve(host, 5, hint, lambda *_: HELLO, lambda _: None)
    return begun, questions


def test_a_hint_counts_where_it_can_be_that_host_s(monkeypatch: pytest.MonkeyPatch) -> None:
    for hint, expected in ((b"", GIDS[:2]), (GIDS[1], [GIDS[1]]), (GIDS[2], [])):
        assert asked(monkeypatch, "192.0.2.1", hint, GIDS[:2], False) == ([expected], [])


def test_on_this_host_a_port_is_asked_for_by_its_address_and_all(monkeypatch: pytest.MonkeyPatch) -> None:
    question = (5, [mapped("127.0.0.1"), mapped("0.0.0.0")], {"datagrams": True})
    assert asked(monkeypatch, "127.0.0.1", b"", GIDS[:1], True) == ([GIDS[:1]], [question])
    assert asked(monkeypatch, "127.0.0.1", b"", None, True) == ([[]], [question])


class End:
    """A socket that takes datagrams: which queue pair, for whom, and who is believed."""

    def __init__(self) -> None:
        self.number: int | None = 7
        self.claims: list[Any] = []
        self.admits = True

    def number_at(self, _: object) -> int | None:
        return self.number

    def window_at(self, _: object, claim: Any) -> int:
        self.claims.append(claim)
        return 9

    def admit(self, _: object, claim: Any, answer: Callable[[bool], object]) -> None:
        self.claims.append(claim)
        answer(self.admits)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, network: Network) -> Callable[..., Any]:
    """Who asks ``end`` by ``hello``: what its identifier notes."""

    class Parameters:
        def __init__(self, qp_num: int, data_len: int) -> None:
            self.qp_num, self.length = qp_num, data_len

        def set_private_data(self, data: bytes) -> None:
            assert len(data) == self.length
            self.data = data

    monkeypatch.setattr(resolving, "ConnParam", Parameters)

    def ask(end: End | None, data: bytes) -> Any:
        listener = DatagramListener.__new__(DatagramListener)

        def find(_: bytes) -> End:
            if end is None:
                raise ProtocolError("nobody")
            return end

        monkeypatch.setattr(listener, "find", find)
        cmid = network._cmid()
        path = SimpleNamespace(gid=GIDS[0])
        cmid._identifier = SimpleNamespace(connection=SimpleNamespace(path=path), place=network.place)
        listener.requested(cmid, SimpleNamespace(private_data=data))  # type: ignore[arg-type]
        return cmid.noted

    return ask


def test_who_asks_is_told_the_queue_pair_and_a_window(answers: Callable[..., Any]) -> None:
    end = End()
    accepted, closed = answers(end, HELLO.encode())
    assert accepted[1].qp_num == 7
    assert decode_answer(accepted[1].data) == (5, 9)
    assert (accepted[0], closed, end.claims) == ("accept", ("close",), [None])


def test_who_is_going_to_send_is_answered_when_it_is_believed(answers: Callable[..., Any]) -> None:
    end = End()
    hello = Hello(HELLO.towards, mapped("192.0.2.1"), 6, 11).encode()
    claim = ((GIDS[0], 11), (mapped("192.0.2.1"), 6))
    assert [each[0] for each in answers(end, hello)] == ["accept", "close"]
    assert end.claims == [claim, claim]
    end.admits = False
    assert answers(end, hello) == [("reject",), ("close",)]


def test_nobody_is_accepted_where_nobody_takes_datagrams(answers: Callable[..., Any]) -> None:
    end = End()
    end.number = None
    for one, data in ((None, HELLO.encode()), (end, HELLO.encode()), (End(), b"nonsense")):
        assert answers(one, data) == [("reject",), ("close",)]
