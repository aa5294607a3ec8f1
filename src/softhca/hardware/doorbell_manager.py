"""The doorbell manager: how many work requests of each queue are outstanding.

A host rings for a queue with the number of work requests that it has posted there; an engine says when one
of them is done.  Each change goes into the queue pair's context, and a queue that has work but nobody who
knows of it is put before the scheduler; a send queue at each doorbell, for one that waits for answers may
have room for more under way.  The two queues of all queue pairs are two lanes that do not meet
but at the context.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, Signature

from softhca.hardware.context_memory import MAX_VIS, RECEIVE, SEND, CountUpdate
from softhca.hardware.ports import WORD_BITS, RegisterWrite, check_power_of_two

COUNT_BITS = 16
PRESENT_BIT = 31
BUSY_BIT, REFUSED_BIT = 0, 1


class DoorbellRing(Signature):
    """A host's doorbell, seen from the host: held until ``ready``; with that comes ``refused``: the count
    would not fit, nothing was counted."""

    def __init__(self, vis: int) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "qp": Out(range(vis)),
                "queue": Out(1),
                "count": Out(COUNT_BITS),
                "ready": In(1),
                "refused": In(1),
            }
        )


class SchedulerPut(Signature):
    """A queue pair that asks for a turn, seen from who puts it; held until ``ready``."""

    def __init__(self, vis: int) -> None:
        super().__init__({"valid": Out(1), "qp": Out(range(vis)), "ready": In(1)})


class EngineDoorbells(Signature):
    """An engine's registers, seen from the engine; they are about its own queues.

    ``doorbell_qp``: which queue pair is looked at; reads bit 31 when it has work.  ``doorbell_count``: how
    much.  ``doorbell_pop``: a write says that one work request is done; reads bit 0 while that is not yet
    counted (another pop is then ignored), bit 1 when there was none.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "write_doorbell_qp": Out(RegisterWrite()),
                "write_doorbell_pop": Out(RegisterWrite()),
                "doorbell_qp": In(WORD_BITS),
                "doorbell_count": In(WORD_BITS),
                "doorbell_pop": In(WORD_BITS),
            }
        )


