"""How datagrams leave their slots: copied, mapped and lent, and which slots are given back when."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.machine.primitives import address_of
from softhca.sockets import datagram_port
from softhca.sockets.datagram_port import DatagramPort
from softhca.sockets.datagram_protocol import HEADER_BYTES
from softhca.sockets.datagram_state import Claim, Datagram
from softhca.sockets.memory_processing import PageBuffer
from softhca.sockets.staging import Staging

PAGE, SLOTS = 4096, 16
CLAIM = Claim((bytes(16), 7), (bytes(16), 5))


class Pool:
    """A pool that says where it would map, and lends."""

    def __init__(self, memory: bytearray) -> None:
        self.memory, self.address, self.length = memory, address_of(memory), len(memory)
        self.maps: list[tuple[int, int, int]] = []
        self.lent: list[Any] = []
        self.refuses = 0

    def map(self, offset: int, length: int, address: int) -> int:
        self.maps.append((offset, length, address))
        return self.refuses

    def returned(self, released: Any) -> None:
        released()

    def lend(self, offset: int, length: int, released: Any) -> memoryview:
        self.lent.append(released)
        return memoryview(self.memory)[offset : offset + length]


@pytest.fixture
def port() -> DatagramPort:
    """One without a device, whose pages hold their numbers."""
    made: Any = DatagramPort.__new__(DatagramPort)
    made._begin_path(SLOTS, PAGE)
    memory = bytearray(b"".join(bytes([slot]) * PAGE for slot in range(SLOTS)))
    made._pool = Pool(memory)
    made._begin_receiving(address_of(memory), 0, 1)
    made.settings = SimpleNamespace(mapping=True, threshold_bytes=PAGE, credit_s=0.5)
    made.mapped_bytes = made.lent_bytes = 0
    made._mapped, made._left = {}, deque()
    found: DatagramPort = made
    return found


@pytest.fixture
def buffer() -> Iterator[PageBuffer]:
    made = PageBuffer(4 * PAGE)
    yield made
    made.close()


def whole(rest: int = 0, pages: tuple[int, ...] = (3, 4, 5), first: int = 9) -> Datagram:
    return Datagram(CLAIM, len(pages) * PAGE + rest, first, list(pages), PAGE)


def given_back(port: DatagramPort) -> list[int]:
    return sorted(port.state.free)


def test_what_is_copied_gives_all_slots_back_and_a_look_none(port: DatagramPort) -> None:
    into = bytearray(4 * PAGE)
    view = memoryview(into)[: 2 * PAGE]
    assert port.take_into(whole(10), view, True) == 2 * PAGE
    assert (given_back(port), port.copied_bytes) == ([], 2 * PAGE)
    assert port.take_into(whole(10), view, False) == 2 * PAGE
    assert into == b"\3" * PAGE + b"\4" * PAGE + bytes(2 * PAGE)
    assert (given_back(port), port.copied_bytes) == ([3, 4, 5, 9], 4 * PAGE)
    assert port.take_into(whole(10), memoryview(bytearray(0)), False) == 0


def test_a_shorter_datagram_leaves_the_rest_of_a_buffer_alone(port: DatagramPort) -> None:
    into = bytearray(b"o" * (4 * PAGE))
    assert port.take_into(whole(10), memoryview(into), False) == 3 * PAGE + 10
    assert into[3 * PAGE : 3 * PAGE + 11] == b"\x09" * 10 + b"o"


def test_whole_pages_are_mapped_and_the_rest_is_copied(port: DatagramPort, buffer: PageBuffer) -> None:
    pool: Any = port._pool
    assert port.take_into(whole(10), memoryview(buffer), False) == 3 * PAGE + 10
    assert pool.maps == [(3 * PAGE, 3 * PAGE, address_of(buffer))]
    assert (port.mapped_bytes, port.copied_bytes, given_back(port)) == (3 * PAGE, 10, [9])
    assert buffer[3 * PAGE : 3 * PAGE + 10] == b"\x09" * 10
    assert buffer[0] == 0, "the pool is no file here"
    assert list(port._mapped) == [3]
    buffer.release()
    port._reclaim()
    assert (given_back(port), port._mapped) == ([3, 4, 5, 9], {})


def test_what_is_behind_mapped_pages_in_their_run_is_copied(port: DatagramPort, buffer: PageBuffer) -> None:
    assert port.take_into(whole(10), memoryview(buffer)[: 2 * PAGE + 100], False) == 2 * PAGE + 100
    assert (port.mapped_bytes, port.copied_bytes) == (2 * PAGE, 100)
    assert buffer[2 * PAGE : 2 * PAGE + 101] == b"\5" * 100 + b"\0"
    assert given_back(port) == [5, 9]


@pytest.mark.parametrize(
    "why", ["off", "short", "apart", "unaligned", "no page buffer", "a look", "small pages", "refused"]
)
def test_what_cannot_be_mapped_is_copied(port: DatagramPort, buffer: PageBuffer, why: str) -> None:
    found, view = whole(), memoryview(buffer)
    pool: Any = port._pool
    if why == "off":
        port.settings.mapping = False  # type: ignore[misc]
    elif why == "short":
        view = view[: 2 * PAGE - 1]
    elif why == "apart":
        found = whole(pages=(3, 5, 4))
    elif why == "unaligned":
        view = view[8:]
    elif why == "no page buffer":
        view = memoryview(bytearray(4 * PAGE))
    elif why == "small pages":
        found = Datagram(CLAIM, 12 * 1024, 2, list(range(3, 15)), 1024)
    pool.refuses = -12 if why == "refused" else 0
    length = port.take_into(found, view, why == "a look")
    assert length == min(found.total, view.nbytes)
    assert (port.mapped_bytes, port.copied_bytes, port._mapped) == (0, length, {})
    assert len(pool.maps) == (why == "refused")
    assert view[0] == 3


def test_a_view_keeps_its_pages_and_no_others(port: DatagramPort) -> None:
    pool: Any = port._pool
    view = port.view_of(whole(10), 2 * PAGE - 5)
    assert bytes(view) == b"\3" * PAGE + b"\4" * (PAGE - 5)
    assert (given_back(port), port.lent_bytes, port.copied_bytes) == ([5, 9], 2 * PAGE - 5, 0)
    pool.lent[0]()
    assert given_back(port) == [5, 9], "the next call takes them"
    port._reclaim()
    assert given_back(port) == [3, 4, 5, 9]


def test_a_short_datagram_is_lent_behind_its_header(port: DatagramPort) -> None:
    pool: Any = port._pool
    view = port.view_of(Datagram(CLAIM, 20, 9, []), 100)
    assert (bytes(view), given_back(port)) == (b"\x09" * 20, [])
    assert address_of(view, False) == pool.address + 9 * PAGE + HEADER_BYTES
    pool.lent[0]()
    port._reclaim()
    assert given_back(port) == [9]


@pytest.mark.parametrize("why", ["apart", "rest"])
def test_a_view_of_what_is_not_in_one_run_is_a_copy(port: DatagramPort, why: str) -> None:
    pool: Any = port._pool
    found = whole(pages=(3, 5, 4)) if why == "apart" else whole(10)
    length = 2 * PAGE if why == "apart" else found.total
    view = port.view_of(found, 5 * PAGE if why == "rest" else length)
    assert view.nbytes == length
    assert (pool.lent, port.lent_bytes, port.copied_bytes) == ([], 0, length)
    assert given_back(port) == [3, 4, 5, 9]


def test_a_view_of_nothing_keeps_nothing(port: DatagramPort) -> None:
    assert port.view_of(whole(10), 0).nbytes == 0
    assert given_back(port) == [3, 4, 5, 9]


class Way:
    closed = False

    def close(self) -> None:
        self.closed = True


def test_a_handle_is_closed_when_all_that_was_sent_before_has_left(port: DatagramPort) -> None:
    ways: list[Any] = [Way() for _ in range(4)]
    port.close_behind(ways[0])
    assert ways[0].closed, "nothing is under way"
    port._inflight.append((7, 0, 1, None))
    for number, way in ((5, ways[1]), (7, ways[2])):
        port._number = number
        port.close_behind(way)
    port._gone(5)
    assert [each.closed for each in ways[1:3]] == [True, False]
    port._gone(7)
    assert ways[2].closed
    port.failed = True
    assert port.idle
    port.close_behind(ways[3])
    assert ways[3].closed


def test_all_ways_to_a_queue_pair_have_one_credit(
    port: DatagramPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datagram_port, "random", SimpleNamespace(getrandbits=lambda bits: (1 << bits) - 1))
    source = bytes(16), 7
    one = port.credit_of(source, 20)
    assert port.credit_of(source, 40) is one
    assert port.credit_of((bytes(16), 8), 40) is not one
    assert (one.position, one.window, one.until_ns) == (0xFFFFFFFF, 20, 500_000_000)
    assert port.state.sending[source] is one


class Noted(Staging):
    """What notes that it is closed."""

    def __init__(self, closed: list[str], name: str) -> None:
        self.noted, self.name = closed, name

    def close(self) -> None:
        self.noted.append(self.name)


def test_a_port_that_is_closed_gives_all_back(port: DatagramPort, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    made: Any = port
    monkeypatch.setattr(datagram_port.cm_contexts, "leave", lambda device: closed.append(device))
    made._pool.close = lambda: closed.append("pool")
    made._qp, made._cq, made._staging = (Noted(closed, name) for name in ("qp", "cq", "copies"))
    made._handle = SimpleNamespace(on_event=lambda: closed.append("told"))
    made.driver = "device"
    made._mapped[3] = lambda: closed.append("unmapped")
    made._inflight.append((1, 0, 1, None))
    way: Any = Way()
    port.close_behind(way)
    port.device_ended()
    assert (closed, port.failed) == (["told"], True)
    port.close()
    assert closed == ["told", "unmapped", "qp", "cq", "pool", "copies", "device"]
    assert (made._handle.on_event, len(port._inflight), way.closed) == (None, 0, True)
    port.device_ended()  # nobody is told of it any more
    assert len(closed) == 7
