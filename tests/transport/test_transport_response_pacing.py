"""The pace of READ responses: by itself in time that the test makes, and on the wire."""

import pytest

from softhca.queues import wqe
from softhca.transport.replies import REMOTE_ACCESS
from softhca.transport.response_pacing import LEAST_RATE, MOST_RATE, START_RATE, ResponsePacing
from softhca.transport.states import ERR, RESET
from softhca.transport.window import BURST_OVERHEAD_BYTES, DEFAULT_LIMIT_BYTES, FULL_BURST_BYTES
from softhca.wire import opcodes as op

BURST = FULL_BURST_BYTES + BURST_OVERHEAD_BYTES
DEPTH = DEFAULT_LIMIT_BYTES
NS_PER_MS = 1_000_000
BURST_NS = BURST * NS_PER_MS // START_RATE


def departures(pacing, count, now=0):
    moments = []
    for _ in range(count):
        moments.append(pacing.departure(DEPTH, now))
        pacing.sent(BURST)
    return moments


def test_bursts_leave_at_once_while_the_window_has_room_then_one_by_one():
    moments = departures(ResponsePacing(BURST), 6, now=5_000)
    assert moments[:3] == [5_000] * 3
    assert moments[3:] == [pytest.approx(5_000 + n * BURST_NS, abs=10) for n in (1, 2, 3)]


def test_after_a_while_the_whole_window_is_free_and_no_more():
    pacing = ResponsePacing(BURST)
    departures(pacing, 6)
    assert departures(pacing, 4, now=10**12)[:3] == [10**12] * 3
    assert pacing.departure(DEPTH, 10**12) > 10**12


