"""The rejected design in microcode alone: the key memory is on both engines' buses, and nothing walks but the
SQ's microcode.

Nothing keeps the two engines apart but a register: while the SQ's engine says that it walks, the RQ's stands
still between two instructions, and with it all packets (`softhca.hardware.subsystem`).
"""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softhca.hardware.key_memory import KEYS, VIS, WORD_BITS, Geometry
from softhca.hardware.micro_registers import EngineBus, number_of
from softhca.hardware.rmb_registers import MemorySide, join_memory, show
from softhca.hardware.rmb_rq import RmbRq, join_ports, rq_ports


class SharedKeyMemory(wiring.Component):
    """``vis`` rows of ``keys`` keys; ``init``: the memory's first words.  ValueError when out of bounds.

    ``rq_*`` and ``sq_*`` are the engines' sides; of two accesses in one clock the RQ's counts.  ``sq_walks``:
    the SQ's engine says so.  ``rmb_mem_*`` are the memory's signals, as `RemoteKeyManager`'s.
    """

    def __init__(self, vis: int = VIS, keys: int = KEYS, init: tuple[int, ...] = ()) -> None:
        self.geometry = geometry = Geometry(vis, keys)
        address = geometry.address_bits
        super().__init__(
            rq_ports(geometry)
            | {
                "sq_read": In(1),
                "sq_read_addr": In(address),
                "sq_read_data": Out(WORD_BITS),
                "sq_write": In(1),
                "sq_write_addr": In(address),
                "sq_write_data": In(WORD_BITS),
                "sq_walks": In(1),
                "sq_done": Out(1),
            }
        )
        self.rq = RmbRq(geometry, init)

    def elaborate(self, platform: object) -> Module:
        """The manager's receive side, whose walk is what the SQ's engine asks for."""
        m = Module()
        m.submodules.rq = rq = self.rq
        walk = rq.walk
        m.d.comb += [
            self.sq_done.eq(~self.sq_walks),
            self.sq_read_data.eq(walk.read_data),
            walk.read.eq(self.sq_read),
            walk.read_address.eq(self.sq_read_addr),
            walk.write.eq(self.sq_write),
            walk.write_address.eq(self.sq_write_addr),
            walk.write_data.eq(self.sq_write_data),
        ]
        join_ports(m, rq, self, rq_ports(self.geometry))
        return m


class SharedKeyRegisters(wiring.Component):
    """The memory's registers on both engines' buses; ``walks``: what the SQ's engine has written to
    ``RQ_KEY_BUSY``."""

    def __init__(self, manager: SharedKeyMemory) -> None:
        super().__init__({"sq": In(EngineBus()), "rq": In(EngineBus())})
        self.manager = manager
        self.walks = Signal()

    def elaborate(self, platform: object) -> Module:
        """The registers of each side."""
        m = Module()
        m.submodules.memory = memory = self.manager
        m.d.comb += memory.sq_walks.eq(self.walks)
        for bus, side in ((self.sq, "sq"), (self.rq, "rq")):
            shown = join_memory(m, bus, MemorySide.of(memory, side))
            show(m, bus, shown | {"RQ_KEY_BUSY": self.walks})
        with m.If(self.sq.write_enable & (self.sq.write_address == number_of("RQ_KEY_BUSY"))):
            m.d.sync += self.walks.eq(self.sq.write_data[0])
        return m
