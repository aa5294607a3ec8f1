"""Hostile adapters at an Ethernet that is served: runs with changed bytes, full and leaving neighbours, links
that fail and have faults, and what a link reads of the other end.

Input: steps.  Whatever they are, nothing raises, what waits is bounded, every packet has a fate, nothing
comes in another's name, and at rest nothing is left in switches.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from fuzz_choices import Choices

from softhca.fabric.ethernet.frames import read_run
from softhca.fabric.ethernet.layout import EthernetTopology
from softhca.fabric.ethernet.plane import RECEIVE_BYTES, EthernetPlane, EthernetPort
from softhca.fabric.ethernet.settings import Marking, Pausing, SwitchSettings
from softhca.fabric.topology import End, Link, NodeKind, Topology, TopologyError, make_node
from softhca.links import fabric_messages as messages
from softhca.wire.framing import ROCE_V4
from softhca.wire.route import Route

HOSTS = 3
MOST_STEPS = 40
STEP_NS = 40_000


@cache
def ethernet(pauses: bool) -> EthernetTopology:
    """Two switches with two slow links between them; hosts in turns."""
    nodes = [make_node(f"s{n}", NodeKind.SWITCH, 4, 0x100 + n) for n in range(2)]
    nodes += [make_node(f"h{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x1000 + 16 * n) for n in range(HOSTS)]
    links = [Link(End(0, 3), End(1, 3)), Link(End(0, 4), End(1, 4))]
    links += [Link(End(n % 2, 1 + n // 2), End(2 + n, 1)) for n in range(HOSTS)]
    settings = SwitchSettings(
        20_000, 9_000, Marking(1_000, 3_000, 0.5), Pausing(4_000, 2_000, (0,), 20) if pauses else None
    )
    mbps = (100, 100, 1_000, 1_000, 1_000)
    return EthernetTopology(Topology(tuple(nodes), tuple(links)), mbps, settings=settings)


class Adapter:
    """One that takes what comes while it has room."""

    def __init__(self, plane: EthernetPlane, number: int) -> None:
        self.room = True
        self.got = 0
        self.gid = plane.addresses[number]
        self.others = plane.addresses
        self.port: EthernetPort = plane.join(End(2 + number, 1), self._deliver, lambda: None, lambda: None)

    def _deliver(self, data: bytes, stride: int) -> bool:
        if self.room:
            run = read_run(memoryview(data), stride)
            assert run is not None, "what is no run was delivered"
            assert run.destination == self.gid
            assert run.source in self.others
            self.got += len(run.payloads)
        return self.room


@cache
def sound(source: int, to: int, length: int, count: int, traffic_class: int) -> bytes:
    """A run as it should be."""
    gids = ethernet(False).addresses()
    route = Route(ROCE_V4, gids[source], gids[to], traffic_class=traffic_class)
    return bytes(route.headers(length)) + bytes(length * count)


def one_input(data: bytes) -> None:
    choices = Choices(data)
    layout = ethernet(choices.once_in(2))
    plane = EthernetPlane(layout)
    adapters = {n: Adapter(plane, n) for n in range(HOSTS)}
    now = sent = 0
    for _ in range(MOST_STEPS):
        if not choices.more:
            break
        kind = choices.below(10)
        now += STEP_NS if kind & 1 else 0
        if kind < 5:
            sent += _send(plane, adapters, choices, now)
        elif kind < 7:
            _come_and_go(plane, adapters, choices, now)
        elif kind < 9:
            link = choices.below(len(layout.topology.links))
            if not plane.fail(link, now):
                plane.restore(link, now)
        else:
            _messages_are_checked(choices)
        plane.expire(now)
        assert all(each.port.arrived_bytes <= RECEIVE_BYTES for each in adapters.values())
    assert plane.network.events.run_all(1_000_000), "it never comes to rest"
    assert plane.network.stuck() == []
    for adapter in adapters.values():
        adapter.room = True
        plane.has_room(adapter.port, now)
        assert not adapter.port.is_blocked
    assert sum(plane.counters.values()) == sent, "a packet without a fate"


def _send(plane: EthernetPlane, adapters: dict[int, Adapter], choices: Choices, now: int) -> int:
    """A run, then some of its bytes changed; how many fates it must have."""
    number = choices.below(HOSTS)
    adapter = adapters.get(number)
    source = number if choices.below(8) else choices.below(HOSTS)
    length, count = 16 + 4 * choices.below(256), 1 + choices.below(8)
    run = bytearray(sound(source, choices.below(HOSTS), length, count, choices.byte()))
    for _ in range(choices.below(4)):
        run[choices.number(2) % len(run)] = choices.byte()
    stride = length if choices.below(6) else choices.number(2)
    if adapter is None or adapter.port.is_blocked:
        return 0
    read = read_run(memoryview(run), stride) if stride else None
    plane.send(adapter.port, memoryview(run), stride, now)
    return 1 if read is None else len(read.payloads)


def _come_and_go(plane: EthernetPlane, adapters: dict[int, Adapter], choices: Choices, now: int) -> None:
    number = choices.below(HOSTS)
    adapter = adapters.get(number)
    if adapter is None:
        adapters[number] = Adapter(plane, number)
    elif choices.once_in(4):
        del adapters[number]
        plane.leave(adapter.port, now)
    else:
        adapter.room = not adapter.room
        if adapter.room:
            plane.has_room(adapter.port, now)


def _messages_are_checked(choices: Choices) -> None:
    """What the other end of the socket says of a port, and what addresses are given: refused, or sound."""
    data = choices.run()
    try:
        gid, mbps = messages.ethernet_facts(messages.decode(data)[1])
        assert (len(gid), mbps >= 0) == (16, True)
    except ValueError:
        pass
    try:
        gids = [data[at : at + 16].ljust(16, b"\0") for at in range(0, len(data), 16)]
        found = ethernet(False).addresses(gids)
    except TopologyError:
        return
    assert len(set(found)) == HOSTS


def seeds() -> Iterator[bytes]:
    """Runs between all, with and without pauses, room and links."""
    for pauses in (0, 1):
        runs = b"".join(
            bytes([kind, source, 1, length, 3, to, 0x02 if kind else 0x62, 0, 1])
            for kind in (0, 1) for source in range(HOSTS) for to in range(HOSTS) for length in (0, 10, 255)
        )  # fmt: skip
        yield bytes([pauses]) + runs
        yield bytes([pauses, 5, 1, 1]) + runs[:198] + bytes([5, 1, 1])
        yield bytes([pauses, 7, 0]) + runs[:198] + bytes([8, 0, 7, 2]) + runs[198:297]
        yield bytes([pauses, 5, 1, 0]) + runs[:99] + bytes([6, 1])
    content = {"address": bytes(16).hex(), "mbps": 7}
    welcome = messages.encode(messages.WELCOME, content)
    yield bytes([0, 9]) + len(welcome).to_bytes(2, "big") + welcome
