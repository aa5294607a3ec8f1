"""The local bus interface: what the host's software reaches of the adapter, as one space of words.

| words | what |
| --- | --- |
| 0x00000 … 0x0000F | control: `RUN` and the rows below it |
| 0x00100 … 0x0017F | completion queues: 8 words each, by `softhca.hardware.completion_engine` |
| 0x01000 … 0x01FFF | the SQ engine's microcode, an instruction a word; to be loaded while it stands |
| 0x02000 … 0x02FFF | the RQ engine's |
| 0x40000 … 0x7FFFF | contexts: 64·QP + word |

What is not there reads as 0, and a write to it is lost.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, Signature

from softhca.hardware.completion_engine import HostCompletions
from softhca.hardware.context_memory import HostContext
from softhca.hardware.doorbell_manager import DoorbellRing
from softhca.hardware.instruction_memory import LocalBus
from softhca.hardware.ports import ADDRESS_BITS, WORD_BITS
from softhca.hardware.translation import MAX_ENTRIES
from softhca.hardware.work_scheduler import LevelWrite

BUS_BITS = 19
RUN = 0
"""Bits 0 and 1: the SQ's and the RQ's engine run; low holds an engine at its first instruction.  Reads also
bits 8 and 9: they have halted."""
TPT_BASE_LOW, TPT_BASE_HIGH, TPT_ENTRIES = 1, 2, 3
DOORBELL = 4
"""Write: bit 31 the queue (0: send), 27…16 the QP, 15…0 how many work requests; read: 1, the last one was
refused."""
LEVEL = 5
"""Write: bit 31 the queue, 27…16 the QP, 3…0 its service level."""
COMPLETION_EVENTS, OVERFLOW_EVENTS = 6, 7
"""A bit a completion queue; ones that are written are taken away."""
EVENT, EVENT_STATUS = 8, 9
"""The oldest global event, a write takes it; bit 31: there is one, 15…0: how many were lost."""
RX_DROPS = 10
COMPLETION_QUEUES, MICROCODE, CONTEXTS = 0x100, 0x1000, 0x40000
MICROCODE_WORDS = 0x1000
QUEUE_WORDS = 8


class HostAccess(Signature):
    """The host's reads and writes, seen from the host: held until ``ready``, with which comes
    ``read_data``."""

    def __init__(self) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "write": Out(1),
                "address": Out(BUS_BITS),
                "write_data": Out(WORD_BITS),
                "ready": In(1),
                "read_data": In(WORD_BITS),
            }
        )


class LocalBusInterface(wiring.Component):
    """Takes the space apart.  A read takes two clocks, a write one, unless a block lets it wait."""

    def __init__(self, vis: int, queues: int) -> None:
        self.queues = queues
        super().__init__(
            {
                "access": In(HostAccess()),
                "run": Out(2),
                "halted": In(2),
                "tpt_base": Out(ADDRESS_BITS),
                "tpt_entries": Out(range(MAX_ENTRIES + 1)),
                "ring": Out(DoorbellRing(vis)),
                "level": Out(LevelWrite(vis)).array(2),
                "completions": Out(HostCompletions(queues)),
                "microcode": Out(LocalBus()).array(2),
                "context": Out(HostContext(vis)),
                "rx_drops": In(WORD_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        access, completions = self.access, self.completions
        address, data = access.address, access.write_data
        writes, second, refused = Signal(), Signal(), Signal()
        m.d.comb += [
            writes.eq(access.valid & access.write),
            self.ring.queue.eq(data[31]),
            self.ring.qp.eq(data[16:28]),
            self.ring.count.eq(data[:16]),
            completions.queue.eq(address[3:7]),
            completions.which.eq(address[:3]),
            completions.data.eq(data),
            self.context.address.eq(address[:18]),
            self.context.write_data.eq(data),
        ]
        for level in self.level:
            m.d.comb += [level.qp.eq(data[16:28]), level.level.eq(data)]
        for microcode in self.microcode:
            m.d.comb += [microcode.address.eq(address), microcode.write_data.eq(data)]
        # a read's second clock has what RAMs answer to the address of the first
        m.d.sync += second.eq(access.valid & ~access.write & ~second)
        with m.If(access.valid & ~access.write):
            m.d.comb += access.ready.eq(second)
        with m.Elif(writes):
            m.d.comb += access.ready.eq(1)
        with m.Switch(address):
            with m.Case("00000000000--------"):
                self._control(m, writes, refused)
            with m.Case("0000000000100------", "0000000000101------"):
                there = address[3:7] < self.queues
                m.d.comb += completions.set.eq(writes & there)
                with m.If(writes & there):
                    m.d.comb += access.ready.eq(completions.ready)
            for i in range(2):
                with m.Case(f"00000{i + 1:02b}------------"):
                    m.d.comb += [
                        self.microcode[i].write.eq(writes),
                        access.read_data.eq(self.microcode[i].read_data),
                    ]
            with m.Case("1" + 18 * "-"):
                there = (address[:18] >> len(self.context.address)) == 0
                m.d.comb += self.context.write.eq(writes & there)
                with m.If(there):
                    m.d.comb += access.read_data.eq(self.context.read_data)
                    with m.If(writes):
                        m.d.comb += access.ready.eq(self.context.ready)
        return m

    def _control(self, m: Module, writes: Signal, refused: Signal) -> None:
        """The control words."""
        access, completions = self.access, self.completions
        data, shown = access.write_data, access.read_data
        strobe = Signal()
        m.d.comb += strobe.eq(writes & access.ready)
        with m.Switch(access.address):
            with m.Case(RUN):
                m.d.comb += shown.eq(Cat(self.run, Const(0, 6), self.halted))
                with m.If(strobe):
                    m.d.sync += self.run.eq(data)
            for number, register in (
                (TPT_BASE_LOW, self.tpt_base[:WORD_BITS]),
                (TPT_BASE_HIGH, self.tpt_base[WORD_BITS:]),
                (TPT_ENTRIES, self.tpt_entries),
            ):
                with m.Case(number):
                    m.d.comb += shown.eq(register)
                    with m.If(strobe):
                        m.d.sync += register.eq(data)
            with m.Case(DOORBELL):
                m.d.comb += [self.ring.valid.eq(writes), shown.eq(refused)]
                with m.If(writes):
                    m.d.comb += access.ready.eq(self.ring.ready)
                    with m.If(self.ring.ready):
                        m.d.sync += refused.eq(self.ring.refused)
            with m.Case(LEVEL):
                for i in range(2):
                    m.d.comb += self.level[i].strobe.eq(strobe & (data[31] == i))
            with m.Case(COMPLETION_EVENTS):
                m.d.comb += shown.eq(completions.events)
                with m.If(strobe):
                    m.d.comb += completions.clear_events.eq(data)
            with m.Case(OVERFLOW_EVENTS):
                m.d.comb += shown.eq(completions.overflows)
                with m.If(strobe):
                    m.d.comb += completions.clear_overflows.eq(data)
            with m.Case(EVENT):
                m.d.comb += [shown.eq(completions.event), completions.take_event.eq(strobe)]
            with m.Case(EVENT_STATUS):
                m.d.comb += shown.eq(Cat(completions.events_lost))
                m.d.comb += shown[31].eq(completions.event_ready)
            with m.Case(RX_DROPS):
                m.d.comb += shown.eq(self.rx_drops)
