"""Where a port is served, as one process tells another: whose word counts, how much of it, who is asked."""

from __future__ import annotations

import os
import socket as kernel
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.sockets import port_lookup
from softhca.sockets.port_lookup import PortAdvertisement, Question, gids_of, takes_datagrams

HERE, ELSEWHERE = bytes(15) + b"\x01", bytes(15) + b"\x02"
PORT = 1
GIDS = [bytes([number]) * 16 for number in range(1, 80)]


class Hub:
    """Who watches descriptors and the time: the test does, by `turn`."""

    def __init__(self) -> None:
        self.watched: dict[int, Callable[[], object]] = {}
        self.later: list[Callable[[], object]] = []

    def watch(self, descriptor: int, callback: Callable[[], object]) -> None:
        self.watched[descriptor] = callback

    def forget(self, descriptor: int) -> None:
        self.watched.pop(descriptor, None)

    def after(self, seconds: float, what: Callable[[], object]) -> None:
        self.later.append(what)

    def start(self) -> None:
        pass

    def turn(self, descriptor: int) -> None:
        """Something is to be read there."""
        self.watched[descriptor]()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The hub of advertisements, which nothing runs but the test."""
    hub = Hub()
    monkeypatch.setattr(port_lookup, "HUB", hub)
    return hub


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sockets are another user's, though the names are of one."""
    monkeypatch.setattr(port_lookup, "os", SimpleNamespace(getuid=lambda: os.getuid() + 1))


def asked(address: bytes = HERE, what: bytes = b"") -> kernel.socket:
    """A connection to who says where, on which it has not answered yet."""
    asking = kernel.socket(kernel.AF_UNIX)
    asking.connect(port_lookup._name(PORT, address, what))
    asking.setblocking(False)
    return asking


def said(hub: Hub, advertisement: PortAdvertisement, which: int = 0) -> bytes:
    """What one is told who asks there."""
    with asked(what=(b"", b"/end")[which]) as asking:
        hub.turn(advertisement._sockets[which].fileno())
        return asking.recv(4096)


@pytest.fixture
def sign() -> Iterator[kernel.socket]:
    """Somebody who says where a port is served, whatever the test has it say."""
    with kernel.socket(kernel.AF_UNIX) as one:
        one.bind(port_lookup._name(PORT, HERE))
        one.listen()
        yield one


def test_an_advertisement_says_its_gids_and_ends_where_another_one_accepts(hub: Hub) -> None:
    ended: list[int] = []
    one = PortAdvertisement(PORT, HERE, GIDS[:2], lambda: ended.append(1))
    assert said(hub, one) == b"".join(GIDS[:2])
    assert ended == []
    assert said(hub, one, 1) == b""
    assert ended == [1]
    one.close()
    assert hub.watched == {}
    with kernel.socket(kernel.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
        late.connect(port_lookup._name(PORT, HERE))


def test_an_advertisement_says_64_gids_at_most(hub: Hub) -> None:
    one = PortAdvertisement(PORT, HERE, GIDS, lambda: None)
    assert said(hub, one) == b"".join(GIDS[:64])
    one.close()


@pytest.mark.usefixtures("strangers")
def test_another_user_is_told_nothing_and_ends_nothing(hub: Hub) -> None:
    ended: list[int] = []
    one = PortAdvertisement(PORT, HERE, GIDS[:2], lambda: ended.append(1))
    assert (said(hub, one), said(hub, one, 1), ended) == (b"", b"", [])
    one.close()


def told_by(sign: kernel.socket, hub: Hub, text: bytes) -> list[list[bytes]]:
    """What a question finds that is answered so."""
    found: list[list[bytes]] = []
    question = Question(hub, PORT, [HERE], found.append)  # type: ignore[arg-type]
    assert question.begin()
    (descriptor,) = hub.watched
    answering, _ = sign.accept()
    with answering:
        answering.send(text)
    hub.turn(descriptor)
    assert hub.watched == {}
    for late in hub.later:
        late()
    return found


@pytest.mark.parametrize("rest", [0, 1, 15])
def test_an_answer_is_whole_gids_of_which_the_rest_does_not_count(
    hub: Hub, sign: kernel.socket, rest: int
) -> None:
    assert told_by(sign, hub, b"".join(GIDS[:2]) + bytes(rest)) == [GIDS[:2]]
    assert told_by(sign, hub, bytes(rest)) == [[]]


def test_the_next_address_is_asked_where_nobody_serves_the_first(hub: Hub, sign: kernel.socket) -> None:
    found: list[list[bytes]] = []
    question = Question(hub, PORT, [ELSEWHERE, HERE], found.append)  # type: ignore[arg-type]
    assert question.begin()
    answering, _ = sign.accept()
    with answering:
        answering.send(GIDS[0])
        hub.turn(*hub.watched)
    assert found == [[GIDS[0]]]


def test_nobody_is_asked_where_no_address_is_served(hub: Hub) -> None:
    found: list[list[bytes]] = []
    assert not Question(hub, PORT, [ELSEWHERE, HERE], found.append).begin()  # type: ignore[arg-type]
    assert (found, hub.later, hub.watched) == ([], [], {})


@pytest.mark.usefixtures("strangers")
def test_another_user_s_word_does_not_count(hub: Hub) -> None:
    found: list[list[bytes]] = []
    for what in (b"", b"/udp"):
        with kernel.socket(kernel.AF_UNIX) as one:
            one.bind(port_lookup._name(PORT, HERE, what))
            one.listen()
            question = Question(
                hub, PORT, [HERE], found.append, datagrams=bool(what)  # type: ignore[arg-type]
            )
            assert not question.begin()
            if what:
                assert not takes_datagrams(PORT, [HERE])
            else:
                assert gids_of(PORT, HERE) == []
    assert (found, hub.watched) == ([], {})


def test_who_talks_without_end_is_listened_to_until_the_most_gids_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []

    class Talker:
        """A connection on which there is always more."""

        def __init__(self, *kind: object) -> None:
            pass

        def __enter__(self) -> Any:
            return SimpleNamespace(settimeout=lambda _: None, connect=lambda _: None, recv=self.recv)

        def __exit__(self, *error: object) -> None:
            pass

        def recv(self, most: int) -> bytes:
            read.append(most)
            assert len(read) <= 4
            return bytes(512)

    monkeypatch.setattr(port_lookup, "KernelSocket", Talker)
    monkeypatch.setattr(port_lookup, "_is_ours", lambda _: True)
    assert len(gids_of(PORT, HERE)) == 64
    assert len(read) == 2
