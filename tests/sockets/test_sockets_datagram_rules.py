"""Rules of datagrams that whole sockets seldom meet: what a port posts, keeps and gives back, over a queue
pair that is a script, and what a receiver counts.
"""

from __future__ import annotations

from collections import deque
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.driver.errors import DriverError
from softhca.driver.polling import CompletionPoller
from softhca.driver.posting import QueuePairPoster
from softhca.driver.work_requests import Completion
from softhca.machine.primitives import address_of
from softhca.sockets import datagram_state
from softhca.sockets.datagram_credits import ReceiveCredits, SendCredit
from softhca.sockets.datagram_port_path import (
    DEPTH,
    FEW,
    GRH_ROOM,
    INLINE_BYTES,
    SIGNAL_EACH,
    DatagramPortPath,
)
from softhca.sockets.datagram_protocol import (
    CREDIT,
    GONE,
    HEADER_BYTES,
    LARGEST_BYTES,
    MOST_WINDOW,
    Header,
    cut,
    decode_answer,
    encode_answer,
    mtu_bytes,
    page_immediate,
)
from softhca.sockets.datagram_state import Claim, Datagram, DatagramState
from softhca.sockets.protocol import ProtocolError
from softhca.sockets.staging import Staging
from softhca.verbs import enums as e

PAGE, SLOTS, MTU = 4096, 64, 5
HOST, GID = bytes(15) + b"\x01", bytes(15) + b"\x02"
SOURCE, ADDRESS = (GID, 7), (HOST, 5)
CLAIM = Claim(SOURCE, ADDRESS)
SEND, SEND_IMM = int(e.IBV_WR_SEND), int(e.IBV_WR_SEND_WITH_IMM)
SIGNALED = int(e.IBV_SEND_SIGNALED)
RECV, GRH, IMM = int(e.IBV_WC_RECV), int(e.IBV_WC_GRH), int(e.IBV_WC_WITH_IMM)
SPACE_KEY, COPY_KEY, POOL_KEY = 11, 12, 13
PATIENCE_NS = 1000


class Poster(QueuePairPoster):
    """A queue pair that notes what is posted: opcode, flags, immediate, number, elements and inline bytes."""

    def __init__(self) -> None:
        self.noted: list[tuple[Any, ...]] = []
        self.chains: list[list[int]] = []
        self.rung = 0
        self.fails = False

    def post_send(self, opcode: int, flags: int, imm: int, number: int, *rest: Any) -> None:
        if self.fails:
            raise DriverError(5, "the adapter is gone")
        handle, qp_num, qkey, elements, data = rest[4:]
        assert (rest[:4], handle, qp_num, qkey) == ((0, 0, 0, 0), 3, 4, 5)
        self.noted.append((opcode, flags, imm, number, tuple(elements), data))

    def post_receives(self, chain: Any) -> None:
        slots = []
        while chain is not None:
            slots.append(chain.wr_id)
            chain = chain.following
        self.chains.append(slots)

    def ring(self) -> None:
        self.rung += 1


class Poller(CompletionPoller):
    """A completion queue that is a list of attributes."""

    def __init__(self) -> None:
        self.come: deque[dict[str, int]] = deque()

    def waiting(self) -> int:
        return len(self.come)

    def advance(self, entry: Completion) -> bool:
        for name, value in {"status": 0, "wc_flags": 0, "imm_data": 0, **self.come.popleft()}.items():
            setattr(entry, name, value)
        return True


