"""The harness of the transport alone: nodes, ends, a link with faults, and forged packets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from softhca.queues import wqe
from softhca.queues.control_fields import EVENT_COMM_EST
from softhca.testing.transport_node import PD, gid
from softhca.testing.transport_pair import START_NS, Faults, Pair
from softhca.transport.states import ERR, RTS, UC, UD
from softhca.wire import opcodes

DATA = bytes(range(256)) * 4


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made: list[Pair] = []
    yield made
    for pair in made:
        pair.close()


def test_a_write_goes_to_the_other_node_and_time_goes_on(pairs: list[Pair]) -> None:
    pairs.append(pair := Pair(pmtu=256))
    source, target = pair.left.region(1024, fill=DATA), pair.right.region(1024)
    assert pair.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    pair.run()
    (done,) = pair.left.sent()
    assert (done.status, done.wr_id) == (0, 1)
    assert bytes(target.data) == DATA
    assert [row["bytes"] for row in pair.decoded("ab")] == [256] * 4
    assert pair.now > START_NS
    pair.at_rest()


def test_completions_have_the_fields_of_an_entry_and_no_others(pairs: list[Pair]) -> None:
    pairs.append(pair := Pair())
    pair.left.post(wqe.RDMA_WRITE, [])
    pair.run()
    (done,) = pair.left.sent()
    assert done["status"] == done.status == 0
    with pytest.raises(AttributeError, match="colour"):
        done.colour  # noqa: B018


@pytest.mark.parametrize("seed", range(4))
def test_faults_decide_by_their_seed(pairs: list[Pair], seed: int) -> None:
    logs = []
    for _ in range(2):
        pair = Pair(pmtu=256, timeout=6, faults=Faults(seed, 0.2, 0.1, 0.1))
        pairs.append(pair)
        source, target = pair.left.region(1024, fill=DATA), pair.right.region(1024)
        pair.left.post(wqe.RDMA_WRITE, [source.sge()], va=target.va, rkey=target.key)
        pair.run()
        assert bytes(target.data) == DATA
        logs.append([(row["way"], row["opcode"], row["psn"]) for row in pair.decoded()])
    assert logs[0] == logs[1]


def test_a_rule_says_how_many_copies_arrive(pairs: list[Pair]) -> None:
    faults = Faults(rule=lambda direction, packet: 0)
    assert faults.apply("ab", [b"1", b"2"]) == []
    faults.rule = lambda direction, packet: 2 if packet == b"1" else direction == "ba"
    assert faults.apply("ab", [b"1", b"2"]) == [b"1", b"1"]
    assert faults.apply("ba", [b"1", b"2"]) == [b"1", b"1", b"2"]


def test_reordering_swaps_neighbours() -> None:
    assert Faults(reordering=1.0).apply("ab", [b"1", b"2", b"3"]) == [b"2", b"3", b"1"]


def test_a_forged_packet_is_sound_and_says_what_it_was_told(pairs: list[Pair]) -> None:
    pairs.append(pair := Pair(service=UC, right_psn=0))
    target = pair.right.region(64)
    pair.forge(opcodes.UC_RDMA_WRITE_ONLY, 0, b"forged!!", va=target.va + 8, rkey=target.key, length=8)
    assert bytes(target.data[8:16]) == b"forged!!"
    assert not any(target.data[16:])


def test_datagrams_take_a_handle(pairs: list[Pair]) -> None:
    pairs.append(pair := Pair(service=UD, pmtu=256))
    source, target = pair.left.region(64, fill=DATA[:64]), pair.right.region(104)
    assert pair.right.post_receive([target.sge()], wr_id=9)
    handle = pair.handle(pair.left, pair.right, 3)
    pair.left.post(wqe.SEND, [source.sge()], ah=handle, qpn=pair.right.number, qkey=0x1234)
    pair.run()
    (got,) = pair.right.received()
    assert (got.wr_id, got.status) == (9, 0)
    assert bytes(target.data[40:]) == DATA[:64]
    assert pair.a.handles[3].pd == PD


def test_an_unconnected_pair_stays_in_reset_until_it_is_connected(pairs: list[Pair]) -> None:
    pairs.append(pair := Pair(connect=False))
    assert pair.left.qp.state == 0
    pair.connect(pair.left, pair.right, 0, 0)
    assert pair.left.qp.state == RTS


def test_events_are_kept_with_their_element(pairs: list[Pair]) -> None:
    pairs.append(pair := Pair(connect=False))
    pair.connect(pair.left, pair.right, 0, 0)
    pair.connect(pair.right, pair.left, 0, 0, until=2)  # RTR: what arrives says that the peer is there
    target = pair.right.region(8)
    pair.left.post(wqe.RDMA_WRITE, [pair.left.region(8).sge()], remote=target)
    pair.run()
    assert (EVENT_COMM_EST, pair.right.number) in pair.b.events


def test_held_memory_is_waited_for(pairs: list[Pair]) -> None:
    pairs.append(pair := Pair())
    source, target = pair.left.region(64, fill=DATA[:64]), pair.right.region(64)
    pair.a.data_access(False)
    pair.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    pair.after(50_000, lambda: pair.a.data_access(True))
    pair.run()
    assert bytes(target.data) == DATA[:64]
    assert pair.now >= START_NS + 50_000


def test_a_full_ring_takes_no_more_and_a_broken_entry_breaks_its_queue(pairs: list[Pair]) -> None:
    pairs.append(pair := Pair(entries=4))
    assert all(pair.left.post(wqe.RDMA_WRITE, [], ring=False) for _ in range(4))
    assert not pair.left.post(wqe.RDMA_WRITE, [], ring=False)
    pairs.append(pair := Pair())
    pair.left.post_raw(b"\xff" * 40)
    pair.run()
    assert pair.left.qp.state == ERR


def test_addresses() -> None:
    assert gid(7)[-4:] == bytes((192, 0, 2, 7))
    pair = Pair(v6=True)
    assert pair.route(pair.a.gid, pair.b.gid).destination[:4] == bytes.fromhex("20010db8")
    pair.close()
