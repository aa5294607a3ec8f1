"""What an AETH says of receives, and of time: which of them counts, how far sends may go, and how long a
refused request waits."""

import pytest

from softhca.queues import wqe
from softhca.transport.credits import CREDITS
from softhca.transport.retry import RNR_TIMER_NS
from softhca.wire import opcodes

NO_LIMIT = 31
FOUR = 4  # the code of four receives
RNR_NAK, NAK = 0x20, 0x60


class Asking:
    """A sender with ``requests`` writes under way, of which none is answered."""

    def __init__(self, pair, requests=2, **settings):
        self.p = pair(timeout=0, **settings)
        target, memory = self.p.right.region(64), self.p.left.region(8)
        for k in range(requests):
            self.p.left.post(wqe.RDMA_WRITE, [memory.sge()], remote=target, wr_id=k)
        while self.p.transmit(self.p.a):
            pass
        self.p.flying.clear()
        self.sender = self.p.left.qp.requester

    def hear(self, psn, syndrome, msn=0):
        self.p.forge(opcodes.RC_ACKNOWLEDGE, psn, way="ba", syndrome=syndrome, msn=msn)

    def granted(self):
        """How far sends may go; None: without limit."""
        return self.sender.lsn if self.sender.limited else None


@pytest.mark.parametrize("msn", [0, 1000, 0xFFFFFE, 0xFFFFFF])
@pytest.mark.parametrize("code", [0, 1, FOUR, 30])
def test_sends_may_go_as_far_as_the_messages_that_are_done_and_the_receives_behind_them(pair, msn, code):
    asking = Asking(pair)
    asking.hear(0, code, msn)
    assert asking.granted() == (msn + CREDITS[code]) % (1 << 24)
    assert asking.sender.una_psn == 1


def test_a_peer_that_counts_no_receives_any_more_sets_no_limit(pair):
    asking = Asking(pair)
    asking.hear(0, FOUR)
    assert asking.granted() == CREDITS[FOUR]
    asking.hear(1, NO_LIMIT)
    assert asking.granted() is None


@pytest.mark.parametrize("msn", [5, 9])
def test_a_peer_at_rest_grants_more_by_repeating_its_last_acknowledgement(pair, msn):
    asking = Asking(pair)
    asking.hear(1, FOUR, 2)
    ghosts = asking.p.left.qp.counters.ghost_acks
    asking.hear(1, FOUR, msn)
    assert asking.granted() == msn + CREDITS[FOUR]
    assert asking.p.left.qp.counters.ghost_acks == ghosts
    asking.hear(0, FOUR, 77)
    assert asking.granted() == msn + CREDITS[FOUR], "an older one is a ghost"
    assert asking.p.left.qp.counters.ghost_acks == ghosts + 1


@pytest.mark.parametrize("syndrome", [RNR_NAK | FOUR, NAK | FOUR, 0x40 | FOUR, 0x80 | FOUR])
def test_only_acknowledgements_grant_anything_at_rest(pair, syndrome):
    """The other kinds have a timer or a code where these have their credits."""
    asking = Asking(pair)
    asking.hear(1, 2, 2)
    before = asking.granted()
    asking.hear(1, syndrome, 500)
    assert asking.granted() == before


@pytest.mark.parametrize("timer", range(32))
def test_a_refused_request_waits_as_long_as_its_peer_says(pair, timer):
    asking = Asking(pair)
    asking.hear(0, RNR_NAK | timer)
    assert asking.sender.retry.deadline_ns - asking.p.now == RNR_TIMER_NS[timer]


def test_a_refusal_behind_something_that_is_acknowledged_by_it_is_the_later_ones(pair):
    asking = Asking(pair, 3)
    asking.hear(1, RNR_NAK | 1)
    assert asking.sender.una_psn == 1
    assert [each.wr_id for each in asking.p.left.sent()] == [0]
    assert asking.sender.retry.deadline_ns == asking.p.now + RNR_TIMER_NS[1]


def test_no_more_than_what_was_sent_can_be_acknowledged(pair):
    asking = Asking(pair)
    asking.hear(2, FOUR, 9)
    assert (asking.sender.una_psn, asking.granted()) == (0, None)
    asking.hear(1, FOUR, 2)
    assert asking.sender.una_psn == 2
