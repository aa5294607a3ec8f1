"""The opcode table, service × operation × position, as data (IBTA vol. 1, table 38; XRC: annex A14; CNP:
annex A17; ATOMIC WRITE and FLUSH: annex A19).

From the table follow the headers of a packet, which packets carry payload, and which packet may come after
which.
"""

from __future__ import annotations

import functools
from array import array
from typing import NamedTuple

# services: the top three bits of the opcode
RC = 0
UC = 1
RD = 2
UD = 3
CONGESTION = 4
XRC = 5
SERVICE_NAMES = {RC: "RC", UC: "UC", RD: "RD", UD: "UD", CONGESTION: "CNP", XRC: "XRC"}

# operations
SEND = 0
WRITE = 1
READ_REQUEST = 2
READ_RESPONSE = 3
ACKNOWLEDGE = 4
ATOMIC_ACK = 5
COMPARE_SWAP = 6
FETCH_ADD = 7
RESYNC = 8
CNP = 9
ATOMIC_WRITE = 10
FLUSH = 11

# positions in a message
FIRST = 0
MIDDLE = 1
LAST = 2
ONLY = 3

# extension headers, one of twelve bits each; their order does not matter, that of `EXTENSION_HEADERS` does
HAS_RDETH = 0x001
HAS_DETH = 0x002
HAS_XRCETH = 0x004
HAS_RETH = 0x008
HAS_ATOMICETH = 0x010
HAS_AETH = 0x020
HAS_ATOMICACKETH = 0x040
HAS_IMMDT = 0x080
HAS_IETH = 0x100
HAS_FETH = 0x200
EXTENSION_HEADERS: tuple[tuple[str, int, int], ...] = (
    # name, bit, bytes; in the order in which they follow the BTH
    ("rdeth", HAS_RDETH, 4),
    ("deth", HAS_DETH, 8),
    ("xrceth", HAS_XRCETH, 4),
    ("feth", HAS_FETH, 4),
    ("reth", HAS_RETH, 16),
    ("atomiceth", HAS_ATOMICETH, 28),
    ("aeth", HAS_AETH, 4),
    ("atomicacketh", HAS_ATOMICACKETH, 8),
    ("immdt", HAS_IMMDT, 4),
    ("ieth", HAS_IETH, 4),
)
FRONT_BITS = sum(
    bit for _, bit, _ in EXTENSION_HEADERS[: [name for name, _, _ in EXTENSION_HEADERS].index("reth")]
)
"""Those that stand in front of RETH, AtomicETH and AETH, of which most packets have none."""


class Opcode(NamedTuple):
    """One row: ``headers`` are the extension headers in order, ``payload`` says whether data may follow."""

    code: int
    name: str
    service: int
    operation: int
    position: int
    headers: tuple[str, ...]
    payload: bool

    @property
    def extension_bytes(self) -> int:
        """Length of the extension headers together."""
        return sum(size for name, _, size in EXTENSION_HEADERS if name in self.headers)

    @property
    def header_bits(self) -> int:
        """The extension headers as ``HAS_…`` bits."""
        return sum(bit for name, bit, _ in EXTENSION_HEADERS if name in self.headers)

    @property
    def is_response(self) -> bool:
        """Whether a responder sends it."""
        return self.operation in (READ_RESPONSE, ACKNOWLEDGE, ATOMIC_ACK)


