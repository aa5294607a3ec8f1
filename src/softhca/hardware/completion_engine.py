"""The completion engine: writes completions into the host's queues, and tells of them and of global events.

A completion queue is a ring in host memory of 2^n entries of 16 bytes: the queue pair, the work request, the
status, and a word that is written last: bit 31 the round's phase (1 in the first round), bit 30 solicited,
bits 15–0 the entry's number.  The host says how many it has read, and asks for one event at a time, as with
the software adapter.  An entry that finds no room (or a ring that the host broke) stops its queue for good:
that is told, and nothing is posted any more (C10-100 ff.).

Events are one pending bit a queue and kind, so none is lost; the engines' global events stand in a FIFO, and
what finds no room there is counted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out, Signature
from amaranth.utils import ceil_log2

from softhca.hardware.ports import ADDRESS_BITS, WORD_BITS, HostBus, RegisterWrite

ENTRY_WORDS = 4
ENTRY_BYTES = 4 * ENTRY_WORDS
MAX_LOG_ENTRIES = 12
ARM_NONE, ARM_NEXT, ARM_SOLICITED = 0, 1, 2
PHASE_BIT, SOLICITED_BIT = 31, 30
BUSY_BIT, REFUSED_BIT = 0, 1
EVENT_PLACES = 16
COUNT_BITS = 16

BASE_LOW, BASE_HIGH, SIZE, CONSUMER, ARM = range(5)
"""What the host sets of a queue; SIZE (n, 1 … 12) empties it and lets it begin, another number ends it."""


class EngineCompletions(Signature):
    """An engine's registers, seen from the engine.

    ``cq_push``: the entry that stands in ``cq_qp``, ``cq_work`` and ``cq_status`` goes to queue 7…0, bit 31:
    solicited; reads bit 0 while that is under way (another one is then ignored), bit 1 where the last one
    was not posted.  ``event_push``: a global event, as it is.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "write_cq_qp": Out(RegisterWrite()),
                "write_cq_work": Out(RegisterWrite()),
                "write_cq_status": Out(RegisterWrite()),
                "write_cq_push": Out(RegisterWrite()),
                "write_event_push": Out(RegisterWrite()),
                "cq_qp": In(WORD_BITS),
                "cq_work": In(WORD_BITS),
                "cq_status": In(WORD_BITS),
                "cq_push": In(WORD_BITS),
            }
        )


class HostCompletions(Signature):
    """The host's side, seen from the host.

    ``set`` gives register ``which`` of ``queue`` the value ``data``; held until ``ready``.  ``events`` and
    ``overflows`` have a bit a queue; ``clear_events`` and ``clear_overflows`` take bits away.  ``event`` is
    the oldest global event where ``event_ready``, ``take_event`` takes it; ``events_lost`` counts.
    """

    def __init__(self, queues: int) -> None:
        super().__init__(
            {
                "set": Out(1),
                "queue": Out(range(queues)),
                "which": Out(3),
                "data": Out(WORD_BITS),
                "ready": In(1),
                "events": In(queues),
                "overflows": In(queues),
                "clear_events": Out(queues),
                "clear_overflows": Out(queues),
                "event_ready": In(1),
                "event": In(WORD_BITS),
                "take_event": Out(1),
                "events_lost": In(COUNT_BITS),
            }
        )


class _Push(NamedTuple):
    """An engine's entry while it waits."""

    busy: Signal
    refused: Signal
    data: Signal
    values: list[Signal]


