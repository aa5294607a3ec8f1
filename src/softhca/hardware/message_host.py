"""The host of the assembled adapter for messages: registered memory, queue pairs, work requests, completions.

Everything lies in the bench's host memory as the microcode `send` and `receive` reads it; `docs/hardware.md`
has the formats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from softhca.hardware import completion_engine as ce
from softhca.hardware import local_bus as lb
from softhca.hardware.context_memory import RECEIVE, SEND
from softhca.hardware.microcode_files import microcode_program
from softhca.hardware.translation import ENTRY_BYTES, KEY_ENTRIES

SEND_MESSAGE, SEND_IMMEDIATE, WRITE_MESSAGE, READ_MESSAGE, WRITE_IMMEDIATE, BIND = 1, 2, 3, 4, 5, 8
"""Opcodes of send descriptors."""
FENCE = 1 << 8
"""Beside them."""
SLOT_BYTES, SEGMENTS_AT, SEGMENTS = 128, 64, 4
PAGE_BYTES = 4096
TABLE, TABLE_ENTRIES = 0x10000, 512
SEND_RINGS, RECEIVE_RINGS, COMPLETION_RING, FRAMES = 0x40000, 0x80000, 0xC0000, 0x100000
LOG_PLACES, LOG_ENTRIES = 4, 6
HAS_IMMEDIATE = 0x80
"""Of a completion's status: the receive's descriptor has immediate data."""
LINK = 0x0002 << 16
"""A link header's first word without a destination: lane and level 0, a BTH follows."""


class Memory(Protocol):
    """Words by address."""

    def __setitem__(self, address: int, word: int, /) -> None: ...

    def get(self, address: int, default: int, /) -> int:
        """The word, ``default`` where there is none."""
        ...


class Bench(Protocol):
    """What the software needs of a bench: host memory, the local bus, what is loaded in no time."""

    vis: int

    @property
    def memory(self) -> Memory:
        """The host's."""
        ...

    def fetch(self, address: int) -> int:
        """The byte at ``address``."""
        ...

    def store(self, address: int, byte: int) -> None:
        """Set it."""
        ...

    async def write(self, context: Any, address: int, data: int) -> None:
        """Write a word over the local bus."""
        ...

    async def set_context(self, context: Any, qp: int, **words: int) -> None:
        """Write words of a queue pair's context by their names."""
        ...

    async def place_program(self, context: Any, engine: int, halves: Sequence[int]) -> None:
        """Load an engine's microcode in no time."""
        ...

    async def place_domain(self, context: Any, qp: int, pd: int) -> None:
        """Enter a queue pair's domain into the remote-key memory, as `prepare` does."""
        ...


class Piece(NamedTuple):
    """A segment: ``va``, the region's ``key``, ``length`` bytes."""

    va: int
    key: int
    length: int


class Done(NamedTuple):
    """A completion: of queue pair ``qp``, its ``work`` request, ``status``, ``length`` received and the
    ``immediate`` data that came with it."""

    qp: int
    work: int
    status: int
    length: int
    immediate: int | None = None


