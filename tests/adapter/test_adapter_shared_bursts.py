"""Bursts that several reliable connections share: whose packets, in which order, and who may not."""

import pytest

from softhca.testing import SENT
from softhca.testing.ends import RC, READ, SEND, UC, WRITE, End, connect, post
from softhca.testing.network import Network


class Crowd:
    """Two ends with ``count`` connections that share a route, or each has one of its own (``apart``);
    ``levels`` are their service levels.  ``bursts`` are those that were sent, by end: of each packet its
    destination QP, PSN and operation."""

    def __init__(self, count, apart=False, levels=(), kind=RC):
        self.network = Network()
        self.left, self.right = End(self.network.add(1)), End(self.network.add(2))
        ports = iter(range(0xC000, 0xD000))
        for end in (self.left, self.right):
            end.node.adapter.port.source_port_for = lambda *_: next(ports) if apart else 0xC000
        self.pairs = []
        for index in range(count):
            pair = self.left.qp(kind), self.right.qp(kind)
            connect((self.left, pair[0]), (self.right, pair[1]), kind, sl=levels[index] if levels else 0)
            self.pairs.append(pair)
        self.sent = self.network.record(SENT)
        self.network.observers.append(self.check)

    @property
    def bursts(self):
        """The packets that were sent, by end and burst: of each its destination QP, PSN and operation."""
        found = {self.left: {}, self.right: {}}
        for sent in self.sent:
            end = self.left if sent.source is self.left.node else self.right
            packet = sent.bth.dest_qp, sent.bth.psn, sent.opcode
            found[end].setdefault(sent.burst, []).append(packet)
        return {end: list(bursts.values()) for end, bursts in found.items()}

    def check(self, datagram):
        if datagram.event == SENT:
            assert datagram.packet.icrc_ok

    def write(self, index, size=8, opcode=WRITE):
        post(
            self.pairs[index][0], opcode, [self.left.sge(0, size)], wr_id=index,
            va=self.right.va, rkey=self.right.key.rkey,
        )  # fmt: skip

    def finish(self, count):
        completions = self.left.poll(count)
        assert [each.status for each in completions] == [0] * count
        return [each.wr_id for each in completions]


def numbers(crowd, side):
    return [pair[side].number for pair in crowd.pairs]


def test_packets_and_acknowledgements_of_many_queue_pairs_leave_in_one_burst():
    crowd = Crowd(5)
    for index in range(5):
        crowd.write(index)
        crowd.write(index)
    assert sorted(crowd.finish(10)) == sorted([*range(5)] * 2)
    (data,), (answers,) = crowd.bursts[crowd.left], crowd.bursts[crowd.right]
    # in the order of the doorbells, and of each queue pair all that it has
    expected = [(qpn, psn) for qpn in numbers(crowd, 1) for psn in (100, 101)]
    assert [(qpn, psn) for qpn, psn, _ in data] == expected
    assert [(qpn, psn) for qpn, psn, _ in answers] == [(qpn, 101) for qpn in numbers(crowd, 0)]
    crowd.network.close()


def test_counters_tell_of_each_queue_pair_what_it_sent():
    crowd = Crowd(3)
    for index in (0, 1, 1, 2, 2, 2):
        crowd.write(index)
    crowd.finish(6)
    adapter = crowd.left.node.adapter
    sent = [adapter.queue_pairs[number].counters for number in numbers(crowd, 0)]
    assert [(each.packets_sent, each.bytes_sent) for each in sent] == [(1, 40), (2, 80), (3, 120)]
    assert adapter.port.counters.packets_sent == adapter.counters.packets_sent == 6
    assert adapter.port.counters.bursts_sent == 1
    crowd.network.close()


@pytest.mark.parametrize("how", [{"apart": True}, {"levels": (1, 2, 3)}, {"kind": UC}])
def test_other_routes_levels_and_services_do_not_share(how):
    crowd = Crowd(3, **how)
    for index in range(3):
        crowd.write(index)
    crowd.finish(3)
    assert sorted(len(burst) for burst in crowd.bursts[crowd.left]) == [1, 1, 1]
    crowd.network.close()


def test_what_is_longer_than_the_burst_allows_has_the_next_turn():
    crowd = Crowd(4)
    crowd.write(0, 64)
    crowd.write(1, 512)
    crowd.write(2, 64)
    crowd.write(3, 8)
    crowd.finish(4)
    qpns = numbers(crowd, 1)
    # a burst ends with the first packet that is shorter than the others
    assert [[qpn for qpn, _, _ in burst] for burst in crowd.bursts[crowd.left]] == [
        [qpns[0]], [qpns[1], qpns[2]], [qpns[3]],
    ]  # fmt: skip
    crowd.network.close()


def test_who_has_more_than_fits_does_not_keep_the_others_waiting():
    crowd = Crowd(3)
    for index, size in ((0, 30_000), (0, 30_000), (0, 30_000), (1, 8), (2, 8)):
        crowd.write(index, size)
    crowd.finish(5)
    first, *others = numbers(crowd, 1)
    order = [qpn for burst in crowd.bursts[crowd.left] for qpn, _, _ in burst]
    assert len(order) == 3 * 30 + 2
    # a turn is one burst, 63 of its packets
    assert all(order.index(qpn) <= 65 for qpn in others)
    assert order[-1] == first
    crowd.network.close()


def test_a_destroyed_queue_pair_leaves_its_place_to_the_next():
    crowd = Crowd(3)
    for index in range(3):
        crowd.write(index)
    crowd.left.node.adapter.kick(crowd.network.now)
    crowd.pairs[1][0].destroy()
    assert sorted(crowd.finish(2)) == [0, 2]
    assert numbers(crowd, 1)[1] not in {qpn for burst in crowd.bursts[crowd.left] for qpn, _, _ in burst}
    crowd.network.close()


def test_a_lost_burst_is_sent_again_by_each_of_its_queue_pairs():
    crowd = Crowd(3)
    for index in range(3):
        crowd.write(index)
        crowd.write(index)
    swallowed = []
    crowd.network.tamper = lambda sent: swallowed.append(sent) if len(swallowed) < 6 else sent.data
    assert sorted(crowd.finish(6)) == [0, 0, 1, 1, 2, 2]
    assert len(swallowed) == 6
    crowd.network.close()


@pytest.mark.parametrize("opcode", [READ, SEND])
def test_reads_and_sends_share_as_well(opcode):
    crowd = Crowd(4)
    for index in range(4):
        crowd.pairs[index][1].post_recv(index, [crowd.right.sge(0, 64)])
        crowd.write(index, 64, opcode)
    assert sorted(crowd.finish(4)) == [0, 1, 2, 3]
    assert [len(crowd.bursts[end]) for end in (crowd.left, crowd.right)] == [1, 1]
    crowd.network.close()


def test_the_window_is_kept_by_all_together_and_nobody_loses_its_place():
    crowd = Crowd(8)
    window = crowd.left.node.adapter.queue_pairs[crowd.pairs[0][0].number].flow.window
    most = []
    crowd.network.observers.append(lambda _: most.append(window.in_flight_bytes <= window.maximum_bytes))
    for _ in range(2):
        for index in range(8):
            crowd.write(index, 60_000)
    order = crowd.finish(16)
    assert all(most)
    # each has its first message done before anybody is a round ahead
    assert sorted(order[:8]) == list(range(8))
    assert window.in_flight_bytes == 0
    assert not window.waiters
    assert window.turn is None
    crowd.network.close()
