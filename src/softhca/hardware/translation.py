"""Address translation: may this queue pair use this page so, and where is it.

The translation and protection table lies in host memory: 2^27 entries at most, 8 bytes each, as the software
adapter has them: page number (bits 0–31), protection domain (32–55), rights (56–62), valid (63).  A look-up
reads the upper word, the lower one, and the upper one again: when the host changes the entry between, the two
upper words differ, or the lower one belongs to both.  (Who changes an entry clears its valid bit first and
sets it last.)
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softhca.hardware.ports import ADDRESS_BITS, WORD_BITS, HostBus, RegisterWrite

MAX_ENTRIES = 1 << 27
ENTRY_BYTES = 8
PD_BITS = 24
RIGHTS_BITS = 7
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ = 1, 2, 4
"""Rights of an entry, and what an engine asks for; more of them are the verbs' access bits."""
NONE, OUTSIDE, INVALID, DOMAIN, RIGHTS, HOST = range(6)
"""Results."""
REASON_NAMES = ("allowed", "outside the table", "invalid entry", "protection domain", "rights", "host memory")
DONE_BIT = 31


class Translation(wiring.Component):
    """An engine's look-ups.  ``base`` (a multiple of 8) and ``entries`` are the host's to set, while no
    look-up is under way.

    ``tpt_index``, ``tpt_pd``, ``tpt_access``: entry, domain of the queue pair, rights that must all be there;
    the write of the last one begins, and is ignored while a look-up is under way.  ``tpt_result``: bit 31
    done, bits 7…0 the reason, the first that holds; ``tpt_frame``: the page's number, 0 when it is refused;
    ``tpt_entry`` and ``tpt_entry_high``: where the entry stands, whatever the result.
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
                "bus": Out(HostBus()),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The circuit."""
        m = Module()
        upper, low = Signal(WORD_BITS), Signal(WORD_BITS)
        domain, rights = upper[:PD_BITS], upper[PD_BITS : PD_BITS + RIGHTS_BITS]
        idle, result = Signal(), Signal(8)
        is_upper, begins = Signal(), Signal()
        where = Signal(ADDRESS_BITS + 1)
        m.d.comb += [
            self.tpt_result.eq(Cat(result)),
            self.tpt_result[DONE_BIT].eq(idle),
            where.eq(self.base + Cat(Const(0, 3), self.tpt_index)),
            self.bus.address.eq(Cat(Const(0, 2), is_upper, where[3:ADDRESS_BITS])),
            begins.eq(idle & self.write_tpt_access.strobe),
            self.tpt_entry.eq(where[:WORD_BITS]),
            self.tpt_entry_high.eq(where[WORD_BITS:ADDRESS_BITS]),
        ]
        for name in ("tpt_index", "tpt_pd", "tpt_access"):
            write = getattr(self, f"write_{name}")
            with m.If(write.strobe & idle):
                m.d.sync += getattr(self, name).eq(write.data)
        with m.FSM(name="looking_up"):
            with m.State("IDLE"):
                m.d.comb += idle.eq(1)
                with m.If(begins):
                    m.d.sync += [result.eq(NONE), self.tpt_frame.eq(0)]
                    m.next = "UPPER"
                    with m.If((self.tpt_index >= self.entries) | where[ADDRESS_BITS]):
                        m.d.sync += result.eq(OUTSIDE)
                        m.next = "IDLE"
            with m.State("UPPER"):
                m.d.comb += is_upper.eq(1)
                self._read(m, result, upper, "LOWER")
            with m.State("LOWER"):
                self._read(m, result, low, "AGAIN")
            with m.State("AGAIN"):
                m.d.comb += [is_upper.eq(1), self.bus.valid.eq(1)]
                asked = self.tpt_access
                with m.If(self.bus.done):
                    m.next = "IDLE"
                    with m.If(self.bus.error):
                        m.d.sync += result.eq(HOST)
                    with m.Elif((self.bus.read_data != upper) | ~upper[31]):
                        m.d.sync += result.eq(INVALID)
                    with m.Elif((domain != self.tpt_pd) | (self.tpt_pd == 0)):
                        m.d.sync += result.eq(DOMAIN)
                    with m.Elif((rights & asked) != asked):
                        m.d.sync += result.eq(RIGHTS)
                    with m.Else():
                        m.d.sync += self.tpt_frame.eq(low)
        return m

    def _read(self, m: Module, result: Signal, word: Signal, following: str) -> None:
        """Read a word and go on to ``following``."""
        m.d.comb += self.bus.valid.eq(1)
        with m.If(self.bus.done & self.bus.error):
            m.d.sync += result.eq(HOST)
            m.next = "IDLE"
        with m.Elif(self.bus.done):
            m.d.sync += word.eq(self.bus.read_data)
            m.next = following
