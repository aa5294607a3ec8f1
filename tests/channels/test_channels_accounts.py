"""Accounts: who may send how much, and what a peer can say of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.channels.accounts import LARGE, MESSAGE, ControlAccount, ReceiveAccount, SendAccount
from softhca.channels.errors import ProtocolError


def test_a_sender_is_never_more_than_the_slots_ahead() -> None:
    account = SendAccount(4, 4)
    assert [account.immediate(MESSAGE) for _ in range(4)] == [0, 1, 2, 3]
    assert account.room == 0
    account.credited(3)
    assert account.room == 0  # the memory here is still in use
    account.retired = 2
    assert account.room == 2
    account.retired = 4
    assert account.room == 3


@pytest.mark.parametrize("number", [1, 5, 1 << 40])
def test_credit_that_cannot_be_is_refused(number: int) -> None:
    account = SendAccount(4, 4)
    for _ in range(4):
        account.immediate(MESSAGE)
    account.credited(2)
    with pytest.raises(ProtocolError):
        account.credited(number)
    assert account.taken == 2
    account.credited(2)  # said twice


def test_messages_of_an_acknowledged_channel_come_in_order() -> None:
    account = ReceiveAccount(4, True)
    assert account.arrived(0) == (MESSAGE, 0)
    for wrong in (0, 2, (1 << 24) - 1, 2 << 24 | 1):
        with pytest.raises(ProtocolError):
            account.arrived(wrong)
    assert account.arrived(LARGE << 24 | 1) == (LARGE, 1)
    assert account.lost == 0


def test_what_does_not_come_is_counted() -> None:
    account = ReceiveAccount(4, False)
    assert account.arrived(2) == (MESSAGE, 2)
    assert (account.lost, account.expected) == (2, 3)
    assert account.arrived(1) == (MESSAGE, -1)  # late
    assert (account.lost, account.late, account.expected) == (2, 1, 3)
    with pytest.raises(ProtocolError):
        account.arrived(4)  # beyond the room
    with pytest.raises(ProtocolError):
        account.arrived(LARGE << 24 | 3)
    account.synchronized(4)
    assert (account.lost, account.expected) == (3, 4)
    for wrong in (3, 5):
        with pytest.raises(ProtocolError):
            account.synchronized(wrong)
    assert account.expected == 4


def test_nothing_is_lost_of_an_acknowledged_channel() -> None:
    account = ReceiveAccount(4, True)
    account.arrived(0)
    account.synchronized(1)
    for wrong in (0, 2):
        with pytest.raises(ProtocolError):
            account.synchronized(wrong)


def test_numbers_wrap_in_the_immediate_data_only() -> None:
    sender, receiver = SendAccount(4, 4), ReceiveAccount(4, True)
    sender.sent = sender.taken = sender.retired = receiver.expected = receiver.advertised = (1 << 24) - 1
    assert receiver.arrived(sender.immediate(MESSAGE)) == (MESSAGE, (1 << 24) - 1)
    assert receiver.arrived(sender.immediate(MESSAGE)) == (MESSAGE, 1 << 24)


@given(st.integers(4, 64), st.integers(8, 64), st.lists(st.integers(0, 5), max_size=300))
def test_control_messages_never_stop_and_never_overrun(own: int, peer: int, choices: list[int]) -> None:
    """Two sides that say what they can, and take what has come, in any order."""
    sides = [ControlAccount(own + 4, peer), ControlAccount(peer, own + 4)]
    under_way: list[list[int]] = [[], []]
    for choice in choices:
        here = choice % 2
        account = sides[here]
        if choice < 2 and account.room > 0:
            under_way[here].append(account.next())
        elif choice < 4 and under_way[1 - here]:
            account.arrived(under_way[1 - here].pop(0))
        elif account.must_advertise:
            under_way[here].append(account.next())
        assert len(under_way[here]) <= account.peer_slots
        assert account.sent - account.taken <= account.peer_slots
    for _ in range(4):  # all is taken and told: both can speak again
        for here in (0, 1):
            while under_way[1 - here]:
                sides[here].arrived(under_way[1 - here].pop(0))
            if sides[here].must_advertise:
                under_way[here].append(sides[here].next())
    assert all(account.room > 0 for account in sides)


def test_both_sides_can_tell_when_both_have_said_all_that_they_may() -> None:
    sides = [ControlAccount(8, 8), ControlAccount(8, 8)]
    said: list[list[int]] = [[], []]
    for here in (0, 1):
        while sides[here].room > 0:
            said[here].append(sides[here].next())
        assert len(said[here]) == 7
    for here in (0, 1):
        while said[1 - here]:
            sides[here].arrived(said[1 - here].pop(0))
        assert sides[here].must_advertise
        said[here].append(sides[here].next())
        assert sides[here].sent - sides[here].taken <= 8
        assert not sides[here].must_advertise
    for here in (0, 1):
        while said[1 - here]:
            sides[here].arrived(said[1 - here].pop(0))
        assert sides[here].room >= 6


def test_forged_counts_of_control_messages_are_refused() -> None:
    account = ControlAccount(8, 8)
    account.next()
    for taken in (2, 0xFFFFFFFF, 1 << 24, 1 << 31):
        with pytest.raises(ProtocolError):
            account.arrived(taken)
    account.arrived(1)
    with pytest.raises(ProtocolError):
        account.arrived(0)
    for _ in range(7):
        account.arrived(1)
    with pytest.raises(ProtocolError, match="room"):
        account.arrived(1)


def test_taken_messages_are_told_a_quarter_of_the_slots_at_a_time_or_at_once() -> None:
    account = ReceiveAccount(16, True)
    assert [account.owed(taken, False) for taken in (0, 3, 4)] == [False, False, True]
    assert [account.owed(taken, True) for taken in (0, 1)] == [False, True]
    few = ReceiveAccount(3, True)
    assert [few.owed(taken, False) for taken in (0, 1)] == [False, True]


def test_a_message_is_late_as_far_back_as_there_are_slots() -> None:
    for back, late in ((4, True), (5, False)):
        account = ReceiveAccount(4, False)
        for number in range(6):
            account.arrived(number)
            account.advertised = account.expected
        if late:
            assert account.arrived(account.expected - back) == (MESSAGE, -1)
        else:
            with pytest.raises(ProtocolError):
                account.arrived(account.expected - back)


def test_control_messages_are_told_when_the_last_place_is_left_for_it() -> None:
    account = ControlAccount(8, 8)
    for _ in range(4):
        account.arrived(0)
    assert account.must_advertise
    for _ in range(8):
        account.next()
    for _ in range(4):
        account.arrived(0)
    assert (account.room, account.must_advertise) == (-1, False)
    account.arrived(1)
    assert (account.room, account.must_advertise) == (0, True)


def test_counts_of_control_messages_go_on_behind_32_bits() -> None:
    account = ControlAccount(8, 8)
    account.sent, account.taken = (1 << 32) + 3, (1 << 32) - 2
    account.arrived(2)
    assert account.taken == (1 << 32) + 2
    with pytest.raises(ProtocolError):
        account.arrived(4)


def test_a_question_that_messages_have_overtaken_says_nothing() -> None:
    account = ReceiveAccount(4, acknowledged=False)
    account.advertised = 3
    for number in range(5):
        account.arrived(MESSAGE << 24 | number)
    for sent in (0, 3, 5):
        account.asked(sent)
        assert (account.expected, account.lost) == (5, 0)
    account.asked(7)
    assert (account.expected, account.lost) == (7, 2)
    with pytest.raises(ProtocolError):
        account.asked(8)
    with pytest.raises(ProtocolError):
        account.synchronized(6)  # the last word, behind which nothing comes
