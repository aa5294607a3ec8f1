"""What guards a connection (docs/trust.md): the peer's address, the QP number, the PSN."""

from __future__ import annotations

import struct

import pytest

from softhca.machine.primitives import address_of
from softhca.testing.addressing import gid
from softhca.testing.ends import SEND, WRITE, connect, post
from softhca.testing.ends import End as NetworkEnd
from softhca.testing.network import Network
from softhca.transport.states import RTS
from softhca.wire import icrc
from softhca.wire.framing import ROCE_V4
from softhca.wire.route import Route

FIRST_PSN = 100
"""What `connect` lets the left end begin with."""

ACKNOWLEDGE, SEND_ONLY, WRITE_ONLY = 0x11, 0x04, 0x0A
NAK_SEQUENCE, NAK_ACCESS = 0x60, 0x62
OWN_PORT, OTHER_PORT = 0xC000, 40_000
FORGED = b"forged!!"
PATIENT = {"timeout": 14, "retry_cnt": 7}


@pytest.fixture
def two():
    """Two ends whose connection has carried one WRITE: the next PSN towards the right one is 101."""
    world = Network()
    left, right = NetworkEnd(world.add(1)), NetworkEnd(world.add(2))
    mine, theirs = left.qp(), right.qp()
    connect((left, mine), (right, theirs), **PATIENT)
    left.memory[:8] = b"original"
    post(mine, WRITE, [left.sge(0, 8)], va=right.va, rkey=right.key.rkey)
    assert [done.status for done in left.poll(1)] == [0]
    yield world, left, mine, right, theirs
    world.close()


def packet(
    source: bytes, destination: bytes, port: int, opcode: int, qpn: int, psn: int, rest: bytes
) -> bytes:
    """A packet with a good ICRC, as anybody can make it."""
    data = bytearray(struct.pack(">BBHII", opcode, 0x40, 0xFFFF, qpn, 1 << 31 | psn & 0xFFFFFF)) + rest
    route = Route(ROCE_V4, source, destination, port)
    return bytes(data) + icrc.compute(route, address_of(data), len(data)).to_bytes(4, "little")


def forge(two, source: bytes, port: int, qpn_off: int = 0, psn_off: int = 0) -> bytes:
    """Have a forged WRITE arrive at the right end that is right but for what is off; what its memory holds
    then."""
    world, _, _, right, theirs = two
    reth = struct.pack(">QII", right.va, right.key.rkey, 8)
    data = packet(source, right.node.gid, port, WRITE_ONLY, theirs.number + qpn_off, FIRST_PSN + 1 + psn_off,
                  reth + FORGED)
    world.inject(right.node, data, source, source_port=port)
    world.run(limit_ns=1_000_000)
    return bytes(right.memory[:8])


def goes_on(two) -> bool:
    """Whether the connection still carries a message."""
    _, left, mine, right, theirs = two
    theirs.post_recv(5, [right.sge(64, 8)])
    post(mine, SEND, [left.sge(0, 8)], wr_id=6)
    sent, received = left.poll(1), right.poll(2)
    return [(done.wr_id, done.status) for done in sent] == [(6, 0)] and received[-1].wr_id == 5


@pytest.mark.parametrize("port", [OWN_PORT, OTHER_PORT])
def test_from_another_address_nothing_reaches_a_connection(two, port):
    assert forge(two, gid(3), port) == b"original"
    assert goes_on(two)


def test_who_can_send_from_the_peer_s_address_and_knows_both_numbers_is_taken_for_it(two):
    """RoCEv2 cannot tell: this is what ``source_port=strict`` is for."""
    _, left, *_ = two
    assert forge(two, left.node.gid, OTHER_PORT) == FORGED


def test_without_the_qp_number_nothing_happens(two):
    _, left, *_ = two
    for off in (1, -1, 12345):
        assert forge(two, left.node.gid, OTHER_PORT, qpn_off=off) == b"original"
    assert goes_on(two)


@pytest.mark.parametrize("off", [1, 2, 1000, 1 << 22, -1, -2, -1000, 1 << 23])
def test_without_the_psn_nothing_is_written_and_the_connection_goes_on(two, off):
    _, left, *_ = two
    assert forge(two, left.node.gid, OTHER_PORT, psn_off=off) == b"original"
    assert goes_on(two)


@pytest.mark.parametrize("syndrome", [0x1F, NAK_SEQUENCE, NAK_ACCESS, 0x20])
@pytest.mark.parametrize("off", [1, 7, 1 << 20, -3, 1 << 23])
def test_an_answer_to_what_is_not_outstanding_ends_nothing(two, syndrome, off):
    world, left, mine, right, _ = two
    data = packet(right.node.gid, left.node.gid, OTHER_PORT, ACKNOWLEDGE, mine.number, FIRST_PSN + off,
                  struct.pack(">I", syndrome << 24))
    world.inject(left.node, data, right.node.gid, source_port=OTHER_PORT)
    world.run(limit_ns=1_000_000)
    assert mine.query()["qp_state"] == RTS
    assert goes_on(two)
