"""Answers that come at awkward moments: between a going back and its packets, during a wait, inside of an
RDMA READ, or behind one that is answered in part."""

import pytest

from softhca.queues import cqe, wqe
from softhca.testing.transport_pair import Faults
from softhca.transport.conditions import NOT_READY, STALLED, UNPLACED
from softhca.transport.credits import CREDITS, INVALID
from softhca.transport.states import ERR, RESET, RTS, SQD
from softhca.transport.window import DestinationWindow
from softhca.wire import opcodes as op

PSN, PMTU = 10, 256
RNR, SEQUENCE, ACCESS = 0x22, 0x60, 0x62
FIRST, MIDDLE, LAST = (
    op.RC_RDMA_READ_RESPONSE_FIRST,
    op.RC_RDMA_READ_RESPONSE_MIDDLE,
    op.RC_RDMA_READ_RESPONSE_LAST,
)


class Awkward:
    """A requester whose peer is played by the test: nothing that is sent arrives, and nothing is sent but by
    `settle`."""

    def __init__(self, pair, **settings):
        settings = {"timeout": 20, "retry_cnt": 3, "rnr_retry": 3, "rd_atomic": 4, **settings}
        self.p = pair(pmtu=PMTU, left_psn=PSN, faults=Faults(rule=lambda way, packet: 0), **settings)
        self.qp = self.p.left.qp
        self.local, self.remote = self.p.left.region(8 * PMTU), self.p.right.region(8 * PMTU)

    @property
    def sender(self):
        return self.qp.requester

    def request(self, opcode, size, wr_id=0):
        self.p.left.post(opcode, [self.local.sge(0, size)], remote=self.remote, wr_id=wr_id)

    def hear(self, psn, syndrome=INVALID, msn=0):
        self.p.forge(op.RC_ACKNOWLEDGE, psn, way="ba", syndrome=syndrome, msn=msn)

    def respond(self, opcode, psn, size, syndrome=INVALID, msn=0):
        self.p.forge(opcode, psn, bytes(size), way="ba", syndrome=syndrome, msn=msn)

    def settle(self):
        """Send what may be sent: its PSNs."""
        self.p.log.clear()
        while self.p.a.queue:
            self.p.transmit(self.p.a)
        rows = [row["psn"] for row in self.p.decoded("ab")]
        self.p.log.clear()
        return rows

    def done(self):
        return [(c.wr_id, c.status) for c in self.p.left.sent()]

    def wait(self):
        """Until a delay is over; nothing is sent meanwhile."""
        while self.sender.condition == NOT_READY:
            self.p.now = self.sender.retry.deadline_ns
            self.qp.flow.expire(self.p.now)


@pytest.fixture
def awkward(pair):
    return lambda **settings: Awkward(pair, **settings)


@pytest.mark.parametrize("answered", range(1, 8))
def test_a_going_back_begins_behind_what_was_answered_before_it_went(awkward, answered):
    a = awkward()
    a.request(wqe.RDMA_WRITE, 8 * PMTU)
    assert a.settle() == list(range(10, 18))
    a.hear(10, SEQUENCE)
    a.hear(10 + answered - 1)
    assert a.settle() == list(range(10 + answered, 18))
    assert a.qp.counters.retransmissions == 1


def test_a_loss_that_is_told_again_while_the_packet_stands_at_the_cursor_costs_nothing(awkward):
    a = awkward()
    a.request(wqe.RDMA_WRITE, 4 * PMTU)
    a.settle()
    a.hear(10, SEQUENCE)
    a.hear(11)
    a.hear(12, SEQUENCE)
    assert a.qp.counters.retransmissions == 1
    assert a.sender.retry.retries_left == 3
    assert a.settle() == [12, 13]


def left_of(a):
    return a.sender.retry.retries_left, a.sender.retry.rnr_retries_left


def test_retries_count_anew_when_their_attributes_change_and_with_no_other(awkward):
    a = awkward()
    a.request(wqe.RDMA_WRITE, 4 * PMTU)
    a.settle()
    a.sender.retry.retries_left, a.sender.retry.rnr_retries_left = 1, 2
    for given in ({"qp_access_flags": 0}, {"min_rnr_timer": 3}, {"qp_state": SQD}, {}):
        assert a.qp.modify({"qp_state": RTS, **given}) == 0
        assert left_of(a) == (1, 2)
    assert a.qp.modify({"qp_state": SQD}) == 0
    for changed in ({"retry_cnt": 4}, {"rnr_retry": 2}, {"timeout": 19}):
        a.sender.retry.retries_left = a.sender.retry.rnr_retries_left = 1
        assert a.qp.modify({"qp_state": SQD, **changed}) == 0
        assert left_of(a) == (a.sender.retry.retry_count, a.sender.retry.rnr_retry)


