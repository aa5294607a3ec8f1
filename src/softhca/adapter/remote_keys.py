"""The remote-key manager: which outstanding RDMA operations use which R_Key, and how they lose it.

`RemoteKeyModel` is a table in memory and a walk over it, as a hardware block does it beside a receive side
that goes on; what the block must do is what this does.  `outstanding` is the same table as the data path
has it, which needs no walk (`softhca.memory.windows`): after a withdrawal both show the same keys.

Theory of operation of the model.  Each of ``vis`` queue pairs (VI) has a row of words: its protection
domain, then the keys of the RDMA WRITEs and READs that are under way.  The receive side (RQ) writes them;
bit 27 of a key's word says that the key is to be treated.  The send side (SQ) gives a domain and a key and
sets *start*. The walk then reads each row's domain; where it is the given one, it reads the row's keys in
turn, and clears the valid bit of each that is valid and equal.  Behind the last row it is *done*.

The RQ has precedence: it may read and write at any moment, and the walk's next access waits.  So one `step`
is one access of the walk to the memory, after which everything is decided that depends on it, and before
which the RQ may have done anything.  What the walk has read stays what it was when it was read, with one
exception: a word that the RQ rewrites between its compare and its clear is not cleared, for it is another
operation's.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from softhca.transport.context import QueuePair
from softhca.transport.responder import Responder
from softhca.transport.unreliable_receiver import UnreliableReceiver

VIS = 256
WRITES = 1
READS = 3
VALID = 1 << 27
KEY_MASK = VALID - 1
"""A key is an index of the page table's 2^27 entries."""
NO_DOMAIN = 0


class Act(enum.Enum):
    """What one step of the walk did."""

    READ_DOMAIN = "read domain"
    READ_KEY = "read key"
    CLEAR = "clear"
    CANCELLED = "clear cancelled"
    DONE = "done"


class Step(NamedTuple):
    """One step: of row ``vi``, at word ``address``; ``matched``: what was read is what is looked for."""

    act: Act
    vi: int
    address: int
    matched: bool = False


class RemoteKeyModel:
    """``memory``: ``vis`` rows of 1 + ``writes`` + ``reads`` words of 28 bits.

    The RQ's side: `write`, `read`, and by names `set_domain`, `enter`, `leave`.  The SQ's: `start`, ``done``;
    `step` goes on.
    """

    def __init__(self, vis: int = VIS, writes: int = WRITES, reads: int = READS) -> None:
        if vis < 1 or writes < 0 or reads < 0 or writes + reads < 1:
            raise ValueError(f"no table of {vis} rows with {writes} writes and {reads} reads")
        self.vis = vis
        self.keys = writes + reads
        self.row = 1 + self.keys
        self.memory = [0] * (vis * self.row)
        self.done = True
        self._pending: tuple[int, int] | None = None
        self._sought = (NO_DOMAIN, 0)
        self._vi = 0
        self._slot = 0  # 0: the domain comes next, otherwise that key
        self._clearing = False
        self._rewritten = False

    # the receive side

    def write(self, address: int, word: int) -> None:
        """The RQ writes a word."""
        self.memory[address] = word & (VALID | KEY_MASK)
        if self._clearing and address == self._address():
            self._rewritten = True

    def read(self, address: int) -> int:
        """The RQ reads a word."""
        return self.memory[address]

    def set_domain(self, vi: int, pd: int) -> None:
        """Row ``vi`` is of domain ``pd``; 0: of none."""
        self.write(vi * self.row, pd)

    def enter(self, vi: int, slot: int, key: int) -> None:
        """An operation with ``key`` begins in slot 0 … (writes first) of row ``vi``."""
        self.write(vi * self.row + 1 + slot, VALID | key)

    def leave(self, vi: int, slot: int) -> None:
        """It is over."""
        self.write(vi * self.row + 1 + slot, 0)

    def valid_keys(self, vi: int) -> list[int | None]:
        """The keys of row ``vi`` that are valid, by slot."""
        words = self.memory[vi * self.row + 1 : (vi + 1) * self.row]
        return [word & KEY_MASK if word & VALID else None for word in words]

    # the send side

    def start(self, pd: int, key: int) -> None:
        """Search for ``key`` in the rows of ``pd``: taken by the next step when a walk is not under way, and
        held until then."""
        self._pending = (pd, key & KEY_MASK)

    @property
    def busy(self) -> bool:
        """Whether there is something to do."""
        return not self.done or self._pending is not None

    def step(self) -> Step | None:
        """The walk's next access to the memory; None: there is nothing to do."""
        if self.done:
            if self._pending is None:
                return None
            self._sought, self._pending = self._pending, None
            self.done = False
            self._vi = self._slot = 0
        if self._clearing:
            return self._clear()
        if self._vi == self.vis:
            self.done = True
            self._vi = 0
            return Step(Act.DONE, self.vis - 1, self.vis * self.row - 1)
        return self._read_domain() if self._slot == 0 else self._read_key()

    def walk(self) -> list[Step]:
        """All steps until there is nothing to do."""
        steps = []
        while (step := self.step()) is not None:
            steps.append(step)
        return steps

    def _address(self) -> int:
        return self._vi * self.row + self._slot

    def _read_domain(self) -> Step:
        pd, _ = self._sought
        address, vi = self._address(), self._vi
        matched = pd != NO_DOMAIN and self.memory[address] == pd
        if matched:
            self._slot = 1
        else:
            self._vi += 1
        return Step(Act.READ_DOMAIN, vi, address, matched)

    def _read_key(self) -> Step:
        address, vi = self._address(), self._vi
        matched = self.memory[address] == VALID | self._sought[1]
        if matched:
            self._clearing = True
            self._rewritten = False
        else:
            self._next_key()
        return Step(Act.READ_KEY, vi, address, matched)

    def _clear(self) -> Step:
        """Clear the valid bit and keep the key, unless the RQ has put another operation's there."""
        address, vi = self._address(), self._vi
        if not self._rewritten:
            self.memory[address] &= KEY_MASK
        self._clearing = False
        self._next_key()
        return Step(Act.CANCELLED if self._rewritten else Act.CLEAR, vi, address)

    def _next_key(self) -> None:
        self._slot += 1
        if self._slot > self.keys:
            self._slot = 0
            self._vi += 1


def outstanding(queue_pair: QueuePair) -> list[int | None]:
    """The R_Keys of a reliable queue pair's peer that are in use and valid, by slot: the RDMA WRITE that is
    being received, then one for each of its resources (``max_dest_rd_atomic``, rounded up to a power of two)
    that has an RDMA READ to answer.

    Unreliable ones have one slot; datagrams none.
    """
    responder = queue_pair.receive_engine()
    if not isinstance(responder, (Responder, UnreliableReceiver)):
        return []
    under_way = responder.execution
    found = [_key(under_way.region, under_way.generation)]
    if isinstance(responder, Responder):
        for resource in responder.replies.ring.places():
            used = resource.pending and not resource.atomic
            found.append(_key(resource.region, resource.generation) if used else None)
    return found


def _key(region: object, generation: int) -> int | None:
    """The key that was looked up, if it is still what it was then."""
    if region is None or region.generation != generation or not region.valid:  # type: ignore[attr-defined]
        return None
    return int(region.key)  # type: ignore[attr-defined]
