"""The host's memory behind a `HostBus`: answers after a while, and refuses what lies beyond its end."""

from __future__ import annotations

from itertools import cycle


class HostMemory:
    """``latencies``: clocks until ``done``, in turn.  Words at ``limit`` and beyond are refused."""

    def __init__(self, latencies=(0,), limit=1 << 44):
        self.words = {}
        self.limit = limit
        self.transactions = []
        self._latencies = cycle(latencies)
        self._left = None

    def answer(self, ctx, bus):
        """Drive the bus for the present clock; call it once a clock, after the clock's edge."""
        ctx.set(bus.done, 0)
        if not ctx.get(bus.valid):
            return
        if self._left is None:
            self._left = next(self._latencies)
        if self._left:
            self._left -= 1
            return
        self._left = None
        address, write = ctx.get(bus.address), ctx.get(bus.write)
        refused = address >= self.limit
        data = self.words.get(address, 0)
        if write:
            mask = sum(0xFF << 8 * byte for byte in range(4) if ctx.get(bus.mask) >> byte & 1)
            data = data & ~mask | ctx.get(bus.write_data) & mask
        self.transactions.append((write, address, data, refused))
        if write and not refused:
            self.words[address] = data
        ctx.set(bus.read_data, 0xDEADBEEF if refused or write else data)
        ctx.set(bus.error, refused)
        ctx.set(bus.done, 1)
