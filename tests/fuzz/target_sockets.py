"""What a peer says to a stream socket (offers, notifications, credit) and to a datagram socket (messages).

Input: a byte that says whether the rest is a request's private data, or what happens to a stream or to a
datagram socket, step by step.  Whatever is said, the accounts stay within the pool and nobody is told of room
that is not there; and each slot for messages is in one place.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterator

from fuzz_choices import Choices

from softhca.machine.primitives import address_of
from softhca.sockets.behind_pool import BehindPool
from softhca.sockets.datagram_credits import SendCredit, ahead
from softhca.sockets.datagram_protocol import CREDIT, HEADER_BYTES, MOST_WINDOW, Header, cut, page_immediate
from softhca.sockets.datagram_state import Claim, DatagramState
from softhca.sockets.memory_management import NOTIFICATIONS
from softhca.sockets.protocol import (
    BEHIND_BYTES,
    DATA,
    FIN,
    HELLO_BYTES,
    LARGEST_POOL_BYTES,
    NOTIFICATION_RING,
    RING_ENTRIES,
    SMALLEST_POOL_BYTES,
    Notification,
    Offer,
    ProtocolError,
    addresses_of,
)
from softhca.sockets.stream_state import StreamState

POOL = SMALLEST_POOL_BYTES
MOST_STEPS = 400
SLOTS = 24


def one_input(data: bytes) -> None:
    choices = Choices(data)
    kind = choices.byte()
    if kind & 6 == 6:
        datagrams(choices)
    elif kind & 1:
        hello(choices.rest())
    else:
        stream(choices)


def hello(data: bytes) -> None:
    """A request is understood or refused; what is understood can be said again."""
    with contextlib.suppress(ProtocolError):
        found = Offer.decode(data)
        assert SMALLEST_POOL_BYTES <= found.pool_bytes <= LARGEST_POOL_BYTES
        assert Offer.decode(found.encode()) == found
        assert [len(each) for each in addresses_of(data)] == [16, 16]
        assert len(data) >= HELLO_BYTES


def stream(choices: Choices) -> None:
    """A stream, and a peer that says what it likes."""
    state = StreamState(POOL, Offer(0, POOL, 0))
    held: list[int] = []
    for _ in range(MOST_STEPS):
        if not choices.more:
            break
        before = (state.own.tail, state.own.available, state.peers.head)
        try:
            step(choices, state, held)
        except ProtocolError:
            assert (state.own.tail, state.own.available, state.peers.head) == before
        own, peers = state.own, state.peers
        assert 0 <= own.available <= own.tail - own.head() <= POOL
        assert 0 <= own.held <= POOL
        assert 0 <= peers.free <= POOL
        assert peers.room() <= POOL
        for offset, length in own.look(own.available):
            assert 0 <= offset < offset + length <= POOL


def step(choices: Choices, state: StreamState, held: list[int]) -> None:
    """One thing that happens."""
    what = choices.byte() % 9
    if what == 0:
        state.arrived(choices.number(4) & 0xFFFFFFFF)
    elif what == 1:
        state.arrived(Notification(DATA, 1 + choices.number(2) % POOL, bool(choices.byte() & 1)).encode())
    elif what == 2:
        state.peers.credited(choices.number(2), choices.byte() % (2 * NOTIFICATIONS))
    elif what == 3:
        state.next_data(1 + choices.number(2), choices.number(2))
    elif what == 4:
        state.own.take(min(choices.number(2), state.own.available))
    elif what == 5 and state.own.available:
        run = state.own.run(1 + choices.number(2))
        assert run is not None
        held.append(state.own.hold(run[1]))
    elif what == 6 and held:
        state.own.release(held.pop(choices.byte() % len(held)))
    elif what == 7:
        state.next_credit(bool(choices.byte() & 1))
    elif what == 8:
        in_memory(choices, state)


def in_memory(choices: Choices, state: StreamState) -> None:
    """The peer writes words into the ring, with right numbers or wrong ones; nothing but data is believed."""
    words = array("Q", bytes(BEHIND_BYTES))
    behind = BehindPool(address_of(words))
    for _ in range(choices.byte() & 7):
        number = (state.next_number() + choices.byte() % 5) & 0xFFFFFFFF
        place = (NOTIFICATION_RING >> 3) + number % RING_ENTRIES
        words[place] = number << 32 | choices.number(4) & 0xFFFFFFFF
    while immediate := behind.take(state.next_number()):
        before = state.received, state.own.tail, state.own.available
        try:
            state.arrived_in_memory(immediate)
        except ProtocolError:
            assert before == (state.received, state.own.tail, state.own.available)
            return
        assert state.received == (before[0] + 1) & 0xFFFFFFFF
    assert behind.record() == (0, 0)
    assert not (state.was_reset and not state.finished)


def datagrams(choices: Choices) -> None:
    """A datagram socket, and peers that say what they like."""
    state = DatagramState(SLOTS)
    credit = state.sending[bytes(16), 0] = SendCredit(0xFFFFFFF0, SLOTS, 1)
    posted = list(range(SLOTS))
    now_ns = 0
    claims: list[Claim] = []
    for _ in range(MOST_STEPS):
        if not choices.more:
            break
        what = choices.byte()
        source = bytes(16), what >> 6
        if what & 3 == 0 and posted:
            head = choices.take(HEADER_BYTES)
            state.arrived(posted.pop(), source, len(head) + choices.number(2) % 4096, head, now_ns)
        elif what & 3 == 1 and posted:
            total, mtu = choices.number(2), 1 + choices.byte() % 5
            pages, rest = cut(total, mtu)
            position = 0
            if what & 32:  # a credit is the header alone
                pages, rest, total, position = CREDIT, 0, total % (2 * SLOTS), choices.number(4) & 0xFFFFFFFF
            said = Header(bytes(16), 1 + (what >> 4 & 1), what >> 2 & 3, total, pages, mtu, position).encode()
            state.arrived(posted.pop(), source, HEADER_BYTES + rest, said, now_ns)
        elif what & 3 == 2 and posted:
            immediate = page_immediate(what >> 2 & 3, choices.byte())
            state.page_arrived(posted.pop(), source, choices.number(2) % 4097, immediate, now_ns)
        elif what & 3 == 3:
            datagram_step(choices, state, claims)
            now_ns += choices.byte() << 26
        if what & 7 == 7 and credit.may_send(what >> 3, now_ns):
            credit.spend(what >> 3)
        assert ahead(credit.limit, credit.position) <= credit.window <= MOST_WINDOW
        for sender, limit, window in state.credits.due(now_ns):
            assert 0 <= sender.held <= state.used
            assert 1 <= window <= SLOTS
            assert ahead(limit, sender.seen) == window - sender.held
            state.credits.tell(sender, limit)
        claims += state.claims()
        posted += state.free
        state.free = []
        assert len(set(posted)) == len(posted)
        assert len(posted) + state.used == SLOTS
        queued = [slot for each in state.queue for slot in each.slots]
        assert len(set(queued)) == len(queued) <= state.used
        assert not set(queued) & set(posted)


def datagram_step(choices: Choices, state: DatagramState, claims: list[Claim]) -> None:
    """Something that this side does."""
    what = choices.byte()
    if what & 1 and claims:
        state.decide(claims.pop(), bool(what & 2), 0)
    elif what & 2 and state.queue:
        found = state.queue.popleft()
        size = sum(min(found.page_bytes, found.total) for _ in found.pages[:-1])
        assert size <= found.total
        state.give_back(found.slots)
    elif what == 4:
        state.connect((bytes(16), 1))


def seeds() -> Iterator[bytes]:
    """A whole request, and lives of streams and of datagram sockets."""
    yield b"\x06" + b"\x01\x00\x40\x03\x03\x01\x03\x02" * 12
    yield b"\x06" + b"\x01\x40\x00\x02\x02\x01\x10\x00\x02\x00\x10\x00\x03\x01\x03\x02" * 8
    yield b"\x06\x00" + Header(bytes(16), 5, 1, 9000, *cut(9000, 5)[:1], 5).encode() + bytes(range(64))
    yield b"\x01" + Offer(1 << 40, 1 << 20, 5, 6).encode(bytes(16), bytes(16))
    yield b"\x00" + bytes(range(256))
    yield b"\x00" + b"\x01\x00\x40\x00\x04\x00\x40\x07\x01" * 12
    yield b"\x00\x00" + Notification(FIN, closed=True).encode().to_bytes(4, "big") + bytes(range(64))
