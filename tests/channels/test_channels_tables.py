"""The tables of a connection, one by one: named buffers and who uses them, windows, registered memory."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import numpy
import pytest

from softhca.channels import Channel, ChannelAccessError, ChannelError, endpoint, registration, windows
from softhca.channels import messages as m
from softhca.channels.accounts import LARGE, ReceiveAccount, SendAccount
from softhca.channels.endpoint import Endpoint
from softhca.channels.link import Link
from softhca.channels.messages import Control
from softhca.channels.named import MOST_NAMES, Grant, NamedBuffers, Rights, SharedBuffer
from softhca.channels.windows import Windows
from softhca.verbs.mr import MR
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.wr import SendWR

Pair = tuple[Channel, Channel]


@pytest.fixture
def said() -> list[Control]:
    return []


@pytest.fixture
def named(said: list[Control]) -> NamedBuffers:
    """The tables of a link that keeps what is said."""
    return NamedBuffers(cast(Link, SimpleNamespace(send_control=said.append)))


def buffer(name: str) -> SharedBuffer:
    mr = SimpleNamespace(buf=4096, length=64, rkey=1)
    return SharedBuffer(None, name, Rights.READ, cast(Any, mr))


def shared(number: int, name: str) -> Control:
    return Control(m.SHARE, number=number, address=4096, length=64, key=1, flags=m.READ, name=name)


def test_a_buffer_that_lives_is_not_let_go(named: NamedBuffers) -> None:
    box = buffer("box")
    named.announce(box)
    with pytest.raises(m.ProtocolError, match="not revoked"):
        named.on_control(Control(m.UNSHARED, number=box.identity))
    assert not box.released


def test_a_name_is_free_when_the_peer_has_let_its_buffer_go(named: NamedBuffers) -> None:
    box = buffer("box")
    named.announce(box)
    assert named.revoke(box)
    with pytest.raises(ChannelError, match="shared already"):
        named.announce(buffer("box"))
    named.on_control(Control(m.UNSHARED, number=box.identity))
    assert box.released


def test_a_peers_buffer_is_let_go_when_its_last_operation_has_ended(
    named: NamedBuffers, said: list[Control]
) -> None:
    for number, name in ((1, "idle"), (2, "busy")):
        named.on_control(shared(number, name))
    busy = named.peers["busy"]
    busy.users = 1
    named.leave(busy)
    assert not said  # nothing was revoked
    busy.users = 2
    for number in (1, 2):
        named.on_control(Control(m.UNSHARE, number=number))
    told = [[each.number for each in said]]
    for _ in range(2):
        named.leave(busy)
        told.append([each.number for each in said])
    assert told == [[1], [1], [1, 2]]
    assert {each.kind for each in said} == {m.UNSHARED}


@pytest.mark.parametrize("wrong", [-1, 1])
def test_where_a_large_message_is_has_one_length(wrong: int) -> None:
    end = Endpoint.__new__(Endpoint)
    end.incoming, end.inbox = ReceiveAccount(4, True), deque()
    end._arrived(2, m.LARGE_BYTES, LARGE << 24)
    with pytest.raises(m.ProtocolError, match="say where a message is"):
        end._arrived(3, m.LARGE_BYTES + wrong, LARGE << 24 | 1)
    assert list(end.inbox) == [(0, LARGE, 2, m.LARGE_BYTES)]


def test_a_large_message_is_read_piece_by_piece_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "READ_BYTES", 100)
    asked: list[SendWR] = []
    later: list[object] = []
    end, fetch = Endpoint.__new__(Endpoint), endpoint.Fetch()
    end.link = cast(Link, SimpleNamespace(later=later))
    end.fetching = fetch

    def operate(requests: list[SendWR], ended: Any) -> endpoint.Operation:
        asked.extend(requests)
        return endpoint.Operation(len(requests), ended)

    monkeypatch.setattr(Endpoint, "operate", lambda _, requests, ended: operate(requests, ended))
    lease: Any = SimpleNamespace(address=0x1000, lkey=5, release_later=lambda _: later.append("released"))
    operation = end.fetch((0x9000, 7, 250), lease, fetch)
    assert [each.sges for each in asked] == [
        ((0x1000, 100, 5),), ((0x1064, 100, 5),), ((0x10C8, 50, 5),),
    ]  # fmt: skip
    assert [(each.remote_addr, each.remote_rkey) for each in asked] == [(0x9000, 7), (0x9064, 7), (0x90C8, 7)]
    assert fetch.under_way
    end.give_up(fetch)
    assert (end.fetching, fetch.given_up) == (fetch, True), "bytes may come still"
    operation.done = True
    assert operation.on_done is not None
    operation.on_done(operation)
    assert (end.fetching, later) == (None, ["released"])


@pytest.mark.parametrize(("peer_bytes", "longest"), [(50, 50), (100, 100), (200, 100)])
def test_a_message_is_copied_where_it_fits_the_slots_of_both(peer_bytes: int, longest: int) -> None:
    end = Endpoint.__new__(Endpoint)
    end.slot_bytes, end.peer = 100, None
    assert end.longest_copied == 100
    end.peer = m.End(m.ACKNOWLEDGED, 5, 0, 4, peer_bytes, 1000)
    assert end.longest_copied == longest
    end.acknowledged = False
    assert end.longest == longest
    end.acknowledged = True
    assert end.longest == 1000


def test_what_an_endpoint_had_reserved_is_given_back_once() -> None:
    given: list[int] = []
    closed: list[int] = []
    end, part = Endpoint.__new__(Endpoint), SimpleNamespace(close=lambda: closed.append(1))
    end.link = cast(Link, SimpleNamespace(guard=contextlib.nullcontext(), unreserve=given.append))
    end.wire = end._slots = end._stage = cast(Any, part)
    end._operations, end._entries = {}, 30
    end.destroy()
    end.destroy()
    assert (sum(given), len(closed)) == (30, 6)


def test_what_was_taken_is_told_at_once_only_once_where_that_was_asked_for() -> None:
    end = Endpoint.__new__(Endpoint)
    end.number, end.error, end.peer_closed, end.inbox, end._free = 3, None, False, deque(), []
    end.peer = m.End(m.ACKNOWLEDGED, 5, 0, 16, 64, 64)
    end.wire = cast(Any, SimpleNamespace(post_receives=lambda receives: None))
    end.incoming = ReceiveAccount(16, True)
    end._at_once, end._answering = True, True
    end.incoming.expected = 1
    assert end.next_credit() == Control(m.CREDIT, 3, 1, flags=m.ANSWER)
    end.incoming.expected = 2
    assert end.next_credit() is None
    end.incoming.expected = 1 + 16 // 4
    assert end.next_credit() == Control(m.CREDIT, 3, 5)


def test_what_is_lost_is_asked_for_again_when_that_was_answered_and_not_before() -> None:
    end = Endpoint.__new__(Endpoint)
    end.outgoing, end._offered, end._syncing = SendAccount(8, 8), deque(), True
    end.outgoing.sent = 4
    for number, flags, waits in ((1, 0, True), (2, m.ANSWER, False)):
        end.on_control(Control(m.CREDIT, 3, number, flags=flags))
        assert (end.outgoing.taken, end._syncing) == (number, waits)
    with pytest.raises(m.ProtocolError, match="flags"):
        end.on_control(Control(m.CREDIT, 3, 3, flags=2))


def test_who_gives_up_before_a_read_is_posted_makes_way_at_once() -> None:
    end, fetch = Endpoint.__new__(Endpoint), endpoint.Fetch()
    end.link = cast(Link, SimpleNamespace(changed=False))
    end.fetching = fetch
    end.give_up(endpoint.Fetch())
    assert end.fetching is fetch
    end.give_up(fetch)
    assert (end.fetching, end.link.changed) == (None, True)


def test_an_atomic_is_at_an_address_that_is_a_multiple_of_eight() -> None:
    grant = Grant(1, "box", 4100, 64, 1, Rights.ATOMIC)
    assert grant.place(4, 8, Rights.ATOMIC, aligned=True) == 4104
    with pytest.raises(ChannelAccessError, match="multiple of 8"):
        grant.place(8, 8, Rights.ATOMIC, aligned=True)


def test_a_window_has_another_key_each_time_and_forgets_its_memory(pair: Pair) -> None:
    link = pair[0]._link
    lease, window = link.memory.scratch(8), link.windows.take()
    assert window is not None
    keys = []
    for _ in range(3):
        window.bind(lease)
        keys.append(window.rkey)
    assert len(set(keys)) == 3
    link.windows.give_back(window)
    assert window.lease is None
    lease.release()


def test_a_window_that_could_not_be_made_is_none_of_those_that_may_be(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(pd: object) -> None:
        raise PyverbsRDMAError("no more", 12)

    monkeypatch.setattr(windows, "Window", refused)
    table = Windows(pair[0]._link.pd)
    for _ in range(windows.MOST_WINDOWS + 1):
        with pytest.raises(PyverbsRDMAError):
            table.take()
    assert table.free


class CountedUnderLock(Windows):
    """Says of each change of the count whether this thread has the lock."""

    changes: list[bool]

    @property
    def _made(self) -> int:  # type: ignore[override]
        return self.count

    @_made.setter
    def _made(self, count: int) -> None:
        self.count = count
        self.changes = [*getattr(self, "changes", []), cast(Any, self._lock)._is_owned()]


def test_windows_are_counted_by_one_thread_at_a_time(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pd: object) -> None:
        raise PyverbsRDMAError("no more", 12)

    table = CountedUnderLock(pair[0]._link.pd)
    monkeypatch.setattr(windows, "Window", refused)
    with pytest.raises(PyverbsRDMAError):
        table.take()
    assert table.changes[1:] == [True, True], "but for the first, when it is made"


def test_memory_of_ones_own_is_registered_once(pair: Pair) -> None:
    memory = pair[0]._link.memory
    before = memory.registrations
    for _ in range(4):
        memory.scratch(8).release()
    assert memory.registrations <= before + 1


def test_operations_one_after_the_other_have_the_same_memory(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has taken the completions may come to what it has put off only after the next operation has begun.
    """
    client, server = pair
    client.share("box", bytearray(64), "rwa")
    box = server.remote("box")
    link = server._link
    monkeypatch.setattr(link, "clear_up", lambda: None)
    for number in range(4):
        assert box.read(8) == number.to_bytes(8, "little")
        assert box.fetch_add(0, 1) == number
        box.write(b"more", 8)
    assert link.memory.registrations == 1