class Port(DatagramPortPath):
    """A port without a device."""

    def __init__(self, staging_bytes: int = 1 << 18) -> None:
        self._begin_path(SLOTS, 16 << 10)
        self.pages, self.heads = bytearray(SLOTS * PAGE), bytearray(SLOTS * GRH_ROOM)
        self.copies = bytearray(staging_bytes)
        self._staging = staging = Staging.__new__(Staging)
        staging._address, staging.length, staging.lkey = address_of(self.copies), staging_bytes, COPY_KEY
        staging.head = staging.tail = 0
        self._lkey = SPACE_KEY
        self._queue_pair: Any = Poster()
        self._poller = Poller()
        self._begin_receiving(address_of(self.pages), address_of(self.heads), POOL_KEY)
        self.gone: list[int] = []
        self.way: Any = SimpleNamespace(
            mtu=MTU, host=HOST, own_port=9, number=3, qp_num=4, qkey=5,
            credit=SendCredit(0xFFFFFFFF, 40, PATIENCE_NS),
        )  # fmt: skip

    def _gone(self, number: int) -> None:
        self.gone.append(number)

    def _reclaim(self) -> None:
        while self._given_back:
            self.state.give_back(self._given_back.popleft())

    def arrives(self, slot: int, length: int, **more: int) -> None:
        """A message of ``length`` bytes, and the 40 in front of each."""
        self._poller.come.append({"opcode": RECV, "wr_id": slot, "byte_len": length + 40, **more})  # type: ignore[attr-defined]


@pytest.fixture
def port() -> Port:
    return Port()


def test_few_bytes_go_with_the_work_request_and_more_are_copied(port: Port) -> None:
    most = INLINE_BYTES - HEADER_BYTES
    assert port.send(port.way, memoryview(bytes(most)), True) == 0
    assert port.send(port.way, memoryview(bytes(most + 1)), True) == 0
    (first, second), noted = port._queue_pair.noted, port._queue_pair.noted
    assert first[:5] == (SEND, 0, 0, 1, ())
    assert Header.decode(first[5][:HEADER_BYTES], HEADER_BYTES + most) == Header(
        HOST, 9, 1, most, 0, MTU, 0xFFFFFFFF
    )
    assert second[:4] == (SEND, 0, 0, 2)
    assert [each[1:] for each in second[4]] == [(HEADER_BYTES, COPY_KEY), (most + 1, COPY_KEY)]
    assert second[5] is None
    assert (len(noted), port._queue_pair.rung, port.way.credit.position) == (2, 2, 1)


def test_a_long_datagram_is_a_header_and_pages_of_which_the_last_may_be_asked_for(port: Port) -> None:
    data = bytearray(2 * PAGE + 100)
    assert port.send(port.way, memoryview(data), True) == 0
    head, *pages = port._queue_pair.noted
    assert [each[1] for each in head[4]] == [HEADER_BYTES, 100]
    assert [(each[0], each[2], each[4][0][1]) for each in pages] == [
        (SEND_IMM, page_immediate(1, 0), PAGE), (SEND_IMM, page_immediate(1, 1), PAGE)
    ]  # fmt: skip
    assert {each[3] for each in port._queue_pair.noted} == {1}
    assert (port._queue_pair.rung, port._posted_sends) == (1, 3)
    assert port.way.credit.position == 2, "three messages, modulo 2^32"


def test_who_may_change_its_memory_waits_for_a_completion_and_nobody_else_does(port: Port) -> None:
    data, rest = bytearray(5 * PAGE + 100), bytes(5 * PAGE + 100)
    assert port.send(port.way, memoryview(rest), False) == 0
    assert port._inflight[-1][3] is not None, "its memory is kept"
    assert all(each[1] == 0 for each in port._queue_pair.noted)
    port._queue_pair.noted.clear()
    assert port.send(port.way, memoryview(data), True) == 2
    flags = [each[1] for each in port._queue_pair.noted]
    assert flags == [0] * 5 + [SIGNALED]
    address = address_of(data)
    assert port._queue_pair.noted[0][4][1] == (address + 5 * PAGE, 100, SPACE_KEY)
    assert [each[4][0] for each in port._queue_pair.noted[1:]] == [
        (address + at * PAGE, PAGE, SPACE_KEY) for at in range(5)
    ]
    assert port.direct_bytes == 2 * len(data)
    assert port.send(port.way, memoryview(data), False) == 0, "it is copied, for nobody waits"
    assert port._queue_pair.noted[-1][4][0][2] == COPY_KEY


