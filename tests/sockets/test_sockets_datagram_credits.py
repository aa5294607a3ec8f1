"""How much may be sent to a receive queue: told, spent, lost, forged, waited for, shared."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.sockets import datagram_credits
from softhca.sockets.datagram_credits import ReceiveCredits, SendCredit, ahead
from softhca.sockets.datagram_protocol import CREDIT, HEADER_BYTES, MOST_WINDOW, Header
from softhca.sockets.datagram_state import Claim, DatagramState
from softhca.sockets.protocol import ProtocolError

HOST, GID = bytes(15) + b"\x01", bytes(15) + b"\x02"
SOURCE, ADDRESS = (GID, 7), (HOST, 5)
PATIENCE_NS = 1000


def test_positions_are_compared_beyond_their_end() -> None:
    assert ahead(3, 0xFFFFFFFE) == 5
    assert ahead(0xFFFFFFFE, 3) == -5
    assert ahead(7, 7) == 0


@pytest.mark.parametrize("start", [0, 0xFFFFFFF0])
def test_a_sender_keeps_to_its_limit(start: int) -> None:
    credit = SendCredit(start, 20, PATIENCE_NS)
    for _ in range(4):
        assert credit.may_send(5, 0)
        credit.spend(5)
    assert not credit.may_send(1, 0)
    assert credit.stalled(0)
    assert credit.told(start + 25 & 0xFFFFFFFF, 20)
    assert not credit.stalled(0)
    assert credit.may_send(5, 0)
    assert not credit.may_send(6, 0)


def test_a_datagram_longer_than_the_window_goes_when_three_quarters_are_free() -> None:
    credit = SendCredit(0, 20, PATIENCE_NS)
    credit.spend(5)
    assert credit.may_send(1000, 0)
    credit.spend(1)
    assert not credit.may_send(1000, 0)
    assert SendCredit(0, 1, PATIENCE_NS).may_send(1000, 0)


def test_nobody_waits_for_ever_and_who_waited_in_vain_waits_less() -> None:
    credit = SendCredit(0, 1, PATIENCE_NS)
    credit.spend(1)
    now_ns, waits = 0, []
    for turn in range(10):
        assert not credit.may_send(1, now_ns)
        waits.append(credit.until_ns - now_ns)
        assert not credit.may_send(1, credit.until_ns - 1)
        now_ns = credit.until_ns
        assert credit.may_send(1, now_ns)
        assert credit.free
        credit.spend(1)
        assert credit.told(credit.position, 1)  # it is heard again, and has no room
        assert not credit.free, turn
    assert waits == [1000, 500, 250, 125, 62, 31, 15, 15, 15, 15]
    assert not credit.may_send(1, now_ns)
    assert credit.told(credit.position + 1, 1)
    assert credit.may_send(1, now_ns)
    credit.spend(1)
    assert not credit.may_send(1, now_ns)
    assert credit.until_ns - now_ns == 30


def test_who_tells_something_while_it_is_waited_for_is_waited_for_as_long_again() -> None:
    """It reads what it was sent without credit; half the wait would end in the same way."""
    credit = SendCredit(0, 4, PATIENCE_NS)
    credit.spend(100)
    now_ns = 0
    for turn in range(4):
        assert not credit.may_send(1, now_ns)
        assert credit.until_ns - now_ns == PATIENCE_NS
        assert credit.told(50 + 10 * turn, 4)
        assert not credit.may_send(1, now_ns)
        now_ns = credit.until_ns
        assert credit.may_send(1, now_ns)
        assert credit.free
        assert credit.told(55 + 10 * turn, 4)


def test_without_patience_there_is_no_credit() -> None:
    credit = SendCredit(0, 1, 0)
    credit.spend(100)
    assert credit.may_send(100, 0)
    assert not credit.told(101, 1)
    assert credit.free


def test_credit_that_is_old_or_cannot_be_means_nothing() -> None:
    credit = SendCredit(1000, 20, PATIENCE_NS)
    credit.spend(20)
    for limit, window in (
        (1020, 20), (1000, 20), (1020 + 21, 20), (1025, 0), (1025, MOST_WINDOW + 1), (1 << 31, 20), (0, 20),
    ):  # fmt: skip
        assert not credit.told(limit, window), (limit, window)
    assert (credit.limit, credit.window) == (1020, 20)
    assert credit.told(1040, 20)


def test_who_sends_without_credit_for_very_long_is_told_some_all_the_same() -> None:
    credit = SendCredit(0, 1, PATIENCE_NS)
    credit.give_up()
    for _ in range(5):
        credit.spend(1 << 29)
    assert not credit.told(credit.position + 2, 1)
    assert credit.told(credit.position + 1, 1)
    assert not credit.free


def test_a_limit_is_what_is_behind_the_last_whole_one_less_what_is_held() -> None:
    credits = ReceiveCredits(40)
    assert credits.admit(SOURCE, ADDRESS, 0) == 10
    sender = credits.whole(SOURCE, ADDRESS, 100, 1, 0)
    assert credits.due(0) == [(sender, 141, 40)]
    credits.tell(sender, 141)
    assert credits.whole(SOURCE, ADDRESS, 101, 16, 0) is sender
    credits.hold(sender, 17)
    assert credits.due(0) == []
    credits.release(sender, 9)
    assert credits.due(0) == []  # a message for each would cost more than it saves
    credits.release(sender, 2)
    assert credits.due(0) == [(sender, 100 + 17 + 40 - 6, 40)]
    credits.tell(sender, 151)
    credits.release(sender, 6)
    assert credits.due(0) == []
    for start in (117, 120):  # the second one overtakes
        credits.whole(SOURCE, ADDRESS, start + 3, 3, 0)
    credits.whole(SOURCE, ADDRESS, 117, 3, 0)
    assert sender.seen == 126


def test_what_was_lost_is_made_good_by_what_arrives_later() -> None:
    credits = ReceiveCredits(40)
    credits.admit(SOURCE, ADDRESS, 0)
    sender = credits.whole(SOURCE, ADDRESS, 0, 1, 0)
    credits.tell(sender, 41)
    assert credits.due(0) == []
    credits.whole(SOURCE, ADDRESS, 30, 1, 0)
    assert credits.due(0) == [(sender, 71, 40)]


def test_a_new_beginning_is_one() -> None:
    """Of a process that has the queue pair's number after another one."""
    credits = ReceiveCredits(40)
    credits.admit(SOURCE, ADDRESS, 0)
    sender = credits.whole(SOURCE, ADDRESS, 5, 1, 0)
    for start in (1 << 31, 7):
        assert credits.whole(SOURCE, ADDRESS, start, 1, 0) is sender
        assert (sender.seen, sender.told) == (start + 1, start + 10)