def test_a_queue_pair_that_begins_again_has_all_retries(awkward):
    a = awkward()
    a.request(wqe.RDMA_WRITE, 4 * PMTU)
    a.settle()
    a.hear(10, SEQUENCE)
    assert left_of(a) == (2, 3)
    assert a.qp.modify({"qp_state": RESET}) == 0
    a.p.connect(a.p.left, a.p.right, PSN, 0)
    assert left_of(a) == (3, 3)


def test_a_later_refusal_while_one_is_waited_for_changes_nothing(awkward):
    a = awkward()
    for k in range(4):
        a.request(wqe.RDMA_WRITE, 8, k)
    a.settle()
    a.hear(10, RNR)
    deadline = a.sender.retry.deadline_ns
    a.hear(12, RNR + 3)
    assert (a.sender.una_psn, a.sender.retry.deadline_ns, a.done()) == (10, deadline, [])
    assert a.sender.retry.rnr_retries_left == 2


def test_a_later_refusal_before_the_packet_goes_again_acknowledges_what_is_before_it(awkward):
    a = awkward()
    for k in range(4):
        a.request(wqe.RDMA_WRITE, 8, k)
    a.settle()
    a.hear(10, RNR)
    a.wait()
    a.hear(12, RNR)
    assert a.done() == [(0, 0), (1, 0)]
    assert (a.sender.una_psn, a.sender.condition) == (12, NOT_READY)
    a.wait()
    assert a.settle() == [12, 13]


def test_a_refusal_does_not_end_the_wait_for_memory_of_an_answer(awkward):
    a = awkward()
    a.request(wqe.RDMA_READ, PMTU)
    a.settle()
    a.p.a.data_access(False)
    a.respond(op.RC_RDMA_READ_RESPONSE_ONLY, 10, PMTU)
    assert a.sender.condition == UNPLACED
    a.hear(10, RNR)
    assert a.sender.condition == UNPLACED
    assert a.sender.retry.rnr_retries_left == 3
    a.p.a.data_access(True)
    assert a.settle() == [10]


def test_after_an_answer_that_found_no_place_a_loss_counts_again(awkward):
    """Who has been answered is fresh, though the answer was not taken."""
    a = awkward()
    a.request(wqe.RDMA_READ, PMTU)
    a.settle()
    a.hear(10, RNR)
    a.wait()
    assert a.settle() == [10]
    a.p.a.data_access(False)
    a.respond(op.RC_RDMA_READ_RESPONSE_ONLY, 10, PMTU)
    a.p.a.data_access(True)
    assert a.settle() == [10]
    a.hear(10, SEQUENCE)
    assert a.settle() == [10]
    assert a.qp.counters.retransmissions == 1


@pytest.mark.parametrize("opcode", [wqe.RDMA_WRITE, wqe.RDMA_READ, wqe.ATOMIC_FETCH_AND_ADD])
@pytest.mark.parametrize("quiet", [False, True])
def test_after_a_time_out_one_packet_goes_into_a_full_window_if_that_has_heard_nothing(
    awkward, quiet, opcode
):
    a = awkward()
    for k in range(3):
        a.request(opcode, 8, k)
    a.settle()
    window = a.qp.flow.window
    window.charge(window.limit_bytes)  # others have it
    a.p.now = a.sender.retry.deadline_ns
    window.heard_ns = 0 if quiet else a.p.now - 1
    a.qp.flow.expire(a.p.now)
    assert a.sender.retry.retries_left == 2
    assert a.settle() == ([10] if quiet else [])
    a.p.a.schedule(a.qp.flow)
    assert a.settle() == [], "it was one packet"
    window.give_up(window.limit_bytes)


# refusals inside of an RDMA READ: what is before them has not come


@pytest.mark.parametrize("psn", [11, 12])
@pytest.mark.parametrize("syndrome", [RNR, ACCESS, SEQUENCE, 0x63])
def test_a_refusal_behind_lost_responses_of_a_read_has_them_sent_again_first(awkward, psn, syndrome):
    a = awkward()
    a.request(wqe.RDMA_READ, 3 * PMTU)
    a.settle()
    a.hear(psn, syndrome)
    assert a.qp.state == RTS
    assert a.qp.counters.implied_naks == 1
    assert a.sender.condition != NOT_READY
    assert a.settle() == [10]
    assert a.done() == []


@pytest.mark.parametrize("syndrome", [ACCESS, 0x63])
def test_a_refusal_behind_those_that_came_ends_the_read(awkward, syndrome):
    a = awkward()
    a.request(wqe.RDMA_READ, 3 * PMTU)
    a.settle()
    a.respond(FIRST, 10, PMTU)
    a.hear(11, syndrome)
    assert a.qp.state == ERR
    assert [status for _, status in a.done()] == [
        cqe.WC_REM_ACCESS_ERR if syndrome == ACCESS else cqe.WC_REM_OP_ERR
    ]


