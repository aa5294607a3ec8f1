"""The matrix: cells, the settings in which each of them runs, and the table of results."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from interop_guest import GuestError
from interop_link import CellError, Link, Setting
from interop_peer import Peer, PeerError

SETTINGS = tuple(Setting(version, mtu) for version in (4, 6) for mtu in (1024, 4096))
DIRECTIONS = ("ours→kernel", "kernel→ours")


@dataclass(frozen=True)
class Cell:
    """One row of the matrix.  ``core``: part of the short run; ``settings`` empty: all."""

    name: str
    work: Callable[[Case], None]
    core: bool = True
    settings: tuple[Setting, ...] = SETTINGS


CELLS: dict[str, Cell] = {}


def cell(name: str, **options: Any) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    """Registers a function as a cell."""

    def register(work: Callable[[Case], None]) -> Callable[[Case], None]:
        assert name not in CELLS
        CELLS[name] = Cell(name, work, **options)
        return work

    return register


@dataclass(frozen=True)
class Case:
    """A cell in one setting and direction: who asks, who answers."""

    requester: Peer
    responder: Peer
    addresses: tuple[str, str]
    setting: Setting
    ours_asks: bool

    def link(self, service: str = "RC", **options: Any) -> Link:
        """A connected pair, the first thing that a cell makes."""
        return Link(self.requester, self.responder, self.addresses, self.setting, service, **options)


@dataclass
class Outcome:
    """What became of a cell in one setting and direction; ``reason`` empty: it passed."""

    cell: str
    setting: str
    direction: str
    reason: str
    elapsed_s: float


@dataclass
class Sides:
    """The kernel's side and ours, ours once for each IP version, with the addresses of both."""

    kernel: Peer
    ours: dict[int, Peer]
    kernel_addresses: dict[int, str]
    our_addresses: dict[int, str]

    def case(self, setting: Setting, direction: str) -> Case:
        """The case of a setting and direction."""
        ours, kernel = self.ours[setting.version], self.kernel
        ends = (self.our_addresses[setting.version], self.kernel_addresses[setting.version])
        if direction == DIRECTIONS[0]:
            return Case(ours, kernel, ends, setting, True)
        return Case(kernel, ours, ends[::-1], setting, False)


def run(sides: Sides, cells: Iterable[Cell], directions: Iterable[str] = DIRECTIONS) -> Iterator[Outcome]:
    """Every cell in each of its settings and each direction."""
    for each in cells:
        for setting in each.settings:
            for direction in directions:
                yield attempt(each, sides.case(setting, direction), direction)


def attempt(each: Cell, case: Case, direction: str) -> Outcome:
    """One cell; whatever goes wrong in it is its outcome."""
    start_s = time.monotonic()
    reason = ""
    try:
        each.work(case)
    except (CellError, PeerError, GuestError) as error:
        reason = str(error)
    except Exception:  # a fault of the cell itself: the others still run
        reason = traceback.format_exc()
    return Outcome(each.name, case.setting.name, direction, reason, time.monotonic() - start_s)
