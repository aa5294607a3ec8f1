"""How much one queue pair may send to another, so that it does not overrun its peer's receive queue: both
sides, without verbs, sockets or clock.

Positions count the messages from one queue pair to another modulo 2^32.  The receiver says up to which
position there is room (the limit): behind the last datagram that was whole, as many as the window, less those
that are unread.  So what was lost is made good by the next datagram that arrives.  Nobody waits long: a
sender that is told nothing goes on without credit.
"""

from __future__ import annotations

from collections import OrderedDict

import cython

from softhca.sockets.datagram_protocol import MOST_WINDOW

Source = tuple[bytes, int]
"""GID and queue pair."""
Address = tuple[bytes, int]
"""An IPv6 or IPv4-mapped address, and a UDP port."""

SMALLEST_WINDOW = 4
FIRST = 4
"""A sender that is new has this part of its share, until it was heard."""
MOST_SENDERS = 256
"""Of which something is kept though none of their datagrams are."""
ACTIVE_NS = 1_000_000_000
"""Who has sent nothing for so long has no share of the room."""
COUNTED_NS = 100_000_000
"""So often the active ones are counted."""
LEAST = 64
"""Who has waited in vain waits half as long the next time, down to this part of what is allowed."""
FAR = 1 << 16
"""Positions that differ by more are of another beginning."""
_MASK = cython.declare(cython.longlong, 0xFFFFFFFF)


def ahead(one: int, other: int) -> int:
    """How many messages position ``one`` is ahead of ``other``; negative: behind."""
    return ((one - other + 0x80000000) & _MASK) - 0x80000000


