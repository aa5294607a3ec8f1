"""Context memory: sixty-four words a queue pair of all that its queues' engines must know.

A word has one writer among the engines.  Words 0 … 31 are the send queue's and the SQ engine's, 32 … 63 the
receive queue's and the RQ engine's; so no order of two engines' writes can matter, and each half is a RAM
with one write port.  All read all.  The doorbell manager writes the last word of each half, and the host
every word, in clocks that the engine leaves free.  A reader always sees the newest value: what is written in
a clock is what is read from the next one on.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, Signature

from softhca.hardware.ports import WORD_BITS, RegisterWrite, check_power_of_two

CONTEXT_WORDS = 64
BANK_WORDS = 32
BANK_BIT = 5
SEND, RECEIVE = 0, 1
"""Queues, engines and banks by number."""
REFUSED_BIT = 31
MAX_VIS = 4096

_SEND_WORDS = (
    "BASE", "HEAD", "MASK", "PSN", "PD", "CQ", "BASE_HIGH", "PEER", "LINK", "SOURCE", "PKEY", "MTU", "SENT",
    "PHASE", "FIRST", "LAST", "LENGTH", "SEEN", "TRIES", "TIMEOUT", "DEADLINE",
    "UNDER_WAY", "LAST_0", "LAST_1", "LAST_2", "LAST_3",
    "LENGTH_0", "LENGTH_1", "LENGTH_2", "LENGTH_3", "READS",
)  # fmt: skip
_RECEIVE_WORDS = (
    "PSN", "BASE", "PD", "HEAD", "MASK", "CQ", "BASE_HIGH", "STATE", "VA", "VA_HIGH", "KEY", "LEFT", "MSN",
    "ANSWER_PSN", "ANSWER", "READ_VA", "READ_VA_HIGH", "READ_KEY", "READ_LEFT", "READ_PSN", "READ_STATE",
    "FILLED", "NEXT", "SAVED", "SAVED_PSN", "SAVED_FLAGS", "SAVED_PAD", "IMMEDIATE", "TOTAL",
    "RECEIVED",
)  # fmt: skip
WORDS = {
    **{f"SQ_{name}": word for word, name in enumerate(_SEND_WORDS)},
    "SQ_OUTSTANDING": BANK_WORDS - 1,
    **{f"RQ_{name}": BANK_WORDS + word for word, name in enumerate(_RECEIVE_WORDS)},
    "RQ_OUTSTANDING": CONTEXT_WORDS - 1,
}
"""What the microcode of the assembled subsystem keeps where; the block itself knows the two counts alone."""


class EngineContext(Signature):
    """An engine's registers, seen from the engine.

    ``context_address``: 64·QP + word; reads bit 31 where the last word that was written is not the engine's
    own, or does not exist: the write was lost.  ``context_data``: the word there, 0 where there is none.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "write_context_address": Out(RegisterWrite()),
                "write_context_data": Out(RegisterWrite()),
                "context_address": In(WORD_BITS),
                "context_data": In(WORD_BITS),
            }
        )


class CountUpdate(Signature):
    """How many work requests of a queue are outstanding, seen from who knows; held until ``ready``."""

    def __init__(self, vis: int) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "qp": Out(range(vis)),
                "queue": Out(1),
                "count": Out(WORD_BITS),
                "ready": In(1),
            }
        )


class HostContext(Signature):
    """The host's access, seen from the host: a write is held until ``ready``; ``read_data`` is what stands
    at the ``address`` of the clock before."""

    def __init__(self, vis: int) -> None:
        super().__init__(
            {
                "address": Out(range(vis * CONTEXT_WORDS)),
                "write": Out(1),
                "write_data": Out(WORD_BITS),
                "ready": In(1),
                "read_data": In(WORD_BITS),
            }
        )


