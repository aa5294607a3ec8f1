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
                "queue": Out(max(1, ceil_log2(queues))),
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


class _Rings:
    """What the host has set of each queue, and how far it is."""

    def __init__(self, queues: int) -> None:
        def each(name: str, shape: Any) -> Array:
            return Array(Signal(shape, name=f"{name}_{i}") for i in range(queues))

        self.bases = each("base", ADDRESS_BITS)
        self.sizes = each("size", range(MAX_LOG_ENTRIES + 1))
        self.producers, self.consumers = each("producer", COUNT_BITS), each("consumer", COUNT_BITS)
        self.arms = each("arm", 2)
        self.stopped = Signal(queues)


class _Posting:
    """The entry that is being posted, and how that ends: ``done``, ``refused``, the queue's ``event`` or its
    ``overflow``."""

    def __init__(self, queues: int) -> None:
        self.queue, self.exists = Signal(max(1, ceil_log2(queues))), Signal()
        self.source, self.solicited, self.word = Signal(), Signal(), Signal(range(ENTRY_WORDS))
        self.entry = Array(Signal(WORD_BITS, name=f"entry_{i}") for i in range(ENTRY_WORDS))
        self.done, self.refused = Signal(), Signal()
        self.event, self.overflow = Signal(), Signal()


class CompletionEngine(wiring.Component):
    """``queues`` of them; ``engine`` 0 is the SQ's, 1 the RQ's: they take turns."""

    def __init__(self, queues: int = 8) -> None:
        if not 1 <= queues <= 16:
            raise ValueError(f"a completion engine has 1…16 queues, not {queues}")
        self.queues = queues
        self.posting, self.idle = _Posting(queues), Signal()
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
        rings, posting = _Rings(self.queues), self.posting
        pushes = [self._engine(m, i) for i in range(2)]
        for i, push in enumerate(pushes):
            with m.If(posting.done & (posting.source == i)):
                m.d.sync += [push.busy.eq(0), push.refused.eq(posting.refused)]
        self._address(m, rings, posting)
        with m.FSM(name="posting"):
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(1)
                with m.If(pushes[0].busy | pushes[1].busy):
                    self._take(m, posting, pushes)
                    m.next = "CHECK"
                with m.Elif(host.set):
                    m.d.comb += host.ready.eq(1)
                    self._set(m, rings)
            with m.State("CHECK"):
                self._check(m, rings, posting)
            with m.State("WRITE"):
                self._write(m, rings, posting)
            with m.State("TELL"):
                self._tell(m, rings, posting)
                m.next = "IDLE"
        here = 1 << posting.queue
        m.d.sync += [
            host.events.eq(host.events & ~host.clear_events | Mux(posting.event, here, 0)),
            host.overflows.eq(host.overflows & ~host.clear_overflows | Mux(posting.overflow, here, 0)),
        ]
        self._events(m)
        return m

    def _take(self, m: Module, posting: _Posting, pushes: list[_Push]) -> None:
        """Take an engine's entry; they take turns."""
        chosen = Mux(posting.source, ~pushes[0].busy, pushes[1].busy)
        data = Mux(chosen, pushes[1].data, pushes[0].data)
        m.d.sync += [
            posting.source.eq(chosen),
            posting.queue.eq(data),
            posting.exists.eq(data[:8] < self.queues),
            posting.solicited.eq(data[31]),
            posting.word.eq(0),
        ]
        for i in range(3):
            m.d.sync += posting.entry[i].eq(Mux(chosen, pushes[1].values[i], pushes[0].values[i]))

    def _address(self, m: Module, rings: _Rings, posting: _Posting) -> None:
        """What is on the bus, whether it is valid or not."""
        queue, word = posting.queue, posting.word
        place = Signal(MAX_LOG_ENTRIES)
        m.d.comb += [
            place.eq(rings.producers[queue] & ((1 << rings.sizes[queue]) - 1)),
            self.bus.write.eq(1),
            self.bus.write_data.eq(posting.entry[word]),
            self.bus.address.eq(rings.bases[queue] + Cat(Const(0, 2), word, place)),
        ]

    @staticmethod
    def _refuse(m: Module, posting: _Posting) -> None:
        """The entry is not posted."""
        m.d.comb += [posting.done.eq(1), posting.refused.eq(1)]
        m.next = "IDLE"

    def _stop(self, m: Module, rings: _Rings, posting: _Posting) -> None:
        """Nor is any other one, until the host makes the queue anew."""
        m.d.comb += posting.overflow.eq(1)
        m.d.sync += rings.stopped.bit_select(posting.queue, 1).eq(1)
        self._refuse(m, posting)

    def _check(self, m: Module, rings: _Rings, posting: _Posting) -> None:
        """Look for room, and make the entry's last word."""
        queue = posting.queue
        producer, size = rings.producers[queue], rings.sizes[queue]
        used = Signal(COUNT_BITS)
        m.d.comb += used.eq(producer - rings.consumers[queue])
        phase = ~(producer >> size)[0]
        m.d.sync += posting.entry[3].eq(Cat(producer, Const(0, 14), posting.solicited, phase))
        with m.If(~posting.exists | rings.stopped.bit_select(queue, 1) | (size == 0)):
            self._refuse(m, posting)
        with m.Elif(used >= (1 << size)):
            self._stop(m, rings, posting)
        with m.Else():
            m.next = "WRITE"

    def _write(self, m: Module, rings: _Rings, posting: _Posting) -> None:
        """The entry's words, one by one."""
        bus, word = self.bus, posting.word
        m.d.comb += bus.valid.eq(1)
        with m.If(bus.done & bus.error):
            self._stop(m, rings, posting)
        with m.Elif(bus.done):
            m.d.sync += word.eq(word + 1)
            with m.If(word == ENTRY_WORDS - 1):
                m.next = "TELL"

    @staticmethod
    def _tell(m: Module, rings: _Rings, posting: _Posting) -> None:
        """It is posted; an event if the host has asked for one."""
        queue = posting.queue
        m.d.comb += posting.done.eq(1)
        m.d.sync += rings.producers[queue].eq(rings.producers[queue] + 1)
        counts = posting.solicited | (posting.entry[2][:8] != 0)
        with m.If((rings.arms[queue] == ARM_NEXT) | ((rings.arms[queue] == ARM_SOLICITED) & counts)):
            m.d.comb += posting.event.eq(1)
            m.d.sync += rings.arms[queue].eq(ARM_NONE)

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

    def _set(self, m: Module, rings: _Rings) -> None:
        """Carry out what the host sets."""
        host = self.host
        queue, data = host.queue, host.data
        with m.Switch(host.which):
            with m.Case(BASE_LOW):
                m.d.sync += rings.bases[queue][:WORD_BITS].eq(Cat(Const(0, 4), data[4:]))
            with m.Case(BASE_HIGH):
                m.d.sync += rings.bases[queue][WORD_BITS:].eq(data)
            with m.Case(SIZE):
                m.d.sync += [
                    rings.sizes[queue].eq(Mux(data <= MAX_LOG_ENTRIES, data, 0)),
                    rings.producers[queue].eq(0),
                    rings.consumers[queue].eq(0),
                    rings.arms[queue].eq(ARM_NONE),
                    rings.stopped.bit_select(queue, 1).eq(0),
                ]
            with m.Case(CONSUMER):
                m.d.sync += rings.consumers[queue].eq(data)
            with m.Case(ARM):
                # a request for any completion stands above one for solicited ones only
                asks = (data == ARM_NEXT) | ((data == ARM_SOLICITED) & (rings.arms[queue] == ARM_NONE))
                m.d.sync += rings.arms[queue].eq(Mux(asks, data, rings.arms[queue]))

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