class SendCredit:
    """What may be sent to one queue pair: ``window`` messages from ``position`` on at first, a random
    number.  ``patience_ns``: how long a datagram waits, at most; 0: there is no credit to wait for.

    ``free``: sends without credit, until it is told some.
    """

    def __init__(self, position: int, window: int, patience_ns: int) -> None:
        self.position = position
        self.limit = position + window & _MASK
        self.window = window
        self.free = not patience_ns
        self._patience_ns = self._longest_ns = patience_ns
        self._since_ns: int | None = None
        self._wanted = 0
        self._heard = False

    def may_send(self, messages: int, now_ns: int) -> bool:
        """Whether a datagram of so many messages may go now.  Who is told no may ask again, and has waited
        long enough at `until_ns` at the latest.
        """
        if self.free:
            return True
        wanted: cython.longlong = min(messages, max(self.window * 3 // 4, 1))
        if ahead(self.limit, self.position) >= wanted:
            return True
        self._wanted = wanted
        if self._since_ns is None:
            self._since_ns, self._heard = now_ns, False
        if now_ns >= self._until():
            self.give_up()
        return self.free

    @property
    def until_ns(self) -> int:
        """When who waits sends all the same."""
        return self._until()

    def _until(self) -> int:
        return (self._since_ns or 0) + self._patience_ns

    def stalled(self, now_ns: int) -> bool:
        """Whether somebody was told no, and is to wait still."""
        return self._since_ns is not None and now_ns < self._until()

    def give_up(self) -> None:
        """Send without credit from here on, and wait less the next time, unless the peer has told something
        meanwhile: then it reads, and had more to read than the wait has lasted.
        """
        self.free, self._since_ns = True, None
        if not self._heard:
            self._patience_ns = max(self._patience_ns // 2, self._longest_ns // LEAST)

    def spend(self, messages: int) -> None:
        """So many leave."""
        self.position = self.position + messages & _MASK
        if ahead(self.limit, self.position) < -FAR:
            self.limit = self.position - FAR & _MASK

    def told(self, limit: int, window: int) -> bool:
        """The peer says how far; False where that is old, or cannot be."""
        if not 1 <= window <= MOST_WINDOW or ahead(limit, self.position) > window:
            return False
        if not self._longest_ns or ahead(limit, self.limit) <= 0:
            return False
        self.limit, self.window, self.free, self._heard = limit, window, False, True
        if self._since_ns is not None and ahead(limit, self.position) >= self._wanted:
            self._since_ns = None
            self._patience_ns = min(2 * self._patience_ns, self._longest_ns)
        return True


class Sender:
    """What a receiver knows of one: ``seen`` is the position behind the last whole datagram, ``told`` the
    limit that it was told, ``held`` how many pages hold its datagrams, ``address`` what its datagrams say.
    """

    def __init__(self, source: Source, address: Address, window: int) -> None:
        self.source = source
        self.address = address
        self.window = window
        self.seen = self.told = 0
        self.begun = False
        self.held = 0
        self.last_ns = -ACTIVE_NS


class ReceiveCredits:
    """Shares ``room`` pages among those that send, all of whom are believed.  ``touched`` are those of whom
    something has changed since `due`.
    """

    def __init__(self, room: int) -> None:
        self._room = min(room, MOST_WINDOW)
        self._senders: OrderedDict[Source, Sender] = OrderedDict()
        self.touched: dict[Sender, None] = {}
        self._active, self._counted_ns = 0, -COUNTED_NS

    def admit(self, source: Source, address: Address, now_ns: int) -> int:
        """Who is going to send; its window at first."""
        sender: Sender = self._sender(source, address)
        sender.last_ns = now_ns
        self._counted_ns = now_ns - COUNTED_NS
        sender.window = self.first(now_ns)
        return sender.window

    def first(self, now_ns: int) -> int:
        """The window of one that was not heard of: part of a share, for others were promised theirs."""
        return self._at_least(self.share(now_ns) // FIRST)

    def _at_least(self, window: int) -> int:
        return max(window, min(SMALLEST_WINDOW, self._room))

    def share(self, now_ns: int) -> int:
        """The window of one of them."""
        if now_ns - self._counted_ns >= COUNTED_NS:
            self._counted_ns = now_ns
            self._active = self._count(now_ns)
        return self._at_least(self._room // max(self._active, 1))

    def _count(self, now_ns: int) -> int:
        return sum([now_ns - each.last_ns < ACTIVE_NS for each in self._senders.values()])

    def _forget_one(self) -> None:
        for idle in self._senders.values():
            if not idle.held:
                del self._senders[idle.source]
                self.touched.pop(idle, None)
                return

    def _sender(self, source: Source, address: Address) -> Sender:
        found: Sender
        if source not in self._senders:
            if len(self._senders) >= MOST_SENDERS:
                self._forget_one()
            found = self._senders[source] = Sender(source, address, 0)
        else:
            found = self._senders[source]
            self._senders.move_to_end(source)
        found.address = address
        return found

    def whole(self, source: Source, address: Address, position: int, messages: int, now_ns: int) -> Sender:
        """A datagram of so many messages, which begins at ``position``, is whole."""
        sender: Sender = self._sender(source, address)
        new: cython.bint = now_ns - sender.last_ns >= ACTIVE_NS
        sender.last_ns = now_ns
        if new:
            self._counted_ns = now_ns - COUNTED_NS
        behind: cython.longlong = position + messages & _MASK
        moved: cython.longlong = ahead(behind, sender.seen)
        if not sender.begun or abs(moved) > FAR:
            sender.begun, sender.seen = True, behind
            sender.told = position + (sender.window or self.first(now_ns)) & _MASK
        elif moved > 0:
            sender.seen = behind
        self.touched[sender] = None
        return sender

    def hold(self, sender: Sender, pages: int) -> None:
        """So many pages hold its datagrams more."""
        sender.held += pages

    def release(self, sender: Sender, pages: int) -> None:
        """So many are free again."""
        sender.held -= pages
        self.touched[sender] = None

    def due(self, now_ns: int) -> list[tuple[Sender, int, int]]:
        """Who is to be told a limit now, and a window; each is `tell`'s once it was said."""
        found = []
        sender: Sender
        touched, self.touched = self.touched, {}
        for sender in touched:
            window: cython.longlong = self.share(now_ns)
            limit: cython.longlong = sender.seen + window - sender.held & _MASK
            if sender.begun and 4 * ahead(limit, sender.told) >= window:
                found.append((sender, limit, window))
        return found

    def tell(self, sender: Sender, limit: int) -> None:
        """It was said."""
        sender.told = limit