@pytest.mark.parametrize("opcode", [FIRST, MIDDLE])
def test_the_last_response_of_a_read_says_that_it_is_the_last(awkward, opcode):
    """Its length alone would be right."""
    a = awkward()
    a.request(wqe.RDMA_READ, 2 * PMTU)
    a.settle()
    a.respond(FIRST, 10, PMTU)
    a.respond(opcode, 11, PMTU)
    assert a.done() == [(0, cqe.WC_BAD_RESP_ERR)]


# what answers say of receives


def granted(a):
    return a.sender.lsn if a.sender.limited else None


def test_a_response_without_credits_leaves_those_that_there_are(awkward):
    a = awkward()
    a.request(wqe.RDMA_READ, 4 * PMTU)
    a.settle()
    a.respond(FIRST, 10, PMTU, 4, 9)
    assert granted(a) == 9 + CREDITS[4]
    a.p.forge(op.RC_ACKNOWLEDGE, 0, way="ab", syndrome=7, msn=500)  # of another connection
    a.respond(MIDDLE, 11, PMTU)
    a.respond(MIDDLE, 12, PMTU)
    assert granted(a) == 9 + CREDITS[4]
    a.respond(LAST, 13, PMTU, 5, 10)
    assert granted(a) == 10 + CREDITS[5]


def test_an_atomic_response_brings_credits(awkward):
    a = awkward()
    a.request(wqe.ATOMIC_FETCH_AND_ADD, 8)
    a.settle()
    a.p.forge(op.RC_ATOMIC_ACKNOWLEDGE, 10, way="ba", syndrome=4, msn=9)
    assert granted(a) == 9 + CREDITS[4]
    assert a.done() == [(0, 0)]


@pytest.mark.parametrize("informed", [False, True])
def test_who_knows_of_credits_does_not_ask_for_an_answer_with_each_burst(awkward, informed):
    """Before the first answer the last packet of each burst asks, for the next one may not go without."""
    a = awkward()
    window = a.qp.flow.window
    window.limit_bytes = window.maximum_bytes = 1 << 24
    first = PSN
    if informed:
        a.p.left.post(wqe.SEND, inline=b"x")
        a.settle()
        a.hear(PSN, 10, 1)
        first += 1
    memory = a.p.left.region(100 * PMTU)
    a.p.left.post(wqe.SEND, [memory.sge()])
    a.p.log.clear()
    assert a.p.transmit(a.p.a)
    rows = a.p.decoded("ab")
    assert [row["psn"] for row in rows] == list(range(first, first + 64))
    assert [row["psn"] for row in rows if row["ack_request"]] == ([] if informed else [first + 63])


