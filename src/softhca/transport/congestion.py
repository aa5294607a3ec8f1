"""Congestion control of a flow: how fast it may send, and when it tells its peer that packets came marked.

The contract
------------
A flow has one controller, or None, and then none of this costs it anything.  A controller has no timer and
no packet of its own: it is asked, and finds out at each call what time has done.

* *Who asks*: the flow, in each of its turns.  `departure` says before which moment nothing that carries data
  may leave; `burst_limit` how much one burst may carry.  Acknowledgements and notifications do not wait.
* *Who is told*: `sent`, by the flow, what has left; `notified`, by the receive path, that the peer of the
  flow tells of congestion; `marked`, by the same, that a packet of the peer was marked on its way.  That one
  answers whether the peer is to be told now.
* *What stays*: the window to a destination (`window`) bounds what is under way to an adapter, so that its
  buffer is not overrun, and is what losses act on; answers to READs keep their pace besides
  (`response_pacing`).  A controller bounds the rate of one flow, and is what marks act on.  Whatever allows
  less decides.

`Dcqcn` is the controller that there is, and `RateMachine` the arithmetic in it, by itself: simulated fabrics
have it too (`softhca.fabric.switching.congestion`).

DCQCN
-----
(Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015.)  Switches mark packets
(ECN, RFC 3168) where queues grow; the receiver of a marked packet, the *notification point*, sends a CNP
(IBTA annex A17.9.3), a flow no more than one each ``notify_ns``; its sender, the *reaction point*, takes
down its rate Rc as target Rt, cuts Rc by alpha / 2, and lets alpha grow by the gain g.  Each ``alpha_ns``
without a notification alpha decays by g.  Each ``increase_ns`` and each ``increase_bytes`` is a stage of
increase: in the first ``fast_stages`` of either kind Rc comes half the way to Rt again (fast recovery); then
Rt grows by ``additive_mbps`` a stage; where stages of both kinds are beyond that, by ``hyper_mbps`` times the
number of those (hyper increase).  A flow that is back at the line's rate is not limited any more.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import cython

from softhca.wire.burst import CAPACITY

FRAME_BYTES = 46
"""What Ethernet, IPv4 and UDP add to each packet, in bytes."""
SLACK_NS = 65_536
"""A flow that was called so much too late makes up for it."""
BURST_NS = 16_384
"""A limited flow sends no more at once than its rate carries in that time, but one packet."""

_MAX_BURST = cython.declare(cython.uint, CAPACITY)
_FRAME = cython.declare(cython.ulonglong, FRAME_BYTES)
_SLACK_NS = cython.declare(cython.ulonglong, SLACK_NS)
_BURST_NS = cython.declare(cython.ulonglong, BURST_NS)


@dataclass(frozen=True, slots=True)
class DcqcnSettings:
    """DCQCN's numbers, with the defaults of its authors.  Rates are megabits a second (10^6 bits), times
    nanoseconds.  ValueError for what cannot be.

    ``line_mbps``: the rate that flows begin with and never pass.  ``gain``: g.  ``alpha_ns``: time without a
    notification after which alpha decays (K).  ``increase_ns`` (T) and ``increase_bytes`` (B): time and bytes
    of a stage of increase; ``fast_stages`` (F) of them are fast recovery.  ``additive_mbps`` (R_AI),
    ``hyper_mbps`` (R_HAI): steps of the target.  ``least_mbps``: no rate is less.  ``cut_ns``: one
    notification in so long counts, however many come.  ``notify_ns`` (N): a flow sends no more than one
    notification in so long.
    """

    line_mbps: int = 100_000
    gain: float = 0.00390625  # 1/256, which C would divide as integers
    alpha_ns: int = 55_000
    increase_ns: int = 55_000
    increase_bytes: int = 10 << 20
    fast_stages: int = 5
    additive_mbps: float = 40.0
    hyper_mbps: float = 400.0
    least_mbps: float = 10.0
    cut_ns: int = 50_000
    notify_ns: int = 50_000

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "fast_stages" and getattr(self, field.name) <= 0:
                raise ValueError(f"{field.name} = {getattr(self, field.name)}: expected more than 0")
        if self.gain >= 1 or self.fast_stages < 0 or self.least_mbps > self.line_mbps:
            raise ValueError("a gain is less than 1, stages are no fewer than 0, the least rate is a line's")


class RateMachine:
    """A rate by DCQCN: ``rate_mbps`` is the present one (Rc), ``target_mbps`` what it comes back to (Rt),
    never more than ``line_mbps``.  ``limited``: a notification has come, and the line's rate has not come
    back since.  Times are nanoseconds of any origin that do not go back."""

    def __init__(self, settings: DcqcnSettings) -> None:
        self.line_mbps = float(settings.line_mbps)
        self.rate_mbps = self.line_mbps
        self.target_mbps = self.line_mbps
        self.alpha = 1.0
        self.limited = False
        self.cuts = 0
        self._gain = settings.gain
        self._alpha_timer_ns = settings.alpha_ns
        self._increase_ns = settings.increase_ns
        self._increase_bytes = settings.increase_bytes
        self._fast_stages = settings.fast_stages
        self._additive_mbps = settings.additive_mbps
        self._hyper_mbps = settings.hyper_mbps
        self._least_mbps = settings.least_mbps
        self._cut_interval_ns = settings.cut_ns
        self._alpha_ns = 0
        self._timer_ns = 0
        self._cut_ns = 0
        self._time_stages = 0
        self._byte_stages = 0
        self._bytes = 0

    def notified(self, now: int) -> bool:
        """A notification has come: cut the rate, once in each ``cut_ns``; whether this one did."""
        if self.limited and now - self._cut_ns < self._cut_interval_ns:
            return False
        self.pass_time(now)
        self.target_mbps = self.rate_mbps
        self.rate_mbps = max(self.rate_mbps * (1 - self.alpha / 2), self._least_mbps)
        self.alpha = (1 - self._gain) * self.alpha + self._gain
        self.limited = True
        self.cuts += 1
        self._cut_ns = now
        self._alpha_ns = now
        self._timer_ns = now
        self._time_stages = 0
        self._byte_stages = 0
        self._bytes = 0
        return True

    def pass_time(self, now: int) -> None:
        """What the two timers would have done by now."""
        steps: cython.ulonglong
        if not self.limited:
            return
        if now - self._alpha_ns >= self._alpha_timer_ns:
            steps = (now - self._alpha_ns) // self._alpha_timer_ns
            self._alpha_ns += steps * self._alpha_timer_ns
            self.alpha *= (1 - self._gain) ** min(steps, 1_000_000)
        while self.limited and now - self._timer_ns >= self._increase_ns:
            self._timer_ns += self._increase_ns
            self._time_stages += 1
            self._increase()

    def count(self, sent_bytes: int) -> None:
        """So many bytes were sent: perhaps they end a stage."""
        if not self.limited:
            return
        self._bytes += sent_bytes
        if self._bytes >= self._increase_bytes:
            self._bytes = 0
            self._byte_stages += 1
            self._increase()

    def _increase(self) -> None:
        """A stage has ended."""
        fewer: cython.uint = min(self._time_stages, self._byte_stages)
        if fewer > self._fast_stages:
            self.target_mbps += self._hyper_mbps * (fewer - self._fast_stages)
        elif max(self._time_stages, self._byte_stages) > self._fast_stages:
            self.target_mbps += self._additive_mbps
        self.target_mbps = min(self.target_mbps, self.line_mbps)
        self.rate_mbps = (self.rate_mbps + self.target_mbps) / 2
        if self.line_mbps - self.rate_mbps < 1:
            self.rate_mbps = self.line_mbps
            self.limited = False

    def time_of(self, length_bytes: int) -> int:
        """How long so many bytes take at the present rate, in ns."""
        return int(length_bytes * 8_000.0 / self.rate_mbps)


class CongestionControl:
    """The contract (see above), and a controller that never limits."""

    def departure(self, now: int) -> int:
        """No data may leave before this moment; ``now`` or less: it may now."""
        return 0

    def burst_limit(self) -> int:
        """The bytes of packets that one burst may carry; one packet may go in any case."""
        return _MAX_BURST

    def sent(self, length_bytes: int, packets: int, now: int) -> None:
        """So many packets, BTH … ICRC so long in all, have left."""

    def notified(self, now: int) -> bool:
        """The flow's peer tells of congestion; whether that changes anything."""
        return False

    def marked(self, now: int) -> bool:
        """A packet of the flow's peer was marked on its way; whether the peer is to be told now."""
        return False


