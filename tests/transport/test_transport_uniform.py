"""RDMA WRITEs and READs that go as messages whose packets have one length."""

from types import SimpleNamespace

import pytest

from softhca.queues import cqe, wqe
from softhca.testing.transport_pair import Faults
from softhca.transport.states import ERR, RC, RESET, RTS, UC, XRC
from softhca.transport.uniform import MOST_PROVEN, UniformBursts, uniform_packets
from softhca.wire import opcodes as op
from softhca.wire.framing import NATIVE, ROCE_V4, ROCE_V6

PATTERN = bytes(i * 7 % 251 for i in range(1 << 17))
ALL = UniformBursts(write_bytes=8192, read_bytes=8192, reads_under_way_bytes=0)
BTH_RETH_ICRC = 12 + 16 + 4


@pytest.fixture
def uniform(pair):
    """A pair with path MTU 256 whose WRITEs and READs of up to 32 packets go so."""

    def make(**options):
        return pair(**{"pmtu": 256, "uniform": ALL, "rd_atomic": 16} | options)

    return make


def done(p, opcode, remote, first, size):
    """A request of bytes from ``first`` of the region ``remote``, to its end; the packets that it sent."""
    local = p.left.region(size, fill=remote.data[first : first + size])
    p.log.clear()
    p.left.post(opcode, [local.sge()], remote=remote, offset=first)
    p.run()
    rows = p.decoded("ab")
    assert [c.status for c in p.left.sent()] == [0]
    p.log.clear()
    p.bursts.clear()
    return rows


def known(p, opcode, remote):
    """Let the connection know ``remote`` from end to end, by a request that changes nothing."""
    rows = done(p, opcode, remote, 0, len(remote.data))
    assert {row["opcode"] for row in rows} != {op.RC_RDMA_WRITE_ONLY}, "nothing is known of it before"
    return remote


def write(p, size, know=True, **options):
    source = p.left.region(size, fill=PATTERN[:size])
    target = p.right.region(size + 16)
    if know:
        known(p, wqe.RDMA_WRITE, target)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target, offset=8, **options)
    return target


def read(p, size, know=True):
    remote = p.right.region(size, fill=PATTERN[:size])
    local = p.left.region(size + 16)
    if know:
        known(p, wqe.RDMA_READ, remote)
    p.left.post(wqe.RDMA_READ, [local.sge(8, size)], remote=remote)
    return local, remote


def test_a_write_goes_as_only_packets_each_with_its_own_reth(uniform):
    p = uniform(left_psn=0xFFFFFA)
    target = write(p, 1000)
    p.run()
    assert target.data == bytes(8) + PATTERN[:1000] + bytes(8)
    rows = p.decoded("ab")
    assert [row["opcode"] for row in rows] == [op.RC_RDMA_WRITE_ONLY] * 4
    assert [row["psn"] for row in rows] == [0xFFFFFE, 0xFFFFFF, 0, 1]
    assert [row["va"] for row in rows] == [target.va + 8 + 256 * i for i in range(4)]
    assert [row["length"] for row in rows] == [row["bytes"] for row in rows] == [256, 256, 256, 232]
    assert [row["ack_request"] for row in rows] == [False, False, False, True]
    assert [(c.status, c.byte_len) for c in p.left.sent()] == [(0, 1000)]
    p.at_rest()


def test_writes_of_several_requests_share_one_burst(uniform):
    p = uniform()
    targets = [known(p, wqe.RDMA_WRITE, p.right.region(1024)) for _ in range(4)]
    for target in targets:
        p.left.post(wqe.RDMA_WRITE, [p.left.region(1024).sge()], remote=target, ring=target is targets[-1])
    p.run()
    assert [burst for burst in p.bursts if burst[0] == "ab"] == [("ab", 16, 16 * (256 + BTH_RETH_ICRC))]


@pytest.mark.parametrize("size", [256, 257, 8192, 8193])
def test_only_what_is_longer_than_a_packet_and_not_too_long(uniform, size):
    p = uniform()
    target = write(p, size)
    p.run()
    assert target.data[8:-8] == PATTERN[:size]
    first = p.decoded("ab")[0]
    assert first["opcode"] == (op.RC_RDMA_WRITE_FIRST if size > 8192 else op.RC_RDMA_WRITE_ONLY)
    assert first["length"] == (size if size > 8192 else 256)


def test_a_write_with_immediate_stays_one_message(uniform):
    p = uniform()
    source = p.left.region(1000, fill=PATTERN[:1000])
    target = known(p, wqe.RDMA_WRITE, p.right.region(1000))
    p.right.post_receive(wr_id=9)
    p.left.post(wqe.RDMA_WRITE_WITH_IMM, [source.sge()], remote=target, imm=7)
    p.run()
    assert [(c.wr_id, c.byte_len) for c in p.right.received()] == [(9, 1000)]
    assert [row["opcode"] for row in p.decoded("ab")] == [6, 7, 7, 9]


