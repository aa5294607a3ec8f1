"""The walk in microcode alone, measured: the engine's gates run ``walk.asm`` over a remote-key memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect, flipped

from softhca.hardware.engine_bench import EngineBench
from softhca.hardware.key_memory import KEY_BITS, KEYS, VALID, VIS, Geometry
from softhca.hardware.micro_registers import EngineBus
from softhca.hardware.microcode_files import microcode_program
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.rmb_registers import RmbRegisters

_ROW = 1 + KEYS
_DOMAIN, _KEY = 14, 15
"""The general registers in which the program finds what it searches for."""
_PD, _OTHER_PD = 7, 8
_SOUGHT, _OTHER_KEY = 0x123, 0x456

CASES: dict[str, tuple[int, ...]] = {
    "all PDs differ": (_OTHER_PD, *(VALID | _SOUGHT,) * KEYS),
    "PD matches, no key matches": (_PD, *(VALID | _OTHER_KEY,) * KEYS),
    "all keys match": (_PD, *(VALID | _SOUGHT,) * KEYS),
}
"""The rows of the memory in the three walks that are compared, every row the same."""


class KeyBlocks(wiring.Component):
    """A remote-key manager of which an engine has the RQ side alone: nobody starts a walk."""

    def __init__(self, vis: int) -> None:
        super().__init__({"bus": In(EngineBus())})
        self.registers = RmbRegisters(RemoteKeyManager(vis, KEYS))

    def elaborate(self, platform: object) -> Module:
        """The RQ side's registers."""
        m = Module()
        m.submodules.registers = self.registers
        connect(m, flipped(self.bus), self.registers.rq)
        return m


class MeasuredWalk(NamedTuple):
    """``clocks`` from the first instruction to the halt, both included; ``memory``: what is left."""

    clocks: int
    memory: list[int]


class MicrocodeWalk:
    """``walk.asm`` on an engine with ``vis`` rows; ValueError when there can be no such memory."""

    def __init__(self, vis: int = VIS) -> None:
        self._words = Geometry(vis, KEYS).depth
        blocks = KeyBlocks(vis)
        self._limit = 64 + 17 * vis
        self._program = microcode_program("walk", {"WORDS": self._words})
        store = blocks.registers.manager.rq.memory.data
        self._bench = EngineBench(blocks, {"keys": store})

    def run(self, memory: Sequence[int], pd: int, key: int) -> MeasuredWalk:
        """Walk over ``memory``, for ``key`` (27 bits) in the rows of ``pd``."""
        if len(memory) != self._words:
            raise ValueError(f"the memory has {self._words} words, not {len(memory)}")
        if not 0 <= key < 1 << KEY_BITS:
            raise ValueError(f"a key has {KEY_BITS} bits: {key}")
        contents = {"keys": dict(enumerate(memory)), "general": {_DOMAIN: pd, _KEY: key}}
        recorded = self._bench.run(self._program.halves, self._limit, contents)
        assert recorded.halted, "the walk does not end"
        return MeasuredWalk(len(recorded.clocks), self._bench.contents["keys"])

    def case(self, name: str) -> MeasuredWalk:
        """One of `CASES`."""
        return self.run(CASES[name] * (self._words // _ROW), _PD, _SOUGHT)
