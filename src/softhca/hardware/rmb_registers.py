"""The remote-key manager on the two engines' buses: its rows of the micro-register map."""

from __future__ import annotations

from typing import Any, NamedTuple

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from softhca.hardware.key_memory import WORD_BITS
from softhca.hardware.micro_registers import EngineBus, number_of
from softhca.hardware.rmb import RemoteKeyManager


class RmbRegisters(wiring.Component):
    """``sq`` and ``rq`` are the engines' buses; other registers than the manager's read as 0.

    *start* stays until the walk takes it, which reads PD and key in that clock.  A write of the key memory's
    address reads that word in the same clock, and the word stays readable until the next such write.
    """

    def __init__(self, manager: RemoteKeyManager) -> None:
        super().__init__({"sq": In(EngineBus()), "rq": In(EngineBus())})
        self.manager = manager
        self.start = Signal()

    def elaborate(self, platform: object) -> Module:
        """The registers of each side."""
        m = Module()
        m.submodules.manager = self.manager
        self._sq(m)
        self._rq(m)
        return m

    def _sq(self, m: Module) -> None:
        manager = self.manager
        pd, key = Signal(WORD_BITS), Signal.like(manager.sq_key)
        m.d.comb += [manager.sq_pd.eq(pd), manager.sq_key.eq(key), manager.sq_start.eq(self.start)]
        with m.If(manager.sq_taken):
            m.d.sync += self.start.eq(0)
        with m.If(self.sq.write_enable), m.Switch(self.sq.write_address):
            with m.Case(number_of("RMB_PD")):
                m.d.sync += pd.eq(self.sq.write_data)
            with m.Case(number_of("RMB_KEY")):
                m.d.sync += key.eq(self.sq.write_data)
            with m.Case(number_of("RMB_START")):
                m.d.sync += self.start.eq(self.sq.write_data[0])
        done = manager.sq_done & ~self.start
        shown = {"RMB_PD": pd, "RMB_KEY": key, "RMB_START": self.start, "RMB_DONE": done}
        show(m, self.sq, shown)

    def _rq(self, m: Module) -> None:
        busy = ~self.manager.sq_done | self.start
        shown = join_memory(m, self.rq, MemorySide.of(self.manager, "rq"))
        show(m, self.rq, shown | {"RQ_KEY_BUSY": busy})


class MemorySide(NamedTuple):
    """An engine's ports of the key memory."""

    read: Any
    read_addr: Any
    read_data: Any
    write: Any
    write_addr: Any
    write_data: Any

    @classmethod
    def of(cls, memory: Any, side: str) -> MemorySide:
        """The ports of ``memory`` whose names begin with ``side``."""
        return cls(*(getattr(memory, f"{side}_{name}") for name in cls._fields))


def join_memory(m: Module, bus: wiring.PureInterface, side: MemorySide) -> dict[str, Any]:
    """Address and word of the key memory on an engine's ``bus``, which reads and writes by ``side``; what the
    engine reads of them."""
    address, held, fresh = Signal.like(side.read_addr), Signal(WORD_BITS), Signal()
    word = Mux(fresh, side.read_data, held)
    m.d.sync += [held.eq(word), fresh.eq(side.read)]
    m.d.comb += [
        side.read_addr.eq(bus.write_data),
        side.write_addr.eq(address),
        side.write_data.eq(bus.write_data),
    ]
    with m.If(bus.write_enable), m.Switch(bus.write_address):
        with m.Case(number_of("RQ_KEY_ADDRESS")):
            m.d.comb += side.read.eq(1)
            m.d.sync += address.eq(bus.write_data)
        with m.Case(number_of("RQ_KEY_DATA")):
            m.d.comb += side.write.eq(1)
    return {"RQ_KEY_ADDRESS": address, "RQ_KEY_DATA": word}


def show(m: Module, bus: wiring.PureInterface, shown: dict[str, Any]) -> None:
    """Both data MUXes of ``bus`` read the registers ``shown``."""
    for select, data in ((bus.read_address_a, bus.read_data_a), (bus.read_address_b, bus.read_data_b)):
        with m.Switch(select):
            for name, value in shown.items():
                with m.Case(number_of(name)):
                    m.d.comb += data.eq(value)
