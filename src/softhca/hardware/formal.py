"""What is claimed of the remote-key manager (`softhca.hardware.claims`), for all inputs and memories.

Held in every clock, with the RQ free to do what it likes but for what is assumed:

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

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value

from softhca.hardware.claims import Claims, Registers, all_of, any_of
from softhca.hardware.key_memory import NO_DOMAIN, VALID, WORD_BITS
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.rmb_sq import State


class ManagerClaims(Claims):
    """*clears*, *done*, *rq* and *walk* of a manager."""

    names = ("clears", "done", "rq", "walk")

    def __init__(self, manager: RemoteKeyManager) -> None:
        super().__init__(manager)
        self.manager = manager
        self.geometry = manager.geometry
        self.fresh = Signal(self.geometry.depth)
        """Words in which the RQ has entered the sought key since the walk began."""

    def assume(self, m: Module) -> list[Value]:
        """During a walk the RQ changes no domain."""
        manager = self.manager
        address = manager.rq_write_addr
        domains = [address == vi * self.geometry.row for vi in range(self.geometry.vis)]
        walks = manager.sq_taken | (manager.state != State.IDLE)
        return [~(manager.rq_write & any_of(domains) & walks)]

    def claim(self, m: Module, platform: Registers) -> dict[str, Value]:
        """By the words of the memory, and what `fresh` notes."""
        manager = self.manager
        words = platform.words(self.geometry.depth, WORD_BITS)
        with m.If(manager.sq_taken):
            m.d.sync += self.fresh.eq(0)
        with m.Elif(manager.rq_write):
            enters = (manager.state != State.IDLE) & self._sought(manager.rq_write_data)
            m.d.sync += self.fresh.bit_select(manager.rq_write_addr, 1).eq(enters)
        return {
            "clears": self._bad_clear(words),
            "done": self._bad_end(words),
            "rq": self._bad_access(m, words),
            "walk": ~self._walk_invariant(words),
        }

    def _domain(self, words: list[Signal], vi: int) -> Value:
        """Row ``vi`` is of the sought domain."""
        sought = self.manager.sq.pd
        return (words[vi * self.geometry.row] == sought) & (sought != NO_DOMAIN)

    def _sought(self, word: Value) -> Value:
        return word == Cat(self.manager.sq.key, Const(1, 1))

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
        return manager.rmb_mem_we & ~manager.rq_write & ~any_of(right)

    def _clean(self, words: list[Signal], vi: int, slots: Value | int) -> Value:
        """Row ``vi`` is of another domain, or its first ``slots`` keys are not the sought one or fresh."""
        row = self.geometry.row
        keys = words[vi * row + 1 : (vi + 1) * row]
        fresh = self.fresh[vi * row + 1 : (vi + 1) * row]
        dirty = [(slot < slots) & self._sought(word) & ~fresh[slot] for slot, word in enumerate(keys)]
        return ~self._domain(words, vi) | ~any_of(dirty)

    def _bad_end(self, words: list[Signal]) -> Value:
        clean = [self._clean(words, vi, self.geometry.keys) for vi in range(self.geometry.vis)]
        return (self.manager.state != State.IDLE) & self.manager.sq_done & any_of([~one for one in clean])

    def _walk_invariant(self, words: list[Signal]) -> Value:
        """What holds of the walk's registers in every clock, by state."""
        sq, row, read = self.manager.sq, self.geometry.row, self.manager.rmb_mem_rd_data
        base, word = sq.vi * row, Array(words)[sq.cursor]
        fresh = self.fresh.bit_select(sq.cursor, 1)
        of_domain = any_of([(sq.vi == vi) & self._domain(words, vi) for vi in range(self.geometry.vis)])
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
        return all_of(holds) & any_of([sq.state == state for state in by_state])

    def _bad_access(self, m: Module, words: list[Signal]) -> Value:
        """An RQ access does not reach the memory at once, or what it read is not there in the next clock."""
        manager = self.manager
        read, expected = Signal(), Signal(WORD_BITS)
        present = manager.rq_read_addr < self.geometry.depth
        forwarded = manager.rmb_mem_we & (manager.rmb_mem_wr_addr == manager.rq_read_addr)
        word = Mux(forwarded, manager.rmb_mem_wr_data, Array(words)[manager.rq_read_addr])
        m.d.sync += [read.eq(manager.rq_read), expected.eq(Mux(present, word, 0))]
        reads = manager.rmb_mem_re & (manager.rmb_mem_rd_addr == manager.rq_read_addr)
        there = manager.rmb_mem_wr_addr == manager.rq_write_addr
        writes = manager.rmb_mem_we & there & (manager.rmb_mem_wr_data == manager.rq_write_data)
        delayed = (manager.rq_read & ~reads) | (manager.rq_write & ~writes)
        return delayed | (read & (manager.rq_read_data != expected))