def test_memory_that_is_not_kept_ends_when_no_lock_is_held(pair: Pair) -> None:
    client, server = pair
    client.share("box", bytearray(1 << 20), "rw")
    link, ended = server._link, []
    former = registration._close

    def close(regions: list[MR]) -> None:
        ended.append((len(regions), link.lock._is_owned()))  # type: ignore[attr-defined]
        former(regions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registration, "_close", close)
        server.remote("box").write(bytes(1 << 20))
    assert ended == [(1, False)]


def test_an_array_is_known_by_itself_and_kept_while_it_is_used(pair: Pair) -> None:
    memory = pair[0]._link.memory
    one, other = numpy.zeros(10_000, numpy.uint8), numpy.zeros(20_000, numpy.uint8)
    before = memory.registrations
    first, second = (memory.lease(one, memoryview(one)) for _ in range(2))
    (entry,) = memory._cache.values()
    assert (memory.registrations, entry.users) == (before + 1, 2)
    first.release()
    entry.owner = cast(Any, lambda: None)  # the array is gone; an operation goes on
    third = memory.lease(other, memoryview(other))
    assert entry in memory._cache.values()
    second.release()
    again = memory.lease(one, memoryview(one))  # what is at its address now
    assert memory.registrations == before + 3
    for each in (third, again):
        each.release()


