"""How much each side may send: accounts without a queue pair, a clock or a thread.

Each message of a channel has a number, counted from 0.  A sender may be ``slots`` messages ahead of what the
receiver's program has taken, so a message always finds a receive: no RNR NAK, and no queue without an end.
The immediate data of a message carry its kind and the low bits of its number.
"""

from __future__ import annotations

from softhca.channels.errors import ProtocolError

MESSAGE, LARGE = 0, 1
"""Kinds: the message itself stands in the slot; or where it is."""
_NUMBER_BITS = 24
_MASK = (1 << _NUMBER_BITS) - 1
_KINDS = (MESSAGE, LARGE)


class SendAccount:
    """Of the sender: ``sent`` messages so far, of which ``taken`` were taken there; ``retired``: their memory
    here may be used again.  No more than ``staged`` are under way here.
    """

    __slots__ = ("retired", "sent", "slots", "staged", "taken")

    def __init__(self, slots: int, staged: int) -> None:
        self.sent = self.taken = self.retired = 0
        self.slots = slots
        self.staged = staged

    @property
    def room(self) -> int:
        """So many messages may be sent now."""
        there, here = self.slots + self.taken, self.staged + self.retired
        return (there if there < here else here) - self.sent

    def immediate(self, kind: int) -> int:
        """Count one more message: its immediate data."""
        number = self.sent
        self.sent = number + 1
        return kind << _NUMBER_BITS | number & _MASK

    def credited(self, number: int) -> None:
        """The peer says that messages before ``number`` were taken.  ProtocolError, and nothing changes."""
        if not self.taken <= number <= self.sent:
            raise ProtocolError(f"credit up to {number}, with {self.taken} of {self.sent} taken")
        self.taken = number


class ReceiveAccount:
    """Of the receiver: ``expected`` is the number of the next message, ``advertised`` counts the messages
    that the peer knows to be taken; ``lost`` messages did not come (of an acknowledged channel: none).
    """

    __slots__ = ("acknowledged", "advertised", "expected", "late", "lost", "slots", "threshold")

    def __init__(self, slots: int, acknowledged: bool) -> None:
        self.expected = self.advertised = self.lost = self.late = 0
        self.slots = slots
        self.threshold = max(1, slots // 4)
        self.acknowledged = acknowledged

    def arrived(self, immediate: int) -> tuple[int, int]:
        """Kind and number of the message that has come; number −1: it was counted as lost before, drop it.
        ProtocolError, and nothing changes.
        """
        kind = immediate >> _NUMBER_BITS
        if kind not in _KINDS or (kind == LARGE and not self.acknowledged):
            raise ProtocolError(f"a message of kind {kind}")
        ahead = (immediate - self.expected) & _MASK
        if ahead and self.acknowledged:
            raise ProtocolError(f"message {immediate & _MASK}, expected {self.expected & _MASK}")
        if ahead >= self.advertised + self.slots - self.expected:
            if not self.acknowledged and _MASK + 1 - ahead <= self.slots:
                self.late += 1
                return kind, -1
            limit = self.advertised + self.slots
            raise ProtocolError(f"message {immediate & _MASK}, with room up to {limit}")
        number = self.expected + ahead
        self.lost += ahead
        self.expected = number + 1
        return kind, number

    def synchronized(self, sent: int) -> None:
        """The peer says that it has sent so many.  ProtocolError, and nothing changes."""
        most = self.advertised + self.slots if not self.acknowledged else self.expected
        if not self.expected <= sent <= most:
            raise ProtocolError(f"{sent} messages sent, expected {self.expected}")
        self.lost += sent - self.expected
        self.expected = sent

    def asked(self, sent: int) -> None:
        """The same of an unacknowledged channel that goes on.  Messages have a queue pair of their own: later
        ones may have come before this, of which a packet was lost, and nothing is to be learned then.
        """
        if sent > self.expected:
            self.synchronized(sent)

    def owed(self, taken: int, at_once: bool) -> bool:
        """Whether to advertise now that messages before ``taken`` were taken."""
        return taken - self.advertised >= (1 if at_once else self.threshold)


class ControlAccount:
    """Of control messages in both directions: ``sent`` here, of which the peer has ``taken``; ``received``
    here, ``advertised`` those of them that the peer knows to be taken.

    One that only says what was taken may use the last place, others leave it.  So both sides can always say.
    """

    __slots__ = ("advertised", "own_slots", "peer_slots", "received", "sent", "taken")

    def __init__(self, own_slots: int, peer_slots: int) -> None:
        self.sent = self.taken = self.received = self.advertised = 0
        self.own_slots = own_slots
        self.peer_slots = peer_slots

    @property
    def room(self) -> int:
        """So many control messages may be sent, one that says nothing else apart."""
        return self.peer_slots - self.sent + self.taken - 1

    @property
    def must_advertise(self) -> bool:
        """Whether to advertise now what was taken, and there is a slot for it."""
        return self.received - self.advertised >= self.own_slots // 2 and self.room >= 0

    def next(self) -> int:
        """Count one more message of this side: what it says was taken."""
        self.sent += 1
        self.advertised = self.received
        return self.received

    def arrived(self, taken: int) -> None:
        """One has come, whose sender says to have taken so many (32 bits).  ProtocolError."""
        fresh = (taken - self.taken) & 0xFFFFFFFF
        if fresh > self.sent - self.taken:
            raise ProtocolError(f"{taken} control messages taken of {self.sent}")
        if self.received - self.advertised >= self.own_slots:
            raise ProtocolError("more control messages than there is room for")
        self.taken += fresh
        self.received += 1
