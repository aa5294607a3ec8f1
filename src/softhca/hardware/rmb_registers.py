"""The remote-key manager on the two engines' buses: its rows of the micro-register map."""

from __future__ import annotations

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
        _show(m, self.sq, shown)

    def _rq(self, m: Module) -> None:
        manager, bus = self.manager, self.rq
        address, held, fresh = Signal.like(manager.rq_read_addr), Signal(WORD_BITS), Signal()
        word = Mux(fresh, manager.rq_read_data, held)
        m.d.sync += [held.eq(word), fresh.eq(manager.rq_read)]
        m.d.comb += [
            manager.rq_read_addr.eq(bus.write_data),
            manager.rq_write_addr.eq(address),
            manager.rq_write_data.eq(bus.write_data),
        ]
        with m.If(bus.write_enable), m.Switch(bus.write_address):
            with m.Case(number_of("RQ_KEY_ADDRESS")):
                m.d.comb += manager.rq_read.eq(1)
                m.d.sync += address.eq(bus.write_data)
            with m.Case(number_of("RQ_KEY_DATA")):
                m.d.comb += manager.rq_write.eq(1)
        busy = ~manager.sq_done | self.start
        _show(m, bus, {"RQ_KEY_ADDRESS": address, "RQ_KEY_DATA": word, "RQ_KEY_BUSY": busy})


def _show(m: Module, bus: wiring.PureInterface, shown: dict[str, Signal]) -> None:
    """Both data MUXes of ``bus`` read the registers ``shown``."""
    for select, data in ((bus.read_address_a, bus.read_data_a), (bus.read_address_b, bus.read_data_b)):
        with m.Switch(select):
            for name, value in shown.items():
                with m.Case(number_of(name)):
                    m.d.comb += data.eq(value)
