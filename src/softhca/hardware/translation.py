"""Address translation: may this queue pair use this page so, and where is it.

The translation and protection table lies in host memory: 2^27 entries at most, 8 bytes each, as the software
adapter has them: page number (bits 0–31), protection domain (32–55), rights (56–62), valid (63).  A look-up
reads the upper word, the lower one, and the upper one again: when the host changes the entry between, the two
upper words differ, or the lower one belongs to both.  (Who changes an entry clears its valid bit first and
sets it last.)

A region or window is named by a key: the index of the first of four entries that say where it lies.  The
first one is as above, with the number of the entry of its first page in place of a page's number; then stand
the address of its first byte (64 bits) and its length in bytes (44 bits).  A look-up by key checks that a
range of addresses lies within, and then looks up the page of the range's first byte.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softhca.hardware.ports import ADDRESS_BITS, WORD_BITS, HostBus, RegisterWrite

MAX_ENTRIES = 1 << 27
ENTRY_BYTES = 8
PD_BITS = 24
RIGHTS_BITS = 7
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ = 1, 2, 4
"""Rights of an entry, and what an engine asks for; more of them are the verbs' access bits."""
NONE, OUTSIDE, INVALID, DOMAIN, RIGHTS, HOST, RANGE = range(7)
"""Results."""
REASON_NAMES = (
    "allowed",
    "outside the table",
    "invalid entry",
    "protection domain",
    "rights",
    "host memory",
    "outside the region",
)
BY_KEY_BIT = 8
KEY_ENTRIES = 4
VA_BITS = 64
PAGE_BITS = 12
DONE_BIT = 31


class _LookUp:
    """What a look-up has found so far: of the entry that it reads, and of the key's region."""

    def __init__(self) -> None:
        self.upper, self.low, self.result = Signal(WORD_BITS), Signal(WORD_BITS), Signal(8)
        self.start, self.length = Signal(VA_BITS), Signal(ADDRESS_BITS)
        self.on_page, self.page = Signal(), Signal(WORD_BITS)
        self.word = Signal(range(6))


