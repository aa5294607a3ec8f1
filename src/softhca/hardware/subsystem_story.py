"""The story of the assembled subsystem: a window is taken away while the adapter goes on.

Two queue pairs receive RDMA WRITEs: one uses a window, in a message of several packets, the other one a
page that stays.  Between two packets of the message its owner posts a bind that destroys the window.  The
SQ's engine destroys its entry in host memory and lets the remote-key manager search; the packets of the other
queue pair are taken all the while; the window's next packet is refused, and so is a new message with its key.
In microcode alone the SQ's engine searches itself, and no packet is taken until it is done.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from softhca.hardware import completion_engine as ce
from softhca.hardware import local_bus as lb
from softhca.hardware.assembler import Program
from softhca.hardware.context_memory import RECEIVE, SEND
from softhca.hardware.designs import MANAGER, MICROCODE, SEARCHERS
from softhca.hardware.microcode_files import microcode_program
from softhca.hardware.subsystem import Subsystem
from softhca.hardware.subsystem_bench import BenchEvent, SubsystemBench
from softhca.hardware.translation import LOCAL_WRITE, REMOTE_WRITE
from softhca.hardware.vectors import Recording, watch

WRITE_FIRST, WRITE_MIDDLE, WRITE_ONLY = 6, 7, 10
WriteMaker = Callable[[int, int, int, "int | None"], bytes]
"""Packet of an opcode, a QP, a PSN and, with a RETH, an R_Key: LRH … VCRC."""

LEAST_VIS = 64
WINDOW_QP, OTHER_QP, LATE_QP, BINDING_QP = 1, 2, 3, 4
DOMAIN, OTHER_DOMAIN = 5, 6
WINDOW_KEY, OTHER_KEY = 40, 41
TABLE, TABLE_ENTRIES = 0x10000, 64
SEND_QUEUE, COMPLETION_RING = 0x20000, 0x30000
LOG_ENTRIES = 4
BIND, WORK = 8, 0xB1D
KEY_EVENT = 6
WAITING_PACKETS = 2
"""A peer sends the next one when no more of them wait."""
PATIENCE_CLOCKS = 100_000


class Story(NamedTuple):
    """What happened, and what the host has at its end.

    ``status`` of the bind, None where it was never completed; ``events``: the queue pairs whose key was
    refused; ``psns``: the next PSN of each queue pair that receives; ``window``: the upper word of the
    window's entry.
    """

    happenings: list[BenchEvent]
    vis: int
    clocks: int
    status: int | None
    events: list[int]
    psns: dict[int, int]
    window: int
    design: str = MANAGER

    @property
    def walk(self) -> tuple[int, int]:
        """First and last clock of the search."""
        clocks = {h.what: h.clock for h in self.happenings if h.who == SEARCHERS[self.design]}
        return clocks["searches"], clocks["done"]

    def verdicts(self, qp: int) -> list[str]:
        """Of a queue pair's packets, in their order."""
        return [h.what for h in self.happenings if h.who == "RQ engine" and h.values["qp"] == qp]

    def taken_during_walk(self) -> list[BenchEvent]:
        """Packets that the RQ's engine accepted, begun and ended while the search went on."""
        first, last = self.walk
        return [
            h
            for h in self.happenings
            if h.what == "accepted" and first <= h.clock - h.values["clocks"] and h.clock <= last
        ]

    @property
    def pause_clocks(self) -> int:
        """The longest time beside the search from one packet's end to the next one's; 0: there is none."""
        first, last = self.walk
        ends = [h.clock for h in self.happenings if h.who == "RQ engine"]
        beside = (after - end for end, after in itertools.pairwise(ends) if after >= first and end <= last)
        return max(beside, default=0)

    def accepted_elsewhere(self) -> list[BenchEvent]:
        """The other queue pair's accepted packets that no search was beside, nor a bind, for which the SQ's
        engine takes turns on host memory."""
        first = next(h.clock for h in self.happenings if h.what == "posts a bind")
        last = self.walk[1]
        return [
            h
            for h in self.happenings
            if h.what == "accepted"
            and h.values["qp"] == OTHER_QP
            and (h.clock < first or h.clock - h.values["clocks"] > last)
        ]

    def faults(self) -> list[str]:
        """What is not as it must be, in words."""
        rules = (
            (self.status == 0, f"the bind completed with status {self.status}"),
            (self.window == 0, "the window's entry still stands in host memory"),
            (
                self.verdicts(WINDOW_QP) == ["accepted", "key refused"],
                "the window's next packet was not refused",
            ),
            (
                self.verdicts(LATE_QP) == ["key refused"],
                "a new message with the window's key was not refused",
            ),
            (set(self.verdicts(OTHER_QP)) == {"accepted"}, "a packet of the other queue pair was not taken"),
            (
                bool(self.taken_during_walk()) == (self.design != MICROCODE),
                "a packet was taken by an engine that stands"
                if self.design == MICROCODE
                else "no packet was taken while the search went on",
            ),
            (self.events == [WINDOW_QP, LATE_QP], "the host was not told of the two refused keys"),
            (self.psns[WINDOW_QP] == 1 and self.psns[LATE_QP] == 0, "a refused packet moved the PSN on"),
        )
        return [text for holds, text in rules if not holds]


