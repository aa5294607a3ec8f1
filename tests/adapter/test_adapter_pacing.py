"""Rate limits of queue pairs, in virtual time: what leaves when, and who is not held up."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from softhca.adapter.timers import TICK_NS
from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.testing.addressing import gid
from softhca.testing.datagram import Datagram
from softhca.testing.ends import RAW, RC, READ, SEND, UC, UD, WRITE, End, connect, pair, post
from softhca.testing.network import Network
from softhca.transport.congestion import DcqcnSettings
from softhca.transport.loopback import Loopback
from softhca.transport.pacing import LEAST_RATE_KBPS, MOST_RATE_KBPS

RATE = 8_000  # kbit/s: a byte a microsecond
MESSAGE = 1_000
COUNT = 12
NS_PER_BYTE = 1_000
QKEY = 0x1234567
TARGET, SOURCE, NOBODY = (bytes.fromhex(mac) for mac in ("020000000002", "020000000001", "0200000000ee"))


def limit(qp: Any, rate: int, burst: int = 0, typical: int = 0) -> None:
    qp.modify({"rate_limit": rate, "max_burst_sz": burst, "typical_pkt_sz": typical})


def raw_qp(end: End, **last: int) -> Any:
    qp = end.qp(RAW)
    for attributes in ({"qp_state": 1, "port_num": 1}, {"qp_state": 2}, {"qp_state": 3, **last}):
        qp.modify(attributes)
    return qp


class Talk:
    """A queue pair of each service, with what sends ``COUNT`` messages of ``MESSAGE`` bytes by it; ``sent``
    has all that leaves of its adapter afterwards."""

    def __init__(self, kind: int, vteps: int = 2, **config: Any) -> None:
        self.kind = kind
        self.network = Network()
        names: dict[str, Any] = {"vteps": tuple(gid(n + 1) for n in range(vteps))} if kind == RAW else {}
        ends = [
            End(self.network.add(**names, **config), entries=128, work_requests=64)
            for _ in range(max(2, vteps))
        ]
        self.left, self.right = ends[:2]
        self.handle = 0
        if kind == RAW:
            self.qp, self.peer = raw_qp(self.left), raw_qp(self.right)
        else:
            self.qp, self.peer = self.left.qp(kind), self.right.qp(kind)
            if kind == UD:
                for each in (self.qp, self.peer):
                    services.start_datagrams(each, QKEY)
                vector = {"dgid": self.right.node.gid, "is_global": 1, "port_num": 1}
                self.handle = self.left.device.create_ah(self.left.pd, vector)
            else:
                connect((self.left, self.qp), (self.right, self.peer), kind)
        self.left.memory[:12] = TARGET + SOURCE
        self.sent: list[Datagram] = self.network.record("sent")

    def post(self, count: int = COUNT, qp: Any = None, n: int = MESSAGE, **more: Any) -> None:
        for number in range(count):
            post(qp or self.qp, SEND, [self.left.sge(0, n)], wr_id=number, ah=self.handle,
                 qpn=self.peer.number, qkey=QKEY, **more)  # fmt: skip

    def receive(self, count: int = COUNT) -> None:
        for _ in range(count):
            self.peer.post_recv(0, [self.right.sge(0, 4_000)])
        self.peer.ring()

    def mine(self) -> list[tuple[int, int]]:
        """Moment and length of what the left end has sent, without the eight bytes of VXLAN."""
        beyond = 8 if self.kind == RAW else 0
        return [(e.time_ns, len(e.data) - beyond) for e in self.sent if e.source is self.left.node]


def keeps(turns: list[tuple[int, int]], rate: int, burst: int) -> None:
    """In any stretch of time no more has left than the rate carries and one burst."""
    for first in range(len(turns)):
        total = 0
        for now, n in turns[first:]:
            total += n
            assert total * 8_000_000 <= (now - turns[first][0]) * rate + burst * 8_000_000, (first, now, n)


def takes(time_ns: int, length_bytes: int, waits: int) -> None:
    """So many bytes have taken their time, of ``waits`` turns each no later than the adapter's timers are."""
    assert length_bytes * NS_PER_BYTE <= time_ns < length_bytes * NS_PER_BYTE + waits * TICK_NS