def test_unreliable_connections_keep_their_messages(uniform):
    p = uniform(service=UC)
    target = write(p, 1000, know=False)
    p.run()
    assert target.data[8:-8] == PATTERN[:1000]
    assert p.decoded("ab")[0]["opcode"] == op.UC_RDMA_WRITE_FIRST


def test_the_responder_counts_messages_and_so_does_the_requester(uniform):
    """Credits are told by MSN: were SSNs not those of the messages on the wire, the SENDs would wait."""
    p = uniform()
    for _ in range(3):
        p.right.post_receive([p.right.region(64).sge()])
    for _ in range(3):
        write(p, 1000)
        p.left.post(wqe.SEND, inline=b"x" * 8)
        p.run()
        assert [c.status for c in p.left.sent()] == [0] * 2
    assert [row["msn"] for row in p.decoded("ba")][-1] == 3 * (1 + 4 + 1)
    sender = p.left.qp.send_engine()
    assert (sender.next_ssn, sender.lsn) == (19, 18)


def test_a_read_asks_for_two_packets_at_a_time(uniform):
    p = uniform()
    local, remote = read(p, 256 * 5 + 3)
    p.run()
    assert local.data == bytes(8) + PATTERN[: 256 * 5 + 3] + bytes(8)
    requests = p.decoded("ab")
    assert [(row["psn"], row["va"] - remote.va, row["length"]) for row in requests] == [
        (6, 0, 512), (8, 512, 512), (10, 1024, 259),
    ]  # fmt: skip
    first, last = op.RC_RDMA_READ_RESPONSE_FIRST, op.RC_RDMA_READ_RESPONSE_LAST
    assert [row["opcode"] for row in p.decoded("ba")] == [first, last] * 3
    assert [burst[1] for burst in p.bursts if burst[0] == "ba"] == [6]
    assert [(c.status, c.byte_len) for c in p.left.sent()] == [(0, 256 * 5 + 3)]
    assert p.left.qp.send_engine().next_ssn == 5
    assert p.left.qp.send_engine().rd_outstanding == 0
    p.at_rest()


def test_no_more_reads_at_once_than_agreed(uniform):
    p = uniform(rd_atomic=2)
    read(p, 256 * 8)
    p.run()
    under_way = 0
    for row in p.decoded():
        under_way += {"ab": 1}.get(row["way"], -(row["opcode"] == op.RC_RDMA_READ_RESPONSE_LAST))
        assert under_way <= 2
    assert len(p.decoded("ab")) == 4


@pytest.mark.parametrize(("reads", "slices"), [(15, 1), (16, 2)])
def test_reads_go_so_where_enough_may_be_under_way(pair, reads, slices):
    rules = UniformBursts(read_bytes=8192, reads_under_way_bytes=16 * 512)
    p = pair(pmtu=256, uniform=rules, rd_atomic=reads)
    local, _ = read(p, 1024)
    p.run()
    assert local.data[8:-8] == PATTERN[:1024]
    assert len(p.decoded("ab")) == slices


@pytest.mark.parametrize(("size", "requests"), [(8192, 16), (8193, 1)])
def test_longer_reads_go_in_their_usual_slices(uniform, size, requests):
    p = uniform()
    local, _ = read(p, size)
    p.run()
    assert local.data[8:-8] == PATTERN[:size]
    assert len(p.decoded("ab")) == requests


@pytest.mark.parametrize("lost", range(1, 6))
def test_what_is_lost_goes_again_alone_and_with_its_own_address(uniform, lost):
    gone, proving = [], [True]

    def lose(way, packet):
        if way == "ab" and not proving and len(gone) < lost:
            gone.append(packet)
            return len(gone) != lost and 1
        return 1

    p = uniform(faults=Faults(rule=lose))
    target = write(p, 256 * 6)
    proving.clear()
    p.run()
    assert target.data == bytes(8) + PATTERN[: 256 * 6] + bytes(8)
    again = [row for row in p.decoded("ab")][6:]
    assert again[0]["psn"] == 7 + lost - 1
    assert again[0]["va"] == target.va + 8 + 256 * (lost - 1)
    assert {row["opcode"] for row in again} == {op.RC_RDMA_WRITE_ONLY}
    assert [c.status for c in p.left.sent()] == [0]
    p.at_rest()


@pytest.mark.parametrize("opcode", [wqe.RDMA_WRITE, wqe.RDMA_READ])
@pytest.mark.parametrize("size", [1024, 1025])
def test_what_reaches_beyond_the_region_changes_nothing(uniform, opcode, size):
    """All of the region is proven, so only a message that the responder judges whole can be refused."""
    p = uniform()
    local, remote = p.left.region(2048, fill=PATTERN[:2048]), p.right.region(1024)
    known(p, opcode, remote)
    p.left.post(opcode, [local.sge(0, size)], remote=remote)
    p.run()
    refused = size > 1024
    assert [c.status for c in p.left.sent()] == [cqe.WC_REM_ACCESS_ERR if refused else 0]
    assert (p.left.qp.state, p.right.qp.state) == ((ERR, ERR) if refused else (RTS, RTS))
    assert (remote.data == bytes(1024)) is (refused or opcode == wqe.RDMA_READ)
    assert (local.data == PATTERN[:2048]) is (refused or opcode == wqe.RDMA_WRITE)


