"""The oracle of congestion control: who looks at packets alone must see DCQCN kept.

It follows every flow, a queue pair of an adapter, by what that sends and what arrives for it, and has a model
of its own of the rate that a notification leaves a flow.  It imports nothing of the transport.

* A marked packet is told of at once, unless the flow has told its peer within the interval; nothing else is.
* A notification is as IBTA A17.9.3 says, byte for byte, in a class of its own and not ECN-capable.
* What a flow sends is ECN-capable, and never leaves faster than its rate lets it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from softhca.simulation.oracle import Report

RULES = (
    "marks are told of", "one notification in an interval", "notifications as the standard has them",
    "packets are capable of marks", "rates are kept",
)  # fmt: skip
NOTIFICATION = 0x81
NOTIFICATION_CLASS = 0xC0
FRAME_BYTES = 46
SLACK_NS = 65_536
TOLERANCE_NS = 2
ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE = 0x11, 0x12

Key = tuple[int, int]
"""(adapter, queue pair)"""


class Numbers(Protocol):
    """DCQCN's, as an adapter was made with them."""

    @property
    def line_mbps(self) -> int: ...
    @property
    def gain(self) -> float: ...
    @property
    def alpha_ns(self) -> int: ...
    @property
    def increase_ns(self) -> int: ...
    @property
    def increase_bytes(self) -> int: ...
    @property
    def fast_stages(self) -> int: ...
    @property
    def additive_mbps(self) -> float: ...
    @property
    def hyper_mbps(self) -> float: ...
    @property
    def least_mbps(self) -> float: ...
    @property
    def cut_ns(self) -> int: ...
    @property
    def notify_ns(self) -> int: ...


@dataclass
class _Reaction:
    """A flow's rate, moved on event by event: ``free_ns`` is when the next burst may leave."""

    numbers: Numbers
    rate: float
    target: float
    alpha: float = 1.0
    limited: bool = False
    told_ns: int = 0
    free_ns: float = 0
    next_alpha_ns: int = 0
    next_timer_ns: int = 0
    times: int = 0
    fills: int = 0
    filled: int = 0
    burst: int = -1
    burst_ns: int = 0
    burst_bytes: int = 0

    def tell(self, now: int) -> None:
        """A notification has come."""
        self.leave()
        if self.limited and now - self.told_ns < self.numbers.cut_ns:
            return
        if not self.limited:
            self.free_ns = now
        self.to(now)
        self.target = self.rate
        self.rate = max(self.rate - self.rate * self.alpha / 2, self.numbers.least_mbps)
        self.alpha += (1 - self.alpha) * self.numbers.gain
        self.limited, self.told_ns = True, now
        self.next_alpha_ns, self.next_timer_ns = now + self.numbers.alpha_ns, now + self.numbers.increase_ns
        self.times = self.fills = self.filled = 0

    def to(self, now: int) -> None:
        """Time passes."""
        while self.limited and self.next_alpha_ns <= now:
            self.alpha -= self.alpha * self.numbers.gain
            self.next_alpha_ns += self.numbers.alpha_ns
        while self.limited and self.next_timer_ns <= now:
            self.next_timer_ns += self.numbers.increase_ns
            self.times += 1
            self._faster()

    def _faster(self) -> None:
        beyond = self.times - self.numbers.fast_stages, self.fills - self.numbers.fast_stages
        if min(beyond) > 0:
            self.target += min(beyond) * self.numbers.hyper_mbps
        elif max(beyond) > 0:
            self.target += self.numbers.additive_mbps
        self.target = min(self.target, self.numbers.line_mbps)
        self.rate += (self.target - self.rate) / 2
        if self.rate > self.numbers.line_mbps - 1:
            self.rate, self.limited = self.numbers.line_mbps, False

    def send(self, now: int, burst: int, wire_bytes: int) -> float:
        """Bytes leave, in the burst of this number; how many ns too early."""
        early = 0.0
        if self.burst != burst:
            self.leave()
            self.to(now)
            early = self.free_ns - now if self.limited else 0.0
            self.burst, self.burst_ns, self.burst_bytes = burst, now, 0
        self.burst_bytes += wire_bytes
        return early

    def leave(self) -> None:
        """The burst that left last is whole."""
        if self.burst >= 0 and self.limited:
            took = self.burst_bytes * 8_000 // self.rate  # whole nanoseconds
            self.free_ns = max(self.free_ns, self.burst_ns - SLACK_NS) + took
            self.filled += self.burst_bytes
            if self.filled >= self.numbers.increase_bytes:
                self.filled, self.fills = 0, self.fills + 1
                self._faster()
        self.burst = -1

    def waits(self, now: int, burst: int) -> bool:
        """Whether nothing with data may leave now."""
        if self.burst == burst:
            return False
        self.leave()
        self.to(now)
        return self.limited and now < self.free_ns - TOLERANCE_NS


