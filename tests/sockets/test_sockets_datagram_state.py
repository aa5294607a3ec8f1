"""Datagrams put together: any order, nothing twice, nothing for ever, every slot in one place."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.sockets import datagram_state
from softhca.sockets.datagram_protocol import (
    CREDIT,
    HEADER_BYTES,
    LARGEST_BYTES,
    MOST_WINDOW,
    Header,
    Hello,
    cut,
    decode_answer,
    encode_answer,
    mtu_bytes,
    of_immediate,
    page_immediate,
)
from softhca.sockets.datagram_state import Claim, DatagramState
from softhca.sockets.protocol import ProtocolError

HOST, GID = bytes(15) + b"\x01", bytes(15) + b"\x02"
SOURCE = GID, 7
CLAIM = Claim(SOURCE, (HOST, 5))


class Arriving:
    """A state with messages put into one slot after the other."""

    def __init__(self, slots: int = 64) -> None:
        self.state = DatagramState(slots)
        self.slots = itertools.count()
        self.now_ns = 0

    def header(
        self, number: int, total: int, mtu: int = 5, source: datagram_state.Source = SOURCE, position: int = 0
    ) -> int:
        pages, rest = cut(total, mtu)
        text = Header(HOST, 5, number, total, pages, mtu, position).encode()
        slot = next(self.slots)
        self.state.arrived(slot, source, HEADER_BYTES + rest, text, self.now_ns)
        return slot

    def page(self, number: int, index: int, length: int, source: datagram_state.Source = SOURCE) -> int:
        slot = next(self.slots)
        self.state.page_arrived(slot, source, length, page_immediate(number, index), self.now_ns)
        return slot


@pytest.fixture
def arriving() -> Arriving:
    made = Arriving()
    made.state.decide(CLAIM, True, 0)
    return made


@pytest.mark.parametrize("mtu", range(1, 6))
def test_what_is_cut_is_whole_again(mtu: int) -> None:
    size = mtu_bytes(mtu)
    for total in {0, 1, size - 33, size - 32, size - 31, size, size + 1, 2 * size, 65_507, 65_527}:
        pages, rest = cut(total, mtu)
        header = Header(HOST, 5, 65_535, total, pages, mtu)
        assert Header.decode(header.encode(), HEADER_BYTES + rest) == header
        lengths = [header.page_bytes(index) for index in range(pages)]
        assert sum(lengths) + rest == total
        assert all(each == size for each in lengths[: -1 if not rest else None])
        assert HEADER_BYTES + rest <= size
        with pytest.raises(ProtocolError):
            Header.decode(header.encode(), HEADER_BYTES + rest + 1)
    for too_long in (max(LARGEST_BYTES.values()) + 1, 65_535):
        pages, rest = cut(too_long, mtu)
        with pytest.raises(ProtocolError):
            Header.decode(Header(HOST, 5, 1, too_long, pages, mtu).encode(), HEADER_BYTES + rest)
    assert of_immediate(page_immediate(65_535, 255)) == (65_535, 255)


def test_requests_and_answers() -> None:
    hello = Hello(HOST, GID, 5, 6)
    assert Hello.decode(hello.encode() + bytes(100)) == hello
    assert decode_answer(encode_answer(3, 40) + bytes(100)) == (3, 40)
    for wrong in (b"", b"sD\x01" + bytes(60), b"xD\x02\x03\0\1" + bytes(60)):
        with pytest.raises(ProtocolError):
            decode_answer(wrong)
        with pytest.raises(ProtocolError):
            Hello.decode(wrong)
    for mtu, window in ((6, 40), (0, 40), (3, 0), (3, MOST_WINDOW + 1)):
        with pytest.raises(ProtocolError):
            decode_answer(encode_answer(mtu, window))


def test_parts_arrive_in_any_order(arriving: Arriving) -> None:
    for seed in range(20):
        parts = ["first", 0, 1, 2]
        random.Random(seed).shuffle(parts)
        slots = {}
        for part in parts:
            if part == "first":
                slots[part] = arriving.header(seed, 12_280)
            else:
                slots[part] = arriving.page(seed, part, 4096 if part < 2 else 12_280 - 8192)
        found = arriving.state.queue.popleft()
        assert (found.total, found.first) == (12_280, slots["first"])
        assert found.pages == [slots[0], slots[1], slots[2]]
        arriving.state.give_back(found.slots)
    assert sorted(arriving.state.free) == list(range(80))
    assert arriving.state.used == 0


def test_datagrams_of_two_senders_with_one_number_are_two(arriving: Arriving) -> None:
    other = GID, 8
    arriving.state.decide(Claim(other, CLAIM.address), True, 0)
    for source in (SOURCE, other):
        arriving.header(1, 8192, source=source)
    arriving.page(1, 0, 4096)
    arriving.page(1, 1, 4096, other)
    assert not arriving.state.queue
    arriving.page(1, 1, 4096)
    arriving.page(1, 0, 4096, other)
    assert [each.claim.source for each in arriving.state.queue] == [SOURCE, other]


@pytest.mark.parametrize(
    ("index", "length"), [(0, 4095), (1, 4095), (2, 100), (0, 0)], ids=["short", "last", "beyond", "empty"]
)
def test_a_page_of_a_wrong_length_drops_its_datagram(arriving: Arriving, index: int, length: int) -> None:
    arriving.header(1, 8192)
    arriving.page(1, index, length)
    assert arriving.state.dropped == {"malformed": 1}
    assert sorted(arriving.state.free) == [0, 1]


def test_what_comes_twice_is_dropped(arriving: Arriving) -> None:
    arriving.header(1, 8192)
    arriving.page(1, 0, 4096)
    arriving.page(1, 0, 4096)
    arriving.header(1, 8192)
    arriving.page(1, 1, 4096)
    assert len(arriving.state.queue) == 1
    assert arriving.state.dropped == {"malformed": 2}


def test_what_stays_in_part_is_given_up(arriving: Arriving) -> None:
    arriving.header(1, 8192)
    arriving.page(1, 0, 4096)
    arriving.now_ns += datagram_state.PARTIAL_NS - 1
    arriving.header(2, 8192)
    assert not arriving.state.dropped
    arriving.now_ns += 1
    arriving.page(2, 0, 4096)
    assert arriving.state.dropped == {"incomplete": 1}
    assert sorted(arriving.state.free) == [0, 1]
    for number in range(3, 3 + datagram_state.MOST_PARTIALS):
        arriving.page(number, 0, 4096)
    assert arriving.state.dropped == {"incomplete": 2}


def test_what_lacks_a_part_is_given_up_when_later_ones_are_whole(arriving: Arriving) -> None:
    arriving.page(1, 0, 4096)
    arriving.page(1, 0, 4096, (GID, 8))
    for number in range(2, 1 + datagram_state.OVERTAKEN):
        arriving.header(number, 10)
    assert not arriving.state.dropped
    arriving.header(9, 4096)
    arriving.page(9, 0, 4096)
    assert arriving.state.dropped == {"incomplete": 1}
    assert arriving.state.free == [0]


def test_nothing_is_read_before_its_sender_is_believed() -> None:
    arriving = Arriving()
    arriving.header(1, 10)
    arriving.header(2, 20)
    other = GID, 9
    arriving.header(3, 30, source=other)
    assert not arriving.state.queue
    assert arriving.state.unsettled()
    assert arriving.state.claims() == [CLAIM, Claim(other, CLAIM.address)]
    assert arriving.state.claims() == []
    assert not arriving.state.unsettled()
    arriving.state.decide(Claim(other, CLAIM.address), False, 0)
    arriving.state.decide(CLAIM, True, 0)
    assert arriving.state.unsettled()
    arriving.state.credits.due(0)
    assert not arriving.state.unsettled()
    assert [each.total for each in arriving.state.queue] == [10, 20]
    assert arriving.state.dropped == {"forged": 1}
    arriving.now_ns = datagram_state.BELIEVED_NS - 1
    arriving.header(4, 40)
    assert arriving.state.queue[-1].total == 40
    arriving.now_ns += 1
    arriving.header(5, 50)
    assert arriving.state.queue[-1].total == 40
    assert arriving.state.claims() == [CLAIM]


def test_goodbyes_of_strangers_mean_nothing(arriving: Arriving) -> None:
    text = Header(HOST, 5, 0, 0, 0xFFFF, 5).encode()
    arriving.state.arrived(0, (GID, 9), HEADER_BYTES, text, 0)
    assert not arriving.state.gone
    arriving.state.arrived(1, SOURCE, HEADER_BYTES, text, 0)
    assert arriving.state.gone == [CLAIM]
    assert arriving.state.free == [0, 1]


def test_strangers_take_no_more_than_their_share() -> None:
    arriving = Arriving(1000)
    for number in range(datagram_state.MOST_CLAIMS + 5):
        arriving.header(1, 10, source=(GID, number))
    assert len(arriving.state.claims()) == datagram_state.MOST_CLAIMS
    assert arriving.state.dropped == {"full": 5}


def test_what_was_decided_about_gives_all_its_room_to_strangers_back() -> None:
    arriving = Arriving(32)
    for number in range(40):
        source = GID, 100 + number
        arriving.header(1, 2 * 4096, source=source)
        for index in range(2):
            arriving.page(1, index, 4096, source)
        claim = Claim(source, (HOST, 5))
        assert arriving.state.claims() == [claim]
        arriving.state.decide(claim, bool(number % 2), 0)
        for found in list(arriving.state.queue):
            arriving.state.give_back(arriving.state.queue.popleft().slots)
            assert found.total == 2 * 4096
    assert arriving.state.dropped == {"forged": 20}
    assert arriving.state.used == 0


def test_a_page_behind_the_last_drops_its_datagram_though_its_length_is_that_of_the_rest(
    arriving: Arriving,
) -> None:
    arriving.header(1, 8000)  # one page, and 3904 bytes behind the header
    arriving.page(1, 1, 3904)
    assert arriving.state.dropped == {"malformed": 1}
    arriving.page(2, 1, 3904)
    arriving.header(2, 8000)
    assert arriving.state.dropped == {"malformed": 2}
    assert sorted(arriving.state.free) == [0, 1, 2, 3]


def test_what_nobody_reads_leaves_a_quarter_of_the_slots() -> None:
    arriving = Arriving(8)
    arriving.state.decide(CLAIM, True, 0)
    for number in range(6):
        arriving.header(number, 10)
    assert not arriving.state.dropped
    arriving.header(6, 10)
    assert arriving.state.dropped == {"full": 1}
    assert (arriving.state.free, len(arriving.state.queue)) == ([6], 6)
    arriving.state.give_back(arriving.state.queue.popleft().slots)
    arriving.header(7, 10)
    assert (arriving.state.dropped, len(arriving.state.queue)) == ({"full": 1}, 6)


def test_pages_whose_beginning_does_not_come_leave_them_too(arriving: Arriving) -> None:
    state = arriving.state
    for index in range(state.most_queued):
        arriving.page(1, index, 4096)
    assert (state.used, state.dropped) == (48, {})
    arriving.page(1, 48, 4096)
    assert (state.used, state.dropped) == (0, {"full": 1})
    assert sorted(state.free) == list(range(49))


def test_what_lacks_a_part_leaves_slots_for_what_comes() -> None:
    """Nothing would come any more, and so nothing would ever be given up, were all of them taken."""
    arriving = Arriving(32)
    arriving.state.decide(CLAIM, True, 0)
    senders = [(GID, 10 + number) for number in range(3)]
    for source in senders:
        arriving.header(1, 15 * 4096, source=source)
    for index in range(9):
        for source in senders:
            arriving.page(1, index, 4096, source)
    assert (arriving.state.used, arriving.state.dropped) == (30, {})
    arriving.page(1, 9, 4096, senders[0])
    assert arriving.state.dropped == {"incomplete": 1}
    assert sorted(arriving.state.free) == [0, *range(3, 30, 3), 30]
    assert arriving.state.used == 20


def test_a_short_datagram_finds_the_slots_of_what_stays_in_part(arriving: Arriving) -> None:
    other = GID, 9
    for number in range(4):
        arriving.header(number, 15 * 4096, source=other)
        for index in range(13):
            arriving.page(number, index, 4096, other)
    assert arriving.state.used > arriving.state.most_queued
    arriving.now_ns += datagram_state.PARTIAL_NS
    arriving.header(1, 10)
    assert [each.total for each in arriving.state.queue] == [10]
    assert arriving.state.dropped == {"incomplete": 4}


def test_who_is_not_believed_yet_leaves_half_of_the_slots_to_those_who_are(arriving: Arriving) -> None:
    stranger = Claim((GID, 9), CLAIM.address)
    for _ in range(40):
        arriving.header(1, 10, source=stranger.source)
    assert arriving.state.dropped == {"full": 8}
    arriving.header(1, 10)
    assert len(arriving.state.queue) == 1
    arriving.state.decide(stranger, False, 0)
    assert (arriving.state.used, arriving.state.dropped) == (1, {"full": 8, "forged": 32})
    arriving.header(1, 10, source=stranger.source)  # nothing of them is counted any more
    assert (arriving.state.used, arriving.state.dropped["full"]) == (2, 8)
    for _ in range(31):
        arriving.header(1, 10, source=stranger.source)
    assert arriving.state.dropped["full"] == 8


def test_who_sends_more_than_may_wait_is_asked_for_all_the_same() -> None:
    arriving = Arriving(256)
    for _ in range(2):
        arriving.header(1, 65_507, mtu=2)
        for index in range(128):
            arriving.page(1, index, min(512, 65_507 - 512 * index))
        if arriving.state.claims() == [CLAIM]:
            arriving.state.decide(CLAIM, True, 0)
    assert arriving.state.dropped == {"full": 1}
    assert [each.total for each in arriving.state.queue] == [65_507]


def test_who_was_believed_longest_ago_is_asked_for_again_beyond_the_bound() -> None:
    arriving = Arriving(8)
    claims = [Claim((GID, number), CLAIM.address) for number in range(datagram_state.MOST_BELIEVED + 1)]
    for each in claims[:-1]:
        arriving.state.decide(each, True, 0)
    arriving.state.decide(claims[0], True, 1)
    arriving.state.decide(claims[-1], True, 1)
    believed = [each for each in claims if arriving.state.believes(each, 1)]
    assert believed == [claims[0], *claims[2:]]


def test_a_connected_socket_reads_only_its_peers_also_of_what_waits(arriving: Arriving) -> None:
    other = Claim((GID, 8), (HOST, 6))
    arriving.state.decide(other, True, 0)
    arriving.header(1, 10)
    text = Header(HOST, 6, 1, 20, 0, 5).encode()
    arriving.state.arrived(next(arriving.slots), other.source, HEADER_BYTES + 20, text, 0)
    arriving.header(2, 30)
    arriving.state.connect(CLAIM.address)
    assert [each.total for each in arriving.state.queue] == [10, 30]
    assert (arriving.state.dropped, arriving.state.free) == ({"unconnected": 1}, [1])
    arriving.state.arrived(next(arriving.slots), other.source, HEADER_BYTES + 20, text, 0)
    assert (arriving.state.dropped, arriving.state.free) == ({"unconnected": 2}, [1, 3])


_PARTS = st.one_of(
    st.tuples(st.just("header"), st.integers(0, 2), st.integers(0, 2), st.integers(0, 9000)),
    st.tuples(st.just("page"), st.integers(0, 2), st.integers(0, 3), st.sampled_from([4096, 3904, 100, 0])),
    st.tuples(st.just("decide"), st.integers(0, 2), st.booleans(), st.just(0)),
    st.tuples(st.just("read"), st.just(0), st.just(0), st.just(0)),
    st.tuples(st.just("time"), st.integers(0, 10**9), st.just(0), st.just(0)),
)


@given(st.lists(_PARTS, max_size=40))
def test_every_slot_is_in_one_place_whatever_comes(parts) -> None:
    """And what can be read is whole: its bytes are those that its header says."""
    arriving = Arriving(16)
    state, lengths = arriving.state, {}
    for what, source, number, size in parts:
        if what == "header":
            slot = arriving.header(number, size, source=(GID, source))
            lengths[slot] = cut(size, 5)[1]
        elif what == "page":
            lengths[arriving.page(1, number, size, source=(GID, source))] = size
        elif what == "decide":
            state.decide(Claim((GID, source), CLAIM.address), number, arriving.now_ns)
        elif what == "time":
            arriving.now_ns += source
        elif state.queue:
            found = state.queue.popleft()
            assert sum(lengths[slot] for slot in found.slots) == found.total
            state.give_back(found.slots)
        waiting = [each for queue in state._waiting.values() for each in queue]
        held = [slot for each in (*state.queue, *waiting, *state._partials.values()) for slot in each.slots]
        assert sorted([*held, *state.free]) == list(range(len(lengths)))
        assert state.used == len(held) <= state.most_queued + datagram_state.MOST_PARTIALS


@pytest.mark.parametrize("mtu", range(1, 6))
def test_what_is_left_over_goes_with_the_header_where_it_fits_exactly(mtu: int) -> None:
    room = mtu_bytes(mtu) - HEADER_BYTES
    assert [cut(total, mtu) for total in (0, room, room + 1)] == [(0, 0), (0, room), (1, 0)]


@pytest.mark.parametrize(("window", "taken"), [(0, False), (1, True), (1024, True), (1025, False)])
def test_a_window_that_a_peer_tells_can_be(window: int, taken: bool) -> None:
    text = Header(HOST, 5, 0, window, CREDIT, 3, 77).encode()
    if taken:
        assert Header.decode(text, HEADER_BYTES).total == window
        return
    with pytest.raises(ProtocolError, match="window"):
        Header.decode(text, HEADER_BYTES)


def test_what_found_no_room_counts_as_arrived_for_its_sender(arriving: Arriving) -> None:
    """Else a sender that is believed is told of no room behind it, and waits in vain."""
    most = arriving.state.most_queued
    for number in range(most + 1):
        arriving.header(number, 10, position=number)
    assert arriving.state.dropped == {"full": 1}
    (sender,) = arriving.state.credits._senders.values()
    assert sender.seen == most + 1