class ContextMemory(wiring.Component):
    """``vis`` queue pairs; ``engine[0]`` is the SQ's, ``engine[1]`` the RQ's."""

    def __init__(self, vis: int = 256) -> None:
        check_power_of_two("VIs", vis, 2, MAX_VIS)
        self.vis = vis
        super().__init__(
            {
                "engine": In(EngineContext()).array(2),
                "count": In(CountUpdate(vis)),
                "host": In(HostContext(vis)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        bits = len(self.host.address)
        following = []  # the address that each engine's next clock looks at
        for i, engine in enumerate(self.engine):
            address, fine = Signal(WORD_BITS, name=f"address_{i}"), Signal(name=f"fine_{i}")
            refused, next_address = Signal(name=f"refused_{i}"), Signal(WORD_BITS, name=f"next_address_{i}")
            m.d.comb += [
                next_address.eq(
                    Mux(engine.write_context_address.strobe, engine.write_context_address.data, address)
                ),
                fine.eq((address[bits:] == 0) & (address[BANK_BIT] == i)),
                engine.context_address.eq(Cat(address[:REFUSED_BIT], refused)),
            ]
            m.d.sync += address.eq(next_address)
            with m.If(engine.write_context_data.strobe):
                m.d.sync += refused.eq(~fine)
            following.append((next_address, fine, address))
        banks = [self._bank(m, bank, following[bank][1], following[bank][2]) for bank in range(2)]
        m.d.comb += [
            self.host.ready.eq(Mux(self.host.address[BANK_BIT], banks[RECEIVE][0], banks[SEND][0])),
            self.count.ready.eq(Mux(self.count.queue, banks[RECEIVE][1], banks[SEND][1])),
        ]
        readers = [(next_address, engine.context_data) for (next_address, _, _), engine in
                   zip(following, self.engine, strict=True)]  # fmt: skip
        readers.append((self.host.address, self.host.read_data))
        for number, (address, data) in enumerate(readers):
            place, in_receive, exists = self._place(address), Signal(name=f"half_{number}"), Signal()
            m.d.sync += [in_receive.eq(address[BANK_BIT]), exists.eq(address[bits:] == 0)]
            shown = []
            for bank in range(2):
                _, _, memory, write = banks[bank]
                read = memory.read_port(transparent_for=[write])
                m.d.comb += [read.en.eq(1), read.addr.eq(place)]
                shown.append(read.data)
            m.d.comb += data.eq(Mux(exists, Mux(in_receive, shown[RECEIVE], shown[SEND]), 0))
        return m

    def _place(self, address: Signal) -> Any:
        """A word's place in its bank."""
        return Cat(address[:BANK_BIT], address[BANK_BIT + 1 : len(self.host.address)])

    def _bank(self, m: Module, bank: int, fine: Signal, address: Signal) -> tuple[Any, Any, Any, Any]:
        """One half: its writers by precedence; whether the host's and the count's write is taken, the RAM and
        its write port."""
        m.submodules[f"bank_{bank}"] = memory = Memory(shape=WORD_BITS, depth=self.vis * BANK_WORDS, init=[])
        write = memory.write_port()
        engine, count, host = self.engine[bank].write_context_data, self.count, self.host
        by_engine, by_count = Signal(name=f"by_engine_{bank}"), Signal(name=f"by_count_{bank}")
        by_host = Signal(name=f"by_host_{bank}")
        m.d.comb += [
            by_engine.eq(engine.strobe & fine),
            by_count.eq(count.valid & (count.queue == bank) & ~by_engine),
            by_host.eq(host.write & (host.address[BANK_BIT] == bank) & ~by_engine & ~by_count),
            write.en.eq(by_engine | by_count | by_host),
        ]
        with m.If(by_engine):
            m.d.comb += [write.addr.eq(self._place(address)), write.data.eq(engine.data)]
        with m.Elif(by_count):
            m.d.comb += [
                write.addr.eq(Cat(Const(BANK_WORDS - 1, BANK_BIT), count.qp)),
                write.data.eq(count.count),
            ]
        with m.Else():
            m.d.comb += [write.addr.eq(self._place(host.address)), write.data.eq(host.write_data)]
        return by_host, by_count, memory, write
