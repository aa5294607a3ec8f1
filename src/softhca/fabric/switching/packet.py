"""A packet as a switch sees it."""

from __future__ import annotations

from typing import Any

import cython

from softhca.machine.arguments import whole

MANAGEMENT_VL = 15
"""Subnet management packets: no credits, before all others (IBTA vol. 1, 7.6.4)."""
DATA_VLS = 15
BLOCK_BYTES = 64
"""What one credit stands for (IBTA vol. 1, 7.9.4)."""
MOST_BYTES = 2048 * BLOCK_BYTES
"""No more credits than these are ever out (IBTA vol. 1, 7.9.4), so that a longer packet could not leave."""
_BLOCK = cython.declare(cython.int, BLOCK_BYTES)
_FEW = cython.declare(cython.int, 32)  # so many places of packets that have left are not given back
_FIELDS = (
    ("a packet's SLID", 0, 0xFFFF), ("a packet's DLID", 0, 0xFFFF), ("a packet's length", 1, MOST_BYTES),
    ("a service level", 0, 15), ("a virtual lane", 0, 15), ("a P_Key", 0, 0xFFFF),
    ("a message's number", 0, (1 << 64) - 1),
)  # fmt: skip


def blocks_of(length_bytes: int) -> int:
    """Credits that a packet of ``length_bytes`` takes."""
    return (length_bytes + _BLOCK - 1) // _BLOCK


def _check(*numbers: int) -> None:
    """TypeError, ValueError: what `_FIELDS` names is no such number."""
    for number, (what, least, most) in zip(numbers, _FIELDS, strict=True):
        if type(number) is not int or not least <= number <= most:
            whole(number, what, least, most)


class FlowControl:
    """A flow control packet of lane ``vl``: the blocks that were ``sent`` (FCTBS), the ``limit`` to which
    there is room (FCCL), and how often its sender's link had come up (``epoch``)."""

    __slots__ = ("epoch", "limit", "sent", "vl")

    def __init__(self, vl: int, sent: int, limit: int, epoch: int) -> None:
        self.vl = vl
        self.sent = sent
        self.limit = limit
        self.epoch = epoch


class Held:
    """A packet's place in the receive buffer of a port; given back when the last of its copies has left."""

    __slots__ = ("blocks", "copies", "port", "vl")

    def __init__(self, port: Any, vl: int, blocks: int) -> None:
        self.port = port
        self.vl = vl
        self.blocks = blocks
        self.copies = 1


class Packet:
    """One packet on its way, which is sent once.

    ``length_bytes`` counts from LRH to VCRC.  ``begins`` and ``ends`` mark the first and last packet of a
    segment (a message, or a run of its packets).  ``message`` is the sender's number, ``content`` what
    goes along, ``becn`` makes it a notification of congestion.  The rest changes from hop to hop:
    ``vl``, ``fecn`` (it met congestion), when it may leave (``ready_ps``), whose buffer it is in (``held``),
    how many ``hops`` it has behind it, on a link when its tail is over (``tail_ps``) and how often the link's
    near end had come up (``epoch``).

    TypeError, ValueError: what is no number, or cannot be in a packet.
    """

    __slots__ = (
        "becn", "begins", "born_ps", "content", "dlid", "ends", "epoch", "fecn", "held", "hops",
        "length_bytes", "message", "pkey", "ready_ps", "sl", "slid", "tail_ps", "vl",
    )  # fmt: skip

    def __init__(
        self,
        slid: int,
        dlid: int,
        length_bytes: int,
        *,
        sl: int = 0,
        vl: int = 0,
        pkey: int = 0xFFFF,
        message: int = 0,
        begins: bool = True,
        ends: bool = True,
        becn: bool = False,
        content: object = None,
    ) -> None:
        _check(slid, dlid, length_bytes, sl, vl, pkey, message)
        self.slid = slid
        self.dlid = dlid
        self.length_bytes = length_bytes
        self.sl = sl
        self.vl = vl
        self.pkey = pkey
        self.message = message
        self.begins = begins
        self.ends = ends
        self.becn = becn
        self.fecn = False
        self.content = content
        self.born_ps = 0
        self.ready_ps = 0
        self.tail_ps = 0
        self.epoch = 0
        self.hops = 0
        self.held: Held | None = None

    def copy(self) -> Packet:
        """The same for another port of a multicast group, in the same buffer."""
        other = Packet(
            self.slid, self.dlid, self.length_bytes, sl=self.sl, vl=self.vl, pkey=self.pkey,
            message=self.message, begins=self.begins, ends=self.ends, becn=self.becn, content=self.content,
        )  # fmt: skip
        other.fecn, other.born_ps, other.hops, other.held = self.fecn, self.born_ps, self.hops, self.held
        if self.held is not None:
            self.held.copies += 1
        return other


class PacketLine:
    """Packets that wait in a line: a list of which the foremost ``_gone`` have left.

    It is smaller than a deque, of which each takes more than half a KiB, and a fabric has a line for each
    flow and port.
    """

    __slots__ = ("_gone", "_packets")

    def __init__(self) -> None:
        self._packets: list[Packet | None] = []
        self._gone = 0

    def append(self, packet: Packet) -> None:
        """To the end of the line."""
        self._packets.append(packet)

    def first(self) -> Packet | None:
        """The foremost; None where there is none."""
        packets = self._packets
        gone: cython.Py_ssize_t = self._gone
        return packets[gone] if gone < len(packets) else None

    def take(self) -> Packet:
        """The foremost leaves; IndexError where there is none."""
        packets = self._packets
        gone: cython.Py_ssize_t = self._gone
        if gone >= len(packets):
            raise IndexError("no packet waits")
        packet: Packet = packets[gone]  # type: ignore[assignment]
        packets[gone] = None
        gone += 1
        if gone == len(packets):
            packets.clear()
            gone = 0
        elif gone >= _FEW and gone * 2 >= len(packets):
            del packets[:gone]
            gone = 0
        self._gone = gone
        return packet

    def take_all(self) -> list[Packet]:
        """All leave."""
        packets = [packet for packet in self._packets if packet is not None]
        self._packets.clear()
        self._gone = 0
        return packets

    def __len__(self) -> int:
        return len(self._packets) - self._gone