def separate(rows):
    """Whether a request went as messages of its own: WRITE Only packets, or several READ requests."""
    return len(rows) > 1 and len({row["opcode"] for row in rows}) == 1


@pytest.mark.parametrize("opcode", [wqe.RDMA_WRITE, wqe.RDMA_READ])
def test_a_range_is_proven_by_requests_that_end_well_on_both_of_its_sides(uniform, opcode):
    p = uniform()
    remote = p.right.region(8192)
    assert not separate(done(p, opcode, remote, 2048, 1024))
    assert separate(done(p, opcode, remote, 2048, 1024))
    assert separate(done(p, opcode, remote, 2049, 1023))
    assert not separate(done(p, opcode, remote, 2047, 600))
    assert separate(done(p, opcode, remote, 2047, 1025))
    assert not separate(done(p, opcode, remote, 3000, 73))
    assert not separate(done(p, opcode, remote, 6000, 600))
    assert separate(done(p, opcode, remote, 2047, 6600 - 2047)), "a key is of one range of addresses"
    assert not separate(done(p, opcode, remote, 2047, 6601 - 2047))
    p.at_rest()


def test_a_range_that_is_proven_for_writes_is_not_so_for_reads(uniform):
    p = uniform()
    remote = p.right.region(2048)
    known(p, wqe.RDMA_WRITE, remote)
    assert not separate(done(p, wqe.RDMA_READ, remote, 0, 2048))
    assert separate(done(p, wqe.RDMA_READ, remote, 0, 2048))


def test_nothing_is_proven_of_another_key_or_in_a_new_connection(uniform):
    p = uniform()
    remotes = [p.right.region(2048) for _ in range(2)]
    known(p, wqe.RDMA_WRITE, remotes[0])
    assert not separate(done(p, wqe.RDMA_WRITE, remotes[1], 0, 2048))
    assert separate(done(p, wqe.RDMA_WRITE, remotes[0], 0, 2048))
    for end, peer, own, others in ((p.left, p.right, 7, 9), (p.right, p.left, 9, 7)):
        assert end.qp.modify({"qp_state": RESET}, p.now) == 0
        p.connect(end, peer, own, others)
    assert not separate(done(p, wqe.RDMA_WRITE, remotes[0], 0, 2048)), "another peer may be there now"


def test_only_so_many_keys_are_remembered(uniform):
    p = uniform()
    remotes = [p.right.region(600) for _ in range(MOST_PROVEN + 1)]
    for remote in remotes[:-1]:
        known(p, wqe.RDMA_WRITE, remote)
    assert separate(done(p, wqe.RDMA_WRITE, remotes[0], 0, 600))
    known(p, wqe.RDMA_WRITE, remotes[-1])
    assert separate(done(p, wqe.RDMA_WRITE, remotes[-1], 0, 600))
    assert not separate(done(p, wqe.RDMA_WRITE, remotes[0], 0, 600)), "it has begun anew"
    assert separate(done(p, wqe.RDMA_WRITE, remotes[0], 0, 600))


def test_requests_are_told_apart_anew_each_time(uniform):
    """The object of a request is used again by the next one, which may be of another kind."""
    p = uniform()
    p.right.post_receive([p.right.region(2000).sge()])
    target = write(p, 1000)
    p.run()
    p.log.clear()
    source = p.left.region(1000, fill=PATTERN[:1000])
    p.left.post(wqe.SEND, [source.sge()])
    p.run()
    assert [row["opcode"] for row in p.decoded("ab")] == [0, 1, 1, 2]
    assert target.data[8:-8] == PATTERN[:1000]
    assert [c.status for c in p.left.sent()] == [0, 0]


def test_off_they_are_messages_of_many_packets(pair):
    p = pair(pmtu=256, rd_atomic=16)
    remote = p.right.region(1000)
    for _ in range(2):
        rows = [*done(p, wqe.RDMA_WRITE, remote, 0, 1000), *done(p, wqe.RDMA_READ, remote, 0, 1000)]
        assert [row["opcode"] for row in rows] == [6, 7, 7, 8, op.RC_RDMA_READ_REQUEST]
    assert p.left.qp.state == RTS


@pytest.mark.parametrize(
    ("service", "framing", "expected"),
    [(RC, ROCE_V4, (32, 32)), (RC, ROCE_V6, (32, 32)), (RC, NATIVE, (0, 0)), (XRC, ROCE_V4, (0, 0))],
)
def test_only_rc_along_routes_of_roce(service, framing, expected):
    connection = SimpleNamespace(
        environment=SimpleNamespace(uniform_bursts=ALL), service=service, path_mtu_bytes=256,
        max_rd_atomic=4, flow=SimpleNamespace(route=SimpleNamespace(framing=framing)),
    )  # fmt: skip
    assert uniform_packets(connection) == expected
    connection.flow.route = None
    assert uniform_packets(connection) == (0, 0)