class Region(NamedTuple):
    """Registered memory: ``va`` of the first byte, the ``frames`` that its pages lie in."""

    va: int
    key: int
    length: int
    frames: tuple[int, ...]

    def place(self, offset: int) -> int:
        """Where byte ``offset`` lies in host memory."""
        at = self.va % PAGE_BYTES + offset
        return self.frames[at // PAGE_BYTES] * PAGE_BYTES + at % PAGE_BYTES

    def runs(self, offset: int, length: int) -> Iterator[range]:
        """Where ``length`` bytes from ``offset`` on lie in host memory, page by page."""
        while length > 0:
            place = self.place(offset)
            count = min(length, PAGE_BYTES - place % PAGE_BYTES)
            yield range(place, place + count)
            offset, length = offset + count, length - count

    def piece(self, offset: int, length: int) -> Piece:
        """A segment of it."""
        return Piece(self.va + offset, self.key, length)


class MessageHost:
    """The software beside ``bench``, a `SubsystemBench` or `FastBench`; its script calls `start` first."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.vis = bench.vis
        self._next_entry = 0
        self._next_frame = FRAMES // PAGE_BYTES
        self._posted: dict[tuple[int, int], int] = {}
        self._receives: dict[tuple[int, int], int] = {}
        self._seen = 0

    # memory

    def write_bytes(self, region: Region, offset: int, data: bytes) -> None:
        """Put bytes into registered memory."""
        store, rest = self.bench.store, iter(data)
        for run in region.runs(offset, len(data)):
            for address, byte in zip(run, rest, strict=False):  # the run is never the longer one
                store(address, byte)

    def read_bytes(self, region: Region, offset: int, length: int) -> bytes:
        """Bytes of registered memory."""
        return bytes(self.bench.fetch(address) for run in region.runs(offset, length) for address in run)

    def region(self, va: int, length: int, pd: int, rights: int) -> Region:
        """Register new memory; its pages lie in host memory in another order than their addresses."""
        pages = (va % PAGE_BYTES + length + PAGE_BYTES - 1) // PAGE_BYTES
        frames = tuple(reversed(range(self._next_frame, self._next_frame + pages)))
        self._next_frame += pages
        first = self._entries(pages)
        for page, frame in enumerate(frames):
            self._words(TABLE + ENTRY_BYTES * (first + page), (frame, 1 << 31 | pd))
        return self.window(Region(va, 0, length, frames), first, va, length, pd, rights)

    def window(self, of: Region, first: int, va: int, length: int, pd: int, rights: int) -> Region:
        """One more key, for ``length`` bytes from ``va`` on; ``first`` is the entry of their first page."""
        key = self._entries(KEY_ENTRIES)
        entry = (
            first,
            1 << 31 | rights << 24 | pd,
            va & 0xFFFFFFFF,
            va >> 32,
            length & 0xFFFFFFFF,
            length >> 32,
        )
        self._words(TABLE + ENTRY_BYTES * key, entry)
        return Region(va, key, length, of.frames)

    def _entries(self, count: int) -> int:
        first = self._next_entry
        self._next_entry += count
        if self._next_entry > TABLE_ENTRIES:
            raise ValueError("the table is full")
        return first

    def _words(self, address: int, words: tuple[int, ...]) -> None:
        for index, word in enumerate(words):
            self.bench.memory[address + 4 * index] = word

    # queue pairs

    async def start(self, context: Any) -> None:
        """Tables and microcode; both engines run."""
        bench, sizes = self.bench, {"VIS": self.vis}
        await bench.write(context, lb.TPT_BASE_LOW, TABLE)
        await bench.write(context, lb.TPT_ENTRIES, TABLE_ENTRIES)
        for which, data in ((ce.BASE_LOW, COMPLETION_RING), (ce.SIZE, LOG_ENTRIES)):
            await bench.write(context, lb.COMPLETION_QUEUES + which, data)
        for engine, program in (
            (RECEIVE, microcode_program("receive", sizes)),
            (SEND, microcode_program("send")),
        ):
            await bench.place_program(context, engine, program.halves)
        await bench.write(context, lb.RUN, 1 << SEND | 1 << RECEIVE)

    async def connect(
        self, context: Any, qp: int, *, pd: int, peer: int, lids: tuple[int, int], psns: tuple[int, int],
        mtu: int = 256, pkey: int = 0xFFFF, timeout: int = 0,
        reads: int = 1,
    ) -> None:  # fmt: skip
        """Let a queue pair talk to ``peer``: ``lids`` and ``psns`` are the own ones and the peer's; an answer
        may take 4.096 µs · 2^``timeout`` (0: as long as it likes).  So many ``reads`` may be under way as the
        peer answers at a time, four at most and one always."""
        bench = self.bench
        await bench.set_context(
            context, qp, SQ_BASE=self._ring(SEND, qp), SQ_MASK=(1 << LOG_PLACES) - 1, SQ_PD=pd,
            SQ_PSN=psns[0], SQ_PEER=peer, SQ_LINK=LINK | lids[1],
            SQ_SOURCE=lids[0], SQ_PKEY=pkey, SQ_MTU=mtu, SQ_TIMEOUT=timeout, SQ_READS=reads,
            RQ_BASE=self._ring(RECEIVE, qp), RQ_MASK=(1 << LOG_PLACES) - 1, RQ_PD=pd, RQ_PSN=psns[1],
        )  # fmt: skip
        await bench.place_domain(context, qp, pd)

    def _ring(self, queue: int, qp: int) -> int:
        return (RECEIVE_RINGS if queue == RECEIVE else SEND_RINGS) + (SLOT_BYTES << LOG_PLACES) * qp

    # work

    async def post_send(
        self, context: Any, qp: int, opcode: int, pieces: tuple[Piece, ...], *, work: int = 0,
        va: int = 0, key: int = 0, immediate: int = 0, fence: bool = False,
    ) -> None:  # fmt: skip
        """A message of at most `SEGMENTS` pieces, of RDMA to or from ``va`` by the peer's ``key``; with
        ``immediate`` data where the opcode has them; with the ``fence`` it waits for all READs before it."""
        words = (opcode | (FENCE if fence else 0), work, immediate, key, va & 0xFFFFFFFF, va >> 32)
        await self._post(context, SEND, qp, words, pieces)

    async def post_receive(self, context: Any, qp: int, pieces: tuple[Piece, ...], *, work: int = 0) -> None:
        """Room for a message; ``work`` names it among those of its queue pair that are not completed."""
        number = self._posted.get((RECEIVE, qp), 0) % (1 << LOG_PLACES)
        self._receives[qp, work] = self._ring(RECEIVE, qp) + SLOT_BYTES * number
        await self._post(context, RECEIVE, qp, (0, work), pieces)

    async def post_invalidate(self, context: Any, qp: int, key: int, *, work: int = 0) -> None:
        """Destroy a window."""
        await self._post(context, SEND, qp, (BIND, work, 1, key), ())

    async def _post(
        self, context: Any, queue: int, qp: int, words: tuple[int, ...], pieces: tuple[Piece, ...]
    ) -> None:
        if len(pieces) > SEGMENTS:
            raise ValueError(f"a descriptor has at most {SEGMENTS} segments, not {len(pieces)}")
        number = self._posted.get((queue, qp), 0)
        self._posted[queue, qp] = number + 1
        slot = self._ring(queue, qp) + SLOT_BYTES * (number % (1 << LOG_PLACES))
        self._words(slot, (*words, *(0,) * (SLOT_BYTES // 4 - len(words))))
        for index, piece in enumerate(pieces):
            segment = (piece.va & 0xFFFFFFFF, piece.va >> 32, piece.key, piece.length)
            self._words(slot + SEGMENTS_AT + 16 * index, segment)
        await self.bench.write(context, lb.DOORBELL, queue << 31 | qp << 16 | 1)

    # completions

    def poll(self) -> list[Done]:
        """Completions that are new."""
        found: list[Done] = []
        while True:
            place = COMPLETION_RING + ce.ENTRY_BYTES * (self._seen % (1 << LOG_ENTRIES))
            qp, work, status, last = (self.bench.memory.get(place + 4 * i, 0) for i in range(ce.ENTRY_WORDS))
            if last >> ce.PHASE_BIT != 1 - (self._seen >> LOG_ENTRIES & 1):
                return found
            self._seen += 1
            immediate = None
            if status & HAS_IMMEDIATE:
                immediate = self.bench.memory.get(self._receives[qp, work] + 8, 0)
            found.append(Done(qp, work, status & 0x7F, status >> 8, immediate))
