"""Proofs about who has a turn: on the host's memory, the line, the completion queues and the schedulers.

What one block takes for granted of its neighbour is another's claim (`HoldsBus` of the arbiter's requesters,
`formal_fifos.ShowsPackets` of the line's FIFOs), so the proofs together speak of the adapter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value

from softhca.hardware.claims import Claims, Registers, all_of, any_of, past, stays
from softhca.hardware.completion_engine import CompletionEngine
from softhca.hardware.host_interface import HostArbiter
from softhca.hardware.payload_mover import PayloadMover
from softhca.hardware.serial import SerialTransmitter
from softhca.hardware.translation import Translation
from softhca.hardware.wake_up import QUEUE_BIT, WakeUp

BUS_FIELDS = ("write", "address", "write_data", "mask")


def _bus_fields(bus: Any) -> list[Value]:
    """What a requester says of its transaction."""
    return [getattr(bus, name) for name in BUS_FIELDS]


class HoldsBus(Claims):
    """Who asks for host memory (``bus``) does so, for the same word, until it is done."""

    names = ("held",)

    def claim(self, m: Module, platform: Registers) -> dict[str, Value]:
        """The request stays."""
        bus = self.block.bus
        return {"held": ~stays(m, bus.valid & ~bus.done, [bus.valid, *_bus_fields(bus)], "bus")}


class LookUpHoldsBus(HoldsBus):
    """A look-up, too, while the host does not move the table."""

    block: Translation

    def assume(self, m: Module) -> Iterable[Value]:
        """The table stays where it is while a word of it is waited for."""
        yield stays(m, self.block.bus.valid & ~self.block.bus.done, [self.block.base], "base")


class MoverHoldsBus(HoldsBus):
    """The mover, too, while the engine does not drop the packet."""

    block: PayloadMover

    def assume(self, m: Module) -> Iterable[Value]:
        """The packet is there while its payload moves."""
        yield ~(self.block.bus.valid & self.block.inward.forget)


class ArbiterClaims(Claims):
    """The host's memory.

    * *turns*: it is asked for whenever somebody asks; the owner is one who asks, and alone hears *done*.
    * *carried*: the word that is asked for is the owner's.
    * *held*: a transaction stays until its end, whoever else asks.
    * *waits*: nobody waits for more than one transaction of each other requester.
    """

    names = ("turns", "carried", "held", "waits", "state")
    block: HostArbiter

    def assume(self, m: Module) -> Iterable[Value]:
        """Requests stay until they are done: `HoldsBus`."""
        for i, bus in enumerate(self.block.request):
            yield stays(m, bus.valid & ~bus.done, [bus.valid, *_bus_fields(bus)], f"request_{i}")

    def claim(self, m: Module, platform: Registers) -> dict[str, Value]:
        """See the class."""
        block, host, requests = self.block, self.block.host, list(self.block.request)
        valid = Cat(*(bus.valid for bus in requests))
        turns, carried = [host.valid == valid.any()], []
        for i, bus in enumerate(requests):
            owns = host.valid & (block.owner == i)
            turns += [bus.done == (owns & host.done), ~owns | bus.valid]
            carried += [~owns | (mine == its) for mine, its in
                        zip(_bus_fields(bus), _bus_fields(host), strict=True)]  # fmt: skip
            carried += [(bus.read_data == host.read_data), bus.error == host.error]
        waits, state = self._waits(m, requests)
        state.append(~block.busy | any_of(
            (block.last == i) & bus.valid for i, bus in enumerate(requests)))  # fmt: skip
        state.append(block.last < block.requesters)
        return {
            "turns": ~all_of(turns),
            "carried": ~all_of(carried),
            "held": ~stays(m, host.valid & ~host.done, [host.valid, *_bus_fields(host)], "host"),
            "waits": any_of(waits),
            "state": ~all_of(state),
        }

    def _waits(self, m: Module, requests: list[Any]) -> tuple[list[Value], list[Value]]:
        """Where i has waited for j twice; and that those it has waited for stand between it and the last."""
        last, busy, count = self.block.last, self.block.busy, len(requests)
        broken, state = [], []
        for i, bus in enumerate(requests):
            for j in set(range(count)) - {i}:
                seen = Signal(name=f"seen_{i}_{j}")
                waits = bus.valid & ~bus.done
                ended = requests[j].valid & requests[j].done
                m.d.sync += seen.eq(waits & (seen | ended))
                broken.append(waits & seen & ended)
                behind = any_of(
                    (last == owner) & (Mux(busy, 1, 0) + (j - i) % count <= (owner - i) % count)
                    for owner in set(range(count)) - {i}
                )
                state.append(~seen | behind | (busy & (last == i)))
        return broken, state


class TransmitterClaims(Claims):
    """The line.

    * *whole*: a packet leaves whole: no word of the other FIFO between its first and its last.
    * *halves*: a word leaves in two clocks behind one another, its upper half first; the VCRC comes behind
      the last word, and only there.
    * *rows*: while a request waits at most ``limit`` replies begin.
    * *works*: the line never rests for two clocks while a packet waits.
    """

    names = ("whole", "halves", "rows", "works", "state")
    block: SerialTransmitter

    def assume(self, m: Module) -> Iterable[Value]:
        """The FIFOs show a word until it is taken, and a packet to its last word."""
        for packet, name in ((self.block.reply, "reply"), (self.block.request, "request")):
            yield stays(m, packet.valid & ~packet.ready, [packet.valid, packet.last, packet.word], name)
            more = packet.valid & packet.ready & ~packet.last
            yield ~past(m, more, f"{name}_more") | packet.valid

    def claim(self, m: Module, platform: Registers) -> dict[str, Value]:
        """See the class."""
        block, line = self.block, self.block.line
        packets = (block.reply, block.request)
        inside = [Signal(name=f"inside_{i}") for i in range(2)]
        taken = [packet.valid & packet.ready for packet in packets]
        for i, packet in enumerate(packets):
            with m.If(taken[i]):
                m.d.sync += inside[i].eq(~packet.last)
        ends = any_of(taken[i] & packet.last for i, packet in enumerate(packets))
        due = past(m, ends, "due")
        data = line.valid & ~line.last
        half = Signal()
        with m.If(data):
            m.d.sync += half.eq(~half)
        upper = past(m, line.data, "upper")
        halves = [due == (line.valid & line.last), ~past(m, data & ~half, "first_half") | (data & half)]
        for i, packet in enumerate(packets):
            halves.append(packet.ready == (taken[i] & data & half))
            halves.append(~taken[i] | (Cat(line.data, upper) == packet.word))
        asks = block.reply.valid | block.request.valid
        rests = past(m, asks & ~line.valid, "rests")
        rows, state = self._rows(m, taken, inside)
        source_waits = Mux(block.source, block.request.valid, block.reply.valid)
        state += [
            half == block.low,
            due == block.tail,
            ~block.tail | (block.busy & ~half),
            ~(block.low & ~block.busy),
            ~(block.busy & ~block.tail) | source_waits,
            # in the middle of a packet nobody else is let in
            *(~inside[i] | (block.busy & ~block.tail & (block.source == i)) for i in range(2)),
            ~block.tail | ~any_of(inside),
            ~block.low | (Cat(upper, Mux(block.source, packets[1].word, packets[0].word)[16:])[:16]
                          == Mux(block.source, packets[1].word, packets[0].word)[16:]),
        ]  # fmt: skip
        return {
            "whole": any_of(taken[i] & inside[1 - i] for i in range(2)),
            "halves": ~all_of(halves),
            "rows": rows,
            "works": rests & asks & ~line.valid,
            "state": ~all_of(state),
        }

    def _rows(self, m: Module, taken: list[Value], inside: list[Signal]) -> tuple[Value, list[Value]]:
        """Replies that ended while a request waits: the one that was under way, and ``limit`` more."""
        block = self.block
        ended = Signal(range(block.limit + 3))
        with m.If(~block.request.valid | taken[1]):
            m.d.sync += ended.eq(0)
        with m.Elif(taken[0] & block.reply.last & (ended != block.limit + 2)):
            m.d.sync += ended.eq(ended + 1)
        replies = block.busy & (block.source == 0)
        state = [
            block.row <= block.limit,
            ~(block.busy & block.source) | (block.row == 0),
            ~(block.source & block.busy & (inside[1] | block.tail)) | (ended == 0),
            (block.source & block.busy) | (ended <= block.row + Mux(replies & ~block.tail, 0, 1)),
        ]
        return ended > block.limit + 1, state


class CompletionClaims(Claims):
    """The two engines' completions take *turns*: none waits for a second one of the other's."""

    names = ("turns", "state")
    block: CompletionEngine

    def claim(self, m: Module, platform: Registers) -> dict[str, Value]:
        """See the class."""
        block = self.block
        busy = [engine.cq_push[0] for engine in block.engine]
        ended = [past(m, busy[i], f"busy_{i}") & ~busy[i] for i in range(2)]
        broken, state = [], [block.idle | Mux(block.posting.source, busy[1], busy[0])]
        for i in range(2):
            before, seen = Signal(name=f"before_{i}"), Signal(name=f"seen_{i}")
            m.d.sync += before.eq(busy[i] & seen)
            # waits in this clock and waited when the other one ended
            waited = past(m, busy[i], f"waited_{i}")
            m.d.comb += seen.eq(before | (ended[1 - i] & waited))
            broken.append(busy[i] & before & ended[1 - i])
            served = Mux(block.idle, block.posting.source == 1 - i, block.posting.source == i)
            state.append(~(busy[i] & seen) | served)
        return {"turns": any_of(broken), "state": ~all_of(state)}


class WakeClaims(Claims):
    """What the engines and the doorbell manager put before the schedulers.

    * *kept*: what an engine asks for waits until its scheduler has taken it, and only so long.
    * *offered*: a scheduler is offered the first engine's queue pair, else the second's, else the doorbell
      manager's, and nothing else.
    * *rung*: the doorbell manager's is taken when the scheduler takes it, never in an engine's place.
    """

    names = ("kept", "offered", "rung")
    block: WakeUp

    def claim(self, m: Module, platform: Registers) -> dict[str, Value]:
        """See the class."""
        block = self.block
        waits, queues, numbers = [], [], []
        for i in range(2):
            waits.append(Signal(name=f"asked_{i}"))
            queues.append(Signal(name=f"asked_queue_{i}"))
            numbers.append(Signal(range(block.vis), name=f"asked_number_{i}"))
        kept = [engine.wake == wait for engine, wait in zip(block.engine, waits, strict=True)]
        offered, rung = [], []
        for queue, (put, ring) in enumerate(zip(block.put, block.ring, strict=True)):
            here = [waits[i] & (queues[i] == queue) for i in range(2)]
            number = Mux(here[0], numbers[0], Mux(here[1], numbers[1], ring.qp))
            offered.append(put.valid == (any_of(here) | ring.valid))
            offered.append(~put.valid | (put.qp == number))
            rung.append(ring.ready == (put.ready & ~any_of(here)))
            for i in range(2):
                with m.If(here[i] & put.ready & ~(here[0] if i else Signal())):
                    m.d.sync += waits[i].eq(0)
        for i, engine in enumerate(block.engine):
            write = engine.write_wake
            with m.If(write.strobe & ~waits[i] & (write.data[:24] < block.vis)):
                m.d.sync += [waits[i].eq(1), queues[i].eq(write.data[QUEUE_BIT]), numbers[i].eq(write.data)]
        for mine, its in ((queues, block.queues), (numbers, block.numbers)):
            kept += [~wait | (a == b) for wait, a, b in zip(waits, mine, its, strict=True)]
        return {"kept": ~all_of(kept), "offered": ~all_of(offered), "rung": ~all_of(rung)}