def test_a_read_counts_as_a_message_for_each_of_its_slices_against_credits(awkward):
    """As its responder counts them: three slices, the last one short, then a SEND, and credit for that."""
    a = awkward(slice_bytes=4096)
    memory = a.p.left.region(9000)
    a.p.left.post(wqe.RDMA_READ, [memory.sge()], remote=a.p.right.region(9000))
    a.settle()
    packets = -(-9000 // PMTU)
    for index in range(packets):
        ends = index + 1 == packets or (index + 1) % (4096 // PMTU) == 0
        size = min(PMTU, 9000 - index * PMTU)
        a.respond(LAST if ends else FIRST, PSN + index, size, 1, 1 + index * PMTU // 4096)
    assert granted(a) == 3 + 1
    for k in range(2):
        a.p.left.post(wqe.SEND, inline=b"x", wr_id=k)
    assert a.settle() == [PSN + packets]
    a.hear(PSN + packets, 1, 4)
    assert a.settle() == [PSN + packets + 1]


def test_who_has_waited_for_room_is_sent_again_when_what_went_then_is_lost(awkward):
    """The timer of the wait becomes that of the packet."""
    a = awkward()
    window = a.qp.flow.window
    others = window.limit_bytes
    window.charge(others)
    a.request(wqe.RDMA_WRITE, 8)
    assert a.settle() == []
    assert a.sender.retry.deadline_ns
    window.give_up(others)
    assert a.settle() == [10]
    for _ in range(2):
        a.p.now = a.sender.retry.deadline_ns
        a.qp.flow.expire(a.p.now)
        assert a.settle() == [10]
    assert a.qp.counters.timeouts == 2


@pytest.mark.parametrize("entries", [1, 4, 64])
def test_as_many_requests_are_under_way_as_the_queue_has_places(awkward, entries):
    a = awkward(entries=entries)
    window = a.qp.flow.window
    window.limit_bytes = window.maximum_bytes = 1 << 24
    for k in range(entries):
        a.request(wqe.RDMA_WRITE, 8, k)
    assert a.settle() == list(range(PSN, PSN + entries))
    a.hear(PSN + entries - 1)
    assert a.done() == [(k, 0) for k in range(entries)]
    a.request(wqe.RDMA_WRITE, 8, 99)
    assert a.settle() == [PSN + entries]


@pytest.mark.parametrize("opcode", [wqe.RDMA_READ, wqe.ATOMIC_FETCH_AND_ADD])
def test_what_has_an_answer_of_its_own_has_asked_for_one(awkward, opcode):
    """So nothing goes beyond a full window to ask for another."""
    a = awkward()
    window = a.qp.flow.window
    others = window.limit_bytes - 1_400
    window.charge(others)
    for each, size in ((opcode, 8), (wqe.RDMA_WRITE, 200)):
        a.p.left.post(each, [a.local.sge(0, size)], remote=a.remote, ring=False)
    a.qp.doorbell(a.p.now)
    assert a.settle() == [10]
    window.give_up(others)
    assert a.settle() == [11]


def test_an_answer_to_what_went_before_the_going_back_counts_while_only_a_part_has_gone_again(awkward):
    a = awkward()
    a.request(wqe.RDMA_WRITE, 4 * PMTU)
    a.settle()
    window = a.qp.flow.window
    a.hear(10, SEQUENCE)
    others = window.limit_bytes - window.in_flight_bytes - PMTU - 1_400
    window.charge(others)
    again = a.settle()
    assert again[0] == 10
    assert len(again) < 4
    a.hear(13)
    assert a.done() == [(0, 0)]
    window.give_up(others)


def test_a_loss_narrows_the_window_and_a_refusal_does_not(awkward):
    a = awkward()
    window = a.qp.flow.window
    a.request(wqe.RDMA_WRITE, 2 * PMTU)
    a.settle()
    before = window.limit_bytes
    a.hear(10, RNR)
    assert (window.limit_bytes, window.losses) == (before, 0)
    a.wait()
    a.settle()
    a.hear(11, SEQUENCE)
    assert (window.limit_bytes, window.losses) == (max(window.minimum_bytes, before // 2), 1)


def test_who_waits_for_room_with_nothing_in_flight_any_more_tries_one_packet_in_time(awkward):
    """Its last answer has come while others had the window, and they hear nothing."""
    a = awkward()
    window = a.qp.flow.window
    a.request(wqe.RDMA_WRITE, 8)
    assert a.settle() == [10]
    others = window.limit_bytes
    window.charge(others)
    a.request(wqe.RDMA_WRITE, 8, 1)
    assert a.settle() == []
    a.hear(10)
    assert a.settle() == []
    deadline = a.sender.retry.deadline_ns
    assert deadline > a.p.now
    a.p.now = deadline
    a.qp.flow.expire(a.p.now)
    assert a.settle() == [11]
    window.give_up(others)


def test_turns_that_a_stalled_sender_gets_do_not_lengthen_its_wait(awkward):
    a = awkward()
    a.request(wqe.RDMA_WRITE, 8)
    assert a.settle() == [10]
    a.qp.flow.window.on_stall()
    a.request(wqe.RDMA_WRITE, 8, 1)
    assert a.settle() == []
    assert a.sender.condition == STALLED
    until = a.sender.stalled_until_ns
    assert until < a.sender.retry.deadline_ns
    assert a.p.a.deadlines[a.qp.flow] <= until, "whatever else it waits for"
    for _ in range(3):
        a.p.now += (until - a.p.now) // 2
        a.p.a.schedule(a.qp.flow)
        assert a.settle() == []
    a.p.now = until
    a.qp.flow.expire(until)
    assert a.settle() == [11]


def test_a_new_path_does_not_end_the_delay_of_a_refusal(awkward):
    a = awkward()
    a.request(wqe.RDMA_WRITE, 8)
    a.settle()
    a.hear(10, RNR)
    deadline = a.sender.retry.deadline_ns
    a.sender.path_changed(a.p.now)
    assert a.settle() == []
    assert (a.sender.condition, a.sender.retry.deadline_ns) == (NOT_READY, deadline)
    a.wait()
    assert a.settle() == [10]


@pytest.mark.parametrize("stalled", [False, True])
def test_who_waits_in_the_window_of_a_former_path_goes_on_in_that_of_the_new_one(awkward, stalled):
    a = awkward()
    window = a.qp.flow.window
    if stalled:
        a.request(wqe.RDMA_WRITE, 8)
        assert a.settle() == [10]
        window.on_stall()
    window.charge(window.limit_bytes)  # others have it
    a.request(wqe.RDMA_WRITE, 8, 1)
    assert a.settle() == []
    a.sender.leave_window()
    a.qp.flow.window = DestinationWindow()
    assert a.settle() == [11 if stalled else 10]
    assert not window.waiters
    assert window.watcher is None
    window.give_up(window.in_flight_bytes)