def test_what_the_send_queue_has_no_room_for_is_not_begun(port: Port) -> None:
    data = memoryview(bytearray(2 * PAGE))
    port._posted_sends = DEPTH - 2
    assert port.send(port.way, data, True) == -1
    assert (port._datagrams, port._number, port._staging.tail) == (0, 0, 0)
    assert port.way.credit.position == 0xFFFFFFFF
    port._posted_sends = DEPTH - 3
    assert port.send(port.way, data, True) == 0
    assert port._posted_sends == DEPTH


def test_what_there_is_no_memory_for_copies_for_is_not_begun() -> None:
    """Each message may leave the rest of the ring behind it."""
    for missing, sent in ((0, 0), (1, -1)):
        port = Port()
        staging = port._staging
        staging.tail = staging.length - (2 * PAGE + HEADER_BYTES + 2 * PAGE) + missing
        tail = staging.tail
        assert port.send(port.way, memoryview(bytearray(2 * PAGE)), True) == sent
        assert (staging.tail == tail, bool(port._queue_pair.noted)) == (sent < 0, sent == 0)
        assert port._datagrams == sent + 1, "one that is not begun has no number"


def test_a_port_has_room_while_half_of_its_queue_and_of_its_memory_are_free(port: Port) -> None:
    port._posted_sends, port._staging.tail = DEPTH // 2 - 1, port._staging.length // 2 - 1
    assert port.has_room()
    port._posted_sends += 1
    assert not port.has_room()
    port._posted_sends -= 1
    port._staging.tail += 1
    assert not port.has_room()


def test_datagrams_have_16_bits_of_a_number(port: Port) -> None:
    port._datagrams = 0xFFFF
    port.send(port.way, memoryview(b"x"), True)
    assert Header.decode(port._queue_pair.noted[0][5][:HEADER_BYTES], HEADER_BYTES + 1).number == 0
    port.send(port.way, memoryview(bytearray(PAGE)), True)
    assert port._queue_pair.noted[-1][2] == page_immediate(1, 0)


def test_a_completion_gives_back_the_room_of_all_that_were_sent_before(port: Port) -> None:
    for _ in range(3):
        port.send(port.way, memoryview(bytearray(2 * PAGE)), True)
    tails = [each[1] for each in port._inflight]
    port._poller.come.append({"opcode": 0, "wr_id": 2})  # type: ignore[attr-defined]
    port.pump()
    assert (port.retired, port._posted_sends, port._staging.head) == (2, 3, tails[1])
    assert (port.gone, len(port._inflight)) == ([2], 1)


def test_every_16th_datagram_asks_for_a_completion_and_goodbyes_do(port: Port) -> None:
    for _ in range(SIGNAL_EACH - 1):
        port.send(port.way, memoryview(b"x"), True)
    assert not any(each[1] for each in port._queue_pair.noted)
    port.send(port.way, memoryview(b"x"), True)
    assert port._queue_pair.noted[-1][1] == SIGNALED
    port.send_closed(port.way)
    opcode, flags, _, number, _, text = port._queue_pair.noted[-1]
    assert (opcode, flags, number) == (SEND, SIGNALED, SIGNAL_EACH + 1)
    assert Header.decode(text, HEADER_BYTES) == Header(HOST, 9, 0, 0, GONE, MTU)


def test_credit_that_cannot_be_said_now_is_not(port: Port) -> None:
    port._posted_sends = DEPTH
    assert not port.send_credit(port.way, 5, 6)
    port._posted_sends = DEPTH - 1
    assert port.send_credit(port.way, 5, 6)
    flags, text = port._queue_pair.noted[0][1], port._queue_pair.noted[0][5]
    assert flags == 0, "nobody waits for it"
    assert (Header.decode(text, HEADER_BYTES).position, Header.decode(text, HEADER_BYTES).total) == (5, 6)
    assert port.way.credit.position == 0xFFFFFFFF, "credit needs none"
    port.failed, port._posted_sends = True, 0
    assert not port.send_credit(port.way, 5, 6)
    assert len(port._queue_pair.noted) == 1