def test_what_a_short_burst_does_not_need_is_given_back():
    pacing = ResponsePacing(BURST)
    for _ in range(50):
        assert pacing.departure(DEPTH, 0) == 0
        pacing.sent(2_000)
    assert pacing.free_ns == pytest.approx(50 * 2_000 * NS_PER_MS // START_RATE, abs=60)


def test_a_burst_that_costs_more_than_a_full_one_counts_as_one():
    pacing = ResponsePacing(BURST)
    pacing.departure(DEPTH, 0)
    full_ns = pacing.free_ns
    pacing.sent(BURST + 1)
    pacing.sent(3 * BURST)
    assert pacing.free_ns == full_ns


def test_a_window_of_one_burst_has_one_under_way():
    pacing = ResponsePacing(BURST)
    moments = [pacing.departure(BURST, 0) for _ in range(3)]
    assert moments == [pytest.approx(n * BURST_NS, abs=10) for n in range(3)]


def test_who_asks_on_is_answered_faster_up_to_twice_each_time():
    pacing = ResponsePacing(BURST)
    pacing.answered(DEPTH // 2)
    pacing.asked_on(DEPTH)
    assert pacing.rate == START_RATE + START_RATE // 2
    pacing.asked_on(DEPTH)
    assert pacing.rate == START_RATE + START_RATE // 2, "nothing was answered since"
    pacing.answered(1 << 31)
    pacing.asked_on(DEPTH)
    assert pacing.rate == 2 * (START_RATE + START_RATE // 2)
    for _ in range(40):
        pacing.answered(DEPTH)
        pacing.asked_on(DEPTH)
    assert pacing.rate == MOST_RATE


def test_a_loss_halves_the_rate_once_for_what_may_be_under_way():
    pacing = ResponsePacing(BURST)
    pacing.answered(DEPTH)
    assert pacing.lost(DEPTH)
    assert pacing.rate == START_RATE // 2
    pacing.asked_on(DEPTH)
    assert pacing.rate == START_RATE // 2, "what was lost is no evidence"
    assert not pacing.lost(DEPTH)
    pacing.sent(DEPTH - 1)
    assert not pacing.lost(DEPTH)
    pacing.sent(1)
    assert pacing.lost(DEPTH)
    assert pacing.rate == START_RATE // 4
    for _ in range(40):
        pacing.sent(DEPTH)
        pacing.lost(DEPTH)
    assert pacing.rate == LEAST_RATE


def test_no_time_before_the_clock_began():
    pacing = ResponsePacing(BURST)
    pacing.departure(DEPTH, 0)
    pacing.rate = LEAST_RATE
    pacing.sent(0)
    assert pacing.free_ns == 0


MEGABYTE = 1 << 20
PMTU = 4096


@pytest.fixture
def peer(pair):
    """A pair whose left side is played by the test, with a megabyte to be read on the right."""
    p = pair(pmtu=PMTU, left_psn=100, right_psn=500, rd_atomic=4)
    p.target = p.right.region(MEGABYTE, fill=bytes(range(256)) * (MEGABYTE // 256))
    p.begin = p.now
    return p


def read(p, psn, offset=0, length=MEGABYTE):
    p.forge(op.RC_RDMA_READ_REQUEST, psn, va=p.target.va + offset, rkey=p.target.key, length=length)


def run_until(p, moment):
    """Everything that happens before ``moment``."""
    reached = []
    p.after(moment - p.now, lambda: reached.append(True))
    while not reached:
        p.step()


def sent_bytes(p):
    return sum(length for direction, _, length in p.bursts if direction == "ba")


def test_one_request_is_answered_at_the_pace_of_the_window(peer):
    read(peer, 100)
    for moment_ns in (0, 100_000, 500_000, 1_000_000):
        run_until(peer, peer.begin + moment_ns)
        assert sent_bytes(peer) <= DEPTH + START_RATE * moment_ns // NS_PER_MS
    assert sent_bytes(peer) > START_RATE
    peer.run()
    psns = [row["psn"] for row in peer.decoded("ba")]
    assert psns == list(range(100, 100 + MEGABYTE // PMTU))
    assert sum(row["bytes"] for row in peer.decoded("ba")) == MEGABYTE


def test_being_asked_again_makes_answers_later_and_not_more(peer):
    """The answer that waits begins again where it is asked for again; it goes at half the rate then."""
    read(peer, 100)
    run_until(peer, peer.begin + 100_000)
    for _ in range(50):
        read(peer, 100)
    run_until(peer, peer.begin + 1_000_000)
    assert sent_bytes(peer) <= DEPTH + START_RATE // 10 + START_RATE // 2
    assert peer.right.qp.flow.window.losses == 1
    peer.run()
    psns = [row["psn"] for row in peer.decoded("ba")]
    again = psns.index(100, 1)
    assert psns[again:] == list(range(100, 100 + MEGABYTE // PMTU))


@pytest.mark.parametrize("ahead", [0, 1])
def test_asking_again_for_what_has_not_left_changes_nothing(peer, ahead):
    read(peer, 100)
    run_until(peer, peer.begin + 100_000)
    index = len(peer.decoded("ba")) + ahead
    read(peer, 100 + index, index * PMTU, MEGABYTE - index * PMTU)
    assert peer.right.qp.flow.window.losses == 0
    assert peer.right.qp.flow.window.responses.rate == START_RATE
    peer.run()
    assert [row["psn"] for row in peer.decoded("ba")] == list(range(100, 100 + MEGABYTE // PMTU))


def test_acknowledgement_behind_a_paced_answer_waits_with_it(peer):
    read(peer, 100)
    packets = MEGABYTE // PMTU
    peer.forge(
        op.RC_RDMA_WRITE_ONLY, 100 + packets, b"w", va=peer.target.va + 5, rkey=peer.target.key, length=1
    )
    run_until(peer, peer.begin + 500_000)
    assert op.RC_ACKNOWLEDGE not in [row["opcode"] for row in peer.decoded("ba")]
    assert not peer.right.qp.flow.has_work(), "nobody turns round for what must wait"
    peer.run()
    assert [row["psn"] for row in peer.decoded("ba")][-1] == 100 + packets


def test_who_keeps_reading_is_soon_answered_without_a_wait(pair):
    p = pair(pmtu=PMTU, rd_atomic=4)
    target, local = p.right.region(MEGABYTE), p.left.region(MEGABYTE)
    for _ in range(24):
        p.left.post(wqe.RDMA_READ, [local.sge()], remote=target)
        p.run()
    assert p.right.qp.flow.window.responses.rate == MOST_RATE
    assert len(p.left.sent()) == 24
    begin = p.now
    p.left.post(wqe.RDMA_READ, [local.sge()], remote=target)
    while not p.left.sent():
        p.step()
    assert p.now - begin < 25 * p.DELAY_NS, "round trips alone"


def test_short_answers_never_wait(peer):
    for n in range(2_000):
        read(peer, 100 + n, length=8)
        peer.deliver()
        peer.transmit(peer.b)
        peer.step()
    assert peer.now - peer.begin <= 2_000 * peer.DELAY_NS


def test_a_reset_forgets_an_answer_that_waits(peer):
    read(peer, 100)
    run_until(peer, peer.begin + 100_000)
    assert peer.right.qp.modify({"qp_state": RESET}, peer.now) == 0
    before = sent_bytes(peer)
    peer.run()
    assert sent_bytes(peer) == before
    peer.connect(peer.right, peer.left, 500, 100)
    read(peer, 100, length=8)
    peer.run()
    assert sent_bytes(peer) > before


def test_a_queue_pair_in_error_answers_no_more(peer):
    read(peer, 100)
    run_until(peer, peer.begin + 100_000)
    assert peer.right.qp.modify({"qp_state": ERR}, peer.now) == 0
    before = sent_bytes(peer)
    peer.run()
    assert sent_bytes(peer) == before


def test_a_key_that_dies_while_its_answer_waits_ends_the_answer(peer):
    read(peer, 100)
    run_until(peer, peer.begin + 100_000)
    peer.target.deregister()
    before = sent_bytes(peer)
    peer.run()
    assert sent_bytes(peer) - before < PMTU
    assert [row["syndrome"] for row in peer.decoded("ba")][-1] == REMOTE_ACCESS


def test_many_queue_pairs_share_the_pace(pair):
    p = pair(pmtu=PMTU, qps=8, rd_atomic=4)
    begin = p.now
    target = p.right.region(MEGABYTE)
    for end in p.lefts:
        source, destination = end.qp.number, end.qp.dest_qp
        p.left, p.right = end, p.by_number[destination]
        assert p.right.qp.dest_qp == source
        read_with(p, target)
    run_until(p, begin + 1_000_000)
    assert sent_bytes(p) <= DEPTH + START_RATE
    p.run()
    assert sent_bytes(p) >= 8 * MEGABYTE


def read_with(p, target):
    p.forge(op.RC_RDMA_READ_REQUEST, 0, va=target.va, rkey=target.key, length=MEGABYTE)
