"""The remote-key memory: for every VI its protection domain and the keys of its RDMA operations under way.

A word has 28 bits: bit 27 says that a key is valid, bits 26 … 0 are an index of the page table's 2^27
entries.  Row VI begins at word ``row``·VI with the protection domain (0: none), its keys follow: with four,
those of one RDMA WRITE and of three RDMA READs.  One read port, one write port.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory, MemoryData
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

WORD_BITS = 28
KEY_BITS = 27
VALID = 1 << KEY_BITS
NO_DOMAIN = 0
VIS = 256
KEYS = 4
MAX_VIS = 65_536
MAX_KEYS = 16


@dataclass(frozen=True)
class Geometry:
    """``vis`` rows of a protection domain and ``keys`` keys; ValueError when a number is out of bounds."""

    vis: int = VIS
    keys: int = KEYS

    def __post_init__(self) -> None:
        for name, number, most in (("VIs", self.vis, MAX_VIS), ("keys a VI", self.keys, MAX_KEYS)):
            if not 1 <= number <= most:
                raise ValueError(f"a remote-key memory has 1 to {most} {name}, not {number}")

    @property
    def row(self) -> int:
        """Words of a VI."""
        return 1 + self.keys

    @property
    def depth(self) -> int:
        """Words of the memory."""
        return self.vis * self.row

    @property
    def address_bits(self) -> int:
        """Bits of a word's address."""
        return ceil_log2(self.depth)

    @property
    def vi_bits(self) -> int:
        """Bits of a VI's number; at least one, for ports without bits are none in Verilog."""
        return max(1, ceil_log2(self.vis))

    @property
    def slot_bits(self) -> int:
        """Bits of a key's number in its VI; at least one."""
        return max(1, ceil_log2(self.keys))


class RemoteKeyMemory(wiring.Component):
    """A RAM of 28-bit words with one read and one write port.

    Read data come in the clock after ``read_enable`` and stay until the next read.  A word that is written in
    the clock in which it is read is handed on to the read bus: the RAM's own datum is not valid then.
    A write beyond the last word is lost; a read there gives 0, and so does the bus before the first read.
    """

    def __init__(self, geometry: Geometry, init: tuple[int, ...] = ()) -> None:
        address = geometry.address_bits
        super().__init__(
            {
                "read_enable": In(1),
                "read_address": In(address),
                "read_data": Out(WORD_BITS),
                "write_enable": In(1),
                "write_address": In(address),
                "write_data": In(WORD_BITS),
            }
        )
        self.geometry = geometry
        self.data = MemoryData(shape=WORD_BITS, depth=geometry.depth, init=init)

    def elaborate(self, platform: object) -> Module:
        """The RAM and the check of its bounds."""
        m = Module()
        m.submodules.ram = ram = Memory(self.data)
        write_port = ram.write_port()
        read_port = ram.read_port(transparent_for=(write_port,))
        writable = self.write_address < self.geometry.depth
        m.d.comb += [
            self.read_data.eq(
                read_within(m, read_port, self.read_enable, self.read_address, self.geometry.depth)
            ),
            write_port.en.eq(self.write_enable & writable),
            write_port.addr.eq(self.write_address),
            write_port.data.eq(self.write_data),
        ]
        return m


def read_within(m: Module, port: Any, enable: Value, address: Value, depth: int) -> Value:
    """Read a RAM of ``depth`` words by its ``port``; the data bus, which is 0 behind a read beyond the last
    word and before the first read: the RAM's own output is unknown then."""
    readable = address < depth
    nothing = Signal(init=1)
    with m.If(enable):
        m.d.sync += nothing.eq(~readable)
    m.d.comb += [port.en.eq(enable & readable), port.addr.eq(address)]
    return Mux(nothing, 0, port.data)