class DoorbellLane(wiring.Component):
    """One queue of every queue pair.  A pop goes before a ring."""

    def __init__(self, vis: int, queue: int) -> None:
        self.vis = vis
        self.queue = queue
        super().__init__(
            {
                "ring": In(DoorbellRing(vis)),
                "engine": In(EngineDoorbells()),
                "context": Out(CountUpdate(vis)),
                "put": Out(SchedulerPut(vis)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        m.submodules.counts = counts = Memory(shape=COUNT_BITS, depth=self.vis, init=[])
        write = counts.write_port()
        view, read = (counts.read_port(transparent_for=[write]) for _ in range(2))
        engine = self.engine
        qp, exists = Signal(range(self.vis)), Signal()  # what the engine looks at
        popping, refused = Signal(), Signal()
        pop_qp, pop_exists = Signal(range(self.vis)), Signal()
        is_pop, changed = Signal(), Signal(COUNT_BITS + 1)
        number, high = Signal(range(self.vis)), Signal(WORD_BITS)
        m.d.comb += [
            high.eq(engine.write_doorbell_qp.data >> len(qp)),
            view.en.eq(1),
            view.addr.eq(Mux(engine.write_doorbell_qp.strobe, engine.write_doorbell_qp.data, qp)),
            engine.doorbell_count.eq(Mux(exists, view.data, 0)),
            engine.doorbell_qp.eq(qp),
            engine.doorbell_qp[PRESENT_BIT].eq(engine.doorbell_count != 0),
            engine.doorbell_pop.eq(Cat(popping, refused)),
            self.context.queue.eq(self.queue),
            self.context.qp.eq(number),
            self.put.qp.eq(number),
            read.addr.eq(Mux(popping, pop_qp, self.ring.qp)),
            read.en.eq(1),
            write.addr.eq(number),
            write.data.eq(changed),
        ]
        with m.If(engine.write_doorbell_qp.strobe):
            m.d.sync += [qp.eq(engine.write_doorbell_qp.data), exists.eq(high == 0)]
        with m.If(engine.write_doorbell_pop.strobe & ~popping):
            m.d.sync += [popping.eq(1), pop_qp.eq(qp), pop_exists.eq(exists)]
        wanted = Signal()
        with m.FSM(name="lane"):
            with m.State("IDLE"):
                m.d.sync += [is_pop.eq(popping), number.eq(read.addr)]
                with m.If(popping | self.ring.valid):
                    m.next = "COUNT"
            with m.State("COUNT"):
                bad = Signal()
                m.d.comb += [
                    changed.eq(Mux(is_pop, read.data - 1, read.data + self.ring.count)),
                    # a borrow or a carry: less than none, or more than fit
                    bad.eq(changed[COUNT_BITS] | (is_pop & ~pop_exists)),
                    write.en.eq(~bad),
                    self.ring.ready.eq(~is_pop),
                    self.ring.refused.eq(bad),
                ]
                m.d.sync += [
                    self.context.count.eq(changed[:COUNT_BITS]),
                    self.context.valid.eq(~bad),
                    wanted.eq((changed != 0) & (is_pop | (read.data == 0) | (self.queue == SEND))),
                ]
                with m.If(is_pop):
                    m.d.sync += [popping.eq(0), refused.eq(bad)]
                m.next = "IDLE"
                with m.If(~bad):
                    m.next = "TELL"
            with m.State("TELL"):
                m.d.comb += self.put.valid.eq(wanted)
                with m.If(self.context.ready):
                    m.d.sync += self.context.valid.eq(0)
                with m.If(self.put.ready):
                    m.d.sync += wanted.eq(0)
                with m.If((self.context.ready | ~self.context.valid) & (self.put.ready | ~wanted)):
                    m.next = "IDLE"
        return m


class DoorbellManager(wiring.Component):
    """Both lanes: ``engine`` and ``put`` by queue (0: send)."""

    def __init__(self, vis: int = 256) -> None:
        check_power_of_two("VIs", vis, 2, MAX_VIS)
        self.vis = vis
        super().__init__(
            {
                "ring": In(DoorbellRing(vis)),
                "engine": In(EngineDoorbells()).array(2),
                "context": Out(CountUpdate(vis)),
                "put": Out(SchedulerPut(vis)).array(2),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        lanes = [DoorbellLane(self.vis, queue) for queue in (SEND, RECEIVE)]
        for queue, lane in enumerate(lanes):
            m.submodules[f"lane_{queue}"] = lane
            wiring.connect(m, wiring.flipped(self.engine[queue]), lane.engine)
            wiring.connect(m, lane.put, wiring.flipped(self.put[queue]))
            m.d.comb += [
                lane.ring.valid.eq(self.ring.valid & (self.ring.queue == queue)),
                lane.ring.qp.eq(self.ring.qp),
                lane.ring.count.eq(self.ring.count),
            ]
        chosen = lanes[SEND].context.valid
        for member in ("valid", "qp", "queue", "count"):
            first, second = (getattr(lane.context, member) for lane in lanes)
            m.d.comb += getattr(self.context, member).eq(Mux(chosen, first, second))
        m.d.comb += [
            lanes[SEND].context.ready.eq(chosen & self.context.ready),
            lanes[RECEIVE].context.ready.eq(~chosen & self.context.ready),
            self.ring.ready.eq(Mux(self.ring.queue, lanes[RECEIVE].ring.ready, lanes[SEND].ring.ready)),
            self.ring.refused.eq(Mux(self.ring.queue, lanes[RECEIVE].ring.refused, lanes[SEND].ring.refused)),
        ]
        return m