class CompletionEngine(wiring.Component):
    """``queues`` of them; ``engine`` 0 is the SQ's, 1 the RQ's: they take turns."""

    def __init__(self, queues: int = 8) -> None:
        if not 1 <= queues <= 16:
            raise ValueError(f"a completion engine has 1…16 queues, not {queues}")
        self.queues = queues
        super().__init__(
            {
                "engine": In(EngineCompletions()).array(2),
                "host": In(HostCompletions(queues)),
                "bus": Out(HostBus()),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        host = self.host
        bits = max(1, ceil_log2(self.queues))
        numbers = range(self.queues)
        bases = Array(Signal(ADDRESS_BITS, name=f"base_{i}") for i in numbers)
        sizes = Array(Signal(range(MAX_LOG_ENTRIES + 1), name=f"size_{i}") for i in numbers)
        producers = Array(Signal(COUNT_BITS, name=f"producer_{i}") for i in numbers)
        consumers = Array(Signal(COUNT_BITS, name=f"consumer_{i}") for i in numbers)
        arms = Array(Signal(2, name=f"arm_{i}") for i in numbers)
        stopped = Signal(self.queues)
        new_events, new_overflows = Signal(self.queues), Signal(self.queues)
        pushes = [self._engine(m, i) for i in range(2)]

        queue, exists = Signal(bits), Signal()
        source, solicited, word = Signal(), Signal(), Signal(range(ENTRY_WORDS))
        entry = Array(Signal(WORD_BITS, name=f"entry_{i}") for i in range(ENTRY_WORDS))
        done, refused = Signal(), Signal()
        for i, push in enumerate(pushes):
            with m.If(done & (source == i)):
                m.d.sync += [push.busy.eq(0), push.refused.eq(refused)]
        used = Signal(COUNT_BITS)
        full, place = Signal(), Signal(MAX_LOG_ENTRIES)
        size = sizes[queue]
        m.d.comb += [
            used.eq(producers[queue] - consumers[queue]),
            full.eq(used >= (1 << size)),
            self.bus.write.eq(1),
            self.bus.write_data.eq(entry[word]),
            place.eq(producers[queue] & ((1 << size) - 1)),
            self.bus.address.eq(bases[queue] + Cat(Const(0, 2), word, place)),
        ]
        with m.FSM(name="posting"):
            with m.State("IDLE"):
                chosen = Mux(source, ~pushes[0].busy, pushes[1].busy)  # in turns
                data = Mux(chosen, pushes[1].data, pushes[0].data)
                with m.If(pushes[0].busy | pushes[1].busy):
                    m.d.sync += [source.eq(chosen), queue.eq(data), exists.eq(data[:8] < self.queues)]
                    m.d.sync += [solicited.eq(data[31]), word.eq(0)]
                    for i in range(3):
                        m.d.sync += entry[i].eq(Mux(chosen, pushes[1].values[i], pushes[0].values[i]))
                    m.next = "CHECK"
                with m.Elif(host.set):
                    m.d.comb += host.ready.eq(1)
                    self._set(m, bases, sizes, producers, consumers, arms, stopped)
            with m.State("CHECK"):
                phase = ~(producers[queue] >> size)[0]
                m.d.sync += entry[3].eq(Cat(producers[queue], Const(0, 14), solicited, phase))
                m.next = "WRITE"
                with m.If(~exists | stopped.bit_select(queue, 1) | (size == 0)):
                    m.d.comb += [done.eq(1), refused.eq(1)]
                    m.next = "IDLE"
                with m.Elif(full):
                    m.d.comb += [done.eq(1), refused.eq(1), new_overflows.eq(1 << queue)]
                    m.d.sync += stopped.bit_select(queue, 1).eq(1)
                    m.next = "IDLE"
            with m.State("WRITE"):
                m.d.comb += self.bus.valid.eq(1)
                with m.If(self.bus.done & self.bus.error):
                    m.d.comb += [done.eq(1), refused.eq(1), new_overflows.eq(1 << queue)]
                    m.d.sync += stopped.bit_select(queue, 1).eq(1)
                    m.next = "IDLE"
                with m.Elif(self.bus.done):
                    m.d.sync += word.eq(word + 1)
                    with m.If(word == ENTRY_WORDS - 1):
                        m.next = "TELL"
            with m.State("TELL"):
                m.d.comb += done.eq(1)
                m.d.sync += producers[queue].eq(producers[queue] + 1)
                due = (arms[queue] == ARM_NEXT) | (
                    (arms[queue] == ARM_SOLICITED) & (solicited | (entry[2] != 0))
                )
                with m.If(due):
                    m.d.comb += new_events.eq(1 << queue)
                    m.d.sync += arms[queue].eq(ARM_NONE)
                m.next = "IDLE"
        m.d.sync += [
            host.events.eq(host.events & ~host.clear_events | new_events),
            host.overflows.eq(host.overflows & ~host.clear_overflows | new_overflows),
        ]
        self._events(m)
        return m

    def _engine(self, m: Module, number: int) -> _Push:
        """The registers of an engine."""
        engine = self.engine[number]
        push = _Push(
            Signal(name=f"busy_{number}"),
            Signal(name=f"refused_{number}"),
            Signal(WORD_BITS, name=f"push_{number}"),
            [Signal(WORD_BITS, name=f"value_{number}_{i}") for i in range(3)],
        )
        for name, value in zip(("cq_qp", "cq_work", "cq_status"), push.values, strict=True):
            shown, write = getattr(engine, name), getattr(engine, f"write_{name}")
            m.d.comb += shown.eq(value)
            with m.If(write.strobe & ~push.busy):
                m.d.sync += value.eq(write.data)
        m.d.comb += engine.cq_push.eq(Cat(push.busy, push.refused))
        with m.If(engine.write_cq_push.strobe & ~push.busy):
            m.d.sync += [push.busy.eq(1), push.data.eq(engine.write_cq_push.data)]
        return push

    def _set(
        self,
        m: Module,
        bases: Array,
        sizes: Array,
        producers: Array,
        consumers: Array,
        arms: Array,
        stopped: Signal,
    ) -> None:
        """Carry out what the host sets."""
        host = self.host
        queue, data = host.queue, host.data
        with m.Switch(host.which):
            with m.Case(BASE_LOW):
                m.d.sync += bases[queue][:WORD_BITS].eq(Cat(Const(0, 4), data[4:]))
            with m.Case(BASE_HIGH):
                m.d.sync += bases[queue][WORD_BITS:].eq(data)
            with m.Case(SIZE):
                m.d.sync += [
                    sizes[queue].eq(Mux(data <= MAX_LOG_ENTRIES, data, 0)),
                    producers[queue].eq(0),
                    consumers[queue].eq(0),
                    arms[queue].eq(ARM_NONE),
                    stopped.bit_select(queue, 1).eq(0),
                ]
            with m.Case(CONSUMER):
                m.d.sync += consumers[queue].eq(data)
            with m.Case(ARM):
                # a request for any completion stands above one for solicited ones only
                asks = (data == ARM_NEXT) | ((data == ARM_SOLICITED) & (arms[queue] == ARM_NONE))
                m.d.sync += arms[queue].eq(Mux(asks, data, arms[queue]))

    def _events(self, m: Module) -> None:
        """The FIFO of global events; of two in one clock the SQ engine's is first, the other one's lost."""
        m.submodules.events = events = SyncFIFO(width=WORD_BITS, depth=EVENT_PLACES)
        host = self.host
        first, second = (engine.write_event_push for engine in self.engine)
        lost = Signal(2)
        most = (1 << COUNT_BITS) - 1
        m.d.comb += [
            events.w_data.eq(Mux(first.strobe, first.data, second.data)),
            events.w_en.eq(first.strobe | second.strobe),
            events.r_en.eq(host.take_event),
            host.event.eq(events.r_data),
            host.event_ready.eq(events.r_rdy),
            lost.eq((first.strobe & second.strobe) + (events.w_en & ~events.w_rdy)),
        ]
        m.d.sync += host.events_lost.eq(
            Mux(host.events_lost >= most - 1, Mux(lost != 0, most, host.events_lost), host.events_lost + lost)
        )
