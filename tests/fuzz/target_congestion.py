"""Two adapters with DCQCN between which the input stands: it forges notifications of congestion, marks what
is under way, and lets time pass.

After each input: nothing was raised; only sound notifications of the peer, for a connected queue pair, have
counted; rates are within their bounds; nobody told of marks more often than once in an interval; everything
that was posted is done in the end, at the rates that are left.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from fuzz_choices import Choices

from softhca.testing.datagram import Datagram
from softhca.testing.ends import UC, WRITE, End, connect, post
from softhca.testing.network import Network
from softhca.transport.congestion import DcqcnSettings
from softhca.wire.icrc import of_packet
from softhca.wire.route import Route

STEPS = 24
SETTINGS = DcqcnSettings(
    line_mbps=10_000, gain=0.25, alpha_ns=5_000, increase_ns=5_000, increase_bytes=5_000, least_mbps=200,
    additive_mbps=100, hyper_mbps=500, cut_ns=2_000, notify_ns=3_000,
)  # fmt: skip
CNP = 0x81
PKEYS = (0xFFFF, 0x7FFF, 0xFFFF, 0x1234, 0)
LENGTHS = (16, 16, 16, 0, 12, 20, 15, 1_024)
MTU_BYTES = 1_024
MEMORY_BYTES = 8_192


class World:
    """The pair and what the input does to packets on their way: ``marks`` is what the next are given."""

    def __init__(self) -> None:
        self.network = Network()
        self.network.carrier = self._carry
        self.ends = [End(self.network.add(congestion=SETTINGS, active_mtu=3), MEMORY_BYTES) for _ in range(2)]
        self.mark = 0
        self.sent_ns: list[list[int]] = [[], []]
        self.network.observers.append(self._watch)

    def _carry(self, sent: Datagram, target: Any, port_number: int, data: bytes) -> None:
        marked = sent.route.traffic_class & ~3 | (self.mark if sent.route.traffic_class & 3 else 0)
        self.network.after(1_000, lambda: self.network.deliver(sent, target, port_number, data, marked))

    def _watch(self, datagram: Datagram) -> None:
        if datagram.event == "sent" and datagram.data[0] == CNP:
            assert datagram.source is not None
            self.sent_ns[datagram.source.number - 1].append(datagram.time_ns)


_world: list[World] = []


def finish() -> None:
    """Close the world."""
    while _world:
        _world.pop().network.close()


def one_input(data: bytes) -> None:
    choices = Choices(data)
    if not _world:
        _world.append(World())
    world = _world[0]
    network, ends = world.network, world.ends
    kind = choices.pick((2, UC))
    qps = [end.qp(kind) for end in ends]
    connect((ends[0], qps[0]), (ends[1], qps[1]), kind, **({"timeout": 14} if kind == 2 else {}))
    flows = [end.node.adapter.queue_pairs[qp.number].flow for end, qp in zip(ends, qps, strict=True)]
    for sent in world.sent_ns:
        sent.clear()
    posted = [0, 0]
    try:
        for _ in range(STEPS):
            if not choices.more:
                break
            step(choices, world, qps, flows, posted)
            for flow in flows:
                check(flow.control.machine)
        world.mark = 0
        for at, end in enumerate(ends):
            done = end.poll(posted[at])
            assert [each.status for each in done] == [0] * posted[at]
        network.run()
        for sent in world.sent_ns:
            assert all(b - a >= SETTINGS.notify_ns for a, b in itertools.pairwise(sent))
    finally:
        for qp in qps:
            qp.destroy()
        network.run()


def check(machine: Any) -> None:
    """Its numbers are within their bounds."""
    assert SETTINGS.least_mbps <= machine.rate_mbps <= SETTINGS.line_mbps
    assert machine.rate_mbps <= machine.target_mbps + 1e-6 or machine.rate_mbps <= SETTINGS.least_mbps
    assert 0 <= machine.alpha <= 1
    assert machine.limited or machine.rate_mbps == SETTINGS.line_mbps


def step(choices: Choices, world: World, qps: list[Any], flows: list[Any], posted: list[int]) -> None:
    """One thing that happens."""
    at = choices.below(2)
    what = choices.below(6)
    end, qp = world.ends[at], qps[at]
    if what == 0 and posted[at] < 8:
        length = choices.pick((0, 1, 64, 1_024, 5_000, MEMORY_BYTES))
        peer = world.ends[1 - at]
        post(qp, WRITE, [end.sge(0, length)], va=peer.va, rkey=peer.key.rkey)
        posted[at] += 1
    elif what == 1:
        world.mark = choices.below(4)
    elif what == 2:
        world.network.elapse(choices.number(2))
    else:
        forge(choices, world, at, qps, flows)


def forge(choices: Choices, world: World, at: int, qps: list[Any], flows: list[Any]) -> None:
    """A notification that nobody has sent comes to one end, sound or not."""
    end, peer = world.ends[at], world.ends[1 - at]
    counters = end.node.adapter.counters
    before = counters.cnps_received + counters.cnps_ignored
    cuts = flows[at].control.machine.cuts
    pkey, length = choices.pick(PKEYS), choices.pick(LENGTHS)
    number = qps[at].number if choices.below(4) else choices.number(3)
    flags, congestion, tail = choices.byte() & 0xCF, choices.byte(), choices.number(4)
    opcode = CNP if choices.below(8) else choices.byte()
    source = peer.node.gid if choices.below(8) else peer.node.gid[:15] + choices.take(1).ljust(1, b"\1")
    packet = bytes((opcode, flags)) + pkey.to_bytes(2, "big") + bytes([congestion])
    packet += number.to_bytes(3, "big") + tail.to_bytes(4, "big") + choices.block(length)
    route = Route(flows[at].route.framing, source, end.node.gid, source_port=0xC000)
    icrc = of_packet(route.framing, route.headers(len(packet) + 4), packet)
    wrong = choices.below(8) == 7
    data = packet + (icrc ^ wrong).to_bytes(4, "little")
    world.network.inject(end.node, data, source, traffic_class=choices.byte())
    counted = counters.cnps_received + counters.cnps_ignored - before
    sound = (
        opcode == CNP and number == qps[at].number and source == peer.node.gid and not wrong
        and not flags & 0x0F and len(data) == 32 and flags >> 4 & 3 <= 16
        and (pkey & 0x7FFF == 0x7FFF)
    )  # fmt: skip
    assert counted == sound, (packet.hex(), counted, sound)
    assert flows[at].control.machine.cuts - cuts <= counted


def seeds() -> Iterator[bytes]:
    """Notifications that count, between writes that are marked."""
    sound = bytes((0, 3, 0, 0, 1, 0, 0x40, 0, 0, 0, 0, 1, 1)) + bytes(16) + bytes((0, 0))
    for kind in range(2):
        yield bytes([kind]) + sound
        marks = bytes([kind, 0, 1, 3]) + bytes((0, 0, 5)) * 3 + bytes((0, 2, 10, 0))
        yield marks + sound * 2 + bytes((1, 0, 4))
    yield bytes((0, 0, 1, 3, 0, 0, 5, 1, 0, 5, 0, 2, 200, 0)) * 4
