"""The receive side's part of the remote-key manager: it keeps the memory, and the RQ engine comes first.

The RQ engine reads and writes at any moment, in one clock, whatever the walk does.  The walk has the read
port in the clocks in which the RQ does not read, and the write port in those in which it does not write.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softhca.hardware.key_memory import WORD_BITS, Geometry, RemoteKeyMemory
from softhca.hardware.rmb_sq import WalkPort


def rq_ports(geometry: Geometry) -> dict[str, wiring.Member]:
    """The RQ engine's interface, and the memory's own signals."""
    address = geometry.address_bits
    return {
        "rq_read": In(1),
        "rq_read_addr": In(address),
        "rq_read_data": Out(WORD_BITS),
        "rq_write": In(1),
        "rq_write_addr": In(address),
        "rq_write_data": In(WORD_BITS),
        "rq_busy": Out(1),
        "rmb_mem_re": Out(1),
        "rmb_mem_rd_addr": Out(address),
        "rmb_mem_rd_data": Out(WORD_BITS),
        "rmb_mem_we": Out(1),
        "rmb_mem_wr_addr": Out(address),
        "rmb_mem_wr_data": Out(WORD_BITS),
    }


def join_ports(m: Module, part: Any, whole: Any, ports: dict[str, wiring.Member]) -> None:
    """The ``ports`` of a whole are those of its part."""
    for name, member in ports.items():
        inner, outer = getattr(part, name), getattr(whole, name)
        m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)


class RmbRq(wiring.Component):
    """Memory and precedence.

    ``rq_*`` is the RQ engine's interface, ``walk`` the SQ part's.  ``rmb_mem_*`` are the memory's signals,
    whoever causes them; read data come in the clock after ``rmb_mem_re``.
    """

    def __init__(self, geometry: Geometry, init: tuple[int, ...] = ()) -> None:
        super().__init__(rq_ports(geometry) | {"walk": In(WalkPort(geometry))})
        self.memory = RemoteKeyMemory(geometry, init)

    def elaborate(self, platform: object) -> Module:
        """Multiplexers before the memory's ports."""
        m = Module()
        m.submodules.memory = memory = self.memory
        m.d.comb += [
            self.rq_busy.eq(self.rq_read | self.rq_write),
            self.rq_read_data.eq(memory.read_data),
            self.walk.rq_reads.eq(self.rq_read),
            self.walk.rq_writes.eq(self.rq_write),
            self.walk.rq_write_address.eq(self.rq_write_addr),
            self.walk.read_data.eq(memory.read_data),
            self.rmb_mem_re.eq(self.rq_read | self.walk.read),
            self.rmb_mem_rd_addr.eq(Mux(self.rq_read, self.rq_read_addr, self.walk.read_address)),
            self.rmb_mem_rd_data.eq(memory.read_data),
            self.rmb_mem_we.eq(self.rq_write | self.walk.write),
            self.rmb_mem_wr_addr.eq(Mux(self.rq_write, self.rq_write_addr, self.walk.write_address)),
            self.rmb_mem_wr_data.eq(Mux(self.rq_write, self.rq_write_data, self.walk.write_data)),
            memory.read_enable.eq(self.rmb_mem_re),
            memory.read_address.eq(self.rmb_mem_rd_addr),
            memory.write_enable.eq(self.rmb_mem_we),
            memory.write_address.eq(self.rmb_mem_wr_addr),
            memory.write_data.eq(self.rmb_mem_wr_data),
        ]
        return m
