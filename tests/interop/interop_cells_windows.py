"""Cells of memory windows, and of SEND with Invalidate, which takes one away."""

from __future__ import annotations

from interop_link import (
    ALL_RIGHTS,
    FLUSHED,
    MW_BIND,
    REM_ACCESS,
    REMOTE_READ,
    REMOTE_WRITE,
    SUCCESS,
    WITH_INVALIDATE,
    expect,
)
from interop_matrix import Case, cell

SIZE = 4096
OFFSET, LENGTH = 1000, 1500


@cell("RC memory window of type 2, SEND with Invalidate")
def invalidate(case: Case) -> None:
    """The window lets in what it covers; after the SEND its key is nobody's."""
    link = case.link()
    link.requester.memory("from", LENGTH, seed=1)
    link.responder.memory("in", 64)
    there = link.responder.memory("to", SIZE, access=ALL_RIGHTS | MW_BIND)
    address = there["address"] + OFFSET
    key = link.responder.ask(
        "bind",
        name="qp",
        kind=2,
        memory="to",
        offset=OFFSET,
        length=LENGTH,
        rights=REMOTE_WRITE | REMOTE_READ,
    )["rkey"]
    link.responder.completions("qp", (0,))
    link.send(0, "write", [["from", 0, LENGTH]], rkey=key, address=address)
    link.sent()
    link.responder.holds("to", 1, LENGTH, OFFSET)
    link.receive(0, [["in", 0, 64]])
    link.send(1, "send_invalidate", [["from", 0, 5]], imm=key)
    link.sent()
    completion = link.received()[0]
    # The kernel gives a program the key without the flag that says that it is one.
    flag = 0 if case.ours_asks else WITH_INVALIDATE
    seen = (completion["byte_len"], completion["wc_flags"] & WITH_INVALIDATE, completion["imm_data"])
    expect("length, flag, key", seen, (5, flag, key))
    link.send(2, "write", [["from", 0, 8]], rkey=key, address=address)
    link.send(3, "send", [["from", 0, 1]])
    link.sent(REM_ACCESS, FLUSHED)


@cell("RC memory window refused: range, right")
def refused(case: Case) -> None:
    """The window grants less than the region below it.  Of its range the kernel checks only the region's."""
    for shift, rights in ((LENGTH - 7, REMOTE_WRITE), (-1, REMOTE_WRITE), (0, REMOTE_READ)):
        link = case.link()
        link.requester.memory("from", 8, seed=1)
        there = link.responder.memory("to", SIZE, access=ALL_RIGHTS | MW_BIND)
        key = link.responder.ask(
            "bind", name="qp", kind=2, memory="to", offset=OFFSET, length=LENGTH, rights=rights
        )["rkey"]
        link.responder.completions("qp", (0,))
        link.send(0, "write", [["from", 0, 8]], rkey=key, address=there["address"] + OFFSET + shift)
        if case.ours_asks and rights == REMOTE_WRITE:
            link.sent(SUCCESS)
        else:
            link.sent(REM_ACCESS)
            link.responder.empty("to", 0, SIZE)


@cell("RC memory window of type 1")
def type_1(case: Case) -> None:
    """The same, bound by a call of its own."""
    link = case.link()
    link.requester.memory("from", LENGTH, seed=2)
    there = link.responder.memory("to", SIZE, access=ALL_RIGHTS | MW_BIND)
    key = link.responder.ask(
        "bind", name="qp", kind=1, memory="to", offset=OFFSET, length=LENGTH, rights=REMOTE_WRITE
    )["rkey"]
    link.responder.completions("qp", (0,))
    link.send(0, "write", [["from", 0, LENGTH]], rkey=key, address=there["address"] + OFFSET)
    link.sent()
    link.responder.holds("to", 2, LENGTH, OFFSET)
    link.send(1, "read", [["from", 0, 8]], rkey=key, address=there["address"] + OFFSET)
    link.sent(REM_ACCESS)