def tell(make: WriteMaker, vis: int = 256, vcd: Path | None = None, design: str = MANAGER) -> Story:
    """Let it happen, with ``vis`` queue pairs (a power of two), half of them in the window's domain, and one
    of the three designs of the search.

    ValueError for less than `LEAST_VIS`: the search would be over before a packet is.
    """
    _check(vis)
    bench = SubsystemBench(Subsystem(vis, design=design))
    teller = _Run(bench, make)
    bench.run(teller.script, vcd)
    return Story(
        bench.happenings,
        vis,
        bench.clock,
        teller.status,
        teller.events,
        teller.psns,
        bench.memory[TABLE + 8 * WINDOW_KEY + 4],
        design,
    )


def record(make: WriteMaker, vis: int = 256, **sizes: int) -> Recording:
    """The same story as every port of the adapter in each clock; ValueError as of `tell` and `Subsystem`."""
    _check(vis)
    bench = SubsystemBench(Subsystem(vis, design=MANAGER, **sizes))
    recording = watch(bench.simulator, bench.subsystem)
    bench.run(_Run(bench, make).script)
    return recording


def send_program(subsystem: Subsystem) -> Program:
    """The SQ's microcode for a subsystem's design."""
    if subsystem.design != MICROCODE:
        return microcode_program("send")
    return microcode_program("send", {"ALONE": 1, "WORDS": subsystem.manager.geometry.depth})


def _check(vis: int) -> None:
    if vis < LEAST_VIS:
        raise ValueError(f"the story takes {LEAST_VIS} queue pairs or more, not {vis}")


