"""The checks of a packet's headers while its words arrive, and where in the packet a word stands."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softhca.hardware import header_rules as rules
from softhca.hardware.crc import ICRC_BITS, ICRC_POLYNOMIAL, ICRC_RESIDUE, next_state
from softhca.hardware.serial import Arrival

LRH_WORDS = 2
GRH_WORDS = 10
BTH_WORDS = 3
ICRC_WORDS = 1
LNH_GLOBAL = 3
GRH_VERSION = 6
GRH_NEXT_HEADER = 0x1B
INDEX_BITS = 12
"""A packet's words: more than the LRH's 11 bits of length can say."""
_ONES = (1 << ICRC_BITS) - 1


class HeaderPlaces(wiring.Component):
    """Where in a packet the present word stands, and the word as the ICRC takes it.

    ``begin`` resets; ``valid`` goes on.  ``index`` counts words and stays at its top; ``transport``: words in
    front of the BTH.  Fields that may change on the way count as ones (IBTA vol. 1, 7.8.1).
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "begin": In(1),
                "valid": In(1),
                "word": In(32),
                "index": Out(INDEX_BITS),
                "link_next": Out(2),
                "transport": Out(4),
                "masked": Out(32),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        later = Signal(2)
        top = (1 << INDEX_BITS) - 1
        is_global = Signal()
        m.d.comb += [
            self.link_next.eq(Mux(self.index == 0, self.word[16:18], later)),
            is_global.eq(self.link_next == LNH_GLOBAL),
            self.transport.eq(Mux(is_global, LRH_WORDS + GRH_WORDS, LRH_WORDS)),
            self.masked.eq(self.word),
        ]
        with m.If(is_global), m.Switch(self.index):
            with m.Case(0, 1):
                m.d.comb += self.masked.eq(_ONES)
            with m.Case(2):  # traffic class and flow label
                m.d.comb += self.masked[:28].eq(_ONES)
            with m.Case(3):  # hop limit
                m.d.comb += self.masked[:8].eq(0xFF)
            with m.Case(LRH_WORDS + GRH_WORDS + 1):  # FECN, BECN and what is reserved beside them
                m.d.comb += self.masked[24:].eq(0xFF)
        with m.Else(), m.Switch(self.index):
            with m.Case(0):  # virtual lane
                m.d.comb += self.masked[28:].eq(0xF)
            with m.Case(LRH_WORDS + 1):
                m.d.comb += self.masked[24:].eq(0xFF)
        with m.If(self.begin):
            m.d.sync += self.index.eq(0)
        with m.Elif(self.valid):
            m.d.sync += [
                later.eq(self.link_next),
                self.index.eq(Mux(self.index == top, top, self.index + 1)),
            ]
        return m


class HeaderCheck(wiring.Component):
    """Looks at a packet's words as they arrive, and judges it at its ``end``.

    ``link_reason``: why it is nobody's packet and goes away unseen; ``transport_reason``: what is wrong
    with its transport headers, which the engine answers; 0 each: nothing.  The checks stand in the
    standard's order, so that a packet that breaks several rules has the first one's reason: VCRC, link
    version, length, next header, GRH, ICRC; then opcode, version, length of the headers, pad, payload.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "packet": In(Arrival()),
                "link_reason": Out(rules.REASON_BITS),
                "transport_reason": Out(rules.REASON_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        m.submodules.places = places = HeaderPlaces()
        packet, index, word = self.packet, places.index, self.packet.word
        icrc = Signal(ICRC_BITS, init=_ONES)
        link_version, length_words = Signal(4), Signal(11)
        global_wrong, grh_bytes = Signal(), Signal(16)
        opcode, pad, version = Signal(8), Signal(2), Signal(4)
        m.d.comb += [places.begin.eq(packet.end), places.valid.eq(packet.valid), places.word.eq(word)]
        with m.If(packet.end):
            m.d.sync += [icrc.eq(_ONES), global_wrong.eq(0)]
        with m.Elif(packet.valid):
            m.d.sync += icrc.eq(next_state(icrc, places.masked, ICRC_POLYNOMIAL))
            with m.Switch(index):
                with m.Case(0):
                    m.d.sync += link_version.eq(word[24:28])
                with m.Case(1):
                    m.d.sync += length_words.eq(word[16:27])
                with m.Case(2):
                    m.d.sync += global_wrong.eq(word[28:] != GRH_VERSION)
                with m.Case(3):
                    m.d.sync += grh_bytes.eq(word[16:])
                    with m.If(word[8:16] != GRH_NEXT_HEADER):
                        m.d.sync += global_wrong.eq(1)
            with m.If(index == places.transport):
                m.d.sync += [opcode.eq(word[24:]), pad.eq(word[20:22]), version.eq(word[16:20])]

        words = Signal(INDEX_BITS)  # of the transport: BTH … ICRC
        least = BTH_WORDS + ICRC_WORDS
        link_next = places.link_next
        m.d.comb += words.eq(index - places.transport)
        self._first(m, self.link_reason, [
            (index < LRH_WORDS, rules.TRUNCATED),
            (~packet.vcrc_ok, rules.VCRC),
            (link_version != 0, rules.LINK_HEADER),
            ((length_words != index) | ~packet.whole, rules.LENGTH),
            (~link_next[1], rules.RAW),
            (index < places.transport + least, rules.TRUNCATED),
            ((link_next == LNH_GLOBAL) & (global_wrong | (grh_bytes != words << 2)), rules.LINK_HEADER),
            (icrc != ICRC_RESIDUE, rules.ICRC),
        ])  # fmt: skip

        row = Signal(rules.ROW_BITS)
        m.d.comb += row.eq(Array(Const(bits, rules.ROW_BITS) for bits in rules.opcode_rows())[opcode])
        headers = Signal(5)
        m.d.comb += headers.eq(least + row[rules.EXTENSION_SHIFT :])
        self._first(m, self.transport_reason, [
            (~row[rules.KNOWN_BIT], rules.OPCODE),
            (version != 0, rules.VERSION),
            (words < headers, rules.TRUNCATED),
            ((words == headers) & (pad != 0), rules.PAD),
            ((words > headers) & ~row[rules.PAYLOAD_BIT], rules.LENGTH),
        ])  # fmt: skip
        return m

    @staticmethod
    def _first(m: Module, reason: Value, checks: list[tuple[Value, int]]) -> None:
        """``reason`` is that of the first check whose condition holds, 0 where none does."""
        for broken, number in reversed(checks):
            with m.If(broken):
                m.d.comb += reason.eq(number)
