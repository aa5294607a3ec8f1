"""The matrix: cells, the settings in which each of them runs, and the table of results."""

from __future__ import annotations

import subprocess
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interop_capture import CaptureError
from interop_connections import OurAdapter
from interop_guest import Guest, GuestError
from interop_link import CellError, Link, Setting
from interop_peer import Peer, PeerError

SETTINGS = tuple(Setting(version, mtu) for version in (4, 6) for mtu in (1024, 4096))
SHORT_SETTINGS = (SETTINGS[0], SETTINGS[-1])
DIRECTIONS = ("ours→kernel", "kernel→ours")


@dataclass(frozen=True)
class Cell:
    """One row of the matrix.  ``core``: part of the short run; ``network``: only with root, because it takes
    IP on our side, a cable that can be pulled, or one that keeps the order of packets (qemu's hub does not
    when a socket is full).
    """

    name: str
    work: Callable[[Case], None]
    core: bool = True
    network: bool = False
    settings: tuple[Setting, ...] = SETTINGS
    directions: tuple[str, ...] = DIRECTIONS


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
    sides: Sides
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Tell something besides passing or not."""
        self.notes.append(text)

    def link(self, service: str = "RC", **options: Any) -> Link:
        """A connected pair, the first thing that a cell makes."""
        return Link(self.requester, self.responder, self.addresses, self.setting, service, **options)


class PeerSilent(CellError):
    """The kernel owes the next packet, and nothing comes: not ours to mend, and so not a failure of ours."""


class PeerBroken(PeerSilent):
    """A connection has ended, and the kernel's log has a warning of its SoftRoCE: a check of its own failed.
    Only where the network is bad, and where the kernel does the same to itself (`run_control.py`).
    """


@dataclass
class Outcome:
    """What became of a cell in one setting and direction; ``reason`` empty: it passed.

    ``silent``: the reason is that the kernel fell silent, or broke.  ``notes``: what the cell tells besides.
    """

    cell: str
    setting: str
    direction: str
    reason: str
    elapsed_s: float
    silent: bool = False
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether something of ours is wrong."""
        return bool(self.reason) and not self.silent

    @property
    def title(self) -> str:
        """Cell, setting and direction."""
        return f"{self.cell}, {self.setting}, {self.direction}"


@dataclass
class Sides:
    """The kernel's side and ours, ours once for each IP version, with the addresses of both.

    ``start_ours`` starts softhca's command with a device on the address of an IP version, ``wait_listening``
    waits until a process of our side listens on a TCP port.  ``restart`` kills a side's program and starts it
    again; ``connect_cable`` joins the guest to the network, or cuts it off; ``capture`` writes what passes
    between the guest and the network into a file while a block runs, ``our_adapter`` starts an adapter of
    ours in a process of its own on an address of an IP version (both with root only).
    """

    guest: Guest
    kernel: Peer
    ours: dict[int, Peer]
    kernel_addresses: dict[int, str]
    our_addresses: dict[int, str]
    start_ours: Callable[[int, Sequence[str]], subprocess.Popen[str]]
    wait_listening: Callable[[int], None]
    restart: Callable[[Peer], None]
    connect_cable: Callable[[bool], None]
    capture: Callable[[Path], AbstractContextManager[object]] | None = None
    our_adapter: Callable[[int], OurAdapter] | None = None

    def case(self, setting: Setting, direction: str) -> Case:
        """The case of a setting and direction."""
        ours, kernel = self.ours[setting.version], self.kernel
        ends = (self.our_addresses[setting.version], self.kernel_addresses[setting.version])
        if direction == DIRECTIONS[0]:
            return Case(ours, kernel, ends, setting, True, self)
        return Case(kernel, ours, ends[::-1], setting, False, self)


def run(sides: Sides, cells: Iterable[Cell], settings: Sequence[Setting] = SETTINGS) -> Iterator[Outcome]:
    """Every cell in those of its settings that are among ``settings``, in each direction."""
    for each in cells:
        for setting in (one for one in each.settings if one in settings):
            for direction in each.directions:
                yield attempt(each, sides.case(setting, direction), direction)


def attempt(each: Cell, case: Case, direction: str) -> Outcome:
    """One cell; whatever goes wrong in it is its outcome."""
    start_s = time.monotonic()
    reason, silent = "", False
    try:
        each.work(case)
    except PeerSilent as error:
        reason, silent = str(error), True
    except (CellError, CaptureError, PeerError, GuestError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    except Exception:  # a fault of the cell itself: the others still run
        reason = traceback.format_exc()
    elapsed_s = time.monotonic() - start_s
    return Outcome(
        each.name, case.setting.name, direction, reason, elapsed_s, silent, tuple(case.notes)
    )
