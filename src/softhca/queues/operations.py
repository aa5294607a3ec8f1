"""The operations of send work requests, a row each: the one place where they are told apart.

Posting, work queue entries, requests, packets and completions take what they know of an operation from its
row, as masks and tables that are made when they are loaded.  So an operation that is made of what is there is
a row here, and whatever is truly new (a header, what a responder does with it).  ``layout`` has the numbers,
for C programs too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from softhca.queues import layout as abi

# Kinds: how a requester carries an operation out.
SEND = 0
"""A message in packets, whose place at the peer its receive says."""
WRITE = 1
"""A message in packets with an RETH in front, which says its place."""
READ = 2
"""Requests without data, answered by READ responses."""
ATOMIC = 3
"""One request, answered by an atomic acknowledgement."""
LOCAL = 4
"""No packet: the adapter itself does it when its turn comes."""
ATOMIC_WRITE = 5
"""One request with an RETH and eight bytes, answered by an empty READ response."""
FLUSH = 6
"""One request with FETH and RETH, answered by an empty READ response."""

_BEGIN_SEND = ("SEND_FIRST", "SEND_MIDDLE")
_BEGIN_WRITE = ("RDMA_WRITE_FIRST", "RDMA_WRITE_MIDDLE")


class Operation(NamedTuple):
    """One operation.

    ``opcode`` is its number in a work request (ibv_wr_opcode, 15 at most), ``completion`` that of its
    completion (ibv_wc_opcode).  ``packets``: the names in the opcode table, without the service, of a first,
    middle, last and only packet, or of the one request.  ``immediate`` and ``invalidates``: its last packet
    has ImmDt or IETH, which the entry's imm_or_key gives.  ``consumes_receive``: it ends in a receive of the
    peer, so it needs a credit (9.7.7.2) and may raise a solicited event.  ``inline``: its data may stand in
    the entry.
    """

    opcode: int
    name: str
    kind: int
    completion: int
    packets: tuple[str, ...] = ()
    immediate: bool = False
    invalidates: bool = False
    consumes_receive: bool = False
    inline: bool = False


_ROWS = (
    Operation(abi.RDMA_WRITE, "RDMA_WRITE", WRITE, abi.WC_RDMA_WRITE,
              (*_BEGIN_WRITE, "RDMA_WRITE_LAST", "RDMA_WRITE_ONLY"), inline=True),
    Operation(abi.RDMA_WRITE_WITH_IMM, "RDMA_WRITE_WITH_IMM", WRITE, abi.WC_RDMA_WRITE,
              (*_BEGIN_WRITE, "RDMA_WRITE_LAST_WITH_IMMEDIATE", "RDMA_WRITE_ONLY_WITH_IMMEDIATE"),
              immediate=True, consumes_receive=True, inline=True),
    Operation(abi.SEND, "SEND", SEND, abi.WC_SEND, (*_BEGIN_SEND, "SEND_LAST", "SEND_ONLY"),
              consumes_receive=True, inline=True),
    Operation(abi.SEND_WITH_IMM, "SEND_WITH_IMM", SEND, abi.WC_SEND,
              (*_BEGIN_SEND, "SEND_LAST_WITH_IMMEDIATE", "SEND_ONLY_WITH_IMMEDIATE"),
              immediate=True, consumes_receive=True, inline=True),
    Operation(abi.RDMA_READ, "RDMA_READ", READ, abi.WC_RDMA_READ, ("RDMA_READ_REQUEST",)),
    Operation(abi.ATOMIC_CMP_AND_SWP, "ATOMIC_CMP_AND_SWP", ATOMIC, abi.WC_COMP_SWAP, ("COMPARE_SWAP",)),
    Operation(abi.ATOMIC_FETCH_AND_ADD, "ATOMIC_FETCH_AND_ADD", ATOMIC, abi.WC_FETCH_ADD, ("FETCH_ADD",)),
    Operation(abi.LOCAL_INV, "LOCAL_INV", LOCAL, abi.WC_LOCAL_INV),
    Operation(abi.BIND_MW, "BIND_MW", LOCAL, abi.WC_BIND_MW),
    Operation(abi.SEND_WITH_INV, "SEND_WITH_INV", SEND, abi.WC_SEND,
              (*_BEGIN_SEND, "SEND_LAST_WITH_INVALIDATE", "SEND_ONLY_WITH_INVALIDATE"),
              invalidates=True, consumes_receive=True, inline=True),
    Operation(abi.REG_MR, "REG_MR", LOCAL, abi.WC_DRIVER1),
    Operation(abi.FLUSH, "FLUSH", FLUSH, abi.WC_FLUSH, ("FLUSH",)),
    Operation(abi.ATOMIC_WRITE, "ATOMIC_WRITE", ATOMIC_WRITE, abi.WC_ATOMIC_WRITE, ("ATOMIC_WRITE",),
              inline=True),
)  # fmt: skip
OPERATIONS: dict[int, Operation] = {row.opcode: row for row in _ROWS}
MOST_OPCODES = 16


def mask(chosen: Callable[[Operation], bool] = lambda row: True) -> int:
    """Bit n set where opcode n is an operation that is ``chosen``."""
    return sum(1 << row.opcode for row in OPERATIONS.values() if chosen(row))


def table(value: Callable[[Operation], int]) -> bytes:
    """A byte for each opcode, 0 where there is none."""
    return bytes(value(OPERATIONS[code]) if code in OPERATIONS else 0 for code in range(MOST_OPCODES))