@pytest.mark.parametrize("length", [1, 1000])
def test_a_port_whose_adapter_is_gone_has_failed(port: Port, length: int) -> None:
    port._queue_pair.fails = True
    with pytest.raises(DriverError):
        port.send(port.way, memoryview(bytes(length)), True)
    assert port.failed
    port._poller.come.append({"opcode": 0, "wr_id": 1})  # type: ignore[attr-defined]
    port.pump()
    assert len(port._poller.come) == 1, "nothing comes any more"  # type: ignore[attr-defined]


def test_a_completion_in_error_ends_the_port(port: Port) -> None:
    port.send(port.way, memoryview(b"x"), True)
    port._poller.come.extend([{"opcode": 0, "wr_id": 1, "status": 5}, {"opcode": 0, "wr_id": 1}])  # type: ignore[attr-defined]
    port.pump()
    assert (port.failed, port.retired, len(port._poller.come)) == (True, 0, 1)  # type: ignore[attr-defined]


def test_each_message_is_of_who_stands_in_front_of_it(port: Port) -> None:
    """And of nobody where the adapter says that nothing does: then the bytes are those of one before."""
    text = Header(HOST, 5, 1, 3, 0, MTU).encode() + b"abc"
    others = bytes(15) + b"\x09"
    for slot, gid in ((0, GID), (1, others), (2, others), (3, others)):
        port.pages[slot * PAGE : slot * PAGE + len(text)] = text
        front = b"\x60" + bytes(7) + gid + HOST
        port.heads[slot * GRH_ROOM : slot * GRH_ROOM + 40] = front
    for slot in range(4):
        port.arrives(slot, len(text), wc_flags=0 if slot == 3 else GRH, src_qp=7)
    port.pump()
    assert [each.source for each in port.state.claims()] == [(GID, 7), (others, 7), (bytes(16), 7)]


def test_a_message_is_as_long_as_what_is_behind_those_40_bytes(port: Port) -> None:
    text = Header(HOST, 5, 1, 3, 0, MTU).encode()
    port.state.decide(Claim((bytes(16), 7), ADDRESS), True, monotonic_ns())
    for slot, length in enumerate((HEADER_BYTES + 3, HEADER_BYTES + 4, 0, -40)):
        port.pages[slot * PAGE : slot * PAGE + len(text)] = text
        port.arrives(slot, length, src_qp=7)
    port.pump()
    assert len(port.state.queue) == 1
    assert port.state.dropped == {"malformed": 3}


def test_pages_are_told_from_beginnings_by_their_immediate(port: Port) -> None:
    port.state.decide(Claim((bytes(16), 7), ADDRESS), True, monotonic_ns())
    text = Header(HOST, 5, 3, PAGE + 3, 1, MTU).encode()
    port.pages[: len(text)] = text
    port.arrives(0, HEADER_BYTES + 3, src_qp=7)
    port.arrives(1, PAGE, src_qp=7, wc_flags=IMM, imm_data=page_immediate(3, 0))
    port.pump()
    (found,) = port.state.queue
    assert (found.first, found.pages, found.total) == (0, [1], PAGE + 3)


def test_few_free_slots_are_posted_with_the_others_unless_there_are_few_left(port: Port) -> None:
    port.state._used = 0
    port.state.free = list(range(FEW - 1))
    port.pump()
    assert port._queue_pair.chains == []
    port.state.free.append(FEW - 1)
    port.pump()
    assert port._queue_pair.chains == [list(range(FEW))]
    assert port.state.free == []
    # 47 of 64 are used and one is free: there are 16 that may take what comes
    port.state._used, port.state.free = SLOTS - SLOTS // 4 - 1, [20]
    port.pump()
    assert port._queue_pair.chains[1:] == [[20]]


