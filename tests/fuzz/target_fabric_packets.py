"""Hostile adapters at a fabric that is served: bursts, tables, failing and faulty links, full and leaving
neighbours.

Input: steps.  Whatever they are, nothing raises, what waits is bounded, every packet has a fate, nothing
comes in another's name, and nobody waits for an adapter that has room.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from fuzz_choices import Choices

from softhca.fabric.mad_plane import MadPlane
from softhca.fabric.native_bursts import units
from softhca.fabric.packet_plane import (
    DELIVERED,
    LIFETIME_NS,
    MOST_BACKLOG,
    MOST_HELD,
    NEVER_NS,
    AdapterPort,
    PacketPlane,
)
from softhca.fabric.port_state import ACTIVE
from softhca.fabric.topology import End, Link, NodeKind, Topology, make_node
from softhca.links import fabric_messages as messages
from softhca.wire.bth import Bth
from softhca.wire.deth import Deth
from softhca.wire.framing import NATIVE
from softhca.wire.opcodes import RC_SEND_ONLY, UD_SEND_ONLY
from softhca.wire.packet import assemble
from softhca.wire.route import Route

HOSTS = 3
SWITCHES = 2
LIDS = (1, 2, 3, 4, 0xC000, 0xC021, 0xFFFF, 0)
MOST_STEPS = 50
STEP_NS = LIFETIME_NS // 3


def _topology() -> Topology:
    """Two switches with two links between them; hosts in turns."""
    nodes = [make_node(f"s{n}", NodeKind.SWITCH, 4, 0x100 + n) for n in range(SWITCHES)]
    nodes += [make_node(f"h{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x1000 + 16 * n) for n in range(HOSTS)]
    links = [Link(End(0, 3), End(1, 3)), Link(End(0, 4), End(1, 4))]
    links += [Link(End(n % 2, 1 + n // 2), End(SWITCHES + n, 1)) for n in range(HOSTS)]
    return Topology(tuple(nodes), tuple(links))


TOPOLOGY = _topology()


class Copy(NamedTuple):
    time_ns: int
    data: bytes


class Late:
    """A link that holds packets back, doubles them, and loses each third."""

    def __init__(self) -> None:
        self.count = 0

    def send(self, data: bytes, now: int) -> list[Copy]:
        self.count += 1
        return [Copy(now + STEP_NS, data)] * (self.count % 3)


class Adapter:
    """One that takes what comes while it has room."""

    def __init__(self, packets: PacketPlane, end: End) -> None:
        self.room = True
        self.got: list[bytes] = []
        self.port: AdapterPort = packets.join(end, self._deliver, lambda: None, lambda: None)

    def _deliver(self, data: memoryview | bytes, stride: int) -> bool:
        if self.room:
            self.got += [bytes(data[at : at + stride]) for at in range(0, len(data), stride)]
        return self.room


@cache
def sound(source: int, destination: int, kind: int) -> bytes:
    """A packet as it should be: data, long data, with a GRH, a datagram of subnet or of other management."""
    gid = bytes(15) + b"\1"
    route = Route(NATIVE, gid, gid, slid=source, dlid=destination, sl=kind & 1, has_grh=kind == 2)
    if kind < 3:
        return assemble(route, Bth(RC_SEND_ONLY, dest_qp=70), (), bytes(600 if kind == 1 else 16)).encode()
    qp = kind - 3
    mad = bytes([1, (0x81, 4, 7)[qp], 1, 1]).ljust(12, b"\0") + bytes([0, 0x12]) + bytes(242)
    bth, deth = Bth(UD_SEND_ONLY, dest_qp=min(qp, 1)), Deth(qkey=0x8001_0000 if qp else 0, source_qp=1)
    return assemble(route, bth, (deth,), mad, 0 if qp else 15).encode()


def one_input(data: bytes) -> None:
    choices = Choices(data)
    mads = MadPlane(TOPOLOGY)
    packets = PacketPlane(mads)
    _configure(mads)
    adapters = {n: Adapter(packets, End(SWITCHES + n, 1)) for n in range(HOSTS)}
    now = 0
    for _ in range(MOST_STEPS):
        if not choices.more:
            break
        kind = choices.below(12)
        now += STEP_NS if kind & 1 else 0
        if kind < 6:
            _send(packets, adapters, choices, now)
        elif kind < 8:
            _come_and_go(packets, adapters, choices, now)
        elif kind < 10:
            _change(packets, choices, now)
        else:
            messages_are_checked(choices)
        packets.expire(now)
        _check(packets, adapters, now)


def _configure(mads: MadPlane) -> None:
    """LIDs 1 … for the hosts, ways to them, links ACTIVE."""
    for n in range(HOSTS):
        mads.nodes[SWITCHES + n].ports[1].change(lid=n + 1, sm_lid=1)  # type: ignore[union-attr]
    for number, node in enumerate(mads.nodes[:SWITCHES]):
        table = [255] + [1 + n // 2 if n % 2 == number else 3 + n % 2 for n in range(HOSTS)]
        node.set_linear(0, bytes(table).ljust(64, b"\xff"))
        node.set_switch_info(linear_fdb_top=HOSTS)
        node.multicast[0] = bytes.fromhex("000e") * 32
    for node in mads.nodes:
        for port in node.ports:
            if port is not None and port.number and port.linked:
                port.change(state=ACTIVE)
    mads.epoch += 1


def _send(packets: PacketPlane, adapters: dict[int, Adapter], choices: Choices, now: int) -> None:
    """A burst: sound packets, then some of their bytes changed."""
    number = choices.below(HOSTS)
    adapter = adapters.get(number)
    parts = [
        sound(number + 1 if choices.below(8) else choices.below(5), choices.pick(LIDS), choices.below(6))
        for _ in range(1 + choices.below(4))
    ]
    burst = bytearray(b"".join(parts))
    for _ in range(choices.below(4)):
        burst[choices.number(2) % len(burst)] = choices.byte()
    stride = len(parts[0]) if choices.below(6) else choices.number(2)
    if adapter is None or adapter.port.is_blocked:
        return
    expected = sum(1 if unit is None else unit.total for unit in units(memoryview(bytearray(burst)), stride))
    before = sum(packets.counters.values())
    packets.send(adapter.port, memoryview(burst), stride, now)
    if not adapter.port.is_blocked and not packets._held and packets._sides == {}:
        multicast = any(0xC000 <= int.from_bytes(part[2:4], "big") < 0xFFFF for part in (burst, *parts))
        backlog = sum(len(each.port.backlog) for each in adapters.values())
        counted = sum(packets.counters.values()) - before
        assert multicast or backlog or counted == expected, f"{counted} fates of {expected} packets"


def _come_and_go(
    packets: PacketPlane, adapters: dict[int, Adapter], choices: Choices, now: int
) -> None:
    number = choices.below(HOSTS)
    adapter = adapters.get(number)
    if adapter is None:
        adapters[number] = Adapter(packets, End(SWITCHES + number, 1))
    elif choices.once_in(4):
        del adapters[number]
        packets.leave(adapter.port, now)
    else:
        adapter.room = not adapter.room
        if adapter.room:
            packets.has_room(adapter.port, now)


def _change(packets: PacketPlane, choices: Choices, now: int) -> None:
    """A manager, or somebody at a cable."""
    mads = packets.mads
    kind = choices.below(7)
    node = mads.nodes[choices.below(SWITCHES)]
    port = node.ports[1 + choices.below(4)]
    assert port is not None
    if kind == 0:
        link = choices.below(len(TOPOLOGY.links))
        if not mads.fail(link, now):
            mads.restore(link, now)
    elif kind == 1:
        node.set_linear(0, bytes(choices.pick((255, 0, 1, 2, 3, 4, 9)) for _ in range(5)).ljust(64, b"\xff"))
    elif kind == 2:
        node.multicast[choices.below(2)] = choices.block(2) * 32
    elif kind == 3:
        port.sl_to_vl[choices.below(5)] = choices.block(8)
        port.change(operational_vls=choices.below(6))
    elif kind == 4:
        port.change(partition_enforcement_outbound=choices.below(2), neighbor_mtu=1 + choices.below(5))
        port.set_pkeys(0, choices.block(4).ljust(64, b"\0"))
    elif kind == 5:
        side = packets.side(End(node.index, port.number))
        side.faults = None if side.faults else Late()
        packets.changed()
    elif port.up and port.linked:
        port.change(state=choices.pick((2, ACTIVE)))
    mads.epoch += 1


def messages_are_checked(choices: Choices) -> None:
    """What the other end of the socket says: refused, or values that can be."""
    data = choices.run()
    try:
        _, content = messages.decode(data)
        info = messages.port_info(content)
        facts = messages.port_facts(content)
    except ValueError:
        return
    assert 0 <= info["lid"] <= 0xBFFF
    assert 0 <= facts["mtu"] <= 5
    assert len(info["pkeys"]) <= messages.MOST_PKEYS


def _check(packets: PacketPlane, adapters: dict[int, Adapter], now: int) -> None:
    assert len(packets._held) <= MOST_HELD
    assert packets.counters[DELIVERED] >= 0
    for number, adapter in adapters.items():
        port = adapter.port
        assert len(port.backlog) <= MOST_BACKLOG
        if adapter.room:
            assert port.full_since_ns == NEVER_NS
            assert not port.backlog
        else:
            assert port.full_since_ns == NEVER_NS or now - port.full_since_ns < LIFETIME_NS or port.stalled
        for each in adapter.got:
            source = int.from_bytes(each[6:8], "big")
            is_answer = (each[1] & 3) == 2 and each[13:16] in (b"\0\0\0", b"\0\0\1")
            assert is_answer or 1 <= source <= HOSTS, "a packet in nobody's name"
            assert is_answer or source != number + 1 or len(each) < 1 or each[2] >= 0xC0 or _is_own(each)
        adapter.got.clear()
    waits = [each.port for each in adapters.values() if each.port.is_blocked]
    assert not waits or any(not each.room for each in adapters.values()), "nobody is full, and somebody waits"


def _is_own(packet: bytes) -> bool:
    """Whether a packet is to its sender."""
    return packet[2:4] == packet[6:8]


def seeds() -> Iterator[bytes]:
    """All kinds of packets between all, with and without room, and each change between two of them."""
    for number in range(HOSTS):
        bursts = b"".join(
            bytes([0, number, 1, 1, to, kind, 1, to, kind, 0, 1])
            for to in range(len(LIDS))
            for kind in range(6)
        )
        yield bursts[:500]
        yield bytes([7, (number + 1) % HOSTS, 0]) + bursts[:300] + bytes([6, (number + 1) % HOSTS, 0])
    # changes at the port by which the first host's packets go to the second's switch
    across = b"".join(bytes([0, 0, 0, 1, 1, kind, 0, 1]) for kind in range(6))
    for change in (
        [0, 1], [1, 255, 255], [2, 0, 0x1F, 0xFF], [3, *[255] * 8, 1, 5], [3, *[0x12] * 8, 1, 3],
        [4, 0, 0, 255, 255, 0, 0], [4, 1, 4, 0x80, 5, 0, 0], [5], [6, 0],
    ):  # fmt: skip
        yield bytes([8, change[0], 0, 3, *change[1:]]) + across + bytes([1, 0, 0, 1, 1, 0, 0, 1]) + across
    yield bytes([8, 1, 0, 0, *[4] * 5, 8, 1, 1, 0, *[5] * 5]) + across  # in a circle
    yield bytes([8, 2, 0, 0, 0, 0x1E, 8, 2, 1, 0, 0, 0x1E]) + bytes([0, 0, 0, 1, 4, 0, 0, 1])
    content = dict.fromkeys((*messages.NUMBERS, *messages.PORT_FACTS), 1)
    welcome = messages.encode(messages.WELCOME, {**content, "pkeys": [0xFFFF]})
    yield bytes([10, 255]) + len(welcome).to_bytes(2, "big") + welcome