def takes_its_time(sent: list[Datagram], source: Any) -> list[Datagram]:
    """What ``source`` has sent, each packet when the one before it has had its time."""
    mine = [each for each in sent if each.source is source]
    for before, after in itertools.pairwise(mine):
        takes(after.time_ns - before.time_ns, len(before.data), 1)
    return mine


@pytest.fixture(params=[RC, UC, UD, RAW], ids=["RC", "UC", "UD", "RAW_PACKET"])
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    talk = Talk(request.param)
    with talk.network:
        yield talk


def test_so_many_bytes_take_their_time_at_the_rate(talk: Talk) -> None:
    limit(talk.qp, RATE, 2 * MESSAGE + 300)  # two packets at once, with their headers
    talk.receive()
    talk.post()
    assert [done.status for done in talk.left.poll(COUNT)] == [0] * COUNT
    talk.network.run()
    turns = talk.mine()
    keeps(turns, RATE, 2 * MESSAGE + 300)
    assert len(turns) == COUNT, "and nothing was sent again"
    total, size = sum(n for _, n in turns), turns[0][1]
    takes(turns[-1][0] - turns[0][0], total - 2 * size, COUNT // 2)


def test_one_packet_may_go_however_small_the_burst(talk: Talk) -> None:
    limit(talk.qp, RATE, 1)
    talk.receive()
    talk.post()
    talk.left.poll(COUNT)
    takes_its_time([each for each in talk.sent if talk.kind != RAW], talk.left.node)
    takes(talk.mine()[-1][0] - talk.mine()[0][0], sum(n for _, n in talk.mine()[:-1]), COUNT)


def test_a_burst_of_several_packets_leaves_room_to_make_up_for_late_timers(talk: Talk) -> None:
    limit(talk.qp, RATE, 20_000)
    talk.receive(4 * COUNT)
    talk.post(4 * COUNT)
    assert [done.status for done in talk.left.poll(4 * COUNT)] == [0] * (4 * COUNT)
    turns = talk.mine()
    keeps(turns, RATE, 20_000)
    # what is sent last is half a burst at most, and leaves half a burst before its time
    assert turns[-1][0] - turns[0][0] < (sum(n for _, n in turns) - 10_000) * NS_PER_BYTE + TICK_NS


def test_nothing_waits_without_a_limit_or_when_it_is_lifted(talk: Talk) -> None:
    limit(talk.qp, LEAST_RATE_KBPS, 1)
    talk.receive()
    talk.post()
    talk.network.elapse(1_000_000)
    assert len(talk.mine()) == 1
    limit(talk.qp, 0)
    begin = talk.network.now
    assert talk.qp.query()["rate_limit"] == 0
    talk.left.poll(COUNT)
    assert len(talk.mine()) == COUNT
    assert {now for now, _ in talk.mine()[1:]} <= set(range(begin, begin + 200_001))


def test_another_limit_counts_at_once(talk: Talk) -> None:
    limit(talk.qp, LEAST_RATE_KBPS, 1)
    talk.receive()
    talk.post()
    talk.network.elapse(1_000_000)
    limit(talk.qp, RATE, 1)
    begin = talk.network.now
    talk.left.poll(COUNT)
    turns = talk.mine()
    takes(turns[-1][0] - begin, sum(n for _, n in turns[1:-1]), COUNT)


def test_a_limit_is_given_on_the_way_to_rts_and_ends_with_reset() -> None:
    talk = Talk(RAW)
    qp = raw_qp(talk.left, rate_limit=RATE, max_burst_sz=1)
    assert qp.query()["rate_limit"] == RATE
    talk.post(qp=qp)
    talk.network.elapse(1_000_000)
    assert len(talk.mine()) < COUNT
    qp.modify({"qp_state": 0})
    assert qp.query()["rate_limit"] == 0
    before = len(talk.mine())
    for attributes in ({"qp_state": 1, "port_num": 1}, {"qp_state": 2}, {"qp_state": 3}):
        qp.modify(attributes)
    begin = talk.network.now
    talk.post(qp=qp)
    talk.left.poll(COUNT)
    assert [now for now, _ in talk.mine()[before:]] == [begin] * COUNT
    talk.network.close()


def test_what_is_queued_is_flushed_at_once_in_the_error_state(talk: Talk) -> None:
    limit(talk.qp, LEAST_RATE_KBPS, 1)
    talk.receive()
    talk.post()
    talk.network.elapse(1_000)
    begin = talk.network.now
    talk.qp.modify({"qp_state": 6})
    done = talk.left.poll(COUNT)
    assert len(done) == COUNT
    assert [each.status for each in done[-10:]] == [5] * 10
    assert talk.network.now - begin < 1_000_000


@pytest.mark.parametrize("others", [RC, UC, UD])
def test_another_queue_pair_is_not_held_up(talk: Talk, others: int) -> None:
    """Both send to the same adapter and share its window, of which the first one has waited for its turn."""
    limit(talk.qp, RATE, 1)
    talk.receive()
    talk.post()
    qp, peer = talk.left.qp(others), talk.right.qp(others)
    handle = 0
    if others == UD:
        for each in (qp, peer):
            services.start_datagrams(each, QKEY)
        vector = {"dgid": talk.right.node.gid, "is_global": 1, "port_num": 1}
        handle = talk.left.device.create_ah(talk.left.pd, vector)
    else:
        connect((talk.left, qp), (talk.right, peer), others)
    talk.network.elapse(MESSAGE * NS_PER_BYTE // 2)
    for _ in range(COUNT):
        peer.post_recv(0, [talk.right.sge(0, 4_000)])
    peer.ring()
    begin = talk.network.now
    for number in range(COUNT):
        post(qp, SEND, [talk.left.sge(0, MESSAGE)], wr_id=100 + number, ah=handle, qpn=peer.number, qkey=QKEY)
    done: list[Any] = []
    while sum(each.wr_id >= 100 for each in done) < COUNT:
        done += talk.left.poll(1)
    assert talk.network.now - begin < 200_000


def test_who_waits_for_a_moment_holds_no_turn_of_a_window() -> None:
    """The limited one has asked for room when the window was full, and gets its turn before its moment."""
    talk = Talk(UD)
    with talk.network:
        other, peer = talk.left.qp(UC), talk.right.qp(UC)
        connect((talk.left, other), (talk.right, peer), UC)
        node = talk.left.node.adapter
        flow, far = node.queue_pairs[talk.qp.number].flow, node.queue_pairs[other.number].flow
        far.window.charge(far.window.limit_bytes)
        talk.post(1)
        talk.network.step()
        assert flow.waiting
        limit(talk.qp, LEAST_RATE_KBPS, 1)
        flow.pacing.sent(1_000, 1, talk.network.now)
        post(other, SEND, [talk.left.sge(0, MESSAGE)])
        far.window.give_up(far.window.in_flight_bytes)
        assert far.window.turn is flow
        talk.network.step()
        assert far.window.turn is not flow
        assert talk.mine(), "the other one has sent"


# what is asked for


@pytest.mark.parametrize(("rate", "burst", "typical"), [
    (LEAST_RATE_KBPS - 1, 0, 0), (MOST_RATE_KBPS + 1, 0, 0), (2**32 - 1, 0, 0), (0, 1, 0), (0, 0, 1),
])  # fmt: skip
def test_limits_that_the_adapter_does_not_have_are_refused(
    talk: Talk, rate: int, burst: int, typical: int
) -> None:
    limit(talk.qp, RATE, 2_000, 1_000)
    with pytest.raises(DriverError) as refused:
        limit(talk.qp, rate, burst, typical)
    assert refused.value.errno == errno.EINVAL
    assert talk.qp.query()["rate_limit"] == RATE, "nothing has changed"
    for most in (LEAST_RATE_KBPS, MOST_RATE_KBPS):
        limit(talk.qp, most, 2**32 - 1, 65_535)


def test_there_is_a_limit_in_rts_only(talk: Talk) -> None:
    fresh = talk.left.qp(talk.kind)
    for qp, state in ((fresh, 0), (talk.qp, 4)):
        if state:
            qp.modify({"qp_state": state})
        with pytest.raises(DriverError) as refused:
            limit(qp, RATE)
        assert refused.value.errno == errno.EINVAL


def test_the_adapter_says_what_it_has() -> None:
    with Network() as network:
        told = network.add().adapter.device_attributes
        assert (told["qp_rate_limit_min"], told["qp_rate_limit_max"]) == (LEAST_RATE_KBPS, MOST_RATE_KBPS)
        assert told["qp_rate_limit_qpts"] == 1 << 2 | 1 << 3 | 1 << 4 | 1 << 8 | 1 << 9
        told = network.add(ethernet_frames=False).adapter.device_attributes
        assert told["qp_rate_limit_qpts"] & 1 << 8 == 0


# of single services


def test_long_messages_are_not_sent_again_however_slow() -> None:
    network, left, qp, right, _ = pair(RC, config={"active_mtu": 3}, timeout=8)  # 1 ms
    sent = network.record("sent")
    limit(qp, 800, 1)  # a packet each 10 ms
    post(qp, WRITE, [left.sge(0, 30_000)], va=right.va, rkey=right.key.rkey)
    assert [done.status for done in left.poll(1)] == [0]
    assert len([each for each in sent if each.source is left.node]) == 30
    assert left.node.adapter.counters.timeouts == 0
    assert network.now > 30 * 10_000_000
    network.close()


def test_answers_to_reads_keep_to_the_responders_limit() -> None:
    network, left, qp, right, right_qp = pair(RC, config={"active_mtu": 3}, timeout=20)
    limit(right_qp, RATE, 1)
    sent = network.record("sent")
    post(qp, READ, [left.sge(0, 10_240)], va=right.va, rkey=right.key.rkey)
    assert [done.status for done in left.poll(1)] == [0]
    assert len(takes_its_time(sent, right.node)) == 10
    network.close()


@pytest.mark.parametrize("opcode", [WRITE, READ])
def test_within_one_adapter_a_limited_queue_pair_copies_nothing_in_one_go(opcode: int) -> None:
    with Network() as network:
        end = End(network.add())
        adapter = end.node.adapter
        adapter.same_host = Loopback({end.node.gid})
        one, other = end.qp(), end.qp()
        connect((end, one), (end, other))
        executor = adapter.queue_pairs[one.number].executor
        begin = network.now
        post(one, opcode, [end.sge(0, 10_000)], va=end.va + 20_000, rkey=end.key.rkey)
        assert [done.status for done in end.poll(1)] == [0]
        assert (executor.operations, network.now) == (1, begin)
        for qp in (one, other):
            limit(qp, RATE, 1)
        post(one, opcode, [end.sge(0, 10_000)], va=end.va + 20_000, rkey=end.key.rkey)
        assert [done.status for done in end.poll(1)] == [0]
        assert executor.operations == 1
        assert network.now - begin > 8_000 * NS_PER_BYTE


def test_frames_to_nobody_take_their_time_too() -> None:
    talk = Talk(RAW, vteps=1)
    with talk.network:
        limit(talk.qp, RATE, 2 * MESSAGE)
        talk.post()
        begin = talk.network.now
        talk.left.poll(COUNT)
        takes(talk.network.now - begin, (COUNT - 2) * MESSAGE, COUNT)


def test_a_frame_that_goes_to_many_adapters_counts_once() -> None:
    talk = Talk(RAW, vteps=5)
    with talk.network:
        talk.left.memory[:6] = NOBODY
        limit(talk.qp, RATE, 1)
        talk.post(4)
        begin = talk.network.now
        talk.left.poll(4)
        talk.network.run()
        assert len(talk.mine()) == 16
        takes(talk.mine()[-1][0] - begin, 4 * MESSAGE, 8)


def test_a_limit_stays_with_congestion_control_and_without_it() -> None:
    settings = DcqcnSettings(line_mbps=8_000, alpha_ns=10**9, increase_ns=10**9, increase_bytes=1 << 30)
    network, left, qp, right, _ = pair(UC, config={"congestion": settings})
    flow = left.node.adapter.queue_pairs[qp.number].flow
    control = flow.control
    limit(qp, RATE, 1)
    sent = network.record("sent")
    post(qp, WRITE, [left.sge(0, 10_240)], va=right.va, rkey=right.key.rkey)
    left.poll(1)
    assert len(takes_its_time(sent, left.node)) == 10
    assert flow.control is control, "which notifications still reach"
    flow.control_by(None)
    sent.clear()
    post(qp, WRITE, [left.sge(0, 10_240)], va=right.va, rkey=right.key.rkey)
    left.poll(1)
    assert len(takes_its_time(sent, left.node)) == 10
    limit(qp, 0)
    begin = network.now
    post(qp, WRITE, [left.sge(0, 10_240)], va=right.va, rkey=right.key.rkey)
    left.poll(1)
    assert network.now - begin < 10_240
    network.close()
