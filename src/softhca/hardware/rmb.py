"""The remote-key manager (RMB): the send side's walk and the receive side's memory, joined.

Its ports are the two engines' interfaces and the memory's signals; `softhca.hardware.rmb_registers` puts it
on the engines' buses.
"""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect

from softhca.hardware.key_memory import KEYS, VIS, Geometry
from softhca.hardware.rmb_rq import RmbRq, join_ports, rq_ports
from softhca.hardware.rmb_sq import RmbSq, sq_ports


class RemoteKeyManager(wiring.Component):
    """``vis`` VIs of ``keys`` keys; ``init``: the memory's first words.  ValueError when out of bounds.

    SQ engine: ``sq_start`` is held until ``sq_taken`` (`rmb_sq`).  RQ engine: ``rq_read_data`` comes in the
    clock after ``rq_read`` and is there in that clock alone, for the walk may read next.
    """

    def __init__(self, vis: int = VIS, keys: int = KEYS, init: tuple[int, ...] = ()) -> None:
        self.geometry = geometry = Geometry(vis, keys)
        super().__init__(sq_ports(geometry) | rq_ports(geometry))
        self.sq = RmbSq(geometry)
        self.rq = RmbRq(geometry, init)

    def elaborate(self, platform: object) -> Module:
        """The two parts and the interface between them."""
        m = Module()
        m.submodules.sq, m.submodules.rq = self.sq, self.rq
        connect(m, self.sq.walk, self.rq.walk)
        for part, ports in ((self.sq, sq_ports(self.geometry)), (self.rq, rq_ports(self.geometry))):
            join_ports(m, part, self, ports)
        return m