class CongestionOracle:
    """All flows of a world; `connect` tells of each, and others are not looked at.

    ``told`` counts notifications, ``marked`` packets that came marked, ``slowed`` packets of flows that had a
    limit.
    """

    def __init__(self, report: Report, numbers: Numbers) -> None:
        self._report = report
        self._numbers = numbers
        self._peers: dict[Key, Key] = {}
        self._reactions: dict[Key, _Reaction] = {}
        self._last_told_ns: dict[Key, int] = {}
        self._owed: dict[Key, int] = {}
        self._marked_ns: dict[Key, int] = {}
        self.told = self.marked = self.slowed = 0

    def connect(self, one: Key, other: Key) -> None:
        """Queue pair ``one`` sends to ``other``."""
        self._peers[one] = other
        line = float(self._numbers.line_mbps)
        self._reactions[one] = _Reaction(self._numbers, line, line)

    def sent(self, now: int, destination: int, data: bytes, traffic_class: int, burst: int) -> bool:
        """A packet goes to an adapter, in the burst of this number; whether it is a notification."""
        goal = destination, int.from_bytes(data[5:8], "big")
        flow = self._peers.get(goal)
        if flow is None:
            return data[0] == NOTIFICATION
        if data[0] == NOTIFICATION:
            self._notifies(now, flow, goal, data, traffic_class)
            return True
        if traffic_class & 3 != 2:
            self._report.fail(RULES[3], f"{flow} sends {data[0]:#04x} with ECN {traffic_class & 3}")
        reaction = self._reactions[flow]
        if data[0] & 0x1F in (ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE) and reaction.waits(now, burst):
            return False
        early_ns = reaction.send(now, burst, len(data) + FRAME_BYTES)
        self.slowed += reaction.limited
        if early_ns > TOLERANCE_NS:
            text = f"{flow} sends {data[0]:#04x} {early_ns:.0f} ns too early at {reaction.rate:.0f} Mb/s"
            self._report.fail(RULES[4], text)
        return False

    def _notifies(self, now: int, flow: Key, goal: Key, data: bytes, traffic_class: int) -> None:
        self.told += 1
        expected = bytes((NOTIFICATION, 0, 0xFF, 0xFF, 0x40)) + goal[1].to_bytes(3, "big") + bytes(20)
        if data[:-4] != expected or traffic_class != NOTIFICATION_CLASS:
            self._report.fail(RULES[2], f"of {flow}: {data.hex()} in class {traffic_class:#x}")
        if self._marked_ns.get(flow, -1) != now:
            self._report.fail(RULES[0], f"{flow} tells of nothing")
        last_ns = self._last_told_ns.get(flow)
        if last_ns is not None and now - last_ns < self._numbers.notify_ns:
            self._report.fail(RULES[1], f"of {flow}: {now - last_ns} ns behind the last one")
        self._last_told_ns[flow] = now
        self._owed.pop(flow, None)

    def arrives(self, now: int, adapter: int, data: bytes, traffic_class: int, alive: bool) -> None:
        """A packet is about to be taken by an adapter; ``alive``: its queue pair may receive."""
        flow = adapter, int.from_bytes(data[5:8], "big")
        if flow not in self._peers or not alive:
            return
        if data[0] == NOTIFICATION:
            self._reactions[flow].tell(now)
        elif traffic_class & 3 == 3:
            self.marked += 1
            self._marked_ns[flow] = now
            last_ns = self._last_told_ns.get(flow)
            if last_ns is None or now - last_ns >= self._numbers.notify_ns:
                self._owed[flow] = now

    def settled(self, now: int, adapter: int) -> None:
        """An adapter has done all that it can do at this moment."""
        for flow in [flow for flow in self._owed if flow[0] == adapter]:
            self._report.fail(RULES[0], f"{flow} does not tell of what came at {self._owed.pop(flow)} ns")