class Translation(wiring.Component):
    """An engine's look-ups.  ``base`` (a multiple of 8) and ``entries`` are the host's to set, while no
    look-up is under way.

    ``tpt_index``, ``tpt_pd``, ``tpt_access``: entry, domain of the queue pair, rights that must all be there;
    the write of the last one begins, and is ignored while a look-up is under way.  ``tpt_result``: bit 31
    done, bits 7…0 the reason, the first that holds; ``tpt_frame``: the page's number, 0 when it is refused;
    ``tpt_entry`` and ``tpt_entry_high``: where the entry stands, whatever the result.

    With bit `BY_KEY_BIT` of ``tpt_access`` the index is a key, and ``tpt_va``, ``tpt_va_high`` and
    ``tpt_length`` are a range of addresses.  Rights are asked of the key's entry, domain and validity of the
    page's, too.  ``tpt_address`` and ``tpt_address_high``: where in host memory the range begins; it goes on
    there to the end of that page.
    Domain 0 is nobody's.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "base": In(ADDRESS_BITS),
                "entries": In(range(MAX_ENTRIES + 1)),
                "write_tpt_index": In(RegisterWrite()),
                "write_tpt_pd": In(RegisterWrite()),
                "write_tpt_access": In(RegisterWrite()),
                "tpt_index": Out(WORD_BITS),
                "tpt_pd": Out(WORD_BITS),
                "tpt_access": Out(WORD_BITS),
                "tpt_result": Out(WORD_BITS),
                "tpt_frame": Out(WORD_BITS),
                "tpt_entry": Out(WORD_BITS),
                "tpt_entry_high": Out(WORD_BITS),
                "write_tpt_va": In(RegisterWrite()),
                "write_tpt_va_high": In(RegisterWrite()),
                "write_tpt_length": In(RegisterWrite()),
                "tpt_va": Out(WORD_BITS),
                "tpt_va_high": Out(WORD_BITS),
                "tpt_length": Out(WORD_BITS),
                "tpt_address": Out(WORD_BITS),
                "tpt_address_high": Out(WORD_BITS),
                "bus": Out(HostBus()),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        parts = _LookUp()
        by_key = self.tpt_access[BY_KEY_BIT]
        asked = self.tpt_access & ~(1 << BY_KEY_BIT)
        idle, begins, index = Signal(), Signal(), Signal(WORD_BITS)
        where, entry = Signal(ADDRESS_BITS + 1), Signal(ADDRESS_BITS + 1)
        wants_key = self.write_tpt_access.data[BY_KEY_BIT]
        m.d.comb += [
            self.tpt_result.eq(parts.result),
            self.tpt_result[DONE_BIT].eq(idle),
            entry.eq(self.base + Cat(Const(0, 3), self.tpt_index)),
            index.eq(Mux(parts.on_page, parts.page, self.tpt_index)),
            where.eq(self.base + Cat(Const(0, 3), index)),
            self.bus.address.eq(where + (parts.word << 2)),
            begins.eq(idle & self.write_tpt_access.strobe),
            self.tpt_entry.eq(entry[:WORD_BITS]),
            self.tpt_entry_high.eq(entry[WORD_BITS:ADDRESS_BITS]),
            Cat(self.tpt_address, self.tpt_address_high).eq(Cat(self.tpt_va[:PAGE_BITS], self.tpt_frame)),
        ]
        for name in ("tpt_index", "tpt_pd", "tpt_access", "tpt_va", "tpt_va_high", "tpt_length"):
            write = getattr(self, f"write_{name}")
            with m.If(write.strobe & idle):
                m.d.sync += getattr(self, name).eq(write.data)
        last = Signal(WORD_BITS + 1)
        m.d.comb += last.eq(self.tpt_index + Mux(wants_key, KEY_ENTRIES - 1, 0))
        with m.FSM(name="looking_up"):
            with m.State("IDLE"):
                m.d.comb += idle.eq(1)
                with m.If(begins):
                    m.d.sync += [
                        parts.result.eq(NONE),
                        self.tpt_frame.eq(0),
                        parts.on_page.eq(~wants_key),
                        parts.page.eq(self.tpt_index),
                    ]
                    m.next = "UPPER"
                    with m.If((last >= self.entries) | entry[ADDRESS_BITS]):
                        m.d.sync += parts.result.eq(OUTSIDE)
                        m.next = "IDLE"
            with m.State("UPPER"):
                m.d.comb += parts.word.eq(1)
                self._read(m, parts, parts.upper, "LOWER")
            with m.State("LOWER"):
                self._read(m, parts, parts.low, "AGAIN")
                with m.If(~parts.on_page & self.bus.done & ~self.bus.error):
                    m.next = "START"
            self._region(m, parts)
            with m.State("AGAIN"):
                m.d.comb += [parts.word.eq(1), self.bus.valid.eq(1)]
                self._judge(m, parts, Mux(parts.on_page & by_key, 0, asked))
            with m.State("PAGE"):
                self._page(m, parts)
        return m

    def _region(self, m: Module, parts: _LookUp) -> None:
        """Words 2 to 5 of a key's entries."""
        start, length = parts.start, parts.length
        values = (start[:WORD_BITS], start[WORD_BITS:], length[:WORD_BITS], length[WORD_BITS:])
        states = ("START", "START_HIGH", "LENGTH", "LENGTH_HIGH", "AGAIN")
        for word, value in enumerate(values):
            with m.State(states[word]):
                m.d.comb += parts.word.eq(2 + word)
                self._read(m, parts, value, states[word + 1])

    def _judge(self, m: Module, parts: _LookUp, asked: Value) -> None:
        """The entry is read, and its upper word once more."""
        domain, rights = parts.upper[:PD_BITS], parts.upper[PD_BITS : PD_BITS + RIGHTS_BITS]
        with m.If(self.bus.done):
            m.next = "IDLE"
            with m.If(self.bus.error):
                m.d.sync += parts.result.eq(HOST)
            with m.Elif((self.bus.read_data != parts.upper) | ~parts.upper[31]):
                m.d.sync += parts.result.eq(INVALID)
            with m.Elif((domain != self.tpt_pd) | (self.tpt_pd == 0)):
                m.d.sync += parts.result.eq(DOMAIN)
            with m.Elif((rights & asked) != asked):
                m.d.sync += parts.result.eq(RIGHTS)
            with m.Elif(parts.on_page):
                m.d.sync += self.tpt_frame.eq(parts.low)
            with m.Else():
                m.next = "PAGE"

    def _page(self, m: Module, parts: _LookUp) -> None:
        """The range must lie within the region; which entry is its first page's."""
        offset, beyond = Signal(VA_BITS + 1), Signal(VA_BITS + 1)
        place, page = Signal(VA_BITS + 1), Signal(WORD_BITS + 1)
        m.d.comb += [
            offset.eq(Cat(self.tpt_va, self.tpt_va_high) - parts.start),
            beyond.eq(offset[:VA_BITS] + self.tpt_length),
            # from the beginning of the region's first page
            place.eq(offset[:VA_BITS] + parts.start[:PAGE_BITS]),
            page.eq(parts.low + place[PAGE_BITS : PAGE_BITS + WORD_BITS]),
        ]
        m.d.sync += [parts.page.eq(page), parts.on_page.eq(1)]
        m.next = "UPPER"
        with m.If(offset[VA_BITS] | (beyond > parts.length)):
            m.d.sync += parts.result.eq(RANGE)
            m.next = "IDLE"
        with m.Elif(page >= self.entries):
            m.d.sync += parts.result.eq(OUTSIDE)
            m.next = "IDLE"

    def _read(self, m: Module, parts: _LookUp, word: Value, following: str) -> None:
        """Read a word and go on to ``following``."""
        m.d.comb += self.bus.valid.eq(1)
        with m.If(self.bus.done & self.bus.error):
            m.d.sync += parts.result.eq(HOST)
            m.next = "IDLE"
        with m.Elif(self.bus.done):
            m.d.sync += word.eq(self.bus.read_data)
            m.next = following
