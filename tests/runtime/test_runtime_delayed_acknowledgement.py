"""When an acknowledgement waits for a reply: the rule by itself, in time that a test makes."""

import pytest

from softhca.runtime.delayed_acknowledgement import NEVER, QUICK_NS, QUICK_REPLIES, DelayedAcknowledgement
from softhca.transport.flow import Flow

LIMIT_NS = 30_000


@pytest.fixture
def rule():
    return DelayedAcknowledgement(LIMIT_NS)


@pytest.fixture
def pair():
    made = Flow.__new__(Flow)
    made.quick_replies = 0
    return made


def answered(rule, pair, now, after_ns=QUICK_NS):
    """A message at ``now``, answered so long after; whether its acknowledgement waited."""
    waited = rule.received(pair, now)
    rule.posted(True, now + after_ns)
    return waited


def test_a_queue_pair_earns_it_by_quick_replies(rule, pair):
    waited = [answered(rule, pair, 1_000_000 * turn) for turn in range(QUICK_REPLIES + 2)]
    assert waited == [False] * QUICK_REPLIES + [True] * 2
    assert (rule.flow, rule.waits, rule.deadline()) == (None, False, NEVER)


def late(rule, pair):
    rule.received(pair, 0)
    rule.posted(True, QUICK_NS + 1)


def elsewhere(rule, pair):
    rule.received(pair, 0)
    rule.posted(False, 1)


def not_at_all(rule, pair):
    rule.received(pair, 0)
    assert rule.end()


@pytest.mark.parametrize("otherwise", [late, elsewhere, not_at_all])
def test_one_that_is_not_answered_at_once_begins_anew(rule, pair, otherwise):
    pair.quick_replies = QUICK_REPLIES
    otherwise(rule, pair)
    assert (pair.quick_replies, rule.waits) == (0, False)
    waited = [answered(rule, pair, turn) for turn in range(QUICK_REPLIES + 1)]
    assert waited == [False] * QUICK_REPLIES + [True]


def test_what_comes_with_something_else_to_be_sent_does_not_wait(rule, pair):
    pair.quick_replies = QUICK_REPLIES
    assert not rule.received(None, 5)
    assert not rule.end()
    assert pair.quick_replies == QUICK_REPLIES


def test_the_wait_has_an_end_and_so_has_the_time_in_which_a_reply_is_looked_for(rule, pair):
    assert not rule.received(pair, 1_000)
    assert rule.deadline() == NEVER
    assert not rule.overdue(1_000 + LIMIT_NS)
    assert rule.overdue(1_001 + LIMIT_NS)
    rule.end()
    assert not rule.overdue(1_001 + LIMIT_NS)
    pair.quick_replies = QUICK_REPLIES
    assert rule.received(pair, 2_000)
    assert rule.deadline() == 2_000 + LIMIT_NS
    assert rule.end()
    assert not rule.end(), "it has been sent"
