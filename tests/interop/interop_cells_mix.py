"""Cells of a random mix: every operation, four queue pairs, both directions at once, few receives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from interop_cells_netem import netem
from interop_link import UNHURRIED, CellError, expect
from interop_matrix import DIRECTIONS, SETTINGS, SHORT_SETTINGS, Case, cell
from interop_mix import Mix, Plan, mix

SEED = 1
OPERATIONS = 5000
FEW = 6
"""Receives that a queue pair has posted; 24 for all four of them."""
PLENTY = 384
"""More than there are messages: none finds no receive, however late a program looks."""
BAD = "loss 2% duplicate 2% corrupt 1% delay 1ms reorder 10% 25%"


WHOLE = {"network": True, "core": False, "settings": SETTINGS, "directions": DIRECTIONS[:1]}


def told(case: Case, label: str, found: Mix) -> None:
    """A line for who wants to know what was on the wire."""
    ours, kernel = found.side("softhca"), found.side("kernel")
    names = ("transport_timeouts", "transport_retransmissions", "transport_rnr_naks_received")
    counters = ", ".join(f"{name.removeprefix('transport_')} {found.counters[name]}" for name in names)
    case.note(
        f"{label}, {case.setting.name}, seed {SEED}: ours sent {ours.sum('requests')} request packets, "
        f"{ours.sum('again')} again, {ours.sum('unasked')} of them unasked; the kernel "
        f"{kernel.sum('requests')}, {kernel.sum('again')}, {kernel.sum('unasked')}; {counters}; "
        f"{ours.told['elapsed_s']} s"
    )


def clean(case: Case, operations: int, receives: int) -> None:
    """On a good network nothing times out, and nothing is sent again that a NAK has not asked for."""
    found = mix(case, Plan(SEED, operations, receives, attributes=UNHURRIED))
    told(case, f"{operations} operations, {receives} receives", found)
    expect("time-outs", found.counters["transport_timeouts"], 0)
    expect("packets sent again unasked", found.side("softhca").sum("unasked"), 0)


def over(case: Case, network: Callable[[], AbstractContextManager[None]], operations: int) -> None:
    """On a bad one all is right as well.  Nothing of no bytes: a kernel that has just seen that refuses an
    RDMA READ that is asked again (docs/interop.md).
    """
    with network():
        found = mix(case, Plan(SEED, operations, FEW, empty=False), rough=True)
    told(case, f"{operations} operations, {FEW} receives, netem both ways", found)


@cell("random mix, 24 receives", network=True, settings=SHORT_SETTINGS, directions=DIRECTIONS[:1])
def shortly(case: Case) -> None:
    """A sample."""
    clean(case, 400, FEW)


@cell("random mix of 5,000, 24 receives", **WHOLE)
def few(case: Case) -> None:
    """Few receives: many RNR NAKs in both directions."""
    clean(case, OPERATIONS, FEW)


@cell("random mix of 5,000, all receives", **WHOLE)
def plenty(case: Case) -> None:
    """A receive for every message: nothing at all is sent again."""
    found = mix(case, Plan(SEED, OPERATIONS, PLENTY, attributes=UNHURRIED))
    told(case, f"{OPERATIONS} operations, {PLENTY} receives", found)
    ours = found.side("softhca")
    if ours.sum("again") or found.counters["transport_timeouts"]:
        raise CellError(
            f"{ours.sum('again')} packets sent again, {found.counters['transport_timeouts']} time-outs"
        )


@cell("random mix of 5,000, netem", **WHOLE)
def bad(case: Case) -> None:
    """Both directions lose, double, damage and reorder."""
    over(case, lambda: netem(case.sides.guest, BAD, both=True), OPERATIONS)
