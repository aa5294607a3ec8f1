"""Adapters that are only lists, on a fabric that a manager has brought up; links with scripted faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from softhca.fabric.mad_plane import MadPlane
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.manager import ManagerConfig
from softhca.fabric.packet_plane import PacketPlane
from softhca.fabric.port_state import PortState
from softhca.fabric.topology import End, Link, NodeKind, Topology, make_node
from softhca.management import constants as c
from softhca.management.constants import GENERAL_QKEY, MAD_BYTES
from softhca.management.directed_route import DirectedRoute
from softhca.management.mad import Mad, MadHeader
from softhca.wire.bth import Bth
from softhca.wire.capture_file import LINKTYPE_INFINIBAND
from softhca.wire.deth import Deth
from softhca.wire.framing import NATIVE
from softhca.wire.opcodes import RC_SEND_ONLY, UD_SEND_ONLY
from softhca.wire.packet import Packet, assemble, decode
from softhca.wire.route import Route

GID = bytes(16)
SECOND_NS = 1_000_000_000


class ListAdapter:
    """What comes to a port is in ``got``, as packets; without ``room`` nothing does."""

    def __init__(self, packets: PacketPlane, end: End) -> None:
        self.got: list[bytes] = []
        self.strides: list[int] = []
        self.room = True
        self.woken = 0
        self.infos: list[dict[str, object]] = []
        self.port = packets.join(end, self._deliver, self._wake, self._told)

    def _deliver(self, data: memoryview | bytes, stride: int) -> bool:
        if self.room:
            self.strides.append(stride)
            self.got += [bytes(data[at : at + stride]) for at in range(0, len(data), stride)]
        return self.room

    def _wake(self) -> None:
        self.woken += 1

    def _told(self) -> None:
        self.infos.append(self.port.info())

    @property
    def lid(self) -> int:
        """The port's LID."""
        return self.port.state.info.lid


class PacketFabric:
    """A topology with a manager at its first switch, and an adapter at each of ``hosts`` (by name)."""

    def __init__(self, topology: Topology, hosts: Sequence[str], config: ManagerConfig | None = None) -> None:
        self.mads = MadPlane(topology)
        self.managed = ManagedFabric(topology, self.mads)
        self.manager = self.managed.add((topology.switches[0], 0), config)
        self.managed.settle()
        self.packets = PacketPlane(self.mads)
        self.adapters = [ListAdapter(self.packets, End(topology.index(host), 1)) for host in hosts]

    def send(self, sender: ListAdapter, *packets: bytes, stride: int = 0, now: int = 0) -> None:
        """Send a burst."""
        data = bytearray(b"".join(packets))
        self.packets.send(sender.port, memoryview(data), stride or len(packets[0]), now)

    def sweep(self) -> None:
        """Let the manager find what has changed."""
        self.managed.run_until(self.managed.now + SECOND_NS)
        self.managed.settle()

    def count(self, fate: str) -> int:
        """Packets with a fate."""
        return self.packets.counters[fate]


def packet(
    source: int, destination: int, payload: bytes = b"data", *, sl: int = 0, pkey: int = 0xFFFF, qp: int = 77,
    psn: int = 0, grh: bool = False,
) -> bytes:  # fmt: skip
    """A sound native packet."""
    gid = bytes(15) + b"\1"
    route = Route(NATIVE, gid, gid, slid=source, dlid=destination, sl=sl, has_grh=grh)
    return assemble(route, Bth(RC_SEND_ONLY, dest_qp=qp, pkey=pkey, psn=psn), (), payload, sl & 7).encode()


def datagram(source: int, destination: int, mad: bytes, qp: int, qkey: int = GENERAL_QKEY) -> bytes:
    """A packet with a management datagram, from queue pair 1 (or 0, as it goes to)."""
    assert len(mad) == MAD_BYTES
    route = Route(NATIVE, GID, GID, slid=source, dlid=destination)
    bth, deth = Bth(UD_SEND_ONLY, dest_qp=qp), Deth(qkey=qkey, source_qp=qp)
    return assemble(route, bth, (deth,), mad, 15 if not qp else 0).encode()


def read(data: bytes) -> Packet:
    """A packet that has arrived, which must be sound."""
    found = decode(data, LINKTYPE_INFINIBAND)
    assert found is not None
    assert found.icrc_ok
    assert found.vcrc_ok
    return found


def star(hosts: int = 3) -> Topology:
    """One switch."""
    nodes = [make_node("s", NodeKind.SWITCH, hosts, 0x100)]
    nodes += [make_node(f"h{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x1000 + 16 * n) for n in range(hosts)]
    return Topology(tuple(nodes), tuple(Link(End(0, n + 1), End(n + 1, 1)) for n in range(hosts)))


def state_of(fabric: PacketFabric, node: str, number: int) -> PortState:
    port = fabric.mads.nodes[fabric.mads.topology.index(node)].port(number)
    assert port is not None
    return port


class Copy(NamedTuple):
    time_ns: int
    data: bytes


class Scripted:
    """A link's faults: what each packet becomes."""

    def __init__(self, *fates: list[tuple[int, Any]]) -> None:
        self.fates = list(fates)

    def send(self, data: bytes, now: int) -> list[Copy]:
        fate = self.fates.pop(0) if self.fates else [(0, lambda data: data)]
        return [Copy(now + late, change(data)) for late, change in fate]


def same(data: bytes) -> bytes:
    return data


def on_side(fabric: PacketFabric, end: End, faults: Any) -> None:
    fabric.packets.side(end).faults = faults
    fabric.packets.changed()


def mad(management_class: int, attribute: int, modifier: int = 0, method: int = 1) -> bytes:
    header = MadHeader(
        management_class=management_class, method=method, attribute_id=attribute,
        attribute_modifier=modifier, transaction_id=0x1234_5678_9ABC,
    )  # fmt: skip
    made = Mad.make(header)
    if management_class == c.CLASS_SUBN_DIRECTED:
        made = Mad(header, DirectedRoute().encode() + made.body[12:])
    return made.encode()
