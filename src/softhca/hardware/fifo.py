"""The FIFO interface: packets that came and passed the checks of their headers, and packets that go out.

The receive FIFO stores a packet, looks at its headers as its words pass by, and keeps it only if it is a
sound packet of the link; the engine then takes it word by word.  The send FIFO takes an engine's words and
puts the ICRC behind them.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softhca.hardware import header_rules as rules
from softhca.hardware.crc import ICRC_BITS, ICRC_POLYNOMIAL, next_state, swapped
from softhca.hardware.header_check import LNH_GLOBAL, HeaderCheck, HeaderPlaces
from softhca.hardware.packet_buffer import PacketBuffer, check_sizes
from softhca.hardware.payload_mover import MoveIn, MoveOut
from softhca.hardware.ports import RegisterWrite
from softhca.hardware.serial import Arrival, Departure

POP_WORD, POP_PACKET = 1, 2
PUSH_NOTHING = 2
COUNT_BITS = 16
PROGRESS_BITS = 23
_ONES = (1 << ICRC_BITS) - 1


class ReceiveFifo(wiring.Component):
    """Packets from the serial interface for an engine, LRH first, ICRC last.

    ``rx_status``: bit 31 a word is there; bits 0, 1: it is the packet's first, last; bit 2: its transport
    headers are wrong, and bits 8–15 why; bit 3: it has a GRH; bits 16–30: words that are still to be read.
    ``rx_word``: the next word.  ``rx_pop``: 1 takes it, 2 the rest of its packet.  ``rx_drops``: packets
    that the link's checks have refused, or that found no room (bits 0–15, stays at its top), and the last
    one's reason (16–23).  ``rx_progress``, for the other engine: bit 0: a packet is begun and not over, and
    how many are over.
    """

    def __init__(self, words: int = 2048, packets: int = 16) -> None:
        self.words, self.packets = check_sizes(words, packets)
        self.buffer = PacketBuffer(words, packets, rules.REASON_BITS + 1)
        super().__init__(
            {
                "packet": In(Arrival()),
                "rx_status": Out(32),
                "rx_word": Out(32),
                "rx_drops": Out(32),
                "rx_progress": Out(32),
                "write_rx_pop": In(RegisterWrite()),
                "move": In(MoveIn()),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        m.submodules.buffer = buffer = self.buffer
        m.submodules.check = check = HeaderCheck()
        wiring.connect(m, check.packet, wiring.flipped(self.packet))
        reason, last_reason = Signal(rules.REASON_BITS), Signal(rules.REASON_BITS)
        refused, is_global, begun = Signal(COUNT_BITS), Signal(), Signal()
        over = Signal(PROGRESS_BITS)
        wrong = buffer.tag[: rules.REASON_BITS]
        most = (1 << COUNT_BITS) - 1
        m.d.comb += [
            reason.eq(Mux(check.link_reason, check.link_reason, Mux(buffer.fits, 0, rules.RESOURCES))),
            buffer.write_valid.eq(self.packet.valid),
            buffer.write_word.eq(self.packet.word),
            buffer.keep.eq(self.packet.end & (reason == 0)),
            buffer.keep_tag.eq(Cat(check.transport_reason, is_global)),
            buffer.drop.eq(self.packet.end & (reason != 0)),
            self.rx_word.eq(buffer.word),
            self.rx_drops.eq(Cat(refused, last_reason)),
            self.rx_progress.eq(Cat(buffer.ready & ~buffer.first, over)),
            self.rx_status.eq(
                Cat(
                    buffer.first,
                    buffer.left == 1,
                    wrong != 0,
                    buffer.tag[rules.REASON_BITS],
                    Const(0, 4),
                    wrong,
                    Cat(buffer.left, Const(0, 15))[:15],
                    buffer.ready,
                )
            ),
            buffer.skip.eq(self.write_rx_pop.strobe & (self.write_rx_pop.data == POP_WORD) | self.move.take),
            self.move.ready.eq(buffer.ready),
            self.move.last.eq(buffer.left == 1),
            self.move.word.eq(buffer.word),
            self.move.forget.eq(buffer.skip_rest),
            buffer.skip_rest.eq(self.write_rx_pop.strobe & (self.write_rx_pop.data == POP_PACKET)),
        ]
        with m.If(buffer.finished):
            m.d.sync += over.eq(over + 1)
        with m.If(self.packet.end):
            m.d.sync += begun.eq(0)
            with m.If(reason != 0):
                m.d.sync += [last_reason.eq(reason), refused.eq(Mux(refused == most, most, refused + 1))]
        with m.Elif(self.packet.valid & ~begun):
            m.d.sync += [begun.eq(1), is_global.eq(self.packet.word[16:18] == LNH_GLOBAL)]
        return m


class SendFifo(wiring.Component):
    """Packets of an engine for the serial interface.

    ``tx_push`` appends ``tx_word``; with bit 0 of its data it is the packet's last before the ICRC, which
    this block computes and appends.  ``tx_status``: bit 0 full: the next word has no room, or the ICRC is
    being put; what is pushed meanwhile is lost, and its packet with it.  Bit 1: that happened to the packet
    that ended last.  Bits 16…31: words that have room.  A push of `PUSH_NOTHING` throws the packet away that
    is begun.  ``move``: payload, which the mover puts in.
    """

    def __init__(self, words: int = 2048, packets: int = 16) -> None:
        self.words, self.packets = check_sizes(words, packets)
        self.buffer = PacketBuffer(words, packets)
        self.lost, self.step = Signal(), Signal(3)  # a bit a state
        super().__init__(
            {
                "write_tx_word": In(RegisterWrite()),
                "tx_word": Out(32),
                "write_tx_push": In(RegisterWrite()),
                "tx_status": Out(32),
                "move": In(MoveOut()),
                "packet": Out(Departure()),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        m.submodules.buffer = buffer = self.buffer
        m.submodules.places = places = HeaderPlaces()
        icrc = Signal(ICRC_BITS, init=_ONES)
        pushed, full, refused, lost = Signal(), Signal(), Signal(), self.lost
        with m.If(self.write_tx_word.strobe):
            m.d.sync += self.tx_word.eq(self.write_tx_word.data)
        by_engine, thrown, late, word = Signal(), Signal(), Signal(), Signal(32)
        m.d.comb += [
            thrown.eq(self.write_tx_push.strobe & (self.write_tx_push.data == PUSH_NOTHING)),
            by_engine.eq(self.write_tx_push.strobe & ~thrown),
            late.eq(self.write_tx_push.strobe | self.move.valid),
            word.eq(Mux(self.move.valid, self.move.word, self.tx_word)),
            self.move.forget.eq(buffer.drop),
            places.word.eq(word),
            places.valid.eq(pushed),
            self.tx_status.eq(Cat(full, refused, Const(0, 14), Mux(full | ~buffer.open, 0, buffer.room))),
            self.packet.valid.eq(buffer.ready),
            self.packet.word.eq(buffer.word),
            self.packet.last.eq(buffer.left == 1),
            buffer.skip.eq(self.packet.ready),
        ]
        with m.If(pushed):
            m.d.sync += icrc.eq(next_state(icrc, places.masked, ICRC_POLYNOMIAL))
        with m.FSM(name="sending"):
            with m.State("WORDS"):
                m.d.comb += [
                    self.step[0].eq(1),
                    pushed.eq(by_engine | (self.move.valid & ~thrown)),
                    buffer.write_valid.eq(pushed),
                    buffer.write_word.eq(word),
                    full.eq(buffer.room == 0),
                ]
                with m.If(by_engine & self.move.valid):  # only one of both words has a place
                    m.d.sync += lost.eq(1)
                with m.If(thrown):
                    m.d.comb += [buffer.drop.eq(1), places.begin.eq(1)]
                    m.d.sync += [icrc.eq(_ONES), lost.eq(0)]
                with m.Elif((by_engine & self.write_tx_push.data[0]) | self.move.end):
                    m.next = "ICRC"
            with m.State("ICRC"):
                m.d.comb += [
                    self.step[1].eq(1),
                    buffer.write_valid.eq(1),
                    buffer.write_word.eq(swapped(~icrc)),
                    full.eq(1),
                ]
                with m.If(late):
                    m.d.sync += lost.eq(1)
                m.next = "END"
            with m.State("END"):
                m.d.comb += [
                    self.step[2].eq(1),
                    buffer.keep.eq(~lost & ~late),
                    buffer.drop.eq(~buffer.keep),
                    places.begin.eq(1),
                    full.eq(1),
                ]
                m.d.sync += [icrc.eq(_ONES), lost.eq(0), refused.eq(~(buffer.keep & buffer.fits))]
                m.next = "WORDS"
        return m
