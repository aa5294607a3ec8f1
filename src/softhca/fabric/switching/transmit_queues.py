"""In which order a port sends the packets that wait on one virtual lane.

`ArrivalOrder` is what switches usually do.  `SegmentOrder` preserves segments: once a segment's first packet
has been sent, packets of the same source and destination go first until its last, so that segments of
different messages alternate, but no packet of another one comes between those of one.  When the next packet
of the open segment does not come within a time-out, the next waiting segment begins.
"""

from __future__ import annotations

from collections import deque

from softhca.fabric.switching.packet import Packet, PacketLine

NEVER_PS = -1


class TransmitQueue:
    """``blocks`` is what waits, in units of credits; ``wake_ps`` when `head` may have one that it had not at
    its last call, ``NEVER_PS`` where only a `push` can change that."""

    def __init__(self) -> None:
        self.blocks = 0
        self.wake_ps = NEVER_PS

    def push(self, packet: Packet, blocks: int) -> None:
        """A packet has come; it may leave from its ``ready_ps`` on."""
        raise NotImplementedError

    def head(self, now_ps: int) -> Packet | None:
        """The packet that goes next; None: not one now."""
        raise NotImplementedError

    def pop(self, now_ps: int, blocks: int) -> None:
        """What `head` gave last has been sent, or dropped."""
        raise NotImplementedError

    def drain(self) -> list[Packet]:
        """Take all out."""
        raise NotImplementedError


class ArrivalOrder(TransmitQueue):
    """First come, first sent."""

    def __init__(self) -> None:
        TransmitQueue.__init__(self)
        self._waiting = PacketLine()

    def push(self, packet: Packet, blocks: int) -> None:
        """`TransmitQueue.push`."""
        self._waiting.append(packet)
        self.blocks += blocks

    def head(self, now_ps: int) -> Packet | None:
        """`TransmitQueue.head`."""
        first = self._waiting.first()
        if first is None:
            self.wake_ps = NEVER_PS
            return None
        if first.ready_ps > now_ps:
            self.wake_ps = first.ready_ps
            return None
        return first

    def pop(self, now_ps: int, blocks: int) -> None:
        """`TransmitQueue.pop`."""
        self._waiting.take()
        self.blocks -= blocks

    def drain(self) -> list[Packet]:
        """`TransmitQueue.drain`."""
        self.blocks = 0
        return self._waiting.take_all()


class SegmentOrder(TransmitQueue):
    """Segment by segment; ``timeouts`` counts the segments that were left because their next packet was late.

    A source is the packets' SLID, a destination their DLID.
    """

    def __init__(self, timeout_ps: int) -> None:
        TransmitQueue.__init__(self)
        self.timeouts = 0
        self._timeout_ps = timeout_ps
        self._waiting: dict[tuple[int, int], deque[Packet]] = {}  # in the order in which segments came
        self._open: tuple[int, int] | None = None
        self._open_since_ps = 0
        self._head: tuple[int, int] | None = None

    def push(self, packet: Packet, blocks: int) -> None:
        """`TransmitQueue.push`."""
        key = packet.slid, packet.dlid
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = deque()
        waiting.append(packet)
        self.blocks += blocks

    def head(self, now_ps: int) -> Packet | None:
        """`TransmitQueue.head`."""
        self.wake_ps = NEVER_PS
        key = self._open
        if key is not None:
            waiting = self._waiting.get(key)
            if waiting:
                return self._ready(key, waiting[0], now_ps)
            late_ps = self._open_since_ps + self._timeout_ps
            if now_ps < late_ps:
                if self._waiting:  # another segment may begin then
                    self.wake_ps = late_ps
                return None
            if not self._waiting:
                return None
            self.timeouts += 1
            self._open = None
        for key, waiting in self._waiting.items():
            return self._ready(key, waiting[0], now_ps)
        return None

    def _ready(self, key: tuple[int, int], packet: Packet, now_ps: int) -> Packet | None:
        if packet.ready_ps > now_ps:
            self.wake_ps = packet.ready_ps
            return None
        self._head = key
        return packet

    def pop(self, now_ps: int, blocks: int) -> None:
        """`TransmitQueue.pop`."""
        key = self._head
        assert key is not None
        waiting = self._waiting.pop(key)
        packet = waiting.popleft()
        self.blocks -= blocks
        if waiting:
            self._waiting[key] = waiting  # its next segment is behind those that wait already
        self._open = None if packet.ends else key
        self._open_since_ps = now_ps

    def drain(self) -> list[Packet]:
        """`TransmitQueue.drain`."""
        packets = [packet for waiting in self._waiting.values() for packet in waiting]
        self._waiting.clear()
        self._open = self._head = None
        self.blocks = 0
        return packets