# low five bits, name, operation, position, headers that every service has here, payload allowed
_ROWS: tuple[tuple[int, str, int, int, tuple[str, ...], bool], ...] = (
    (0x00, "SEND_FIRST", SEND, FIRST, (), True),
    (0x01, "SEND_MIDDLE", SEND, MIDDLE, (), True),
    (0x02, "SEND_LAST", SEND, LAST, (), True),
    (0x03, "SEND_LAST_WITH_IMMEDIATE", SEND, LAST, ("immdt",), True),
    (0x04, "SEND_ONLY", SEND, ONLY, (), True),
    (0x05, "SEND_ONLY_WITH_IMMEDIATE", SEND, ONLY, ("immdt",), True),
    (0x06, "RDMA_WRITE_FIRST", WRITE, FIRST, ("reth",), True),
    (0x07, "RDMA_WRITE_MIDDLE", WRITE, MIDDLE, (), True),
    (0x08, "RDMA_WRITE_LAST", WRITE, LAST, (), True),
    (0x09, "RDMA_WRITE_LAST_WITH_IMMEDIATE", WRITE, LAST, ("immdt",), True),
    (0x0A, "RDMA_WRITE_ONLY", WRITE, ONLY, ("reth",), True),
    (0x0B, "RDMA_WRITE_ONLY_WITH_IMMEDIATE", WRITE, ONLY, ("reth", "immdt"), True),
    (0x0C, "RDMA_READ_REQUEST", READ_REQUEST, ONLY, ("reth",), False),
    (0x0D, "RDMA_READ_RESPONSE_FIRST", READ_RESPONSE, FIRST, ("aeth",), True),
    (0x0E, "RDMA_READ_RESPONSE_MIDDLE", READ_RESPONSE, MIDDLE, (), True),
    (0x0F, "RDMA_READ_RESPONSE_LAST", READ_RESPONSE, LAST, ("aeth",), True),
    (0x10, "RDMA_READ_RESPONSE_ONLY", READ_RESPONSE, ONLY, ("aeth",), True),
    (0x11, "ACKNOWLEDGE", ACKNOWLEDGE, ONLY, ("aeth",), False),
    (0x12, "ATOMIC_ACKNOWLEDGE", ATOMIC_ACK, ONLY, ("aeth", "atomicacketh"), False),
    (0x13, "COMPARE_SWAP", COMPARE_SWAP, ONLY, ("atomiceth",), False),
    (0x14, "FETCH_ADD", FETCH_ADD, ONLY, ("atomiceth",), False),
    (0x15, "RESYNC", RESYNC, ONLY, (), False),
    (0x16, "SEND_LAST_WITH_INVALIDATE", SEND, LAST, ("ieth",), True),
    (0x17, "SEND_ONLY_WITH_INVALIDATE", SEND, ONLY, ("ieth",), True),
    (0x1C, "FLUSH", FLUSH, ONLY, ("feth", "reth"), False),
    (0x1D, "ATOMIC_WRITE", ATOMIC_WRITE, ONLY, ("reth",), True),
)

