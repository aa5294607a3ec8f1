"""The SQ's clock: time for its microcode, and later turns of queue pairs that wait for an answer.

A queue pair that waits is put down by a write of ``wake`` with bit 30; the next time that the timer comes
past its place it is put before the SQ's scheduler, once.  Whether it has waited long enough its microcode
says, which keeps its deadline in the context.  Every `STEP_CLOCKS` the timer looks at one place: with 256
queue pairs it comes past each in 524 µs, and never takes more than one turn in so many clocks.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from softhca.hardware.context_memory import MAX_VIS
from softhca.hardware.doorbell_manager import SchedulerPut
from softhca.hardware.ports import check_power_of_two
from softhca.hardware.wake_up import EngineWake

LATER_BIT = 30
TIME_SHIFT, TIME_BITS = 8, 24
UNIT_CLOCKS = 512
"""A unit of time: 4.096 µs at 8 ns, as the standard counts an ACK timeout."""
STEP_CLOCKS = 256


class RetryTimer(wiring.Component):
    """Between the SQ engine's ``engine`` and the wake-up block (``wake``), and between the doorbell manager's
    ``ring`` and what it puts: doorbells go first.

    A unit of time is ``unit`` clocks, the walk makes a step every ``step`` of them; both are powers of two.
    ``engine.wake`` shows the time in bits 31…8, which wraps.  A queue pair that does not exist is nobody's.
    """

    def __init__(self, vis: int = 256, unit: int = UNIT_CLOCKS, step: int = STEP_CLOCKS) -> None:
        check_power_of_two("VIs", vis, 2, MAX_VIS)
        self.vis, self.unit, self.step = vis, unit, step
        self.due, self.number = Signal(), Signal(range(vis))
        """Whether a turn is due, and whose."""
        super().__init__(
            {
                "engine": In(EngineWake()),
                "wake": Out(EngineWake()),
                "ring": In(SchedulerPut(vis)),
                "put": Out(SchedulerPut(vis)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A counter, a bit for each queue pair, and a walk over them."""
        m = Module()
        m.submodules.waits = waits = Memory(shape=1, depth=self.vis, init=[])
        look, note = waits.read_port(domain="comb"), waits.write_port()
        below, time = Signal(range(self.unit)), Signal(TIME_BITS)
        place, due, number = Signal(range(self.vis)), self.due, self.number
        write = self.engine.write_wake
        later, steps = Signal(), Signal()
        m.d.comb += [
            later.eq(write.strobe & write.data[LATER_BIT]),
            self.wake.write_wake.strobe.eq(write.strobe & ~write.data[LATER_BIT]),
            self.wake.write_wake.data.eq(write.data),
            self.engine.wake.eq(Cat(self.wake.wake[:TIME_SHIFT], time)),
            steps.eq((below % self.step == 0) & ~later & ~due),
            look.addr.eq(place),
            note.addr.eq(Mux(later, write.data, place)),
            note.data.eq(later),
            note.en.eq((later & (write.data[:24] < self.vis)) | steps),
            self.put.valid.eq(self.ring.valid | due),
            self.put.qp.eq(Mux(self.ring.valid, self.ring.qp, number)),
            self.ring.ready.eq(self.put.ready & self.ring.valid),
        ]
        m.d.sync += below.eq(below + 1)
        with m.If(below == self.unit - 1):
            m.d.sync += time.eq(time + 1)
        with m.If(steps):
            m.d.sync += [place.eq(place + 1), due.eq(look.data), number.eq(place)]
        with m.Elif(due & ~self.ring.valid & self.put.ready):
            m.d.sync += due.eq(0)
        return m
