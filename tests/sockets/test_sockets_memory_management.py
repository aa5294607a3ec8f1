"""Records A and B: what is granted, taken, held and given back, against a model that knows every byte."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.sockets.memory_management import NOTIFICATIONS, RecordA, RecordB, pieces
from softhca.sockets.protocol import (
    BEHIND_BYTES,
    CREDIT,
    DATA,
    FIN,
    HELLO_BYTES,
    LARGEST_POOL_BYTES,
    OFFER_BYTES,
    RESET,
    SMALLEST_POOL_BYTES,
    Notification,
    Offer,
    ProtocolError,
    addresses_of,
)
from softhca.sockets.stream_state import StreamState

POOL = 16 << 10
OFFER = Offer(0x10000, POOL, 7)


def test_pieces_wrap_at_the_end_of_the_pool() -> None:
    assert pieces(POOL + 100, 50, POOL) == [(100, 50)]
    assert pieces(2 * POOL - 10, 30, POOL) == [(POOL - 10, 10), (0, 20)]
    assert pieces(POOL - 10, 10, POOL) == [(POOL - 10, 10)]


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["send", "read", "hold", "release", "credit"]), st.integers(1, POOL + 5000)),
    max_size=200,
)


@given(ACTIONS, st.integers(0, 6000))
def test_no_byte_is_lost_overwritten_or_given_twice(actions: list[tuple[str, int]], threshold: int) -> None:
    """A sender and a receiver with a pool of real bytes between them, whatever order things happen in."""
    sender, receiver = StreamState(POOL, OFFER), StreamState(POOL, OFFER)
    pool = bytearray(POOL)
    written = read = 0
    held: list[tuple[int, bytes, tuple[int, int]]] = []

    def stream(start: int, length: int) -> bytes:
        return bytes((start + at) * 7 % 251 for at in range(length))

    for action, size in actions:
        if action == "send":
            taken, places, immediate = sender.next_data(size, threshold)
            assert taken == sum(length for _, length in places)
            data = stream(written, taken)
            for offset, length in places:
                pool[offset : offset + length] = data[:length]
                data = data[length:]
            written += taken
            if taken:
                assert receiver.arrived(immediate) == DATA
                if Notification.decode(immediate).aligned:
                    assert places[0][0] % 4096 == 0
        elif action == "read":
            size = min(size, receiver.own.available)
            found = b"".join(bytes(pool[o : o + n]) for o, n in receiver.own.look(size))
            assert found == stream(read, size)
            receiver.own.take(size)
            read += size
        elif action == "hold" and receiver.own.available:
            run = receiver.own.run(size)
            assert run is not None
            held.append((receiver.own.hold(run[1]), stream(read, run[1]), run))
            read += run[1]
        elif action == "release" and held:
            receiver.own.release(held.pop(size % len(held))[0])
        elif action == "credit":
            told = receiver.next_credit(anyhow=bool(size % 2))
            if told is not None:
                assert Notification.decode(told[2]).kind == CREDIT
                sender.peers.credited(told[0], told[1])
        for _, data, (offset, length) in held:
            assert pool[offset : offset + length] == data
        assert receiver.own.available == written - read
        assert receiver.own.held == sum(len(data) for _, data, _ in held)
        assert 0 <= sender.peers.free <= receiver.own.free <= POOL
    for position, _, _ in held:
        receiver.own.release(position)
    receiver.own.take(receiver.own.available)
    assert receiver.own.free == POOL
    told = receiver.next_credit(anyhow=True)
    if told is not None:
        sender.peers.credited(told[0], told[1])
    assert sender.peers.free == POOL


def test_whole_pages_begin_with_the_next_byte() -> None:
    own = RecordA(POOL)
    own.arrived(10000)
    assert own.whole_pages(10000) == (0, 8192)
    assert own.whole_pages(4095) is None
    own.take(1)
    assert own.whole_pages(9999) is None
    own.take(9999)
    assert own.whole_pages(0) is None
    own.arrived(4096, aligned=True)
    assert own.whole_pages(4096) == (12288, 4096)
    assert own.free == 4096 + 8192  # what was skipped is free with what was read
    own.take(4096)
    assert own.free == POOL


def test_a_peer_cannot_write_more_than_it_was_told() -> None:
    own = RecordA(POOL)
    own.arrived(POOL)
    own.take(POOL)
    with pytest.raises(ProtocolError):  # read, but not told yet
        own.arrived(1)
    assert (own.tail, own.available) == (POOL, 0)
    assert own.credit() == (POOL, 1)
    own.arrived(POOL)
    own = RecordA(POOL)
    for _ in range(NOTIFICATIONS):
        own.arrived(1)
    with pytest.raises(ProtocolError):
        own.arrived(1)


def test_a_quarter_of_the_pool_or_of_the_notifications_is_told() -> None:
    own = RecordA(POOL)
    own.arrived(POOL)
    own.take(POOL // 4 - 1)
    assert own.credit() is None
    own.take(1)
    assert own.credit() == (POOL // 4, 1)
    own = RecordA(POOL)
    for _ in range(NOTIFICATIONS // 4 - 1):
        own.arrived(1)
    assert own.credit() is None
    own.arrived(1)
    assert own.credit() == (0, NOTIFICATIONS // 4)
    assert own.credit(True) is None


def test_a_peer_is_pressed_by_a_quarter_of_the_notifications_without_an_answer() -> None:
    peers = RecordB(0, POOL, 1)
    for number in range(NOTIFICATIONS // 4):
        assert (peers.presses, peers.unanswered()) == (False, number)
        peers.reserve(1)
    assert peers.presses
    peers.credited(0, 1)
    assert not peers.presses


def test_where_the_rest_of_a_page_is_all_that_is_free_there_is_no_room_from_the_next_one_on() -> None:
    peers = RecordB(0, POOL, 1)
    for taken, aligned, plain in ((POOL - 4097, 4096, 4097), (1, 4096, 4096), (1, 0, 4095), (95, 0, 4000)):
        peers.reserve(taken)
        assert (peers.room(True), peers.room()) == (aligned, plain)
    peers.reserve(1000)
    peers.credited(1000, 1)  # the end of the page is free, and the beginning of the first
    assert (peers.room(True), peers.room()) == (1000, 4000)
    peers.reserve(3900)
    assert (peers.room(True), peers.room()) == (0, 100)


@pytest.mark.parametrize(("head", "count"), [(-1, 1), (99, 1), (201, 1), (150, 0), (150, 3)])
def test_forged_credit_changes_nothing(head: int, count: int) -> None:
    peers = RecordB(0, POOL, 1)
    peers.reserve(100)
    peers.reserve(100)
    peers.credited(100, 1)
    with pytest.raises(ProtocolError):
        peers.credited(head, count)
    assert (peers.head, peers.free) == (100, POOL - 100)


def test_a_sender_stops_when_too_many_notifications_are_under_way() -> None:
    peers = RecordB(0, POOL, 1)
    for _ in range(NOTIFICATIONS):
        assert peers.room()
        peers.reserve(1)
    assert not peers.room()
    peers.credited(0, 1)
    assert peers.room() == POOL - NOTIFICATIONS


@given(st.integers(0, (1 << 32) - 1))
def test_an_immediate_is_one_notification_or_none(immediate: int) -> None:
    try:
        said = Notification.decode(immediate)
    except ProtocolError:
        return
    assert said.encode() == immediate


def test_what_follows_an_end() -> None:
    state = StreamState(POOL, OFFER)
    assert state.arrived(Notification(DATA, 5).encode()) == DATA
    assert state.arrived(Notification(FIN).encode()) == FIN
    assert (state.finished, state.deaf, state.own.available) == (True, False, 5)
    with pytest.raises(ProtocolError):
        state.arrived(Notification(DATA, 5).encode())
    assert state.arrived(Notification(FIN, closed=True).encode()) == FIN
    assert state.deaf
    assert not state.was_reset
    assert state.arrived(Notification(RESET).encode()) == RESET
    assert state.was_reset


@given(st.binary(max_size=80))
def test_offers_are_decoded_or_refused(data: bytes) -> None:
    for text in (data, OFFER.encode()[: OFFER_BYTES - 16] + data):
        try:
            found = Offer.decode(text)
        except ProtocolError:
            continue
        assert found.encode()[:OFFER_BYTES] == text[:3] + b"\0" + text[4:OFFER_BYTES]


def test_a_request_says_who_asks() -> None:
    hello = Offer(1 << 40, 1 << 20, 0xFFFFFFFF, 5000).encode(bytes(range(16)), bytes(range(16, 32)))
    assert len(hello) == HELLO_BYTES <= 56
    assert addresses_of(hello) == (bytes(range(16)), bytes(range(16, 32)))
    assert addresses_of(hello + bytes(2)) == (bytes(range(16)), bytes(range(16, 32)))
    assert Offer.decode(hello) == Offer(1 << 40, 1 << 20, 0xFFFFFFFF, 5000)
    with pytest.raises(ProtocolError):
        addresses_of(hello[:-1])
    for broken in (b"", b"xx" + hello[2:], hello[:2] + b"\1" + hello[3:], Offer(1, 5, 2).encode()):
        with pytest.raises(ProtocolError):
            Offer.decode(broken)


def test_what_is_held_is_granted_when_it_is_released_and_in_the_ring_s_order() -> None:
    own = RecordA(POOL)
    own.arrived(POOL)
    first, second = own.hold(4096), own.hold(4096)
    own.take(POOL - 8192)
    assert (own.free, own.held, own.credit()) == (0, 8192, None)
    own.release(second)  # behind what is held still
    assert (own.free, own.credit()) == (0, None)
    own.release(first)
    assert (own.free, own.credit()) == (POOL, (POOL, 1))


def test_what_is_held_holds_up_what_was_read_behind_it() -> None:
    own = RecordA(POOL)
    own.arrived(4096, True)
    assert own.holds_up() is None
    first = own.hold(4096)
    own.arrived(4096)
    second = own.hold(4096)
    own.arrived(4096)
    own.take(4095)
    assert own.holds_up() is None  # what is held and what can be read do not count
    own.take(1)
    assert own.holds_up() == first == 0
    own.release(first)
    assert own.holds_up() == second == 4096
    own.release(second)
    assert own.holds_up() is None


@pytest.mark.parametrize(
    ("change", "taken"),
    [({"pool_bytes": 3 << 14}, False), ({"pool_bytes": LARGEST_POOL_BYTES}, True),
     ({"pool_bytes": 2 * LARGEST_POOL_BYTES}, False), ({"pool_bytes": SMALLEST_POOL_BYTES // 2}, False),
     ({"address": (1 << 64) - POOL - BEHIND_BYTES}, False),
     ({"address": (1 << 64) - POOL - BEHIND_BYTES - 1}, True)],
)  # fmt: skip
def test_a_peers_pool_has_a_size_and_a_place_that_can_be(change: dict[str, int], taken: bool) -> None:
    offered = replace(OFFER, **change).encode()
    if taken:
        assert Offer.decode(offered) == replace(OFFER, **change)
        return
    with pytest.raises(ProtocolError):
        Offer.decode(offered)


@pytest.mark.parametrize("flags", [2, 0x80, 0xFF])
def test_flags_that_mean_nothing_are_refused(flags: int) -> None:
    offered = bytearray(OFFER.encode())
    offered[3] = flags
    with pytest.raises(ProtocolError, match="flags"):
        Offer.decode(bytes(offered))


@pytest.mark.parametrize(("kind", "bits"), [(CREDIT, 2), (FIN, 2), (RESET, 1), (RESET, 2)])
def test_bits_that_mean_nothing_are_refused(kind: int, bits: int) -> None:
    with pytest.raises(ProtocolError):
        Notification.decode(Notification(kind).encode() | bits)
    with pytest.raises(ProtocolError):
        StreamState(POOL, OFFER).arrived(Notification(kind).encode() | bits)


def test_an_end_says_whether_anybody_reads_and_credit_whether_more_stands_in_memory() -> None:
    assert Notification.decode(Notification(FIN).encode() | 1) == Notification(FIN, closed=True)
    said = Notification(CREDIT, in_memory=True)
    assert Notification.decode(Notification(CREDIT).encode() | 1) == said
    assert Notification.decode(said.encode()) == said
    state = StreamState(POOL, OFFER)
    assert state.arrived(state.event()) == CREDIT
    assert not state.peer_in_memory
    assert state.arrived(state.in_memory()) == CREDIT
    assert state.peer_in_memory
    state.arrived(state.event())
    assert state.peer_in_memory


def test_notifications_are_numbered_whichever_way_they_come() -> None:
    state = StreamState(POOL, OFFER)
    assert state.next_number() == 1
    state.arrived_in_memory(5)
    state.arrived(Notification(CREDIT).encode())
    state.arrived(7)
    assert (state.received, state.next_number(), state.own.available) == (3, 4, 12)
    state.received = 0xFFFFFFFE
    state.arrived(1)
    assert state.next_number() == 0
    state.arrived(Notification(CREDIT).encode())
    assert (state.received, state.next_number()) == (0, 1)


@pytest.mark.parametrize("kind", [CREDIT, FIN, RESET, None])
def test_nothing_but_data_stands_in_the_ring(kind: int | None) -> None:
    state = StreamState(POOL, OFFER)
    with pytest.raises(ProtocolError, match="ring"):
        state.arrived_in_memory(0 if kind is None else Notification(kind).encode())
    assert (state.received, state.was_reset, state.finished) == (0, False, False)


@pytest.mark.parametrize("immediate", [0, 1 << 28])
def test_a_notification_of_no_data_is_refused(immediate: int) -> None:
    with pytest.raises(ProtocolError):
        Notification.decode(immediate)
