"""A packet as a switch sees it."""

from __future__ import annotations

from typing import Any

import cython

MANAGEMENT_VL = 15
"""Subnet management packets: no credits, before all others (IBTA vol. 1, 7.6.4)."""
DATA_VLS = 15
BLOCK_BYTES = 64
"""What one credit stands for (IBTA vol. 1, 7.9.4)."""
_BLOCK = cython.declare(cython.int, BLOCK_BYTES)


def blocks_of(length_bytes: int) -> int:
    """Credits that a packet of ``length_bytes`` takes."""
    return (length_bytes + _BLOCK - 1) // _BLOCK


class Held:
    """A packet's place in the receive buffer of a port; given back when the last of its copies has left."""

    __slots__ = ("blocks", "copies", "port", "vl")

    def __init__(self, port: Any, vl: int, blocks: int) -> None:
        self.port = port
        self.vl = vl
        self.blocks = blocks
        self.copies = 1


class Packet:
    """One packet on its way.

    ``length_bytes`` counts from LRH to VCRC.  ``begins`` and ``ends`` mark the first and last packet of a
    segment (a message, or a run of its packets).  ``message`` is the sender's number, ``content`` what
    goes along, ``becn`` makes it a notification of congestion.  The rest changes from hop to hop:
    ``vl``, ``fecn`` (it met congestion), when it may leave (``ready_ps``), whose buffer it is in (``held``),
    how many ``hops`` it has behind it.
    """

    __slots__ = (
        "becn", "begins", "born_ps", "content", "dlid", "ends", "fecn", "held", "hops", "length_bytes",
        "message", "pkey", "ready_ps", "sl", "slid", "vl",
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
