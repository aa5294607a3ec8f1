"""The send side's part of the remote-key manager: the walk that finds a withdrawn key and clears it.

Theory of operation.  The SQ engine gives a protection domain and a key and sets *start*.  The walk reads each
VI's domain; where it is the given one (never 0), it reads the VI's keys in turn and clears the valid bit of
each that is valid and equal.  Behind the last VI it is *done*.

The receive side has precedence: the walk's read waits in every clock in which the RQ reads, its write in
every clock in which the RQ writes.  What has been compared stays decided while the next read waits (`READ`).
A clear that waits holds back the read that goes with it, and is dropped when the RQ rewrites that very word
before it happens: the word is another operation's by then.

Clocks of a VI: 2 when the domain differs; otherwise 6 and one more for each key that matches.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from softhca.hardware.key_memory import KEY_BITS, NO_DOMAIN, WORD_BITS, Geometry


class State(enum.Enum, shape=3):  # type: ignore[call-arg]  # Amaranth's
    """What the walk does in a clock; `PD` and `KEY` look at the word that was read in the clock before."""

    IDLE = 0
    """Waits for *start*; reads the first VI's domain in the clock in which it takes it."""
    PD = 1
    """Compares the domain; reads the first key if it is the one."""
    READ = 2
    """Wants to read a key, which the RQ has prevented in the clock before."""
    KEY = 3
    """Compares a key; reads the next one if it is not the one."""
    CLEAR = 4
    """Clears the key's valid bit and reads the next key."""
    CHECK = 5
    """Looks whether all VIs are done; reads the next one's domain if not."""


class WalkPort(wiring.Signature):
    """What the walk asks of the memory's keeper, and what it is told of the RQ; from the walk's side.

    ``read`` and ``write`` are wishes: the first is granted in a clock without ``rq_reads``, the second never
    meets ``rq_writes``, for the walk waits itself.
    """

    def __init__(self, geometry: Geometry) -> None:
        address = geometry.address_bits
        super().__init__(
            {
                "read": Out(1),
                "read_address": Out(address),
                "read_data": In(WORD_BITS),
                "write": Out(1),
                "write_address": Out(address),
                "write_data": Out(WORD_BITS),
                "rq_reads": In(1),
                "rq_writes": In(1),
                "rq_write_address": In(address),
            }
        )


def sq_ports(geometry: Geometry) -> dict[str, wiring.Member]:
    """The SQ engine's interface, and what the walk shows of itself."""
    return {
        "sq_start": In(1),
        "sq_taken": Out(1),
        "sq_pd": In(WORD_BITS),
        "sq_key": In(KEY_BITS),
        "sq_done": Out(1),
        "state": Out(State),
        "vi": Out(geometry.vi_bits),
        "slot": Out(geometry.slot_bits),
        "pd_fail": Out(1),
        "key_fail": Out(1),
    }


