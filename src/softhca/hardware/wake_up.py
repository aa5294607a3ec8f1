"""Queue pairs that an engine puts before a scheduler itself: it goes on with one later, or has news for the
other engine, which then looks at the queue pair's context.

A task that would have to wait for something (room in the send FIFO, the end of a search, an answer) so gives
its turn back and asks for another one, and the engine goes on with the next.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, Signature

from softhca.hardware.context_memory import MAX_VIS
from softhca.hardware.doorbell_manager import SchedulerPut
from softhca.hardware.ports import WORD_BITS, RegisterWrite, check_power_of_two

QUEUE_BIT = 31


class EngineWake(Signature):
    """An engine's register, seen from the engine.  ``wake``: bits 23…0 the queue pair, bit 31 the queue (0:
    send) whose scheduler it is put before; reads bit 0 while that is not yet done: another write is then
    lost.  A queue pair that does not exist is nobody's."""

    def __init__(self) -> None:
        super().__init__({"write_wake": Out(RegisterWrite()), "wake": In(WORD_BITS)})


class WakeUp(wiring.Component):
    """Between the doorbell manager's ``ring`` and the schedulers' ``put``, by queue; the engines go first."""

    def __init__(self, vis: int = 256) -> None:
        check_power_of_two("VIs", vis, 2, MAX_VIS)
        self.vis = vis
        self.queues = [Signal(name=f"queue_{i}") for i in range(2)]
        self.numbers = [Signal(range(vis), name=f"number_{i}") for i in range(2)]
        super().__init__(
            {
                "engine": In(EngineWake()).array(2),
                "ring": In(SchedulerPut(vis)).array(2),
                "put": Out(SchedulerPut(vis)).array(2),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A register an engine, and a multiplexer a scheduler."""
        m = Module()
        waits, queues, numbers = [], self.queues, self.numbers
        for i, engine in enumerate(self.engine):
            waiting, queue, number = Signal(name=f"waiting_{i}"), queues[i], numbers[i]
            data = engine.write_wake.data
            m.d.comb += engine.wake.eq(waiting)
            with m.If(engine.write_wake.strobe & ~waiting):
                m.d.sync += [
                    waiting.eq(data[:24] < self.vis),
                    queue.eq(data[QUEUE_BIT]),
                    number.eq(data),
                ]
            waits.append(waiting)
        for queue, put in enumerate(self.put):
            ring = self.ring[queue]
            first, second = (waits[i] & (queues[i] == queue) for i in range(2))
            with m.If(first):
                m.d.comb += [put.valid.eq(1), put.qp.eq(numbers[0])]
                with m.If(put.ready):
                    m.d.sync += waits[0].eq(0)
            with m.Elif(second):
                m.d.comb += [put.valid.eq(1), put.qp.eq(numbers[1])]
                with m.If(put.ready):
                    m.d.sync += waits[1].eq(0)
            with m.Else():
                m.d.comb += [put.valid.eq(ring.valid), put.qp.eq(ring.qp), ring.ready.eq(put.ready)]
        return m
