"""What unreliable services have in flight, bounded for each destination; the service level of datagrams."""

import random

import pytest

from softhca.queues import cqe, wqe
from softhca.testing.transport_node import PD, End
from softhca.transport.environment import AddressHandle
from softhca.transport.states import ERR, RC, RESET, SQD, UC, UD
from softhca.transport.unreliable import CHARGE_NS
from softhca.transport.window import BURST_OVERHEAD_BYTES, FULL_BURST_BYTES, DestinationWindow

MESSAGE_BYTES = 150_000
PATTERN = random.Random(4).randbytes(MESSAGE_BYTES)
QKEY = 0x1234


class Watched(DestinationWindow):
    """A window that remembers the most that was in flight."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.most = 0
        self.charges = []

    def charge(self, cost_bytes):
        super().charge(cost_bytes)
        self.charges.append(cost_bytes)
        self.most = max(self.most, self.in_flight_bytes)


@pytest.fixture
def watched(pair):
    """A pair whose left side charges one watched window, and nothing else is charged to it."""

    def make(window=None, **settings):
        p = pair(**{"pmtu": 1024, "connect": False, **settings})
        p.window = window or Watched()
        p.a.window_for = lambda route: p.window
        for left, right in zip(p.lefts, p.rights, strict=True):
            p.connect(left, right, 0, 0)
            p.connect(right, left, 0, 0)
        return p

    return make


def reliable_ends(p):
    """One more pair of ends, of a reliable connection."""
    left, right = End(p.a, 0x99, RC), End(p.b, 0x1099, RC)
    p.by_number.update({left.number: left, right.number: right})
    p.service = RC
    p.connect(left, right, 0, 0)
    p.connect(right, left, 0, 0)
    p.service = UC
    return left, right


def test_in_flight_of_unreliable_and_reliable_together_stays_within_the_limit(watched):
    p = watched(service=UC, qps=8)
    left, right = reliable_ends(p)
    targets = []
    for end, peer in [*zip(p.lefts, p.rights, strict=True), (left, right)]:
        source, target = end.region(MESSAGE_BYTES, fill=PATTERN), peer.region(MESSAGE_BYTES)
        targets.append(target)
        for i in range(2):
            end.post(wqe.RDMA_WRITE, [source.sge()], remote=target, wr_id=i)
    p.run()
    beyond = p.pmtu + 16 + BURST_OVERHEAD_BYTES  # the packet with which the reliable one asks
    assert p.window.limit_bytes - FULL_BURST_BYTES <= p.window.most <= p.window.limit_bytes + beyond
    assert p.window.in_flight_bytes == 0
    assert not p.window.waiters
    assert p.window.turn is None
    for end in [*p.lefts, left]:
        assert [(c.wr_id, c.status) for c in end.sent()] == [(0, 0), (1, 0)]
    assert all(target.data == PATTERN for target in targets)


@pytest.mark.parametrize("overhead", [0, 768])
def test_burst_weighs_its_bytes_its_packets_and_itself_for_the_time_of_the_hold(watched, overhead):
    p = watched(Watched(packet_overhead_bytes=overhead), service=UC)
    p.left.post(wqe.SEND, [p.left.region(2500).sge()])
    assert p.step()
    ((_, packets, length),) = p.bursts
    assert packets == 3
    assert p.window.charges == [length + packets * overhead + BURST_OVERHEAD_BYTES]
    assert [c.status for c in p.left.sent()] == [0]  # complete at hand-over
    start = p.now
    p.left.qp.flow.expire(start + CHARGE_NS - 1)
    assert p.window.in_flight_bytes == p.window.charges[0]
    p.left.qp.flow.expire(start + CHARGE_NS)
    assert p.window.in_flight_bytes == 0


def test_lone_burst_goes_and_what_is_held_longest_is_given_back_first(watched):
    p = watched(service=UC)
    target = p.right.region(100)
    moments = []
    for moment in (0, 30_000):
        p.now += moment
        p.a.now = p.now
        p.left.post(wqe.RDMA_WRITE, inline=b"x" * (1 + moment // 1000), remote=target)
        while p.transmit(p.a):
            pass
        moments.append(p.now)
    assert len(p.window.charges) == 2
    p.left.qp.flow.expire(moments[0] + CHARGE_NS)
    assert p.window.in_flight_bytes == p.window.charges[1]
    p.run()
    assert p.now == moments[1] + CHARGE_NS
    assert p.window.in_flight_bytes == 0


@pytest.mark.parametrize("way_out", ["close", "reset", "error"])
def test_end_of_a_queue_pair_gives_back_what_it_holds_and_its_place(watched, way_out):
    p = watched(service=UC, qps=2)
    for end, peer in zip(p.lefts, p.rights, strict=True):
        source, target = end.region(MESSAGE_BYTES), peer.region(MESSAGE_BYTES)
        for _ in range(2):
            end.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    while p.transmit(p.a):
        pass
    assert all(end.qp.flow.waiting for end in p.lefts)
    for end in p.lefts:
        if way_out == "close":
            end.qp.close()
        else:
            assert end.qp.modify({"qp_state": RESET if way_out == "reset" else ERR}, p.now) == 0
    assert p.window.in_flight_bytes == 0
    assert not p.window.waiters
    assert p.window.turn is None
    p.run()
    assert p.window.in_flight_bytes == 0


def test_new_path_while_waiting_goes_on_in_the_new_window(watched):
    p = watched(service=UC)
    source, target = p.left.region(MESSAGE_BYTES, fill=PATTERN), p.right.region(MESSAGE_BYTES)
    p.window.charge(p.window.limit_bytes)  # another queue pair's
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    while p.transmit(p.a):
        pass
    assert p.left.qp.flow.waiting
    assert p.left.qp.modify({"qp_state": SQD}, p.now) == 0
    new = DestinationWindow()
    route = p.route(p.a.gid, p.b.gid)
    assert p.left.qp.modify({"qp_state": SQD, "ah_attr": {"sl": 0}}, p.now, route=route, window=new) == 0
    assert not p.window.waiters
    p.run()
    assert target.data == PATTERN
    assert new.in_flight_bytes == 0
    assert p.window.in_flight_bytes == p.window.limit_bytes


# datagrams


def datagrams(watched, **settings):
    p = watched(service=UD, **settings)
    for i, end in enumerate(p.lefts):
        p.handle(end, p.right, i + 1)
    return p


def datagram(p, end, ah=1, length=1000, ring=True):
    region = end.region(length)
    end.post(wqe.SEND, [region.sge()], ah=ah, qpn=p.right.number, qkey=QKEY, ring=ring)


def test_datagrams_are_charged_to_the_window_of_their_handle(watched):
    p = datagrams(watched, qps=3, entries=512, cq_entries=1024)
    other = Watched()
    p.a.handles[9] = AddressHandle(9, PD, p.route(p.a.gid, p.b.gid), other)
    for i, end in enumerate(p.lefts):
        for _ in range(200):
            datagram(p, end, i + 1)
    datagram(p, p.left, 9)
    p.run()
    assert p.window.limit_bytes // 2 < p.window.most <= p.window.limit_bytes
    assert len(other.charges) == 1
    for window in (p.window, other):
        assert window.in_flight_bytes == 0
        assert not window.waiters
        assert window.turn is None
    assert [len(end.sent()) for end in p.lefts] == [201, 200, 200]


def test_datagram_that_waits_and_loses_its_handle_leaves_the_window(watched):
    p = datagrams(watched)
    p.window.charge(p.window.limit_bytes)
    datagram(p, p.left)
    while p.transmit(p.a):
        pass
    assert p.left.qp.flow.waiting
    p.a.handles.clear()
    p.window.give_up(p.window.limit_bytes)
    p.run()
    assert [c.status for c in p.left.sent()] == [cqe.WC_LOC_QP_OP_ERR]
    assert p.window.turn is None
    assert not p.window.waiters


def test_service_level_is_the_current_requests_handles(watched):
    p = datagrams(watched)
    route = p.a.handles[1].route
    for number, level in ((2, 5), (3, 9)):
        p.a.handles[number] = AddressHandle(number, PD, route, p.window, level)
    qp = p.left.qp
    datagram(p, p.left, 2)
    assert qp.flow.service_level == 5  # before its turn, which is asked for on that level
    for ah in (2, 3, 1, 1):
        datagram(p, p.left, ah)
    levels = []
    while p.a.queue:
        levels.append(qp.flow.service_level)
        assert p.transmit(p.a)
    assert levels[:3] == [5, 9, 0]
    assert [packets for _, packets, _ in p.bursts] == [2, 1, 2]
    assert [c.sl for c in p.left.sent()] == [5, 5, 9, 0, 0]


def test_received_datagram_says_nothing_of_this_sides_service_level(watched):
    p = datagrams(watched)
    p.handle(p.right, p.left, 1)
    p.b.handles[1].service_level = 6
    p.right.post(wqe.SEND, inline=b"x", ah=1, qpn=p.left.number, qkey=QKEY)
    p.run()
    inbox = p.right.region(400)
    p.right.post_receive([inbox.sge()])
    datagram(p, p.left, length=10)
    p.run()
    assert p.right.qp.flow.service_level == 6
    assert [c.sl for c in p.right.received()] == [0]
