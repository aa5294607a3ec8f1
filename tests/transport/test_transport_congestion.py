"""DCQCN's arithmetic against a model of its own, what a controller promises, and the packets that notify."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest

from softhca.transport.congestion import (
    BURST_NS,
    FRAME_BYTES,
    SLACK_NS,
    CongestionControl,
    Dcqcn,
    DcqcnSettings,
    RateMachine,
)
from softhca.transport.notification import (
    NOTIFICATION_BYTES,
    TRAFFIC_CLASS,
    notification_route,
    put_notification,
)
from softhca.wire.burst import CAPACITY, Burst
from softhca.wire.icrc import of_packet
from softhca.wire.packet import decode_transport
from softhca.wire.route import ROCE_V4, ROCE_V6, V4_MAPPED_PREFIX, Route


class Model:
    """The paper's figure 7, event by event and in exact numbers; nothing of it is the transport's."""

    def __init__(self, line: int, settings: DcqcnSettings) -> None:
        self.s = settings
        self.line = self.rc = self.rt = Fraction(line)
        self.alpha = Fraction(1)
        self.on = False
        self.cut_at = 0
        self.alpha_due = self.timer_due = 0
        self.t = self.bc = self.bytes = 0

    def tell(self, now: int) -> None:
        if self.on and now < self.cut_at + self.s.cut_ns:
            return
        self.time(now)
        g = Fraction(self.s.gain)
        self.rt, self.rc = self.rc, max(self.rc * (1 - self.alpha / 2), Fraction(self.s.least_mbps))
        self.alpha = (1 - g) * self.alpha + g
        self.on, self.cut_at = True, now
        self.alpha_due, self.timer_due = now + self.s.alpha_ns, now + self.s.increase_ns
        self.t = self.bc = self.bytes = 0

    def time(self, now: int) -> None:
        while self.on and self.alpha_due <= now:
            self.alpha = (self.alpha * (1 - Fraction(self.s.gain))).limit_denominator(10**30)
            self.alpha_due += self.s.alpha_ns
        while self.on and self.timer_due <= now:
            self.timer_due += self.s.increase_ns
            self.t += 1
            self.raise_rate()

    def send(self, n: int) -> None:
        if self.on:
            self.bytes += n
            if self.bytes >= self.s.increase_bytes:
                self.bytes, self.bc = 0, self.bc + 1
                self.raise_rate()

    def raise_rate(self) -> None:
        f = self.s.fast_stages
        if self.t > f and self.bc > f:
            self.rt += Fraction(self.s.hyper_mbps) * (min(self.t, self.bc) - f)
        elif self.t > f or self.bc > f:
            self.rt += Fraction(self.s.additive_mbps)
        self.rt = min(self.rt, self.line)
        self.rc = ((self.rc + self.rt) / 2).limit_denominator(10**30)
        if self.line - self.rc < 1:
            self.rc, self.on = self.line, False


@pytest.mark.parametrize("seed", range(6))
def test_rates_are_those_of_the_paper(seed: int) -> None:
    dice = Random(seed)
    settings = DcqcnSettings(
        line_mbps=dice.choice((1_000, 10_000, 40_000)), gain=dice.choice((1 / 256, 1 / 16, 0.4)),
        alpha_ns=dice.choice((5_000, 55_000)), increase_ns=dice.choice((5_000, 55_000, 300_000)),
        increase_bytes=dice.choice((10_000, 1 << 20)), fast_stages=dice.choice((1, 5)),
        additive_mbps=dice.choice((1, 40)), hyper_mbps=dice.choice((100, 400)),
        least_mbps=dice.choice((1, 50)), cut_ns=dice.choice((4_000, 50_000)),
    )  # fmt: skip
    machine, model, now = RateMachine(settings), Model(settings.line_mbps, settings), 1_000_000
    seen = False
    for _ in range(1_500):
        now += dice.choice((0, 1, 999, 20_000, 60_000))
        what = dice.random()
        if what < 0.05:
            machine.notified(now)
            model.tell(now)
        elif what < 0.4:
            machine.pass_time(now)
            model.time(now)
        else:
            n = dice.randrange(1, 60_000)
            machine.count(n)
            model.send(n)
        assert machine.limited == model.on
        assert machine.rate_mbps == pytest.approx(float(model.rc), rel=1e-9)
        assert machine.target_mbps == pytest.approx(float(model.rt), rel=1e-9)
        assert machine.alpha == pytest.approx(float(model.alpha), rel=1e-9)
        assert settings.least_mbps <= machine.rate_mbps <= settings.line_mbps
        seen |= machine.limited
    assert seen


def test_a_flood_of_notifications_cuts_once_in_an_interval_and_never_below_the_least_rate() -> None:
    settings = DcqcnSettings(line_mbps=10_000, least_mbps=25)
    machine = RateMachine(settings)
    did = [machine.notified(1_000_000 + n) for n in range(0, 500_000, 100)]
    assert did.count(True) == machine.cuts == 10
    assert did[0] is True
    for n in range(100):
        machine.notified(2_000_000 + n * 50_000)
    assert machine.rate_mbps == 25


def test_a_rate_comes_back_by_itself_however_long_nobody_looks() -> None:
    machine = RateMachine(DcqcnSettings())
    for n in range(50):
        machine.notified(1_000_000 + n * 50_000)
    assert machine.rate_mbps < 100
    machine.pass_time(3_600 * 10**9)
    assert (machine.limited, machine.rate_mbps) == (False, 100_000)
    assert 0 <= machine.alpha < 1e-6
    assert machine.notified(3_601 * 10**9)  # and is cut again, by what alpha is now
    assert machine.rate_mbps > 99_999


@pytest.mark.parametrize("wrong", [
    {"line_mbps": 0}, {"gain": 0}, {"gain": 1}, {"alpha_ns": 0}, {"increase_ns": 0}, {"increase_bytes": 0},
    {"fast_stages": -1}, {"additive_mbps": 0}, {"hyper_mbps": -1}, {"least_mbps": 0}, {"cut_ns": 0},
    {"notify_ns": 0}, {"line_mbps": 5},
])  # fmt: skip
def test_settings_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"expected|least"):
        DcqcnSettings(**wrong)  # type: ignore[arg-type]


def test_the_least_rate_may_be_the_lines_which_no_notification_cuts() -> None:
    machine = RateMachine(DcqcnSettings(line_mbps=10, least_mbps=10))
    assert machine.notified(10**9)
    assert machine.rate_mbps == 10


def test_the_defaults_are_the_published_ones() -> None:
    assert dataclasses.asdict(DcqcnSettings()) == {
        "line_mbps": 100_000, "gain": 1 / 256, "alpha_ns": 55_000, "increase_ns": 55_000,
        "increase_bytes": 10 * 1024 * 1024, "fast_stages": 5, "additive_mbps": 40.0, "hyper_mbps": 400.0,
        "least_mbps": 10.0, "cut_ns": 50_000, "notify_ns": 50_000,
    }  # fmt: skip


# what a controller promises


def test_the_plain_controller_never_limits() -> None:
    control = CongestionControl()
    assert control.departure(5) <= 5
    assert control.burst_limit() == CAPACITY
    control.sent(1 << 20, 300, 5)
    assert control.notified(6) is False
    assert control.marked(6) is False
    assert control.departure(6) <= 6


def test_nobody_waits_before_the_first_notification() -> None:
    control = Dcqcn(DcqcnSettings(line_mbps=1_000))
    for now in range(1_000, 1_100):
        assert control.departure(now) <= now
        control.sent(60_000, 15, now)
    assert control.burst_limit() == CAPACITY


def test_a_limited_flow_departs_at_its_rate() -> None:
    control = Dcqcn(DcqcnSettings(line_mbps=8_000, cut_ns=10**9, alpha_ns=10**9, increase_ns=10**9))
    now = 10**9
    assert control.notified(now)
    assert control.departure(now) == now  # the first goes at once
    control.sent(8_192, 2, now)
    wire_bytes = 8_192 + 2 * FRAME_BYTES
    assert control.departure(now) == now + wire_bytes * 2  # at 4 Gb/s
    assert control.burst_limit() == 4_000 * BURST_NS // 8_000
    # who comes a little too late makes up for it
    late = now + wire_bytes * 2 + 10_000
    control.sent(8_192, 2, late)
    assert control.departure(late) == now + wire_bytes * 4
    # who comes much too late does not
    late = now + 10**8
    control.sent(8_192, 2, late)
    assert control.departure(late) == late - SLACK_NS + wire_bytes * 2


def test_no_burst_is_more_than_a_burst_holds_however_fast_the_line() -> None:
    control = Dcqcn(DcqcnSettings(line_mbps=800_000))
    assert control.notified(10**9)
    assert control.machine.rate_mbps * BURST_NS / 8_000 > CAPACITY
    assert control.burst_limit() == CAPACITY


def test_bytes_of_a_limited_flow_end_stages() -> None:
    control = Dcqcn(DcqcnSettings(line_mbps=8_000, increase_bytes=10_000, increase_ns=10**9))
    control.notified(10**9)
    control.sent(10_000 - FRAME_BYTES - 1, 1, 10**9)
    assert control.machine.rate_mbps == 4_000
    control.sent(1, 0, 10**9)
    assert control.machine.rate_mbps == 6_000


def test_one_notification_in_an_interval_is_due() -> None:
    control = Dcqcn(DcqcnSettings(notify_ns=50_000))
    assert [control.marked(now) for now in (0, 1, 49_999, 50_000, 50_001, 99_999, 100_000)] == [
        True, False, False, True, False, False, True,
    ]  # fmt: skip


# the packet


@pytest.mark.parametrize("framing", [ROCE_V4, ROCE_V6])
@pytest.mark.parametrize("counted", [False, True])
def test_a_notification_is_as_the_standard_says(framing: int, counted: bool) -> None:
    ends = (V4_MAPPED_PREFIX + bytes((192, 0, 2, 1)), V4_MAPPED_PREFIX + bytes((192, 0, 2, 2)))
    if framing == ROCE_V6:
        ends = bytes.fromhex("20010db8") + bytes(11) + b"\1", bytes.fromhex("20010db8") + bytes(11) + b"\2"
    route = Route(framing, *ends, source_port=0xC123, traffic_class=2, hop_limit=7)
    told = notification_route(route)
    told.counted = counted
    told.identification = 9 if counted else 0  # a burst before has left it there
    assert told.traffic_class == TRAFFIC_CLASS == 0xC0
    assert (told.source, told.destination, told.source_port, told.hop_limit) == (*ends, 0xC123, 7)
    burst = Burst()
    burst.buffer[:64] = b"\xee" * 64
    put_notification(burst, told, 0x8001, 0x123456)
    assert (burst.length, burst.stride, burst.packets) == (NOTIFICATION_BYTES, NOTIFICATION_BYTES, 1)
    assert (burst.route, burst.counted) == (told, counted)
    data = bytes(burst.buffer[: burst.length])
    bth = decode_transport(data).bth
    assert data[0] == 0x81
    assert bth.as_dict() == {
        "opcode": 0x81, "solicited": 0, "migreq": 0, "pad": 0, "tver": 0, "pkey": 0x8001, "fecn": 0,
        "becn": 1, "reserved6": 0, "dest_qp": 0x123456, "ack_request": 0, "reserved7": 0, "psn": 0,
    }  # fmt: skip
    assert data[12:28] == bytes(16)
    icrc = of_packet(framing, notification_route(route).headers(len(data)), data[:-4])
    assert data[-4:] == icrc.to_bytes(4, "little")


def test_a_notification_counts_again_after_its_time_and_no_earlier():
    settings = DcqcnSettings(cut_ns=50_000)
    machine = RateMachine(settings)
    told = [machine.notified(now) for now in (0, 49_999, 50_000, 99_999, 100_000)]
    assert told == [True, False, True, False, True]
    assert machine.cuts == 3


def test_in_hyper_increase_each_stage_adds_more_than_the_one_before():
    settings = DcqcnSettings(
        cut_ns=10, alpha_ns=1 << 40, increase_ns=1000, increase_bytes=1, fast_stages=0, additive_mbps=40,
        hyper_mbps=400,
    )  # fmt: skip
    machine = RateMachine(settings)
    machine.notified(0)
    machine.notified(10)
    targets = [machine.target_mbps]
    for stage in (1, 2):
        machine.pass_time(10 + stage * 1000)
        targets.append(machine.target_mbps)
        machine.count(1)
        targets.append(machine.target_mbps)
    assert [after - before for before, after in pairwise(targets)] == [40, 400, 400, 800]
