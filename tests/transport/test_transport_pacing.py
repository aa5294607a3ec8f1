"""A rate limit's arithmetic: exact to the bit, and no stretch of time carries more than it may."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from softhca.transport.congestion import CongestionControl
from softhca.transport.pacing import (
    DEPTH_NS,
    LEAST_RATE_KBPS,
    MOST_RATE_KBPS,
    TURN_NS,
    WHOLE_BYTES,
    Both,
    FramePacing,
    PacketPacing,
)

PACKET = 1_500


def carried(pacing: PacketPacing, total_bytes: int, dice: Random | None = None) -> list[tuple[int, int]]:
    """Send so much in packets as fast as may be, never earlier than allowed, with ``dice`` often later: when
    each turn has left, and how much."""
    now, left, turns = 5_000_000, total_bytes, []
    while left:
        now = max(now, pacing.departure(now))
        if dice is not None:
            now += dice.choice((0, 0, 0, 60_000, 400_000))
        pacing.departure(now)
        n = min(left, max(PACKET, pacing.burst_limit() // PACKET * PACKET))
        pacing.sent(n, -(-n // PACKET), now)
        turns.append((now, n))
        left -= n
    return turns


def most_in_a_row(turns: list[tuple[int, int]], rate_kbps: int) -> Fraction:
    """The largest burst beyond the rate in any stretch of time, in bytes."""
    most, filled, before = Fraction(0), Fraction(0), turns[0][0]
    for now, n in turns:
        filled = max(Fraction(0), filled - Fraction((now - before) * rate_kbps, 8_000_000)) + n
        most, before = max(most, filled), now
    return most


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("burst", [0, 1, 3_000, WHOLE_BYTES - 1, WHOLE_BYTES, 50_000, 1_000_000])
@pytest.mark.parametrize("rate", [LEAST_RATE_KBPS, 999, 10_007, 1_000_003, MOST_RATE_KBPS])
def test_no_stretch_of_time_carries_more_than_the_rate_and_one_burst(
    rate: int, burst: int, late: bool
) -> None:
    turns = carried(PacketPacing(rate, burst), 3_000_000, Random(rate) if late else None)
    allowed = max(burst, PACKET)
    if burst == 0:
        allowed = rate * DEPTH_NS // 8_000_000 + max(PACKET, rate * TURN_NS // 8_000_000) + 1
    assert most_in_a_row(turns, rate) <= allowed + 1


@pytest.mark.parametrize("rate", [LEAST_RATE_KBPS, 999, 10_007, 1_000_003])
def test_the_rate_is_right_to_the_bit_where_nobody_is_late(rate: int) -> None:
    turns = carried(PacketPacing(rate, 3_000), 3_000_000)
    last = turns[-1][1]
    assert turns[-1][0] - turns[0][0] == (3_000_000 - last) * 8_000_000 // rate


def test_what_is_late_is_made_up_for() -> None:
    # turns that come 400 us late now and then, at 1 ms between them: the rate is kept all the same
    turns = carried(PacketPacing(80_000, 20_000), 10_000_000, Random(1))
    span = turns[-1][0] - turns[0][0]
    assert span <= 10_000_000 * 100 + 500_000


def test_time_in_which_nothing_was_sent_saves_up_no_more_than_a_burst() -> None:
    pacing = PacketPacing(8_000, 3_000)  # a byte a microsecond
    pacing.sent(3_000, 2, 10**9)
    assert pacing.departure(2 * 10**9) <= 2 * 10**9
    pacing.sent(3_000, 2, 2 * 10**9)
    assert pacing.departure(2 * 10**9) == 2 * 10**9 + 3_000_000


@pytest.mark.parametrize(("rate", "burst", "turn"), [
    (8, 0, 1), (8_000_000, 0, 65_536), (800_000, 0, 10_000), (800_000, 1, 1), (800_000, 19_999, 19_999),
    (800_000, 20_000, 10_000), (800_000, 10**6, 65_536), (800_000, 2**32 - 1, 65_536),
])  # fmt: skip
def test_what_one_turn_may_send(rate: int, burst: int, turn: int) -> None:
    assert PacketPacing(rate, burst).burst_limit() == turn


def test_frames_count_when_they_are_taken_not_when_they_leave() -> None:
    pacing = FramePacing(8_000, 3_000)
    assert pacing.departure(1_000) == 0
    pacing.sent(9_000, 6, 1_000)
    assert pacing.departure(1_000) == 0
    assert pacing.admits(5_000)  # the first one always
    pacing.frame(1_500, 1_000)
    assert (pacing.admits(1_500), pacing.admits(1_501)) == (True, False)
    assert pacing.departure(1_000) == 1_000 + 1_500_000
    assert pacing.admits(5_000)  # the next turn
    assert pacing.burst_limit() == 65_536


class Allows(CongestionControl):
    """A control that allows what it was told to, and keeps what it is told."""

    def __init__(self, departure: int, limit: int) -> None:
        self.said, self.limit = departure, limit
        self.told: list[tuple[int, int, int]] = []

    def departure(self, now: int) -> int:
        return self.said

    def burst_limit(self) -> int:
        return self.limit

    def sent(self, length_bytes: int, packets: int, now: int) -> None:
        self.told.append((length_bytes, packets, now))


@pytest.mark.parametrize(("departure", "limit", "expected"), [
    (0, 65_536, (1_001_000, 1_000)), (5_000_000, 100, (5_000_000, 100)),
])  # fmt: skip
def test_of_congestion_control_and_a_limit_the_lesser_decides(
    departure: int, limit: int, expected: tuple[int, int]
) -> None:
    control = Allows(departure, limit)
    both = Both(control, PacketPacing(8_000, 1_000))
    both.sent(1_000, 1, 1_000)
    assert control.told == [(1_000, 1, 1_000)]
    assert (both.departure(1_000), both.burst_limit()) == expected


def test_after_a_silence_nothing_is_left_of_what_was_before():
    pacing = PacketPacing(7_000)
    for times in range(2, 20):
        now = times * 1_000_000
        pacing.sent(1, 1, now)  # 1142 ns and six sevenths
        assert pacing.departure(now) == now + 1142 - DEPTH_NS
