"""Adapters that are only lists, on a fabric that a manager has brought up."""

from __future__ import annotations

from collections.abc import Sequence

from softhca.fabric.mad_plane import MadPlane
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.manager import ManagerConfig
from softhca.fabric.packet_plane import PacketPlane
from softhca.fabric.topology import End, Topology
from softhca.management.constants import GENERAL_QKEY, MAD_BYTES
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
