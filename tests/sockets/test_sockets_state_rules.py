"""Rules of streams' and datagrams' states: what comes behind an end, and whose word is worth what."""

from __future__ import annotations

import pytest

from softhca.sockets.datagram_protocol import Header, cut
from softhca.sockets.datagram_state import FULL, DatagramState
from softhca.sockets.protocol import CREDIT, DATA, FIN, RESET, Notification, Offer, ProtocolError
from softhca.sockets.stream_state import StreamState

POOL_BYTES = 1 << 16
PAGE_BYTES = 4096
HOST = bytes(10) + b"\xff\xff\x0a\0\0\1"


def stream() -> StreamState:
    return StreamState(POOL_BYTES, Offer(1 << 32, POOL_BYTES, 7))


def test_data_behind_an_end_are_refused_and_count_for_nothing() -> None:
    for end in (Notification(FIN), Notification(FIN, closed=True), Notification(RESET)):
        state = stream()
        assert state.arrived(Notification(DATA, 5).encode()) == DATA
        state.arrived(end.encode())
        with pytest.raises(ProtocolError, match="behind FIN"):
            state.arrived(Notification(DATA, 5).encode())
        assert (state.received, state.own.available) == (2, 5)


def test_nobody_is_written_to_who_has_given_up() -> None:
    state = stream()
    assert state.arrived(Notification(RESET).encode()) == RESET
    assert (state.was_reset, state.finished, state.deaf) == (True, True, True)


def test_who_reads_no_more_does_not_begin_again() -> None:
    state = stream()
    state.arrived(Notification(FIN, closed=True).encode())
    state.arrived(Notification(FIN).encode())
    assert state.deaf
    half = stream()
    half.arrived(Notification(FIN).encode())
    assert not half.deaf


def test_who_may_tell_in_memory_may_do_so_for_good() -> None:
    state = stream()
    state.arrived(Notification(CREDIT, in_memory=True).encode())
    state.arrived(Notification(CREDIT).encode())
    assert state.peer_in_memory


def test_few_bytes_that_a_page_would_hold_up_follow_at_once() -> None:
    state = stream()
    filled, _, _ = state.next_data(POOL_BYTES - 2 * PAGE_BYTES + 100, 0)
    room, aligned = state.peers.room(), state.peers.room(True)
    assert filled
    assert aligned < room
    taken, _, notification = state.next_data(PAGE_BYTES + 500, aligned)
    assert taken == PAGE_BYTES + 500
    assert not Notification.decode(notification).aligned


def test_a_datagram_from_port_0_is_none() -> None:
    header = Header(HOST, 0, 1, 10, *cut(10, 5)[:1], 5)
    with pytest.raises(ProtocolError, match="port 0"):
        Header.decode(header.encode(), 10 + len(header.encode()))


def test_who_is_not_believed_gets_no_credit_where_there_is_no_room() -> None:
    state = DatagramState(8)
    header = Header(HOST, 9, 1, 10, 0, 5).encode()
    source = bytes(16), 3
    for slot in range(state.most_queued):
        state.page_arrived(slot, (bytes(16), 4), PAGE_BYTES, slot, 0)
    state.arrived(state.most_queued, source, 10 + len(header), header, 0)
    assert state.dropped == {FULL: 1}
    assert not state.credits.touched
    assert not state.credits._senders
