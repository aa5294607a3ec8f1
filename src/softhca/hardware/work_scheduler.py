"""The scheduler: which queue pair an engine serves next.

A queue pair waits at most once, in the queue of its service level; within a level the turns go round.  The
higher level goes first, until it and the levels above the waiting ones have sent ``HIGH_LIMIT_BYTES`` while
a lower one waited; then one turn goes to a lower level, each waiting one in rotation.  So the software
adapter's scheduler does it, to which this one is held.

A level's queue is a linked list through one RAM, so that every queue pair can wait on any level.  Each
engine has a scheduler of its own; between the two, the serial interface gives replies precedence.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, Signature

from softhca.hardware.context_memory import MAX_VIS
from softhca.hardware.doorbell_manager import SchedulerPut
from softhca.hardware.ports import WORD_BITS, RegisterWrite, check_power_of_two

LEVELS = 16
HIGH_LIMIT_BYTES = 1 << 20
PRESENT_BIT = 31


class EngineScheduler(Signature):
    """An engine's registers, seen from the engine: ``scheduler_next`` bit 31: a queue pair is to be served,
    bits 0–23 which; ``scheduler_take``: its turn is over, it has sent so many bytes."""

    def __init__(self) -> None:
        super().__init__({"write_scheduler_take": Out(RegisterWrite()), "scheduler_next": In(WORD_BITS)})


class LevelWrite(Signature):
    """The host gives a queue pair its service level; it holds from the next turn that is asked for."""

    def __init__(self, vis: int) -> None:
        super().__init__({"strobe": Out(1), "qp": Out(range(vis)), "level": Out(range(LEVELS))})


class WorkScheduler(wiring.Component):
    """``vis`` queue pairs on ``levels`` (a power of two).  One thing a clock, in this order: end a turn,
    offer the next, take a put.  ``offers``: the next one leaves the list of the level ``chosen``.
    """

    def __init__(self, vis: int = 256, levels: int = LEVELS) -> None:
        check_power_of_two("VIs", vis, 2, MAX_VIS)
        check_power_of_two("levels", levels, 2, LEVELS)
        self.vis, self.levels = vis, levels
        self.offers, self.chosen = Signal(), Signal(range(levels))
        self.high_bytes = Signal(range(HIGH_LIMIT_BYTES + 1))
        self.heads = Array(Signal(range(vis), name=f"head_{i}") for i in range(levels))
        self.tails = Array(Signal(range(vis), name=f"tail_{i}") for i in range(levels))
        self.waiting = Signal(levels)
        """The levels' lists: which have queue pairs, their first and last ones."""
        super().__init__(
            {
                "put": In(SchedulerPut(vis)),
                "engine": In(EngineScheduler()),
                "level": In(LevelWrite(vis)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        qp = range(self.vis)
        count = self.levels
        m.submodules.levels = levels = Memory(shape=range(count), depth=self.vis, init=[])
        m.submodules.links = links = Memory(shape=qp, depth=self.vis, init=[])
        m.submodules.waits = waits = Memory(shape=1, depth=self.vis, init=[])
        put_level, link, waits_here = (memory.read_port(domain="comb") for memory in (levels, links, waits))
        write_level, write_link, write_waits = (memory.write_port() for memory in (levels, links, waits))
        heads, tails, waiting, chosen = self.heads, self.tails, self.waiting, self.chosen
        high_bytes, last_low = self.high_bytes, Signal(range(count + 1), init=count)
        present, offered, level = Signal(), Signal(qp), Signal(range(count))
        ended, sent = Signal(), Signal(WORD_BITS)

        m.d.comb += [
            self.engine.scheduler_next.eq(Cat(offered)),
            self.engine.scheduler_next[PRESENT_BIT].eq(present),
            write_level.en.eq(self.level.strobe),
            write_level.addr.eq(self.level.qp),
            write_level.data.eq(self.level.level),
            put_level.addr.eq(self.put.qp),
            waits_here.addr.eq(self.put.qp),
            write_link.data.eq(self.put.qp),
        ]
        spends, rotates = self._choose(m, waiting, high_bytes, last_low)
        asked = put_level.data
        with m.If(self.engine.write_scheduler_take.strobe & present):
            m.d.sync += [ended.eq(1), present.eq(0), sent.eq(self.engine.write_scheduler_take.data)]
        with m.If(ended):
            m.d.sync += ended.eq(0)
            total = Signal(WORD_BITS + 1)
            m.d.comb += total.eq(high_bytes + sent)
            with m.If((waiting & ((1 << level) - 1)[:count]) != 0):
                m.d.sync += high_bytes.eq(Mux(total > HIGH_LIMIT_BYTES, HIGH_LIMIT_BYTES, total))
            with m.Elif(waiting == 0):
                m.d.sync += high_bytes.eq(0)
        with m.Elif(~present & (waiting != 0)):
            m.d.comb += [
                self.offers.eq(1),
                link.addr.eq(heads[chosen]),
                write_waits.en.eq(1),
                write_waits.addr.eq(heads[chosen]),
            ]
            m.d.sync += [
                present.eq(1),
                offered.eq(heads[chosen]),
                level.eq(chosen),
                heads[chosen].eq(link.data),
                last_low.eq(Mux(rotates, chosen, Mux(spends, last_low, count))),
            ]
            with m.If(rotates | ~spends):
                m.d.sync += high_bytes.eq(0)
            with m.If(heads[chosen] == tails[chosen]):
                m.d.sync += waiting.bit_select(chosen, 1).eq(0)
        with m.Elif(self.put.valid):
            m.d.comb += self.put.ready.eq(1)
            with m.If(~waits_here.data):
                m.d.comb += [
                    write_waits.en.eq(1),
                    write_waits.addr.eq(self.put.qp),
                    write_waits.data.eq(1),
                    # an empty level's last one may wait on another level now
                    write_link.en.eq(waiting.bit_select(asked, 1)),
                    write_link.addr.eq(tails[asked]),
                ]
                m.d.sync += [tails[asked].eq(self.put.qp), waiting.bit_select(asked, 1).eq(1)]
                with m.If(~waiting.bit_select(asked, 1)):
                    m.d.sync += heads[asked].eq(self.put.qp)
        return m

    def _choose(
        self, m: Module, waiting: Signal, high_bytes: Signal, last_low: Signal
    ) -> tuple[Value, Value]:
        """Choose the level whose turn it is; whether a lower one waits, whether the turn is a lower one's."""
        count = self.levels
        highest, lower = Signal(range(count)), Signal(count)
        below = Signal(count)  # the lower ones that the rotation has not come to
        spends, rotates = Signal(), Signal()
        least = Signal(range(count + 1))
        m.d.comb += [
            highest.eq(_top(m, waiting, "highest")),
            lower.eq(waiting & ((1 << highest) - 1)),
            spends.eq(lower != 0),
            rotates.eq(spends & (high_bytes >= HIGH_LIMIT_BYTES)),
            least.eq(Mux(last_low < highest, last_low, highest)),
            below.eq(lower & ((1 << least) - 1)),
            self.chosen.eq(
                Mux(rotates, Mux(below != 0, _top(m, below, "below"), _top(m, lower, "lower")), highest)
            ),
        ]
        return spends, rotates


def _top(m: Module, bits: Signal, name: str) -> Signal:
    """The number of the highest bit that is set."""
    top = Signal(range(len(bits)), name=f"top_{name}")
    for i in range(len(bits)):
        with m.If(bits[i]):
            m.d.comb += top.eq(i)
    return top
