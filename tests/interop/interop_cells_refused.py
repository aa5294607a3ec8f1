"""Cells of what the responder must refuse: the requester's exact status, and nothing touched."""

from __future__ import annotations

from typing import Any

from interop_link import (
    FLUSHED,
    LOCAL_WRITE,
    QKEY,
    REM_ACCESS,
    REM_INV_REQ,
    REM_OP,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    STATE_ERR,
    STATE_RTS,
    SUCCESS,
    Attributes,
    Link,
    expect,
)
from interop_matrix import DIRECTIONS, Case, cell

OPERATIONS = ("write", "write_imm", "read", "fetch_add", "compare_swap")
RIGHT = {
    "write": REMOTE_WRITE,
    "write_imm": REMOTE_WRITE,
    "read": REMOTE_READ,
    "fetch_add": REMOTE_ATOMIC,
    "compare_swap": REMOTE_ATOMIC,
}
ALL = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
SIZE = 64


def _ready(case: Case, access: int = LOCAL_WRITE | ALL, **options: Any) -> tuple[Link, Any]:
    """A link with memory on both sides; the responder's has ``access``."""
    link = case.link(**options)
    link.requester.memory("here", SIZE, seed=1)
    link.responder.memory("unused", SIZE)
    link.receive(0, [["unused", 0, SIZE]], count=4)
    return link, link.responder.memory("there", SIZE, access=access)


def _request(
    link: Link, opcode: str, there: Any, *, rkey: int | None = None, shift: int = 0, length: int = 8
) -> None:
    """One request of 8 bytes or ``length``, to ``shift`` bytes behind the memory's begin."""
    link.send(
        0,
        opcode,
        [["here", 0, length]],
        rkey=there["rkey"] if rkey is None else rkey,
        address=there["address"] + shift,
        compare_add=1,
        swap=2,
    )


def _is_refused(link: Link, status: int = REM_ACCESS) -> None:
    """The request ends with ``status``, the next is flushed, and the responder's memory is as it was."""
    link.send(1, "send", [["here", 0, 1]])
    link.sent(status, FLUSHED)
    expect("state", link.requester.ask("state", name="qp")["state"], STATE_ERR)
    for name in ("there", "unused"):
        link.responder.empty(name, 0, SIZE)


@cell("RC refused: R_Key")
def wrong_key(case: Case) -> None:
    """A key of nobody."""
    for opcode in OPERATIONS:
        link, there = _ready(case)
        _request(link, opcode, there, rkey=there["rkey"] ^ 0x5A5A00)
        _is_refused(link)


@cell("RC refused: key of a region that is gone")
def dead_key(case: Case) -> None:
    """The key was right once."""
    for opcode in ("write", "read", "fetch_add"):
        link, there = _ready(case)
        link.responder.ask("forget", name="there")
        link.responder.memory("there", SIZE)
        _request(link, opcode, there)
        _is_refused(link)


@cell("RC refused: range")
def wrong_range(case: Case) -> None:
    """One byte behind the end, one before the begin, and far away."""
    for opcode in ("write", "write_imm", "read"):
        for shift in (SIZE - 7, -1, 1 << 40):
            link, there = _ready(case)
            _request(link, opcode, there, shift=shift)
            _is_refused(link)
    link, there = _ready(case)
    _request(link, "fetch_add", there, shift=SIZE)
    _is_refused(link)


@cell("RC refused: right of the region")
def wrong_right(case: Case) -> None:
    """The region grants all but the right that is needed."""
    for opcode in OPERATIONS:
        link, there = _ready(case, LOCAL_WRITE | (ALL & ~RIGHT[opcode]))
        _request(link, opcode, there)
        _is_refused(link)


@cell("RC refused: right of the queue pair")
def not_enabled(case: Case) -> None:
    """The queue pair does not allow the operation, whatever the region grants."""
    for opcode in OPERATIONS:
        link, there = _ready(case, attributes=Attributes(qp_access_flags=ALL & ~RIGHT[opcode]))
        _request(link, opcode, there)
        _is_refused(link, REM_INV_REQ)


@cell("RC refused: atomic not aligned", directions=DIRECTIONS[:1])
def not_aligned(case: Case) -> None:
    """Atomics work on whole words of 8 bytes.  The kernel's own requests are refused when they are posted."""
    for opcode in ("fetch_add", "compare_swap"):
        link, there = _ready(case)
        _request(link, opcode, there, shift=4)
        _is_refused(link, REM_INV_REQ)


@cell("RC refused: receive too short")
def short_receive(case: Case) -> None:
    """A message that is longer than its receive.  The kernel NAKs an operational error.

    Ours NAKs an invalid request (C9-104).
    """
    for size in (SIZE + 1, 3 * case.setting.mtu_bytes):
        link, _ = _ready(case)
        link.requester.memory("long", size, seed=2)
        link.send(0, "send", [["long", 0, size]])
        link.sent(REM_OP if case.ours_asks else REM_INV_REQ)


@cell("RC empty WRITE and READ with a wrong key")
def empty_with_wrong_key(case: Case) -> None:
    """No byte, so no key is looked at (C9-88)."""
    for opcode in ("write", "read"):
        link, there = _ready(case)
        _request(link, opcode, there, rkey=there["rkey"] ^ 0x5A5A00, length=0)
        link.sent(SUCCESS)


@cell("RC refused, then connected again")
def again(case: Case) -> None:
    """After an error both queue pairs go through RESET and work again."""
    link, there = _ready(case)
    _request(link, "write", there, rkey=there["rkey"] ^ 0x5A5A00)
    _is_refused(link)
    for end in (link.requester, link.responder):
        end.ask("to_reset", name="qp")
    link.join("qp", psn=0x777)
    link.receive(7, [["unused", 0, SIZE]])
    link.send(2, "send", [["here", 0, 5]])
    link.sent(SUCCESS)
    expect("state", link.requester.ask("state", name="qp")["state"], STATE_RTS)
    link.responder.holds("unused", 1, 5)


@cell("UC refused: key, range, right")
def unreliable(case: Case) -> None:
    """UC drops in silence: the requester succeeds, nothing is touched, and what comes after arrives."""
    link, there = _ready(case, LOCAL_WRITE | REMOTE_READ, service="UC")
    wrong: tuple[dict[str, int], ...] = ({"rkey": there["rkey"] ^ 0x5A5A00}, {"shift": SIZE}, {})
    for number, words in enumerate(wrong):
        for opcode in ("write", "write_imm"):
            _request(link, opcode, there, **words)
            link.sent(SUCCESS)
        link.send(1, "send", [["here", 0, 9]])
        link.sent(SUCCESS)
        completion = link.received()[0]
        expect("receive, length", (completion["wr_id"], completion["byte_len"]), (number, 9))
        link.responder.empty("there", 0, SIZE)


@cell("UD refused: Q_Key")
def wrong_qkey(case: Case) -> None:
    """A datagram with another Q_Key is dropped; the next one takes its receive."""
    link = case.link("UD")
    link.requester.memory("here", SIZE, seed=1)
    link.responder.memory("to", SIZE + 40)
    link.receive(5, [["to", 0, SIZE + 40]])
    link.send(0, "send", [["here", 0, 8]], qkey=QKEY + 1)
    link.send(1, "send", [["here", 0, 16]])
    link.sent(SUCCESS, SUCCESS)
    completion = link.received()[0]
    expect("receive, length", (completion["wr_id"], completion["byte_len"]), (5, 56))
