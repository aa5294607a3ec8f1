"""Many to one: adapters that write to one other over an Ethernet switch, as fast as they may.

Each sender keeps some RDMA WRITEs posted while it is active.  What arrives is counted by sender and by
interval, so that shares, fairness, losses and queues over time can be told (docs/congestion.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softhca.fabric.ethernet.network import Cabling
from softhca.fabric.ethernet.settings import SwitchSettings
from softhca.testing.ends import WRITE, End, connect, post
from softhca.testing.ethernet import Ethernet
from softhca.testing.network import Network
from softhca.transport.congestion import DcqcnSettings

NS_PER_US = 1_000


def jain(shares: Sequence[float]) -> float:
    """Jain's index of fairness: 1 where all have the same, 1/n where one has all."""
    squares = len(shares) * sum(share * share for share in shares)
    return sum(shares) ** 2 / squares if squares else 1.0


@dataclass(frozen=True, slots=True)
class ContestSettings:
    """``senders`` adapters and one receiver at one switch, links of ``mbps``; ``switch`` is what that does,
    ``dcqcn`` the congestion control of all adapters, None: none.  Each sender has ``posted`` RDMA WRITEs of
    ``message_bytes`` under way, with a path MTU ``mtu`` (an ``ibv_mtu``); ``timeout`` and ``retries`` are of
    RC."""

    senders: int
    switch: SwitchSettings
    dcqcn: DcqcnSettings | None = None
    mbps: int = 40_000
    message_bytes: int = 65_536
    posted: int = 4
    mtu: int = 5
    timeout: int = 8
    retries: int = 7
    seed: int = 1


class Contest:
    """Senders 1 … n to the adapter n + 1.  ``errors`` counts writes that have failed."""

    def __init__(self, settings: ContestSettings) -> None:
        self.settings = settings
        self.network = Network(seed=settings.seed)
        count = settings.senders
        self.ethernet = Ethernet(
            self.network, Cabling((0,) * (count + 1), host_mbps=settings.mbps), settings.switch,
            seed=settings.seed,
        )  # fmt: skip
        self._ends = []
        for share in (1,) * count + (count,):
            node = self.network.add(active_mtu=settings.mtu, congestion=settings.dcqcn)
            entries = 2 * settings.posted * share
            self._ends.append(End(node, settings.message_bytes, entries, work_requests=settings.posted))
        self._goal = self._ends[-1]
        self._qps = []
        for end in self._ends[:-1]:
            qp, peer = end.qp(), self._goal.qp()
            connect((end, qp), (self._goal, peer), timeout=settings.timeout, retry_cnt=settings.retries)
            self._qps.append(qp)
        self.active: set[int] = set()
        self.errors = 0
        self.written = [0] * count
        self._reported = [0] * count
        self._posted = [0] * count
        self.network.tasks.append(self._post)

    def start(self, sender: int) -> None:
        """A sender writes from now on."""
        self.active.add(sender)

    def stop(self, sender: int) -> None:
        """It posts no more."""
        self.active.discard(sender)

    def _post(self) -> bool:
        """Take completions, and post what takes their place."""
        worked = False
        for at, (end, qp) in enumerate(zip(self._ends, self._qps, strict=False)):
            while done := end.cq.poll(16):
                worked = True
                for each in done:
                    self._posted[at] -= 1
                    if each.status:
                        self.errors += 1
                        self.active.discard(at + 1)
                    else:
                        self.written[at] += self.settings.message_bytes
            if at + 1 in self.active:
                while self._posted[at] < self.settings.posted:
                    post(qp, WRITE, [end.sge(0, self.settings.message_bytes)], va=self._goal.va,
                         rkey=self._goal.key.rkey)  # fmt: skip
                    self._posted[at] += 1
                    worked = True
        return worked

    def run(self, time_us: int) -> list[int]:
        """Let time pass: the bytes of writes that were completed in it, by sender."""
        before = list(self.written)
        self.network.elapse(time_us * NS_PER_US)
        return [now - then for now, then in zip(self.written, before, strict=True)]

    def finish(self, limit_us: int = 1_000_000) -> None:
        """Nobody posts any more; let what is under way come to an end."""
        self.active.clear()
        self.network.run(lambda: not any(self._posted), limit_us * NS_PER_US)
        self.network.run(limit_ns=limit_us * NS_PER_US)

    def load(self, written: Sequence[int], time_us: int) -> float:
        """The share of the receiver's link that so many bytes have taken in such a time."""
        return sum(written) * 8 / time_us / self.settings.mbps

    def rates_mbps(self) -> list[float]:
        """What congestion control allows each sender at the moment; the link's rate without."""
        found = []
        for end, qp in zip(self._ends, self._qps, strict=False):
            control = end.node.adapter.queue_pairs[qp.number].flow.control
            found.append(self.settings.mbps if control is None else control.machine.rate_mbps)
        return found

    def counters(self) -> dict[str, int]:
        """Of all adapters and the switch together: what tells of congestion."""
        found = dict.fromkeys(
            ("retransmissions", "timeouts", "packets_marked", "cnps_sent", "cnps_received", "cnps_ignored"), 0
        )
        for end in self._ends:
            totals = end.node.adapter.counters.as_dict()
            for name in found:
                found[name] += totals[name]
        port = self.ethernet.fabric.toward(self.settings.senders + 1)
        found["frames_lost"] = sum(self.ethernet.fabric.drops.values())
        found["frames_marked"] = port.counters.frames_marked
        found["most_queued_bytes"] = port.most_queued
        found["pauses"] = sum(each.counters.pauses_sent for each in self.ethernet.fabric.ports())
        return found

    def close(self) -> None:
        """Close all devices."""
        self.network.close()
