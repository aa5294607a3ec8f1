"""The search for a key as the SQ's engine sees it, measured: its gates run ``walk.asm`` over a remote-key
memory that is on its own bus, or ``search.asm`` beside a manager that walks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect, flipped

from softhca.hardware.engine_bench import EngineBench
from softhca.hardware.instruction_model import Retired
from softhca.hardware.key_memory import KEY_BITS, KEYS, VALID, VIS, Geometry
from softhca.hardware.micro_registers import EngineBus, number_of
from softhca.hardware.microcode_files import microcode_program
from softhca.hardware.rmb_registers import RmbRegisters
from softhca.hardware.shared_key_memory import SharedKeyMemory, SharedKeyRegisters

_ROW = 1 + KEYS
DOMAIN_REGISTER, KEY_REGISTER = 14, 15
"""The general registers in which the programs find what they search for."""
_PD, _OTHER_PD = 7, 8
_SOUGHT, _OTHER_KEY = 0x123, 0x456

CASES: dict[str, tuple[int, ...]] = {
    "all PDs differ": (_OTHER_PD, *(VALID | _SOUGHT,) * KEYS),
    "PD matches, no key matches": (_PD, *(VALID | _OTHER_KEY,) * KEYS),
    "all keys match": (_PD, *(VALID | _SOUGHT,) * KEYS),
}
"""The rows of the memory in the three walks that are compared, every row the same."""


class KeyBlocks(wiring.Component):
    """The SQ's side of the ``registers`` of keys on its engine's bus; nobody is on the other one."""

    def __init__(self, registers: RmbRegisters | SharedKeyRegisters) -> None:
        super().__init__({"bus": In(EngineBus())})
        self.registers = registers

    def elaborate(self, platform: object) -> Module:
        """The two joined."""
        m = Module()
        m.submodules.registers = self.registers
        connect(m, flipped(self.bus), self.registers.sq)
        return m


class MeasuredWalk(NamedTuple):
    """``clocks`` from the first instruction to the one that gives the next queue pair its turn, both
    included; ``memory``: what is left."""

    clocks: int
    memory: list[int]


class MicrocodeWalk:
    """``walk.asm`` on an engine with ``vis`` rows; ValueError when there can be no such memory."""

    def __init__(self, vis: int = VIS) -> None:
        self._words = Geometry(vis, KEYS).depth
        keys = SharedKeyMemory(vis, KEYS)
        self._limit = 64 + 17 * vis
        self._program = microcode_program("walk", {"WORDS": self._words})
        self._bench = EngineBench(KeyBlocks(SharedKeyRegisters(keys)), {"keys": keys.rq.memory.data})

    def run(self, memory: Sequence[int], pd: int, key: int) -> MeasuredWalk:
        """Walk over ``memory``, for ``key`` (27 bits) in the rows of ``pd``."""
        if len(memory) != self._words:
            raise ValueError(f"the memory has {self._words} words, not {len(memory)}")
        if not 0 <= key < 1 << KEY_BITS:
            raise ValueError(f"a key has {KEY_BITS} bits: {key}")
        contents = {"keys": dict(enumerate(memory)), "general": {DOMAIN_REGISTER: pd, KEY_REGISTER: key}}
        recorded = self._bench.run(self._program.halves, self._limit, contents)
        assert recorded.halted, "the walk does not end"
        return MeasuredWalk(_turn(recorded.clocks), self._bench.contents["keys"])

    def case(self, name: str) -> MeasuredWalk:
        """One of `CASES`."""
        return self.run(CASES[name] * (self._words // _ROW), _PD, _SOUGHT)


def search_stall(manager: Any) -> int:
    """Clocks for which the SQ's engine serves nobody else when ``manager`` (a remote-key manager, or the one
    in fixed hardware) searches for a key of `CASES`: from its first instruction to the next one's turn."""
    geometry = manager.geometry
    bench = EngineBench(KeyBlocks(RmbRegisters(manager)))
    contents = {"general": {DOMAIN_REGISTER: _PD, KEY_REGISTER: _SOUGHT}}
    limit = 64 + (2 + 2 * geometry.keys) * geometry.vis
    recorded = bench.run(microcode_program("search").halves, limit, contents)
    assert recorded.halted, "the search does not end"
    return _turn(recorded.clocks)


def _turn(clocks: Sequence[Retired]) -> int:
    """The clock (from 1) in which the next queue pair gets its turn."""
    take = number_of("SCHEDULER_TAKE")
    return next(clock for clock, one in enumerate(clocks, 1) if one.write and one.write[0] == take)
