"""The opcode table against the standard's (IBTA vol. 1, table 38) and what follows from it."""

import pytest

from softhca.wire import opcodes
from softhca.wire.opcodes import (
    ACKNOWLEDGE,
    ATOMIC_ACK,
    BY_NAME,
    EXTENSION_HEADERS,
    FIRST,
    LAST,
    MIDDLE,
    ONLY,
    OPCODES,
    RC,
    RD,
    READ_RESPONSE,
    SUCCESSORS,
    UC,
    UD,
    XRC,
    packed_table,
)

# low five bits: position, extension headers of the reliable connection, as the standard prints them
RC_TABLE = {
    0x00: ("SEND_FIRST", FIRST, ()),
    0x01: ("SEND_MIDDLE", MIDDLE, ()),
    0x02: ("SEND_LAST", LAST, ()),
    0x03: ("SEND_LAST_WITH_IMMEDIATE", LAST, ("immdt",)),
    0x04: ("SEND_ONLY", ONLY, ()),
    0x05: ("SEND_ONLY_WITH_IMMEDIATE", ONLY, ("immdt",)),
    0x06: ("RDMA_WRITE_FIRST", FIRST, ("reth",)),
    0x07: ("RDMA_WRITE_MIDDLE", MIDDLE, ()),
    0x08: ("RDMA_WRITE_LAST", LAST, ()),
    0x09: ("RDMA_WRITE_LAST_WITH_IMMEDIATE", LAST, ("immdt",)),
    0x0A: ("RDMA_WRITE_ONLY", ONLY, ("reth",)),
    0x0B: ("RDMA_WRITE_ONLY_WITH_IMMEDIATE", ONLY, ("reth", "immdt")),
    0x0C: ("RDMA_READ_REQUEST", ONLY, ("reth",)),
    0x0D: ("RDMA_READ_RESPONSE_FIRST", FIRST, ("aeth",)),
    0x0E: ("RDMA_READ_RESPONSE_MIDDLE", MIDDLE, ()),
    0x0F: ("RDMA_READ_RESPONSE_LAST", LAST, ("aeth",)),
    0x10: ("RDMA_READ_RESPONSE_ONLY", ONLY, ("aeth",)),
    0x11: ("ACKNOWLEDGE", ONLY, ("aeth",)),
    0x12: ("ATOMIC_ACKNOWLEDGE", ONLY, ("aeth", "atomicacketh")),
    0x13: ("COMPARE_SWAP", ONLY, ("atomiceth",)),
    0x14: ("FETCH_ADD", ONLY, ("atomiceth",)),
    0x16: ("SEND_LAST_WITH_INVALIDATE", LAST, ("ieth",)),
    0x17: ("SEND_ONLY_WITH_INVALIDATE", ONLY, ("ieth",)),
}
RESPONSES = range(0x0D, 0x13)
NO_PAYLOAD = (0x0C, 0x11, 0x12, 0x13, 0x14, 0x15)


@pytest.mark.parametrize("low", RC_TABLE, ids=lambda low: RC_TABLE[low][0])
def test_rc_and_xrc_rows_are_the_standards(low: int) -> None:
    name, position, headers = RC_TABLE[low]
    for service, prefix, front in ((RC, "RC_", ()), (XRC, "XRC_", () if low in RESPONSES else ("xrceth",))):
        row = OPCODES[service << 5 | low]
        assert (row.code, row.name, row.service) == (service << 5 | low, prefix + name, service)
        assert (row.position, row.headers, row.payload) == (position, front + headers, low not in NO_PAYLOAD)


@pytest.mark.parametrize("low", range(0x0C))
def test_uc_has_sends_and_writes_as_rc(low: int) -> None:
    rc, uc = OPCODES[low], OPCODES[UC << 5 | low]
    assert uc[2:] == (UC, *rc[3:])
    assert uc.name == "UC" + rc.name[2:]


@pytest.mark.parametrize("low", range(0x15))
def test_rd_puts_rdeth_in_front_and_deth_into_requests(low: int) -> None:
    front = ("rdeth",) if low in RESPONSES else ("rdeth", "deth")
    assert OPCODES[RD << 5 | low].headers == front + OPCODES[low].headers


def test_rd_has_resync_and_no_invalidate() -> None:
    assert OPCODES[0x55].headers == ("rdeth", "deth")
    assert OPCODES[0x55].payload is False
    assert 0x56 not in OPCODES
    assert 0x57 not in OPCODES


def test_ud_has_two_opcodes_with_deth() -> None:
    assert {code for code, row in OPCODES.items() if row.service == UD} == {0x64, 0x65}
    assert OPCODES[0x64].headers == ("deth",)
    assert OPCODES[0x65].headers == ("deth", "immdt")


def test_all_other_codes_are_reserved() -> None:
    rc = set(RC_TABLE)
    known = rc | {0x20 | c for c in range(12)} | {0x40 | c for c in range(0x16)} | {0x64, 0x65, 0x81}
    assert set(OPCODES) == known | {0xA0 | c for c in rc} | {0x1C, 0x1D}


