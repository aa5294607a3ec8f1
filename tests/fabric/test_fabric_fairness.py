"""Senders that slow down by DCQCN share a link fairly, give way to one more, and take its share when it goes;
many to one do not collapse."""

from __future__ import annotations

from collections import Counter

from softhca.fabric.switching.congestion import RateControl
from softhca.fabric.switching.events import PS_PER_US
from softhca.fabric.switching.fabric import SwitchedFabric
from softhca.fabric.switching.packet import Packet
from softhca.fabric.switching.port import PortSettings
from softhca.fabric.topology import End, Link, LinkSpeed, LinkWidth, NodeKind, Topology, make_node
from softhca.transport.congestion import DcqcnSettings

LINK_MBPS = 8000  # 4xSDR
SAMPLE_US = 50
FEW = DcqcnSettings(
    gain=1 / 16, alpha_ns=5_000, increase_ns=5_000, increase_bytes=1 << 17,
    additive_mbps=20, hyper_mbps=40, cut_ns=5_000,
)  # fmt: skip
MANY = DcqcnSettings(
    gain=1 / 16, alpha_ns=50_000, increase_ns=100_000, increase_bytes=1 << 30,
    additive_mbps=20, hyper_mbps=40, cut_ns=40_000, least_mbps=5,
)  # fmt: skip
"""A packet of each of 32 flows comes every 33 µs: rates must not grow often between two notifications."""


def jain(shares: list[int]) -> float:
    """Jain's index of fairness: 1 where all have the same."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


class Senders:
    """``count`` hosts that all send to one more behind the same switch, as long as they are ``active``: each
    always has ``ahead`` packets waiting.  ``arrived`` are packets by source, in the present interval."""

    def __init__(self, count: int, control: DcqcnSettings | None, packet_bytes: int, ahead: int = 32) -> None:
        nodes = [make_node("s", NodeKind.SWITCH, count + 1, 0x100)]
        nodes += [make_node(f"h{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x1000 + 16 * n) for n in range(count + 1)]
        links = [Link(End(0, n + 1), End(n + 1, 1), LinkWidth.X4, LinkSpeed.SDR) for n in range(count + 1)]
        self.goal = count + 1
        self.ahead = ahead
        self.packet_bytes = packet_bytes
        self.queued = 0.0
        self.active: set[int] = set()
        self.arrived: Counter[int] = Counter()
        self.lost: list[str] = []
        self.fabric = SwitchedFabric(
            Topology(tuple(nodes), tuple(links)),
            {0: [255, *range(1, count + 2)]},
            self._delivered,
            settings=PortSettings(buffer_blocks=1024, mark_blocks=None if control is None else 128),
            congestion=None if control is None else lambda: RateControl(LINK_MBPS, control),
            notify_ps=5 * PS_PER_US,
            lost=lambda packet, why: self.lost.append(why),
        )

    def begin(self, source: int) -> None:
        """A host sends from now on."""
        self.active.add(source)
        for _ in range(self.ahead):
            self.fabric.send(source, Packet(source, self.goal, self.packet_bytes))

    def _delivered(self, node: int, packet: Packet, now_ps: int) -> None:
        if node != self.goal:
            return
        self.arrived[packet.slid] += 1
        if packet.slid in self.active:
            self.fabric.send(packet.slid, Packet(packet.slid, self.goal, self.packet_bytes))

    def run(self, time_us: int) -> Counter[int]:
        """Packets that arrive in the next so many microseconds, by source; ``queued`` are the blocks that
        have waited in the switch meanwhile, on average."""
        self.arrived = Counter()
        port = self.fabric.switches[0].ports[self.goal]
        samples = []
        for _ in range(time_us // SAMPLE_US):
            self.fabric.events.run(self.fabric.events.now_ps + SAMPLE_US * PS_PER_US)
            samples.append(port.queued_blocks(0))
        self.queued = sum(samples) / len(samples)
        return self.arrived

    def notifications(self) -> int:
        """How often the destination has told somebody of marks."""
        return self.fabric.ends[self.goal].notifications


    def load(self, time_us: int) -> float:
        """The share of the link that packets have taken, which have arrived in so long."""
        return sum(self.arrived.values()) * self.packet_bytes * 8 / time_us / LINK_MBPS


def test_two_flows_share_a_link_a_third_joins_and_leaves() -> None:
    senders = Senders(3, FEW, 4096)
    senders.begin(1)
    senders.run(1000)
    assert senders.load(1000) > 0.97
    assert senders.notifications() == 0
    senders.begin(2)  # beside one that has it all
    senders.run(3000)
    two = senders.run(4000)
    assert jain([two[1], two[2]]) >= 0.95
    assert senders.load(4000) > 0.9
    senders.begin(3)
    senders.run(3000)
    three = senders.run(4000)
    assert jain([three[source] for source in (1, 2, 3)]) >= 0.95
    assert senders.load(4000) > 0.9
    assert senders.queued < 300
    senders.active.remove(3)
    senders.run(3000)
    again = senders.run(4000)
    assert set(again) == {1, 2}
    assert jain([again[1], again[2]]) >= 0.95
    assert senders.load(4000) > 0.9  # they have taken its share
    assert senders.queued < 300
    assert senders.lost == []


def test_without_control_the_switch_is_full() -> None:
    senders = Senders(3, None, 4096)
    for source in (1, 2, 3):
        senders.begin(source)
    senders.run(1000)
    assert senders.queued > 2000


def test_thirty_two_to_one_do_not_collapse() -> None:
    senders = Senders(32, MANY, 1024)
    for source in range(1, 33):
        senders.begin(source)
    senders.run(3000)
    arrived = senders.run(6000)
    assert senders.load(6000) > 0.8
    assert jain([arrived[source] for source in range(1, 33)]) >= 0.95
    assert senders.queued < 1000  # of 16,384 blocks that all have to send
    assert senders.lost == []
    assert senders.fabric.stuck() != []  # they are still sending
    senders.active.clear()
    senders.fabric.events.run_all(1_000_000)
    assert senders.fabric.stuck() == []