def test_as_many_names_as_there_may_be_and_no_more(named: NamedBuffers) -> None:
    boxes = [buffer(f"box {number}") for number in range(MOST_NAMES)]
    for number, box in enumerate(boxes, 1):
        named.announce(box)
        named.on_control(shared(number, f"peer's {number}"))
    assert named.revoke(boxes[0])
    with pytest.raises(ChannelError, match="at most"):  # one that the peer has not let go of counts
        named.announce(buffer("one more"))
    with pytest.raises(m.ProtocolError, match="too many"):
        named.on_control(shared(MOST_NAMES + 1, "one more"))


def test_what_a_peer_cannot_have_said_of_buffers_is_refused(named: NamedBuffers) -> None:
    named.on_control(shared(1, "box"))
    for name, number in (("box", 2), ("another", 1)):
        with pytest.raises(m.ProtocolError, match="twice"):
            named.on_control(shared(number, name))
    last = Control(m.SHARE, number=3, address=(1 << 64) - 64, length=64, key=1, flags=m.READ, name="last")
    named.on_control(last)
    with pytest.raises(m.ProtocolError, match="65 bytes"):
        named.on_control(dataclasses.replace(last, number=4, length=65, name="behind"))
    for number in (0, 1):  # none was ever shared here
        with pytest.raises(m.ProtocolError, match="not revoked"):
            named.on_control(Control(m.UNSHARED, number=number))
    with pytest.raises(ValueError, match="no rights"):
        Rights.of(Rights(0))
    assert Grant(1, "box", 0, 64, 1, Rights.READ).place(56, 8, Rights.READ) == 56
    with pytest.raises(ChannelAccessError, match="not within"):
        Grant(1, "box", 0, 64, 1, Rights.READ).place(57, 8, Rights.READ)
