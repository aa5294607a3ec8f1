"""The part of the walk that has memory windows: allocated, bound, moved, invalidated, and used by peers."""

from __future__ import annotations

from errno import EINVAL
from typing import Any

from softhca.queues import wqe
from softhca.testing.ends import post

LOCAL_WRITE, CHANGES, MW_BIND = 1, 2 | 8, 16
MOST_WINDOWS = 4
OK, BIND_ERROR = 0, 6


class Window:
    """A memory window of the target: ``length`` bytes of ``region`` from ``offset`` on; unbound: of None.

    ``pair``: of type 2, the one that bound it.
    """

    def __init__(self, number: int, key: int, kind: int, pd: int) -> None:
        self.number, self.key, self.kind, self.pd = number, key, kind, pd
        self.region: Any = None
        self.pair: Any = None
        self.access = self.offset = self.length = 0


class WindowSteps:
    """Steps of `paging_walk.Walk`, which has everything that is named here."""

    def windows_of(self: Any, region: Any) -> list[Window]:
        """Windows that are bound to a region."""
        return [window for window in self.windows if window.region is region]

    def unbind(self: Any, window: Window) -> None:
        """The model's half of a window's end."""
        if window.region is not None:
            self.dead_keys = [*self.dead_keys, window.key][-8:]
        window.region = window.pair = None

    def part(self: Any, window: Window) -> None:
        """End the pairs whose held requests use the bytes behind a window that is about to change."""
        region = window.region
        if region is not None:
            self.settle(lambda pair: pair.pending is not None and pair.pending[0] is region)

    def try_alloc_window(self: Any) -> None:
        if len(self.windows) < MOST_WINDOWS:
            domains = [*self.pds, *(region.pd for region in self.regions if region.memory is None)]
            pd = 77_777 if self.chance(8) else self.draw.choice(domains)
            kind = self.draw.choice((1, 2))
            kind = 3 if self.chance(5) else kind
            code = EINVAL if pd == 77_777 or kind == 3 else 0
            made = self.expect(code, "alloc_mw", self.device.alloc_mw, pd, kind)
            if code == 0:
                self.windows.append(Window(*made, kind, pd))

    def try_dealloc_window(self: Any) -> None:
        if not self.windows or self.chance(20):
            self.expect(EINVAL, "dealloc_mw", self.device.dealloc_mw, 7_777_777)
        elif self.chance(30):
            window = self.draw.choice(self.windows)
            self.part(window)
            self.expect(0, "dealloc_mw", self.device.dealloc_mw, window.number)
            self.unbind(window)
            self.windows.remove(window)

    def try_bind(self: Any) -> None:
        plain = [region for region in self.regions if region.access & MW_BIND] or self.regions
        pairs = [pair for pair in self.pairs if pair.pending is None]
        if not self.windows or not plain or not pairs:
            return
        window, region = self.draw.choice(self.windows), self.draw.choice(plain)
        if self.chance(90):
            region = next((each for each in plain if each.pd == window.pd), region)
        here = [pair for pair in pairs if pair.pd == window.pd] if self.chance(95) else pairs
        if not here:
            return
        pair, size = self.draw.choice(here), len(region.bytes)
        offset = self.draw.randrange(size)
        length = self.draw.randrange(1, size - offset + 1) + size * self.chance(5)
        length *= not self.chance(8)
        access = self.draw.choice((2, 4, 6, 14, 15, 14))
        if window.kind == 2 and window.region is not None and self.chance(80):
            return
        self.part(window)
        if pair not in self.pairs:
            return
        key = window.key & ~0xFF | (window.key + 1) & 0xFF
        status = self.bind_verdict(window, region, pair, offset, length, access)
        post(pair.right, wqe.BIND_MW, [], va=region.va + offset, rkey=window.number, imm=key, compare=length,
             swap=access << 32 | region.key.lkey)
        found = self.own_status(pair)
        assert found == status, ("bind", found, status, vars(window), vars(region), length, access, key)
        self.count(f"bind {status}")
        if status:
            self.end_pair(pair)
            return
        self.unbind(window)
        window.key = key
        if length == 0:
            return
        window.region, window.offset, window.length, window.access = region, offset, length, access
        window.pair = pair if window.kind == 2 else None

    def bind_verdict(self: Any, window: Window, region: Any, pair: Any, offset: int, length: int,
                     access: int) -> int:
        """The status that a bind must end with."""
        if window.kind == 2 and (window.region is not None or length == 0):
            return BIND_ERROR
        if window.pd != pair.pd:
            return BIND_ERROR
        if length == 0:
            return OK
        if region.pd != pair.pd or not region.access & MW_BIND or offset + length > len(region.bytes):
            return BIND_ERROR
        return BIND_ERROR if access & CHANGES and not region.access & LOCAL_WRITE else OK

    def try_invalidate(self: Any) -> None:
        bound = [window for window in self.windows if window.kind == 2 and window.region is not None]
        if not bound:
            return
        window = self.draw.choice(bound)
        self.part(window)
        pair = window.pair
        if pair is None or pair.pending is not None:
            return
        post(pair.right, wqe.LOCAL_INV, [], imm=window.key)
        assert self.own_status(pair) == OK
        self.unbind(window)
        self.count("invalidate")

    def own_status(self: Any, pair: Any) -> int:
        """The status of the target's own work request."""
        (done,) = self.target.poll(1)
        assert done.qp_num == pair.right.number
        return int(done.status)

    def try_request_by_window(self: Any) -> None:
        bound = [window for window in self.windows if window.region is not None]
        if bound:
            window = self.draw.choice(bound)
            region = window.region
            opcode = self.draw.choice(self.OPCODES)
            offset = self.draw.randrange(window.length)
            length = 8 if opcode == self.OPCODES[-1] else self.draw.randrange(1, window.length - offset + 1)
            offset = offset & ~7 if length == 8 else offset
            length += window.length if self.chance(5) and length != 8 else 0
            length = min(length, 9000)
            if (region.va + window.offset + offset) & 7 and opcode == self.OPCODES[-1]:
                return
            self.request(opcode, window.key, region.va + window.offset + offset, length, region, window)

    try_request_by_window.weight = 24  # type: ignore[attr-defined]
    try_invalidate.weight = 16  # type: ignore[attr-defined]
    try_bind.weight = 24  # type: ignore[attr-defined]
