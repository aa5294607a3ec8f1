"""The rejected design all in fixed hardware: walk and receive side share the memory and hand nothing over.

Each side has its own ports, so neither waits; the walk is not told what the RQ reads and writes.
`softhca.hardware.races` shows what comes of that.
"""

from __future__ import annotations

from collections.abc import Iterable

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory, MemoryData

from softhca.hardware.key_memory import KEYS, VIS, WORD_BITS, Geometry, read_within
from softhca.hardware.rmb_rq import join_ports, rq_ports
from softhca.hardware.rmb_sq import RmbSq, sq_ports


class FixedFunctionManager(wiring.Component):
    """The same ports as `RemoteKeyManager`'s; ``rmb_mem_*`` are the walk's own memory ports."""

    def __init__(self, vis: int = VIS, keys: int = KEYS, init: Iterable[int] = ()) -> None:
        self.geometry = geometry = Geometry(vis, keys)
        super().__init__(sq_ports(geometry) | rq_ports(geometry))
        self.sq = RmbSq(geometry)
        self.store = MemoryData(shape=WORD_BITS, depth=geometry.depth, init=init)

    def elaborate(self, platform: object) -> Module:
        """A memory with two ports a side; of two writes of one word the RQ's stays."""
        m = Module()
        m.submodules.sq = self.sq
        m.submodules.ram = ram = Memory(self.store)
        walk_write, rq_write = ram.write_port(), ram.write_port()
        walk_read, rq_read = (ram.read_port(transparent_for=(walk_write, rq_write)) for _ in range(2))
        walk = self.sq.walk
        collides = self.rq_write & (self.rq_write_addr == walk.write_address)
        depth = self.geometry.depth
        m.d.comb += [
            walk.read_data.eq(read_within(m, walk_read, walk.read, walk.read_address, depth)),
            walk_write.en.eq(walk.write & ~collides),
            walk_write.addr.eq(walk.write_address),
            walk_write.data.eq(walk.write_data),
            self.rq_read_data.eq(read_within(m, rq_read, self.rq_read, self.rq_read_addr, depth)),
            rq_write.en.eq(self.rq_write & (self.rq_write_addr < depth)),
            rq_write.addr.eq(self.rq_write_addr),
            rq_write.data.eq(self.rq_write_data),
            self.rq_busy.eq(self.rq_read | self.rq_write),
            self.rmb_mem_re.eq(walk.read),
            self.rmb_mem_rd_addr.eq(walk.read_address),
            self.rmb_mem_rd_data.eq(walk.read_data),
            self.rmb_mem_we.eq(walk_write.en),
            self.rmb_mem_wr_addr.eq(walk.write_address),
            self.rmb_mem_wr_data.eq(walk.write_data),
        ]
        join_ports(m, self.sq, self, sq_ports(self.geometry))
        return m