def test_slots_are_posted_from_where_the_last_one_was(port: Port) -> None:
    port.state.free = [3, 60, 2, 63, 1, 0, 61, 62]
    port._cursor = 60
    port.pump()
    assert port._queue_pair.chains == [[60, 61, 62, 63, 0, 1, 2, 3]]
    port.state.free = [2, 9, 4, 3, 5, 6, 7, 8]
    port.pump()
    assert port._queue_pair.chains[1] == [4, 5, 6, 7, 8, 9, 2, 3]


def test_a_datagram_is_in_the_runs_in_which_its_pages_are(port: Port) -> None:
    base = address_of(port.pages)
    for slot in range(SLOTS):
        port.pages[slot * PAGE : (slot + 1) * PAGE] = bytes([slot]) * PAGE
    total = 3 * PAGE + 50
    found = Datagram(CLAIM, total, 9, [4, 5, 2], PAGE)
    assert port._pieces(found) == [
        (base + 4 * PAGE, 2 * PAGE), (base + 2 * PAGE, PAGE), (base + 9 * PAGE + HEADER_BYTES, 50)
    ]  # fmt: skip
    whole = b"\4" * PAGE + b"\5" * PAGE + b"\2" * PAGE + b"\x09" * 50
    for length in (total, 3 * PAGE + 7, 2 * PAGE + 1, 5, 0):
        assert port.bytes_of(found, length) == whole[:length]
    assert port.copied_bytes == total + 3 * PAGE + 7 + 2 * PAGE + 1 + 5
    short = Datagram(CLAIM, PAGE + 10, 9, [4, 5], PAGE)
    assert port._pieces(short) == [(base + 4 * PAGE, PAGE + 10)]


# what a receiver counts, and what it believes


@pytest.mark.parametrize(
    "change",
    [{0: b"x"}, {2: b"\1"}, {3: b"\0"}, {3: b"\6"}],
    ids=["magic", "version", "no MTU", "too large an MTU"],
)
def test_what_is_no_header_is_refused(change: dict[int, bytes]) -> None:
    text = bytearray(Header(HOST, 5, 1, 10, 0, MTU).encode())
    assert Header.decode(bytes(text), HEADER_BYTES + 10).total == 10
    for at, value in change.items():
        text[at : at + 1] = value
    with pytest.raises(ProtocolError):
        Header.decode(bytes(text), HEADER_BYTES + 10)


def test_a_message_that_is_too_short_for_a_header_is_none() -> None:
    for length in (0, HEADER_BYTES - 1):
        with pytest.raises(ProtocolError, match="message of"):
            Header.decode(bytes(length), length)


def test_positions_and_limits_are_said_with_32_bits() -> None:
    credit = SendCredit(0xFFFFFFFE, 20, PATIENCE_NS)
    credit.spend(5)
    assert credit.position == 3
    credits = ReceiveCredits(40)
    sender = credits.whole(SOURCE, ADDRESS, 0xFFFFFFF0, 2, 0)
    assert credits.due(0) == [(sender, 0xFFFFFFF2 + 40 - (1 << 32), 40)]


def test_who_is_waited_for_less_is_never_waited_for_longer_than_at_first() -> None:
    credit = SendCredit(0, 1, PATIENCE_NS)
    credit.spend(1)
    for turn in range(3):
        assert not credit.may_send(1, 0)
        assert credit.until_ns == PATIENCE_NS
        assert credit.told(2 + turn, 1)
        credit.spend(1)


def test_who_sends_without_being_admitted_has_been_told_what_a_new_one_is() -> None:
    credits = ReceiveCredits(40)
    sender = credits.whole(SOURCE, ADDRESS, 100, 1, 0)
    assert sender.told == 100 + 10
    assert credits.admit((GID, 8), ADDRESS, 0) == 5
    late_ns = 2 * 10**9
    other = credits.whole((GID, 8), ADDRESS, 200, 1, late_ns)
    assert other.told == 200 + 5, "what it was admitted with, though it is alone by now"


