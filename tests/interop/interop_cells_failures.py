"""Cells of peers that go away: who is left must hear of it within the time that was configured."""

from __future__ import annotations

import time

from interop_link import (
    FLUSHED,
    REM_ACCESS,
    RETRY_EXCEEDED,
    STATE_ERR,
    SUCCESS,
    Attributes,
    CellError,
    Link,
    expect,
)
from interop_matrix import DIRECTIONS, SHORT_SETTINGS, Case, cell

TIMEOUT_CODE, RETRIES = 14, 3
# C9-141: a timer may run for four times its interval; this machine may have other things to do as well
PATIENCE_S = 4 * 4.096e-6 * 2**TIMEOUT_CODE * (RETRIES + 1) + 10.0
IMPATIENT = Attributes(timeout=TIMEOUT_CODE, retry_cnt=RETRIES)
LARGE_BYTES = 16 << 20
SAME_NUMBER_ATTEMPTS = 32


def _under_way(case: Case) -> Link:
    """A link with long WRITEs under way."""
    link = case.link(attributes=IMPATIENT)
    link.requester.memory("from", LARGE_BYTES, seed=1)
    there = link.responder.memory("to", LARGE_BYTES)
    where = {"rkey": there["rkey"], "address": there["address"]}
    link.send(0, "write", [["from", 0, LARGE_BYTES]], **where)
    link.send(1, "read", [["from", 0, LARGE_BYTES]], **where)
    link.send(2, "write", [["from", 0, LARGE_BYTES]], **where)
    return link


def _hears(link: Link, *reasons: int) -> None:
    """The requester is told once, of one of the ``reasons``; the rest is flushed."""
    start_s = time.monotonic()
    statuses = [
        each["status"]
        for each in link.requester.ask("poll", name="qp", count=3, patience_s=PATIENCE_S)["completions"]
    ]
    done = statuses.count(SUCCESS)
    ends = [[SUCCESS] * done + [reason] + [FLUSHED] * (2 - done) for reason in reasons]
    if statuses not in ends:
        raise CellError(f"statuses {statuses}, none of {ends}")
    if time.monotonic() - start_s > PATIENCE_S:
        raise CellError(f"that took {time.monotonic() - start_s:.1f} s")
    expect("state", link.requester.ask("state", name="qp")["state"], STATE_ERR)


def _works(case: Case) -> None:
    """A new pair of queue pairs works."""
    link = case.link()
    link.requester.memory("from", 5000, seed=2)
    there = link.responder.memory("to", 5000)
    link.send(0, "write", [["from", 0, 5000]], rkey=there["rkey"], address=there["address"])
    link.sent()
    link.responder.holds("to", 2, 5000)


@cell("link cut under way", core=False, network=True, settings=SHORT_SETTINGS)
def cut(case: Case) -> None:
    """The cable is pulled; later it is back, and new connections work."""
    link = _under_way(case)
    case.sides.connect_cable(False)
    try:
        _hears(link, RETRY_EXCEEDED)
    finally:
        case.sides.connect_cable(True)
    _works(case)


@cell("peer killed under way", settings=SHORT_SETTINGS)
def killed(case: Case) -> None:
    """The responder's process is killed, and another one has a queue pair of the same number, joined to the
    old requester with other PSNs: the old requests fail, and new connections work.
    """
    link = _under_way(case)
    old = link.responder.qps["qp"]
    case.sides.restart(link.responder.peer)
    for attempt in range(SAME_NUMBER_ATTEMPTS):
        name = f"again{attempt}"
        link.responder.qps[name] = link.responder.ask("qp", name=name, service="RC")["qpn"]
        if link.responder.qps[name] == old:
            link.requester.qps[name] = link.requester.qps["qp"]
            link.connect(link.responder, link.requester, name, sq_psn=0x600000, rq_psn=0x700000)
            break
    # The kernel takes a dying process's memory before its queue pairs: a request in between is refused.
    _hears(link, RETRY_EXCEEDED, *([REM_ACCESS] if case.ours_asks else []))
    _works(case)


@cell("old requests to a new connection", core=False, settings=SHORT_SETTINGS)
def stale(case: Case) -> None:
    """The responder's queue pair is connected anew with PSNs far behind or ahead: nothing is written, and
    our requester is not told of success.
    """
    for shift in (-0x400000, 0x400000):
        link = case.link(attributes=IMPATIENT)
        link.requester.memory("from", 64, seed=1)
        there = link.responder.memory("to", 64)
        where = {"rkey": there["rkey"], "address": there["address"]}
        link.send(0, "write", [["from", 0, 8]], **where)
        link.sent()
        link.responder.ask("zero", name="to")
        link.responder.ask("to_reset", name="qp")
        psn = (0x123456 + shift) & 0xFFFFFF
        link.connect(link.responder, link.requester, "qp", sq_psn=psn ^ 0xFF, rq_psn=psn)
        link.send(1, "write", [["from", 0, 8]], **where)
        found = link.requester.ask("poll", name="qp", count=1, patience_s=PATIENCE_S)["completions"]
        # Behind: our responder acknowledges a duplicate with its last PSN, and the kernel's requester takes
        # an acknowledgement of what it has never sent for one of all that it has.
        fooled = shift > 0 and not case.ours_asks
        expect("statuses", [each["status"] for each in found], [SUCCESS if fooled else RETRY_EXCEEDED])
        link.responder.empty("to", 0, 64)


@cell("guest killed under way", core=False, settings=SHORT_SETTINGS[-1:], directions=DIRECTIONS[:1])
def powerless(case: Case) -> None:
    """The whole guest ends as by a power failure, and nobody is left to answer.  The last cell of all."""
    link = _under_way(case)
    case.sides.guest.kill()
    _hears(link, RETRY_EXCEEDED)