def test_an_atomic_write_is_one_packet_with_reth_and_data_of_reliable_connections() -> None:
    row = OPCODES[0x1D]
    assert (row.name, row.headers, row.payload) == ("RC_ATOMIC_WRITE", ("reth",), True)
    assert (row.service, row.position, row.is_response) == (opcodes.RC, opcodes.ONLY, False)


def test_a_flush_is_one_packet_with_feth_and_reth_of_reliable_connections() -> None:
    row = OPCODES[0x1C]
    assert (row.name, row.headers, row.payload) == ("RC_FLUSH", ("feth", "reth"), False)
    assert (row.service, row.position, row.is_response) == (opcodes.RC, opcodes.ONLY, False)
    assert row.extension_bytes == 20


def test_a_constant_stands_for_every_opcode() -> None:
    for name, row in BY_NAME.items():
        assert getattr(opcodes, "CNP_PACKET" if name == "CNP" else name) == row.code
    assert opcodes.RC_SEND_FIRST == 0x00
    assert opcodes.XRC_SEND_ONLY_WITH_INVALIDATE == 0xB7


def test_operations_follow_the_names() -> None:
    words = {
        opcodes.SEND: "SEND_",
        opcodes.WRITE: "RDMA_WRITE_",
        opcodes.READ_REQUEST: "RDMA_READ_REQUEST",
        READ_RESPONSE: "RDMA_READ_RESPONSE_",
        ACKNOWLEDGE: "ACKNOWLEDGE",
        ATOMIC_ACK: "ATOMIC_ACKNOWLEDGE",
        opcodes.COMPARE_SWAP: "COMPARE_SWAP",
        opcodes.FETCH_ADD: "FETCH_ADD",
        opcodes.RESYNC: "RESYNC",
        opcodes.CNP: "CNP",
        opcodes.ATOMIC_WRITE: "ATOMIC_WRITE",
        opcodes.FLUSH: "FLUSH",
    }
    for row in OPCODES.values():
        assert row.name.partition("_")[2].startswith(words[row.operation]) or row.name == "CNP"
        assert row.is_response == (row.service != opcodes.CONGESTION and row.code & 0x1F in RESPONSES)


def _names(code: int) -> set[str]:
    return {OPCODES[next_code].name for next_code in SUCCESSORS[code]}


def test_inside_a_message_only_its_continuation_may_come() -> None:
    sends = {"RC_SEND_MIDDLE", "RC_SEND_LAST", "RC_SEND_LAST_WITH_IMMEDIATE", "RC_SEND_LAST_WITH_INVALIDATE"}
    assert _names(opcodes.RC_SEND_FIRST) == _names(opcodes.RC_SEND_MIDDLE) == sends
    writes = {"UC_RDMA_WRITE_MIDDLE", "UC_RDMA_WRITE_LAST", "UC_RDMA_WRITE_LAST_WITH_IMMEDIATE"}
    assert _names(opcodes.UC_RDMA_WRITE_FIRST) == writes
    reads = {"RC_RDMA_READ_RESPONSE_MIDDLE", "RC_RDMA_READ_RESPONSE_LAST"}
    assert _names(opcodes.RC_RDMA_READ_RESPONSE_MIDDLE) == reads


def test_after_a_message_any_opcode_of_the_service_that_begins_one_may_come() -> None:
    begins = {
        "UC_SEND_FIRST",
        "UC_SEND_ONLY",
        "UC_SEND_ONLY_WITH_IMMEDIATE",
        "UC_RDMA_WRITE_FIRST",
        "UC_RDMA_WRITE_ONLY",
        "UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE",
    }
    for code in (opcodes.UC_SEND_LAST, opcodes.UC_SEND_ONLY, opcodes.UC_RDMA_WRITE_LAST_WITH_IMMEDIATE):
        assert _names(code) == begins
    assert opcodes.RC_FETCH_ADD in SUCCESSORS[opcodes.RC_SEND_LAST]
    assert opcodes.RC_ACKNOWLEDGE not in SUCCESSORS[opcodes.RC_SEND_LAST]
    assert opcodes.RC_ATOMIC_ACKNOWLEDGE in SUCCESSORS[opcodes.RC_ACKNOWLEDGE]
    assert opcodes.RC_SEND_ONLY not in SUCCESSORS[opcodes.RC_ACKNOWLEDGE]


def test_the_packed_table_says_the_same() -> None:
    table = packed_table()
    assert packed_table() is table
    assert len(table) == 256
    for code in range(256):
        row = OPCODES.get(code)
        if row is None:
            assert table[code] == 0
            continue
        assert table[code] >> 31 == 1
        assert (table[code] >> 20 & 0xFF) == row.extension_bytes
        assert bool(table[code] & 0x40000) == row.payload
        assert (table[code] >> 16 & 3, table[code] >> 12 & 15) == (row.position, row.operation)
        names = tuple(name for name, bit, _ in EXTENSION_HEADERS if table[code] & bit)
        assert names == row.headers
