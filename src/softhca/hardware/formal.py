"""Proofs about the remote-key manager, by temporal induction (yosys ``sat``) over all inputs and memories.

The memory is built of registers here (`Rows`), so that a property can speak of every word.  Proved for every
clock, with the RQ free to do what it likes but for what is assumed:

* *clears*: the walk writes nothing but a word that is the sought key, valid, in a row of the sought domain;
  what it writes differs in the valid bit alone.  So no valid bit of another domain is ever cleared.
* *done*: when the walk says so, no row of that domain has the valid key, but where the RQ has entered it
  while the walk went on.  Such a key is not the walk's: the window is destroyed in host memory before the
  search, so the RQ engine, which enters a key before it looks at the window, refuses it and takes it away.
* *rq*: an RQ access has its port in its own clock, and what was read comes in the next one.
* *walk*: the walk's registers belong together, and everything behind it is clean; this carries the induction.

Assumed: during a walk the RQ changes no domain.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amaranth.back import verilog
from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Out

from softhca.hardware.key_memory import NO_DOMAIN, VALID, WORD_BITS
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.rmb_rq import rq_ports
from softhca.hardware.rmb_sq import State, sq_ports
from softhca.hardware.yosys import TOP, run_yosys

PROPERTIES = ("clears", "done", "rq", "walk")
VIS, KEYS = 4, 4


class Rows:
    """A platform that builds the one memory, of ``depth`` words, of registers: ``words``."""

    def __init__(self, depth: int) -> None:
        self.words = [Signal(WORD_BITS, name=f"word_{address}") for address in range(depth)]

    def get_memory(self, memory: Memory) -> Module:
        """Registers, one write port, one read port that forwards."""
        m = Module()
        (read,), (write,) = memory.read_ports, memory.write_ports
        with m.If(read.en):
            forwarded = write.en & (write.addr == read.addr)
            m.d.sync += read.data.eq(Mux(forwarded, write.data, Array(self.words)[read.addr]))
        with m.If(write.en):
            m.d.sync += Array(self.words)[write.addr].eq(write.data)
        return m


class Properties(wiring.Component):
    """The manager with free inputs; ``assumed`` is taken for granted, ``broken_*`` must not be."""

    def __init__(self, vis: int, keys: int) -> None:
        self.manager = RemoteKeyManager(vis, keys)
        self.geometry = self.manager.geometry
        self.fresh = Signal(self.geometry.depth)
        """Words in which the RQ has entered the sought key since the walk began."""
        self.inputs = [n for n, p in self._ports().items() if p.flow == wiring.In]
        ports = {name: self._ports()[name] for name in self.inputs}
        super().__init__(ports | {"assumed": Out(1)} | {f"broken_{name}": Out(1) for name in PROPERTIES})

    def _ports(self) -> dict[str, wiring.Member]:
        return sq_ports(self.geometry) | rq_ports(self.geometry)

    def elaborate(self, platform: Rows) -> Module:
        """The manager, and a signal for each property."""
        m = Module()
        m.submodules.manager = manager = self.manager
        for name in self.inputs:
            m.d.comb += getattr(manager, name).eq(getattr(self, name))
        words = platform.words
        m.d.comb += [
            self.assumed.eq(self._assumed()),
            self.broken_clears.eq(self._bad_clear(words)),
            self.broken_done.eq(self._bad_end(words)),
            self.broken_walk.eq(~self._walk_invariant(words)),
        ]
        self._watch_rq(m, words)
        with m.If(manager.sq_taken):
            m.d.sync += self.fresh.eq(0)
        with m.Elif(self.rq_write):
            enters = (manager.state != State.IDLE) & self._sought(self.rq_write_data)
            m.d.sync += self.fresh.bit_select(self.rq_write_addr, 1).eq(enters)
        return m

    def _domain(self, words: list[Signal], vi: int) -> Value:
        """Row ``vi`` is of the sought domain."""
        sought = self.manager.sq.pd
        return (words[vi * self.geometry.row] == sought) & (sought != NO_DOMAIN)

    def _sought(self, word: Value) -> Value:
        return word == Cat(self.manager.sq.key, Const(1, 1))

    def _assumed(self) -> Value:
        manager = self.manager
        address = self.rq_write_addr
        domains = [address == vi * self.geometry.row for vi in range(self.geometry.vis)]
        return ~(self.rq_write & _any(domains) & (manager.sq_taken | (manager.state != State.IDLE)))

    def _bad_clear(self, words: list[Signal]) -> Value:
        """The walk writes, and what is there is not what it may clear, or more than the valid bit changes."""
        manager, row = self.manager, self.geometry.row
        right = []
        for vi in range(self.geometry.vis):
            for slot in range(1, row):
                address = vi * row + slot
                cleared = manager.rmb_mem_wr_data == words[address] ^ VALID
                here = (manager.rmb_mem_wr_addr == address) & self._sought(words[address])
                right.append(here & self._domain(words, vi) & cleared)
        return manager.rmb_mem_we & ~self.rq_write & ~_any(right)

    def _clean(self, words: list[Signal], vi: int, slots: Value | int) -> Value:
        """Row ``vi`` is of another domain, or its first ``slots`` keys are not the sought one or fresh."""
        row = self.geometry.row
        keys = words[vi * row + 1 : (vi + 1) * row]
        fresh = self.fresh[vi * row + 1 : (vi + 1) * row]
        dirty = [(slot < slots) & self._sought(word) & ~fresh[slot] for slot, word in enumerate(keys)]
        return ~self._domain(words, vi) | ~_any(dirty)

    def _bad_end(self, words: list[Signal]) -> Value:
        clean = [self._clean(words, vi, self.geometry.keys) for vi in range(self.geometry.vis)]
        return (self.manager.state != State.IDLE) & self.manager.sq_done & _any([~one for one in clean])

    def _walk_invariant(self, words: list[Signal]) -> Value:
        """What holds of the walk's registers in every clock, by state."""
        sq, row, read = self.manager.sq, self.geometry.row, self.manager.rmb_mem_rd_data
        base, word = sq.vi * row, Array(words)[sq.cursor]
        fresh = self.fresh.bit_select(sq.cursor, 1)
        of_domain = _any([(sq.vi == vi) & self._domain(words, vi) for vi in range(self.geometry.vis)])
        at_key = (sq.cursor == base + 1 + sq.slot) & (sq.slot < self.geometry.keys) & of_domain
        next_row = Mux(sq.vi == self.geometry.vis - 1, 0, base + row)
        by_state = {
            State.IDLE: (sq.cursor == 0) & (sq.vi == 0),
            State.PD: (sq.cursor == base) & (read == word),
            State.READ: at_key,
            State.KEY: at_key & (read == word),
            State.CLEAR: at_key & Mux(sq.rewritten, ~self._sought(word) | fresh, self._sought(word)),
            State.CHECK: sq.cursor == next_row,
        }
        done_slots = {State.CHECK: self.geometry.keys, State.PD: 0}
        holds = [sq.vi < self.geometry.vis]
        for state, condition in by_state.items():
            holds.append((sq.state != state) | condition)
            if state is State.IDLE:
                continue
            for vi in range(self.geometry.vis):
                here = Mux(sq.vi == vi, done_slots.get(state, sq.slot), 0)
                slots = Mux(sq.vi > vi, self.geometry.keys, here)
                holds.append((sq.state != state) | self._clean(words, vi, slots))
        return _all(holds) & _any([sq.state == state for state in by_state])

    def _watch_rq(self, m: Module, words: list[Signal]) -> None:
        """The RQ's accesses reach the memory at once, and what it read is there in the next clock."""
        manager = self.manager
        read, expected = Signal(), Signal(WORD_BITS)
        present = self.rq_read_addr < self.geometry.depth
        forwarded = manager.rmb_mem_we & (manager.rmb_mem_wr_addr == self.rq_read_addr)
        word = Mux(forwarded, manager.rmb_mem_wr_data, Array(words)[self.rq_read_addr])
        m.d.sync += [read.eq(self.rq_read), expected.eq(Mux(present, word, 0))]
        reads = manager.rmb_mem_re & (manager.rmb_mem_rd_addr == self.rq_read_addr)
        there = manager.rmb_mem_wr_addr == self.rq_write_addr
        writes = manager.rmb_mem_we & there & (manager.rmb_mem_wr_data == self.rq_write_data)
        delayed = (self.rq_read & ~reads) | (self.rq_write & ~writes)
        m.d.comb += self.broken_rq.eq(delayed | (read & (manager.rq_read_data != expected)))


def _any(values: Iterable[Value]) -> Value:
    return Cat(*values).any()


def _all(values: Iterable[Value]) -> Value:
    return Cat(*values).all()


def design(vis: int = VIS, keys: int = KEYS, change: Any = None) -> str:
    """The properties of a manager of this size as Verilog; ``change`` may spoil it first."""
    properties = Properties(vis, keys)
    if change is not None:
        change(properties.manager)
    ports = [getattr(properties, name) for name in properties.signature.members]
    platform = Rows(properties.geometry.depth)
    return str(verilog.convert(properties, name="formal", ports=ports, platform=platform, emit_src=False))


def prove(text: str, steps: int = 3) -> None:
    """Prove all `PROPERTIES` of `design`'s text together; YosysError when one does not hold."""
    proofs = " ".join(f"-prove broken_{name} 0" for name in PROPERTIES)
    run_yosys(
        text,
        f"read_verilog {TOP}; hierarchy -top formal; proc; flatten; opt; "
        f"sat -verify -tempinduct -maxsteps {steps} -seq 1 -set assumed 1 -set rst 0 {proofs} formal",
    )