class Dcqcn(CongestionControl):
    """DCQCN of one flow: both its reaction point, ``machine``, and its notification point."""

    def __init__(self, settings: DcqcnSettings) -> None:
        self.machine = RateMachine(settings)
        self.free_ns = 0
        self.notify_ns = settings.notify_ns
        self.told_ns = 0
        self.told = False

    def departure(self, now: int) -> int:
        self.machine.pass_time(now)
        return self.free_ns if self.machine.limited else 0

    def burst_limit(self) -> int:
        limit: cython.ulonglong
        if not self.machine.limited:
            return _MAX_BURST
        limit = int(self.machine.rate_mbps * _BURST_NS / 8_000)
        return min(limit, _MAX_BURST)

    def sent(self, length_bytes: int, packets: int, now: int) -> None:
        begin: cython.ulonglong = self.free_ns
        if not self.machine.limited:
            return
        length_bytes += packets * _FRAME
        if begin + _SLACK_NS < now:
            begin = now - _SLACK_NS
        self.free_ns = begin + self.machine.time_of(length_bytes)
        self.machine.count(length_bytes)

    def notified(self, now: int) -> bool:
        if not self.machine.limited:
            self.free_ns = now
        return self.machine.notified(now)

    def marked(self, now: int) -> bool:
        if self.told and now - self.told_ns < self.notify_ns:
            return False
        self.told = True
        self.told_ns = now
        return True