# which rows a service has, and what it puts in front of the headers of its requests and of its responses
_SERVICES: tuple[tuple[int, tuple[int, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (RC, (*range(0x15), 0x16, 0x17, 0x1C, 0x1D), (), ()),
    (UC, tuple(range(0x0C)), (), ()),
    (RD, tuple(range(0x16)), ("rdeth", "deth"), ("rdeth",)),
    (UD, (0x04, 0x05), ("deth",), ("deth",)),
    (XRC, (*range(0x15), 0x16, 0x17), ("xrceth",), ()),
)
FRONT_HEADERS: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {
    service: (requests, responses) for service, _, requests, responses in _SERVICES
}
"""What a service puts between BTH and the headers of the operation: of its requests, of its responses."""


def _table() -> dict[int, Opcode]:
    rows = {row[0]: row for row in _ROWS}
    table: dict[int, Opcode] = {}
    for service, codes, request_headers, response_headers in _SERVICES:
        for low in codes:
            _, name, operation, position, headers, payload = rows[low]
            code = service << 5 | low
            responds = operation in (READ_RESPONSE, ACKNOWLEDGE, ATOMIC_ACK)
            front = response_headers if responds else request_headers
            full_name = f"{SERVICE_NAMES[service]}_{name}"
            table[code] = Opcode(code, full_name, service, operation, position, front + headers, payload)
    table[0x81] = Opcode(0x81, "CNP", CONGESTION, CNP, ONLY, (), True)
    return table


OPCODES: dict[int, Opcode] = _table()
BY_NAME: dict[str, Opcode] = {row.name: row for row in OPCODES.values()}


def successors(code: int) -> frozenset[int]:
    """The opcodes that may directly follow ``code`` in the same direction of one queue pair (IBTA 9.4, tables
    39, 40).

    Inside a message only its own continuation may come; after a message's end any opcode that begins one.
    Requests and responses are two sequences of their own.
    """
    row = OPCODES[code]
    inside = row.position in (FIRST, MIDDLE)
    return frozenset(
        other.code
        for other in OPCODES.values()
        if other.service == row.service
        and other.is_response == row.is_response
        and (
            (other.operation == row.operation and other.position in (MIDDLE, LAST))
            if inside
            else other.position in (FIRST, ONLY)
        )
    )


SUCCESSORS: dict[int, frozenset[int]] = {code: successors(code) for code in OPCODES}

# The same for the hot path: one packed word an opcode, 0 where it is reserved.
# The lowest twelve bits are HAS_…
PACKED_OPERATION_SHIFT = 12  # 4 bits
PACKED_POSITION_SHIFT = 16  # 2 bits
PACKED_PAYLOAD_BIT = 0x40000
PACKED_EXTENSION_SHIFT = 20  # bytes of extension headers, 8 bits
PACKED_VALID_BIT = 0x80000000


@functools.cache
def packed_table() -> array[int]:
    """256 packed words, indexed by opcode: one table for all, to be read."""
    table = array("I", [0]) * 256
    for row in OPCODES.values():
        table[row.code] = (
            PACKED_VALID_BIT
            | row.extension_bytes << PACKED_EXTENSION_SHIFT
            | (PACKED_PAYLOAD_BIT if row.payload else 0)
            | row.position << PACKED_POSITION_SHIFT
            | row.operation << PACKED_OPERATION_SHIFT
            | row.header_bits
        )
    return table


# Integer constants by name, written out so that they can be read, searched for and checked by a type checker.
RC_SEND_FIRST = 0x00
RC_SEND_MIDDLE = 0x01
RC_SEND_LAST = 0x02
RC_SEND_LAST_WITH_IMMEDIATE = 0x03
RC_SEND_ONLY = 0x04
RC_SEND_ONLY_WITH_IMMEDIATE = 0x05
RC_RDMA_WRITE_FIRST = 0x06
RC_RDMA_WRITE_MIDDLE = 0x07
RC_RDMA_WRITE_LAST = 0x08
RC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x09
RC_RDMA_WRITE_ONLY = 0x0A
RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x0B
RC_RDMA_READ_REQUEST = 0x0C
RC_RDMA_READ_RESPONSE_FIRST = 0x0D
RC_RDMA_READ_RESPONSE_MIDDLE = 0x0E
RC_RDMA_READ_RESPONSE_LAST = 0x0F
RC_RDMA_READ_RESPONSE_ONLY = 0x10
RC_ACKNOWLEDGE = 0x11
RC_ATOMIC_ACKNOWLEDGE = 0x12
RC_COMPARE_SWAP = 0x13
RC_FETCH_ADD = 0x14
RC_SEND_LAST_WITH_INVALIDATE = 0x16
RC_SEND_ONLY_WITH_INVALIDATE = 0x17
RC_FLUSH = 0x1C
RC_ATOMIC_WRITE = 0x1D
UC_SEND_FIRST = 0x20
UC_SEND_MIDDLE = 0x21
UC_SEND_LAST = 0x22
UC_SEND_LAST_WITH_IMMEDIATE = 0x23
UC_SEND_ONLY = 0x24
UC_SEND_ONLY_WITH_IMMEDIATE = 0x25
UC_RDMA_WRITE_FIRST = 0x26
UC_RDMA_WRITE_MIDDLE = 0x27
UC_RDMA_WRITE_LAST = 0x28
UC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x29
UC_RDMA_WRITE_ONLY = 0x2A
UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x2B
RD_SEND_FIRST = 0x40
RD_SEND_MIDDLE = 0x41
RD_SEND_LAST = 0x42
RD_SEND_LAST_WITH_IMMEDIATE = 0x43
RD_SEND_ONLY = 0x44
RD_SEND_ONLY_WITH_IMMEDIATE = 0x45
RD_RDMA_WRITE_FIRST = 0x46
RD_RDMA_WRITE_MIDDLE = 0x47
RD_RDMA_WRITE_LAST = 0x48
RD_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x49
RD_RDMA_WRITE_ONLY = 0x4A
RD_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x4B
RD_RDMA_READ_REQUEST = 0x4C
RD_RDMA_READ_RESPONSE_FIRST = 0x4D
RD_RDMA_READ_RESPONSE_MIDDLE = 0x4E
RD_RDMA_READ_RESPONSE_LAST = 0x4F
RD_RDMA_READ_RESPONSE_ONLY = 0x50
RD_ACKNOWLEDGE = 0x51
RD_ATOMIC_ACKNOWLEDGE = 0x52
RD_COMPARE_SWAP = 0x53
RD_FETCH_ADD = 0x54
RD_RESYNC = 0x55
UD_SEND_ONLY = 0x64
UD_SEND_ONLY_WITH_IMMEDIATE = 0x65
CNP_PACKET = 0x81
XRC_SEND_FIRST = 0xA0
XRC_SEND_MIDDLE = 0xA1
XRC_SEND_LAST = 0xA2
XRC_SEND_LAST_WITH_IMMEDIATE = 0xA3
XRC_SEND_ONLY = 0xA4
XRC_SEND_ONLY_WITH_IMMEDIATE = 0xA5
XRC_RDMA_WRITE_FIRST = 0xA6
XRC_RDMA_WRITE_MIDDLE = 0xA7
XRC_RDMA_WRITE_LAST = 0xA8
XRC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0xA9
XRC_RDMA_WRITE_ONLY = 0xAA
XRC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0xAB
XRC_RDMA_READ_REQUEST = 0xAC
XRC_RDMA_READ_RESPONSE_FIRST = 0xAD
XRC_RDMA_READ_RESPONSE_MIDDLE = 0xAE
XRC_RDMA_READ_RESPONSE_LAST = 0xAF
XRC_RDMA_READ_RESPONSE_ONLY = 0xB0
XRC_ACKNOWLEDGE = 0xB1
XRC_ATOMIC_ACKNOWLEDGE = 0xB2
XRC_COMPARE_SWAP = 0xB3
XRC_FETCH_ADD = 0xB4
XRC_SEND_LAST_WITH_INVALIDATE = 0xB6
XRC_SEND_ONLY_WITH_INVALIDATE = 0xB7
