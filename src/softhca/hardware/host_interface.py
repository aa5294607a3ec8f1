"""The host interface: words of the host's memory for the engines and the other blocks, one after another.

Each requester has a `HostBus` of its own; the arbiter gives turns, so that nobody waits for more than one
transaction of each other.  An engine's requester is a `HostPort`: it reads or writes a word, or takes in a
descriptor (a work queue element) whole, by micro-registers.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from softhca.hardware.micro_registers import (
    HOST_FETCH,
    HOST_FINISH,
    HOST_READ,
    HOST_RECEIVE,
    HOST_SEND,
    HOST_WRITE,
)
from softhca.hardware.payload_mover import FINISH, INWARD, MOST_BYTES, OUT, MoveCommand
from softhca.hardware.ports import ADDRESS_BITS, WORD_BITS, HostBus, RegisterWrite

DESCRIPTOR_WORDS = 16
"""The longest descriptor: the 64 bytes of a send queue's element."""
FETCH_SHIFT = 8


class HostArbiter(wiring.Component):
    """One host bus for ``requesters``: in turns, each transaction to its end.  ``owner`` has the bus."""

    def __init__(self, requesters: int) -> None:
        if not 1 <= requesters <= 16:
            raise ValueError(f"an arbiter has 1…16 requesters, not {requesters}")
        self.requesters = requesters
        self.last, self.busy = Signal(range(requesters), init=requesters - 1), Signal()
        super().__init__(
            {
                "request": In(HostBus()).array(requesters),
                "host": Out(HostBus()),
                "owner": Out(range(requesters)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        last, busy = self.last, self.busy
        m.d.comb += self.owner.eq(last)
        with m.If(~busy), m.Switch(last):
            for i in range(self.requesters):
                with m.Case(i):
                    for step in range(self.requesters, 0, -1):
                        next_one = (i + step) % self.requesters
                        with m.If(self.request[next_one].valid):
                            m.d.comb += self.owner.eq(next_one)
        with m.Switch(self.owner):
            for i in range(self.requesters):
                request = self.request[i]
                with m.Case(i):
                    m.d.comb += [
                        self.host.valid.eq(request.valid),
                        self.host.write.eq(request.write),
                        self.host.address.eq(request.address),
                        self.host.write_data.eq(request.write_data),
                        self.host.mask.eq(request.mask),
                        request.done.eq(request.valid & self.host.done),
                    ]
        for i in range(self.requesters):
            m.d.comb += [
                self.request[i].read_data.eq(self.host.read_data),
                self.request[i].error.eq(self.host.error),
            ]
        with m.If(self.host.valid):
            m.d.sync += [last.eq(self.owner), busy.eq(~self.host.done)]
        return m


class HostPort(wiring.Component):
    """An engine's requester.

    ``host_address`` and ``host_address_high`` (12 bits) are a byte address, ``host_data`` the word to write
    or the word that came.  ``host_command``: `HOST_READ`, `HOST_WRITE`, or `HOST_FETCH` with the number of
    words (1…16) in bits 8…12; while ``host_status`` says busy (bit 0) it is ignored.  Bit 1 says that the
    last one failed: such a command cannot be, its address is not that of a word, it runs past the last
    address, or the host refused.

    The mover's commands are `HOST_SEND` and `HOST_RECEIVE` with a number of bytes (1…4096) from bit 8 on,
    from or to any byte's address, and `HOST_FINISH`.

    A descriptor is seen when it is there whole: ``host_descriptor`` bit 31: a word is there, bit 0: it is
    the last; ``host_descriptor_word``; ``host_descriptor_pop`` takes it.  A new fetch throws away what was
    not taken.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "write_host_address": In(RegisterWrite()),
                "write_host_address_high": In(RegisterWrite()),
                "write_host_data": In(RegisterWrite()),
                "write_host_command": In(RegisterWrite()),
                "write_host_descriptor_pop": In(RegisterWrite()),
                "host_address": Out(WORD_BITS),
                "host_address_high": Out(WORD_BITS),
                "host_data": Out(WORD_BITS),
                "host_status": Out(WORD_BITS),
                "host_descriptor": Out(WORD_BITS),
                "host_descriptor_word": Out(WORD_BITS),
                "move": Out(MoveCommand()),
                "bus": Out(HostBus()),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        high = Signal(ADDRESS_BITS - WORD_BITS)
        busy, failed, fetching, moving = Signal(), Signal(), Signal(), Signal()
        wanted = Signal(range(DESCRIPTOR_WORDS + 1))
        filled = Signal(range(DESCRIPTOR_WORDS + 1))
        taken = Signal(range(DESCRIPTOR_WORDS + 1))
        there = Signal(range(DESCRIPTOR_WORDS + 1))
        m.submodules.words = words = Memory(shape=WORD_BITS, depth=DESCRIPTOR_WORDS, init=[])
        put, get = words.write_port(), words.read_port(domain="comb")
        m.d.comb += [
            self.host_address_high.eq(high),
            self.host_status.eq(Cat(busy, failed)),
            self.host_descriptor.eq(Cat(there == taken + 1, Const(0, 30), there != taken)),
            get.addr.eq(taken),
            self.host_descriptor_word.eq(get.data),
            put.addr.eq(filled),
            put.data.eq(self.bus.read_data),
            put.en.eq(busy & self.bus.done & fetching & ~self.bus.error),
            self.bus.valid.eq(busy & ~moving),
        ]
        for value, write in (
            (self.host_address, self.write_host_address),
            (high, self.write_host_address_high),
            (self.host_data, self.write_host_data),
        ):
            with m.If(write.strobe):
                m.d.sync += value.eq(write.data)
        with m.If(self.write_host_descriptor_pop.strobe & (there != taken)):
            m.d.sync += taken.eq(taken + 1)
        started = self._command(m, high, busy, failed, fetching, moving)
        with m.If(started != 0):
            m.d.sync += [wanted.eq(started), filled.eq(0), taken.eq(0), there.eq(0)]
        with m.If(moving & self.move.done):
            m.d.sync += [busy.eq(0), moving.eq(0), failed.eq(self.move.failed)]
        with m.Elif(busy & ~moving & self.bus.done):
            m.d.sync += [busy.eq(0), failed.eq(self.bus.error)]
            with m.If(put.en):
                m.d.sync += [filled.eq(filled + 1), self.bus.address.eq(self.bus.address + 4)]
                with m.If(filled + 1 == wanted):
                    m.d.sync += there.eq(wanted)
                with m.Else():
                    m.d.sync += busy.eq(1)
            with m.Elif(~fetching & ~self.bus.write & ~self.bus.error):
                m.d.sync += self.host_data.eq(self.bus.read_data)
        return m

    def _command(
        self, m: Module, high: Signal, busy: Signal, failed: Signal, fetching: Signal, moving: Signal
    ) -> Value:
        """Check a command and begin; the words of the descriptor that is to be fetched now, 0: none is."""
        command = self.write_host_command
        fetch, count = Signal(), Signal(WORD_BITS - FETCH_SHIFT)
        bad, misplaced, end = Signal(), Signal(), Signal(ADDRESS_BITS + 1)
        moves = Signal()
        address = Cat(self.host_address, high)
        m.d.comb += [
            fetch.eq(command.data[:FETCH_SHIFT] == HOST_FETCH),
            count.eq(command.data[FETCH_SHIFT:]),
            end.eq(address + (count[:5] << 2)),
            misplaced.eq(self.host_address[:2] != 0),
            self.move.address.eq(address),
            self.move.length.eq(count),
            self.move.start.eq(moves & command.strobe & ~busy & ~bad),
        ]
        for code, kind in ((HOST_SEND, OUT), (HOST_RECEIVE, INWARD), (HOST_FINISH, FINISH)):
            with m.If(command.data[:FETCH_SHIFT] == code):
                m.d.comb += [moves.eq(1), self.move.kind.eq(kind)]
        with m.If(moves):
            past = address + self.move.length > 1 << ADDRESS_BITS
            m.d.comb += bad.eq((self.move.kind != FINISH) & ((count == 0) | (count > MOST_BYTES) | past))
        with m.Elif(fetch):
            m.d.comb += bad.eq(
                misplaced | (count == 0) | (count > DESCRIPTOR_WORDS) | (end > 1 << ADDRESS_BITS)
            )
        with m.Else():
            m.d.comb += bad.eq(misplaced | ((command.data != HOST_READ) & (command.data != HOST_WRITE)))
        with m.If(command.strobe & ~busy):
            m.d.sync += [
                failed.eq(bad),
                busy.eq(~bad),
                fetching.eq(fetch),
                moving.eq(moves & ~bad),
                self.bus.address.eq(address),
                self.bus.write.eq(command.data == HOST_WRITE),
                self.bus.write_data.eq(self.host_data),
            ]
        return Mux(command.strobe & ~busy & fetch & ~bad, count[:5], 0)