def test_a_long_datagram_counts_with_all_its_messages_from_where_it_begins() -> None:
    state = DatagramState(SLOTS)
    state.decide(CLAIM, True, 0)
    text = Header(HOST, 5, 1, 2 * PAGE + 3, 2, MTU, 1000).encode()
    state.arrived(0, SOURCE, HEADER_BYTES + 3, text, 0)
    for index in range(2):
        state.page_arrived(1 + index, SOURCE, PAGE, page_immediate(1, index), 0)
    (found,) = state.queue
    assert (found.position, found.page_bytes) == (1000, PAGE)
    (sender,) = state.credits._senders.values()
    assert (sender.seen, sender.held) == (1003, 3)
    state.give_back(found.slots)
    assert sender.held == 0


def test_pages_are_full_though_the_last_one_is_not() -> None:
    state = DatagramState(SLOTS)
    state.decide(CLAIM, True, 0)
    total = 2 * PAGE - 6  # what is left over has no room beside the header
    state.arrived(0, SOURCE, HEADER_BYTES, Header(HOST, 5, 1, total, 2, MTU).encode(), 0)
    for index, length in enumerate((PAGE, PAGE - 6)):
        state.page_arrived(1 + index, SOURCE, length, page_immediate(1, index), 0)
    (found,) = state.queue
    assert (found.page_bytes, found.pages) == (PAGE, [1, 2])


def test_who_says_that_it_is_closed_is_forgotten_and_told_of_once() -> None:
    state = DatagramState(SLOTS)
    state.decide(CLAIM, True, 0)
    for _ in range(2):
        state.arrived(0, SOURCE, HEADER_BYTES, Header(HOST, 5, 0, 0, GONE, MTU).encode(), 0)
    assert state.gone == [CLAIM]
    assert state.unsettled()
    assert not state.believes(CLAIM, 0)
    state.gone.clear()
    assert not state.unsettled()


def test_the_oldest_of_too_many_parts_is_given_up() -> None:
    state = DatagramState(SLOTS)
    for number in range(datagram_state.MOST_PARTIALS + 1):
        state.page_arrived(number, SOURCE, PAGE, page_immediate(number, 0), 0)
    assert (state.free, state.dropped) == ([0], {"incomplete": 1})


@pytest.mark.parametrize(("mtu", "window", "taken"), [
    (5, 1, True), (1, MOST_WINDOW, True), (5, 0, False), (5, MOST_WINDOW + 1, False), (0, 9, False),
    (6, 9, False),
])
def test_what_an_answer_or_a_credit_says_has_its_bounds(mtu: int, window: int, taken: bool) -> None:
    credit = Header(HOST, 5, 0, window, CREDIT, mtu, 6)
    if taken:
        assert decode_answer(encode_answer(mtu, window)) == (mtu, window)
        assert Header.decode(credit.encode(), HEADER_BYTES) == credit
        return
    with pytest.raises(ProtocolError):
        decode_answer(encode_answer(mtu, window))
    with pytest.raises(ProtocolError):
        Header.decode(credit.encode(), HEADER_BYTES)


@pytest.mark.parametrize("mtu", range(1, 6))
def test_what_fits_beside_the_header_is_in_the_first_message(mtu: int) -> None:
    size = mtu_bytes(mtu)
    room = size - HEADER_BYTES
    assert [cut(total, mtu) for total in (0, room, room + 1, size, size + room, size + room + 1)] == [
        (0, 0), (0, room), (1, 0), (1, 0), (1, room), (2, 0)
    ]


@pytest.mark.parametrize("more", [0, 1])
def test_a_datagram_is_no_longer_than_udp_carries(more: int) -> None:
    total = LARGEST_BYTES[6] + more
    pages, first = cut(total, MTU)
    header = Header(HOST, 5, 1, total, pages, MTU)
    if not more:
        assert Header.decode(header.encode(), HEADER_BYTES + first) == header
        return
    with pytest.raises(ProtocolError):
        Header.decode(header.encode(), HEADER_BYTES + first)