class RmbSq(wiring.Component):
    """The walk.

    ``sq_start`` is a register's bit, held until ``sq_taken``; ``sq_pd`` and ``sq_key`` are looked at in that
    clock alone.  ``sq_done`` is low from the next clock on, until the clock of the last check.
    ``pd_fail`` and ``key_fail`` are high in the clock whose comparison fails.
    """

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(sq_ports(geometry) | {"walk": Out(WalkPort(geometry))})
        self.geometry = geometry
        self.pd = Signal(WORD_BITS)
        """What is looked for."""
        self.key = Signal(KEY_BITS)
        self.cursor = Signal(geometry.address_bits)
        """The word that is compared or cleared now; where the walk waits for a read, the word to read."""
        self.rewritten = Signal()
        """The RQ has written the matching word since it was read."""
        self.last = Signal()

    def elaborate(self, platform: object) -> Module:
        """One case a state."""
        m = Module()
        m.d.comb += [
            self.last.eq(self.vi == self.geometry.vis - 1),
            self.walk.read_address.eq(self.cursor),
            self.walk.write_address.eq(self.cursor),
            self.walk.write_data.eq(Cat(self.key, Const(0, 1))),
        ]
        with m.Switch(self.state):
            with m.Case(State.IDLE):
                self._idle(m)
            with m.Case(State.PD):
                self._compare_domain(m)
            with m.Case(State.READ):
                self._read(m, self.cursor, State.KEY, State.READ)
            with m.Case(State.KEY):
                self._compare_key(m)
            with m.Case(State.CLEAR):
                self._clear(m)
            with m.Case(State.CHECK):
                self._check(m)
        return m

    def _read(self, m: Module, address: Value, got: int, waiting: int) -> None:
        """Read ``address``; next comes ``got``, or ``waiting`` when the RQ reads."""
        m.d.comb += [self.walk.read.eq(1), self.walk.read_address.eq(address)]
        m.d.sync += [self.cursor.eq(address), self.state.eq(Mux(self.walk.rq_reads, waiting, got))]

    def _idle(self, m: Module) -> None:
        m.d.comb += self.sq_done.eq(1)
        with m.If(self.sq_start):
            self._read(m, self.cursor, State.PD, State.IDLE)
        with m.If(self.sq_start & ~self.walk.rq_reads):
            m.d.comb += self.sq_taken.eq(1)
            m.d.sync += [self.pd.eq(self.sq_pd), self.key.eq(self.sq_key)]

    def _compare_domain(self, m: Module) -> None:
        m.d.comb += self.pd_fail.eq((self.walk.read_data != self.pd) | (self.pd == NO_DOMAIN))
        m.d.sync += self.slot.eq(0)
        with m.If(self.pd_fail):
            self._leave_row(m, self.geometry.row)
        with m.Else():
            self._read(m, self.cursor + 1, State.KEY, State.READ)

    def _compare_key(self, m: Module) -> None:
        m.d.comb += self.key_fail.eq(self.walk.read_data != Cat(self.key, Const(1, 1)))
        with m.If(self.key_fail):
            self._next_key(m)
        with m.Else():
            m.d.comb += self.walk.read_address.eq(self._beyond(1))
            m.d.sync += [self.state.eq(State.CLEAR), self.rewritten.eq(self._rewrites())]

    def _clear(self, m: Module) -> None:
        with m.If(self.walk.rq_writes):
            m.d.comb += self.walk.read_address.eq(self._beyond(1))
            m.d.sync += self.rewritten.eq(self.rewritten | self._rewrites())
        with m.Else():
            m.d.comb += self.walk.write.eq(~self.rewritten)
            self._next_key(m)

    def _check(self, m: Module) -> None:
        with m.If(self.last):
            m.d.comb += self.sq_done.eq(1)
            m.d.sync += [self.state.eq(State.IDLE), self.vi.eq(0)]
        with m.Else():
            self._read(m, self.cursor, State.PD, State.CHECK)
            with m.If(~self.walk.rq_reads):
                m.d.sync += self.vi.eq(self.vi + 1)

    def _rewrites(self) -> Value:
        return self.walk.rq_writes & (self.walk.rq_write_address == self.cursor)

    def _next_key(self, m: Module) -> None:
        with m.If(self.slot == self.geometry.keys - 1):
            self._leave_row(m, 1)
        with m.Else():
            self._read(m, self.cursor + 1, State.KEY, State.READ)
            m.d.sync += self.slot.eq(self.slot + 1)

    def _leave_row(self, m: Module, words: int) -> None:
        """Load the address of the next row, ``words`` further on."""
        m.d.comb += self.walk.read_address.eq(self._beyond(words))
        m.d.sync += [self.cursor.eq(self._beyond(words)), self.state.eq(State.CHECK)]

    def _beyond(self, words: int) -> Value:
        """The address of what is read next, ``words`` further on; behind the last word the first."""
        address = self.cursor + words
        return Mux(address == self.geometry.depth, 0, address)
