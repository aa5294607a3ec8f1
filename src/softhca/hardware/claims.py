"""How a block is proved: its inputs free, signals that say what is claimed of it, induction by yosys ``sat``.

A `Claims` has a ``broken_*`` signal for each claim, which must never be high, and ``assumed``, which is
taken for granted in every clock: what the block's neighbours promise.  They hold in the first clock after
the registers' initial values, and whenever they held for some clocks before, in the next one too; so they
hold for every input, memory and moment.  Memories are built of registers here (`Registers`), so that a claim
can speak of every word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Array, Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib.memory import Memory

from softhca.hardware.vectors import ports_of
from softhca.hardware.yosys import run_yosys

_END = "END_OF_RTLIL"
STEPS = 3
"""The longest induction that is tried."""


class Registers:
    """A platform that builds memories of registers."""

    def __init__(self) -> None:
        self._words: dict[tuple[int, int, int], list[Signal]] = {}
        self._built: Counter[tuple[int, int]] = Counter()

    def words(self, depth: int, bits: int, place: int = 0) -> list[Signal]:
        """The registers of the memory of ``depth`` words of ``bits``; ``place``: which one of that shape, as
        the design names them."""
        name = f"memory_{depth}_{bits}_{place}"
        made = [Signal(bits, name=f"{name}_{address}") for address in range(depth)]
        return self._words.setdefault((depth, bits, place), made)

    def get_memory(self, memory: Memory) -> Module:
        """Registers with the memory's ports."""
        m = Module()
        shape = memory.depth, len(Signal(memory.shape))
        words = self.words(*shape, self._built[shape])
        self._built[shape] += 1
        for write in memory.write_ports:
            with m.If(write.en):
                m.d.sync += Array(words)[write.addr].eq(write.data)
        for read in memory.read_ports:
            word: Value = Array(words)[read.addr]
            for write in read.transparent_for:
                word = Mux(write.en & (write.addr == read.addr), write.data, word)
            if read.domain == "comb":
                m.d.comb += read.data.eq(word)
            else:
                with m.If(read.en):
                    m.d.sync += read.data.eq(word)
        return m


class Claims(Elaboratable):
    """``block`` with free inputs; a subclass names its claims and gives them their values in ``claim``."""

    names: Sequence[str] = ()

    def __init__(self, block: Any) -> None:
        self.block = block
        self.assumed = Signal()
        self.broken = {name: Signal(name=f"broken_{name}") for name in self.names}

    def elaborate(self, platform: Registers) -> Module:
        """The block, and a signal for each claim."""
        m = Module()
        m.submodules.block = self.block
        m.d.comb += self.assumed.eq(all_of(self.assume(m)))
        for name, value in self.claim(m, platform).items():
            m.d.comb += self.broken[name].eq(value)
        return m

    def assume(self, m: Module) -> Iterable[Value]:
        """What is taken for granted; nothing, unless a subclass says so."""
        return []

    def claim(self, m: Module, platform: Registers) -> dict[str, Value]:
        """For each of ``names`` a value that is true where the claim is broken."""
        raise NotImplementedError


def any_of(values: Iterable[Value]) -> Value:
    """One of them holds."""
    return Cat(*(value.bool() for value in values)).any()


def all_of(values: Iterable[Value]) -> Value:
    """All of them hold."""
    return Cat(*(value.bool() for value in values)).all()


def past(m: Module, value: Value, name: str) -> Signal:
    """``value`` a clock ago; 0 at first."""
    before = Signal(len(value), name=name)
    m.d.sync += before.eq(value)
    return before


def stays(m: Module, waits: Value, fields: Sequence[Value], name: str) -> Value:
    """What waited a clock ago (``waits``) has the ``fields`` still that it had then."""
    waited = past(m, waits, f"{name}_waited")
    same = [field == past(m, field, f"{name}_{i}") for i, field in enumerate(fields)]
    return ~waited | all_of(same)


def claims_rtlil(claims: Claims, name: str = "formal") -> str:
    """The block and its claims in yosys' own language, its module called ``name``."""
    inputs, _ = ports_of(claims.block)
    ports = [port.value for port in inputs] + [claims.assumed, *claims.broken.values()]
    return str(rtlil.convert(claims, name=name, ports=ports, platform=Registers(), emit_src=False))


class Verdict(StrEnum):
    """What yosys says of the claims of a block."""

    PROVED = "proved"
    BROKEN = "broken"
    """Inputs from reset on break a claim."""
    OPEN = "open"
    """Neither is shown within the clocks that were tried."""


def judge_claims(*all_claims: Claims, steps: int = STEPS) -> list[Verdict]:
    """Prove the claims of each block by induction of up to ``steps`` clocks.  YosysError when yosys cannot
    read a block; ModuleNotFoundError when there is no yosys."""
    return _sat(all_claims, f"-tempinduct -maxsteps {steps}")


def seek_breaks(*all_claims: Claims, clocks: int) -> list[Verdict]:
    """Look for inputs of each block that break a claim within so many clocks from reset: BROKEN or OPEN."""
    return _sat(all_claims, f"-tempinduct -tempinduct-baseonly -maxsteps {clocks}")


def _sat(all_claims: Sequence[Claims], how: str) -> list[Verdict]:
    script, results = [], []
    for number, claims in enumerate(all_claims):
        name = f"formal_{number}"
        results.append(f"{name}.log")
        proofs = " ".join(f"-prove broken_{claim} 0" for claim in claims.names)
        given = f"-set assumed 1 -set rst 0 {proofs}"
        # Over narrow arithmetic an induction takes a third of the time.
        script.append(
            f"design -reset\nread_rtlil <<{_END}\n{claims_rtlil(claims, name)}\n{_END}\n"
            f"hierarchy -top {name}; proc; flatten; opt; memory; opt; wreduce; opt_clean\n"
            f"tee -q -o {results[-1]} sat {how} {given} {name}"
        )
    return [_verdict(said) for said in run_yosys("", "\n".join(script), *results)]


def _verdict(said: str) -> Verdict:
    if "model found for base case: FAIL" in said:
        return Verdict.BROKEN
    return Verdict.PROVED if "Induction step proven: SUCCESS" in said else Verdict.OPEN