def test_the_room_is_shared_by_those_that_send() -> None:
    credits = ReceiveCredits(40)
    windows = [credits.admit((GID, number), ADDRESS, 0) for number in range(20)]
    assert windows == [max(40 // each // 4, 4) for each in range(1, 21)]
    assert credits.share(0) == 4
    late_ns = datagram_credits.ACTIVE_NS
    sender = credits.whole((GID, 3), ADDRESS, 0, 1, late_ns)
    assert credits.share(late_ns) == 40
    assert credits.due(late_ns) == [(sender, 41, 40)]
    assert ReceiveCredits(3).share(0) == 3
    assert ReceiveCredits(10_000).share(0) == MOST_WINDOW


def test_who_holds_nothing_is_forgotten_beyond_the_bound() -> None:
    credits = ReceiveCredits(40)
    first = credits.whole((GID, 0), ADDRESS, 0, 5, 0)
    credits.hold(first, 5)
    for number in range(1, datagram_credits.MOST_SENDERS + 10):
        credits.whole((GID, number), ADDRESS, 0, 1, 0)
    assert len(credits._senders) == datagram_credits.MOST_SENDERS
    assert credits.whole((GID, 0), ADDRESS, 5, 1, 0) is first
    assert len(credits.due(0)) <= datagram_credits.MOST_SENDERS


def credit_message(limit: int, window: int, source: tuple[bytes, int], state: DatagramState) -> None:
    text = Header(HOST, 5, 0, window, CREDIT, 5, limit).encode()
    state.arrived(0, source, HEADER_BYTES, text, 0)


def test_credit_is_taken_from_whom_one_sends_to_alone() -> None:
    state = DatagramState(8)
    credit = state.sending[SOURCE] = SendCredit(0, 4, PATIENCE_NS)
    credit_message(6, 6, (GID, 8), state)
    assert credit.limit == 4
    credit_message(6, 6, SOURCE, state)
    assert (credit.limit, credit.window, state.used) == (6, 6, 0)
    credit_message(7, 0, SOURCE, state)
    assert state.dropped == {"malformed": 1}
    with pytest.raises(ProtocolError):
        Header.decode(Header(HOST, 5, 0, MOST_WINDOW + 1, CREDIT, 5, 6).encode(), HEADER_BYTES)
    del credit
    credit_message(8, 6, SOURCE, state)  # there is nobody who would send
    assert not state.sending


def test_only_who_is_believed_is_told() -> None:
    state = DatagramState(24)  # a window of 12
    for number in range(4):
        state.arrived(number, SOURCE, HEADER_BYTES, Header(*ADDRESS, number, 0, 0, 5, number).encode(), 0)
    assert state.credits.due(0) == []
    state.decide(Claim(SOURCE, ADDRESS), True, 0)
    assert len(state.queue) == 4
    found = state.queue.popleft()
    state.give_back(found.slots)
    sender, limit, _ = state.credits.due(0)[0]
    assert (sender.source, limit) == (SOURCE, 4 + 12 - 3)
    while state.queue:
        state.give_back(state.queue.popleft().slots)
    assert [(limit, window) for _, limit, window in state.credits.due(0)] == [(16, 12)]


def test_what_is_dropped_by_a_full_queue_moves_the_limit() -> None:
    state = DatagramState(8)
    state.decide(Claim(SOURCE, ADDRESS), True, 0)
    for number in range(10):
        state.arrived(number, SOURCE, HEADER_BYTES, Header(*ADDRESS, number, 0, 0, 5, number).encode(), 0)
    assert state.dropped == {"full": 4}
    while state.queue:
        state.give_back(state.queue.popleft().slots)
    assert [limit for _, limit, _ in state.credits.due(0)] == [14]


@given(st.integers(0, 2**32), st.integers(1, 40), st.booleans())
def test_nothing_is_overrun_and_nobody_is_stuck(seed: int, largest: int, lossy: bool) -> None:
    """A sender, a channel that may lose, and a receiver that reads when it likes."""
    dice = random.Random(seed)
    credits, room = ReceiveCredits(48), 48
    window = credits.admit(SOURCE, ADDRESS, 0)
    credit = SendCredit(dice.getrandbits(32), window, PATIENCE_NS)
    held: list[int] = []
    sender, left, turns = None, 60, 0
    while left:
        turns += 1
        assert turns < 10_000, "nobody is told anything any more"
        messages = dice.randint(1, largest)
        if credit.may_send(messages, 0):
            if not lossy or dice.random() < 0.8:
                sender = credits.whole(SOURCE, ADDRESS, credit.position, messages, 0)
                credits.hold(sender, messages)
                held.append(messages)
                if not lossy:
                    assert sum(held) <= room + max(messages - room * 3 // 4, 0)
            credit.spend(messages)
            left -= 1
        elif not held and lossy:
            credit.may_send(messages, PATIENCE_NS)  # what would have said so was lost: time passes
        if held and dice.random() < 0.4:
            assert sender is not None
            credits.release(sender, held.pop(0))
        for each, limit, share in credits.due(0):
            credits.tell(each, limit)
            if not lossy or dice.random() < 0.8:
                assert credit.told(limit, share)


def test_who_has_waited_long_enough_is_not_waited_for() -> None:
    credit = SendCredit(0, 1, PATIENCE_NS)
    credit.spend(1)
    assert not credit.may_send(1, 5)
    assert [credit.stalled(now_ns) for now_ns in (5, 4 + PATIENCE_NS, 5 + PATIENCE_NS)] == [True, True, False]


def test_who_was_heard_last_is_kept() -> None:
    credits = ReceiveCredits(100)
    sources = [(GID, number) for number in range(datagram_credits.MOST_SENDERS + 1)]
    kept = [credits.whole(each, ADDRESS, 0, 1, 0) for each in sources[:-1]]
    assert credits.whole(sources[0], ADDRESS, 1, 1, 0) is kept[0]
    credits.whole(sources[-1], ADDRESS, 0, 1, 0)
    assert credits.whole(sources[0], ADDRESS, 2, 1, 0) is kept[0]
    assert credits.whole(sources[1], ADDRESS, 0, 1, 0) is not kept[1], "it was silent for longest"


def test_a_sender_is_answered_where_it_says_that_it_is() -> None:
    credits, moved = ReceiveCredits(100), (HOST, 6)
    credits.whole(SOURCE, ADDRESS, 0, 1, 0)
    assert credits.whole(SOURCE, moved, 1, 1, 0).address == moved


def test_who_begins_to_send_has_its_share_at_once() -> None:
    credits = ReceiveCredits(100)
    credits.whole(SOURCE, ADDRESS, 0, 1, 0)
    assert credits.share(0) == 100
    credits.whole((GID, 8), ADDRESS, 0, 1, 1)
    assert credits.share(1) == 50


def test_who_has_just_lost_its_share_and_sends_has_it_again_at_once() -> None:
    credits = ReceiveCredits(100)
    credits.whole(SOURCE, ADDRESS, 0, 1, 0)
    credits.whole((GID, 8), ADDRESS, 0, 1, 1)
    idle_ns = datagram_credits.ACTIVE_NS
    assert credits.share(idle_ns) == 100
    credits.whole(SOURCE, ADDRESS, 1, 1, idle_ns)
    assert credits.share(idle_ns) == 50


def test_who_was_found_due_is_found_again_when_something_has_changed() -> None:
    credits = ReceiveCredits(100)
    sender = credits.whole(SOURCE, ADDRESS, 0, 1, 0)
    assert [each for each, _, _ in credits.due(0)] == [sender]
    assert credits.due(0) == []
    credits.hold(sender, 1)
    credits.release(sender, 1)
    assert [each for each, _, _ in credits.due(0)] == [sender]