class _Run:
    def __init__(self, bench: SubsystemBench, make: WriteMaker) -> None:
        self.bench = bench
        self.make = make
        self.vis = bench.subsystem.vis
        self.status: int | None = None
        self.events: list[int] = []
        self.psns: dict[int, int] = {}
        self._sent: dict[int, int] = {}

    async def script(self, context: Any) -> None:
        """The host's software, from power-on."""
        await self._prepare(context)
        self._arrives(WINDOW_QP, WRITE_FIRST, WINDOW_KEY)
        self._arrives(OTHER_QP, WRITE_ONLY, OTHER_KEY)
        await self._until(context, lambda: self._waiting() == 0)
        await self._bind(context)
        await self._until(context, self._completed_beside_others)
        self._arrives(WINDOW_QP, WRITE_MIDDLE, None)
        self._arrives(LATE_QP, WRITE_FIRST, WINDOW_KEY)
        self._arrives(OTHER_QP, WRITE_ONLY, OTHER_KEY)
        await self._until(context, lambda: self._waiting() == 0)
        await self._look(context)

    async def _until(self, context: Any, reached: Callable[[], bool]) -> None:
        for _ in range(PATIENCE_CLOCKS):
            if reached():
                return
            await context.tick()
        raise TimeoutError("the story does not go on")

    def _waiting(self) -> int:
        """Packets that were sent and are not yet judged."""
        judged = sum(happening.who == "RQ engine" for happening in self.bench.happenings)
        return sum(self._sent.values()) - judged

    def _completed_beside_others(self) -> bool:
        """The other queue pair's peer does not pause until the bind is completed."""
        if self._waiting() < WAITING_PACKETS:
            self._arrives(OTHER_QP, WRITE_ONLY, OTHER_KEY)
        return self._completed()

    def _completed(self) -> bool:
        """Look for the bind's completion."""
        entry = [self.bench.memory.get(COMPLETION_RING + 4 * i, 0) for i in range(ce.ENTRY_WORDS)]
        if entry[3] >> ce.PHASE_BIT == 0 or entry[1] != WORK:
            return False
        self.status = entry[2]
        self.bench.note("host", "finds the completion", {"qp": entry[0], "status": self.status})
        return True

    async def _prepare(self, context: Any) -> None:
        """Tables in host memory, contexts, microcode."""
        bench, memory = self.bench, self.bench.memory
        rights = (LOCAL_WRITE | REMOTE_WRITE) << 24
        for key in (WINDOW_KEY, OTHER_KEY):
            memory[TABLE + 8 * key] = 0x100 + key
            memory[TABLE + 8 * key + 4] = 1 << 31 | rights | DOMAIN
        for offset, word in enumerate((BIND, WORK, 1, WINDOW_KEY)):
            memory[SEND_QUEUE + 4 * offset] = word
        await bench.write(context, lb.TPT_BASE_LOW, TABLE)
        await bench.write(context, lb.TPT_ENTRIES, TABLE_ENTRIES)
        for which, data in ((ce.BASE_LOW, COMPLETION_RING), (ce.SIZE, LOG_ENTRIES), (ce.ARM, ce.ARM_NEXT)):
            await bench.write(context, lb.COMPLETION_QUEUES + which, data)
        for qp in range(self.vis):
            domain = DOMAIN if qp in (WINDOW_QP, OTHER_QP, LATE_QP) or qp % 2 == 0 else OTHER_DOMAIN
            await bench.set_context(context, qp, RQ_PD=domain)
        await bench.set_context(
            context,
            BINDING_QP,
            SQ_BASE=SEND_QUEUE,
            SQ_HEAD=0,
            SQ_MASK=0,
            SQ_PD=DOMAIN,
            SQ_CQ=0,
            SQ_BASE_HIGH=0,
        )
        sizes = {"VIS": self.vis}
        await bench.load(context, RECEIVE, microcode_program("prepare", sizes).halves)
        await bench.write(context, lb.RUN, 1 << RECEIVE)
        await bench.until_halted(context, RECEIVE)
        await bench.write(context, lb.RUN, 0)
        await bench.load(context, RECEIVE, microcode_program("header_check", sizes).halves)
        await bench.load(context, SEND, send_program(bench.subsystem).halves)
        await bench.write(context, lb.RUN, 1 << SEND | 1 << RECEIVE)

    def _arrives(self, qp: int, opcode: int, key: int | None) -> None:
        psn = self._sent.get(qp, 0)
        self._sent[qp] = psn + 1
        self.bench.arrivals.append(self.make(opcode, qp, psn, key))

    async def _bind(self, context: Any) -> None:
        """Ring for the descriptor that stands in the send queue."""
        self.bench.note("host", "posts a bind", {"qp": BINDING_QP, "key": WINDOW_KEY})
        await self.bench.write(context, lb.DOORBELL, SEND << 31 | BINDING_QP << 16 | 1)

    async def _look(self, context: Any) -> None:
        """Events and contexts as the host sees them."""
        bench = self.bench
        while await bench.read(context, lb.EVENT_STATUS) >> 31:
            event = await bench.read(context, lb.EVENT)
            await bench.write(context, lb.EVENT, 0)
            if event >> 24 == KEY_EVENT:
                self.events.append(event & 0xFFFFFF)
                bench.note("host", "is told of a refused key", {"qp": event & 0xFFFFFF})
        for qp in (WINDOW_QP, OTHER_QP, LATE_QP):
            self.psns[qp] = await bench.get_context(context, qp, "RQ_PSN")
