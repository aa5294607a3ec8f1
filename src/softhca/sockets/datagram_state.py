"""The receiving half of a datagram socket without verbs, sockets or clock: which message lies in which slot,
what is whole, whose word counts, what is dropped.

Every slot is in one place: posted, in a partial datagram, in one that waits for its sender to be believed, or
in the queue.  `free` gives those back that are to be posted again.  Nothing but messages brings the time
here, so whatever lacks a part, or is not believed yet, leaves slots for messages that come.  Who a message
comes from is what the adapter says, a GID and a queue pair (`Source`); which UDP address that has is the
message's own word, and counts only after it was asked for at that address (`claims`, `decide`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakValueDictionary

from softhca.sockets.datagram_credits import Address, ReceiveCredits, SendCredit, Sender, Source
from softhca.sockets.datagram_protocol import CREDIT, GONE, Header, of_immediate
from softhca.sockets.protocol import ProtocolError

MOST_PARTIALS = 16
MOST_BELIEVED = 1024
MOST_CLAIMS = 64
BELIEVED_NS = 30_000_000_000
PARTIAL_NS = 1_000_000_000
OVERTAKEN = 4
"""A datagram is given up when so many of the same sender became whole since its first part came."""
MALFORMED, FORGED, FULL, INCOMPLETE, UNCONNECTED = "malformed", "forged", "full", "incomplete", "unconnected"
"""Why something was dropped."""


class Claim(NamedTuple):
    """That a source is what a UDP address is."""

    source: Source
    address: Address


class Datagram(NamedTuple):
    """A whole one: ``claim`` says whose, ``total`` bytes in ``pages`` (slots, in order; all but the last are
    full) and then behind the header in the slot ``first``.  ``position``: of its first message.
    """

    claim: Claim
    total: int
    first: int
    pages: list[int]
    page_bytes: int = 0
    position: int = 0

    @property
    def slots(self) -> list[int]:
        """All of them."""
        return [*self.pages, self.first]


@dataclass
class _Partial:
    since_ns: int
    header: Header | None = None
    first: int = -1
    pages: dict[int, tuple[int, int]] = field(default_factory=dict)
    overtaken: int = 0

    @property
    def slots(self) -> list[int]:
        found = [slot for slot, _ in self.pages.values()]
        return found if self.first < 0 else [*found, self.first]


class DatagramState:
    """``slots`` of them; at most ``most_queued`` hold what nobody has read yet.

    ``queue`` are datagrams that can be read.  ``dropped`` counts by reason.  ``only``: the one address whose
    datagrams are taken.  ``gone`` are claims of sockets that say that they are closed.  ``credits`` is what
    senders are told; ``sending`` what was told here of sending to others.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.most_queued = slots - slots // 4
        self._most_used = slots - max(slots // 16, 1)
        self._most_waiting = slots // 2
        self.queue: deque[Datagram] = deque()
        self.dropped: Counter[str] = Counter()
        self.only: Address | None = None
        self.gone: list[Claim] = []
        self.free: list[int] = []
        self.credits = ReceiveCredits(slots // 2)
        self.sending: WeakValueDictionary[Source, SendCredit] = WeakValueDictionary()
        self._holders: dict[int, Sender] = {}
        self._used = 0
        self._partials: OrderedDict[tuple[Source, int], _Partial] = OrderedDict()
        self._waiting: dict[Claim, list[Datagram]] = {}
        self._waiting_slots = 0
        self._believed: OrderedDict[Claim, int] = OrderedDict()
        self._asks: list[Claim] = []

    @property
    def used(self) -> int:
        """Slots that are neither posted nor free."""
        return self._used

    def arrived(self, slot: int, source: Source, length: int, head: bytes, now_ns: int) -> None:
        """A message of ``length`` bytes that begins with ``head`` lies in ``slot``."""
        self._used += 1
        try:
            header = Header.decode(head, length)
        except ProtocolError:
            self._drop(MALFORMED, [slot])
            return
        claim = Claim(source, (header.host, header.port))
        if header.pages == GONE:
            self.give_back([slot])
            if claim in self._believed:
                del self._believed[claim]
                self.gone.append(claim)
            return
        if header.pages == CREDIT:
            self.give_back([slot])
            sending = self.sending.get(source)
            if sending is not None:
                sending.told(header.position, header.total)
            return
        if not header.pages:
            self._whole(Datagram(claim, header.total, slot, [], 0, header.position), now_ns)
            return
        partial = self._partial(source, header.number, now_ns)
        if partial.header is not None:
            self._drop(MALFORMED, [slot])
            return
        partial.header, partial.first = header, slot
        self._join(source, header.number, now_ns, partial.pages)

    def page_arrived(self, slot: int, source: Source, length: int, immediate: int, now_ns: int) -> None:
        """A page message of ``length`` bytes lies in ``slot``."""
        self._used += 1
        number, index = of_immediate(immediate)
        partial = self._partial(source, number, now_ns)
        if index in partial.pages:
            self._drop(MALFORMED, [slot])
            return
        partial.pages[index] = slot, length
        self._join(source, number, now_ns, (index,))

    def _partial(self, source: Source, number: int, now_ns: int) -> _Partial:
        self.expire(now_ns)
        found = self._partials.get((source, number))
        if found is None:
            if len(self._partials) >= MOST_PARTIALS:
                self._give_up_oldest()
            found = self._partials[source, number] = _Partial(now_ns)
        return found

    def _give_up_oldest(self) -> None:
        _, oldest = self._partials.popitem(last=False)
        self._drop(INCOMPLETE, oldest.slots)

    def expire(self, now_ns: int) -> None:
        """Give up what has not become whole in time."""
        while self._partials:
            key, oldest = next(iter(self._partials.items()))
            if now_ns - oldest.since_ns < PARTIAL_NS:
                return
            del self._partials[key]
            self._drop(INCOMPLETE, oldest.slots)

    def _join(self, source: Source, number: int, now_ns: int, indices: Iterable[int]) -> None:
        """Is it whole?  Its pages ``indices`` were not compared with its header yet."""
        partial = self._partials[source, number]
        header, pages = partial.header, partial.pages
        if header is None:
            if self._used > self.most_queued:
                del self._partials[source, number]
                self._drop(FULL, partial.slots)
            return
        if any([each >= header.pages or pages[each][1] != header.page_bytes(each) for each in indices]):
            del self._partials[source, number]
            self._drop(MALFORMED, partial.slots)
        elif len(pages) == header.pages:
            del self._partials[source, number]
            claim = Claim(source, (header.host, header.port))
            slots = [pages[index][0] for index in range(header.pages)]
            size, position = header.page_bytes(0), header.position
            self._whole(Datagram(claim, header.total, partial.first, slots, size, position), now_ns)
        elif self._used > self._most_used:
            self._give_up_oldest()

    def _overtake(self, source: Source) -> None:
        """One of this sender is whole: what was before it and lacks a part will hardly be."""
        for key in [key for key in self._partials if key[0] == source]:
            partial = self._partials[key]
            partial.overtaken += 1
            if partial.overtaken >= OVERTAKEN:
                del self._partials[key]
                self._drop(INCOMPLETE, partial.slots)

    def _whole(self, found: Datagram, now_ns: int) -> None:
        if self._partials:
            self.expire(now_ns)
            self._overtake(found.claim.source)
        believed = self.believes(found.claim, now_ns)
        if self._used > self.most_queued:
            if believed:
                self._credit(found, now_ns)
            self._drop(FULL, found.slots)
            return
        if believed:
            self._queue(found, now_ns)
            return
        waiting = self._waiting.get(found.claim)
        if waiting is None:
            if len(self._waiting) >= MOST_CLAIMS:
                self._drop(FULL, found.slots)
                return
            waiting = self._waiting[found.claim] = []
            self._asks.append(found.claim)
        if self._waiting_slots + len(found.slots) > self._most_waiting:
            self._drop(FULL, found.slots)  # the next one of a true claim is believed
            return
        waiting.append(found)
        self._waiting_slots += len(found.slots)

    def _credit(self, found: Datagram, now_ns: int) -> Sender:
        claim, messages = found.claim, len(found.pages) + 1
        return self.credits.whole(claim.source, claim.address, found.position, messages, now_ns)

    def _queue(self, found: Datagram, now_ns: int) -> None:
        sender = self._credit(found, now_ns)
        slots = found.slots
        if self.only is not None and found.claim.address != self.only:
            self._drop(UNCONNECTED, slots)
            return
        for slot in slots:
            self._holders[slot] = sender
        self.credits.hold(sender, len(slots))
        self.queue.append(found)

    def believes(self, claim: Claim, now_ns: int) -> bool:
        """Whether what comes from there can be read at once."""
        since_ns = self._believed.get(claim)
        return since_ns is not None and now_ns - since_ns < BELIEVED_NS

    def unsettled(self) -> bool:
        """Whether there is somebody to be asked, told, or forgotten."""
        return bool(self._asks or self.gone or self.credits.touched)

    def claims(self) -> list[Claim]:
        """What is to be asked for now; each once."""
        found, self._asks = self._asks, []
        return found

    def decide(self, claim: Claim, true: bool, now_ns: int) -> None:
        """What was found out about a claim."""
        if true:
            self._believed[claim] = now_ns
            self._believed.move_to_end(claim)
            if len(self._believed) > MOST_BELIEVED:
                self._believed.popitem(last=False)
        for each in self._waiting.pop(claim, ()):
            self._waiting_slots -= len(each.slots)
            if true:
                self._queue(each, now_ns)
            else:
                self._drop(FORGED, each.slots)

    def connect(self, only: Address) -> None:
        """Take the datagrams of one address alone from here on; others that wait are dropped."""
        self.only = only
        for _ in range(len(self.queue)):
            found = self.queue.popleft()
            if found.claim.address == only:
                self.queue.append(found)
            else:
                self._drop(UNCONNECTED, found.slots)

    def give_back(self, slots: list[int]) -> None:
        """Nobody needs them any more; they are of one datagram."""
        sender = self._holders.get(slots[0]) if slots else None
        if sender is not None:
            released = 0
            for slot in slots:
                released += self._holders.pop(slot, None) is not None
            self.credits.release(sender, released)
        self.free += slots
        self._used -= len(slots)

    def _drop(self, why: str, slots: list[int]) -> None:
        self.dropped[why] += 1
        self.give_back(slots)
