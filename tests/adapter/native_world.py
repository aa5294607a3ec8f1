"""Adapters with native InfiniBand ports, joined by a link that carries LRH … VCRC by LID."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from adapter_world import ALL_RIGHTS, RC, End, Node, World

from softhca.adapter.config import NATIVE, native_gid
from softhca.adapter.engine import PORT_NUMBER
from softhca.driver import services
from softhca.driver.device import QpHandle
from softhca.wire import framing, vcrc
from softhca.wire.capture_file import LINKTYPE_INFINIBAND
from softhca.wire.grh import Grh
from softhca.wire.lrh import Lrh
from softhca.wire.packet import Packet, decode

PREFIX = 0xFE80_0000_0000_0000
GUID = 0x0002_C903_0000_1000
SM_LID = 1


def lid(number: int, lmc: int = 0) -> int:
    """The base LID of node ``number``."""
    return (0x10 + number) << lmc


def gid(number: int) -> bytes:
    """Its GID."""
    return native_gid(GUID + number)


class NativeWorld(World):
    """A link that every port hangs on and that looks at DLIDs only; a group's packets go to all others.

    ``decoded`` are the packets that were sent, each checked: it is whole, and both CRCs are right.
    """

    def __init__(self, latency_ns: int = 1000) -> None:
        super().__init__(latency_ns)
        self.packets: list[bytes] = []
        self.decoded: list[Packet] = []
        self.alter: Callable[[bytes], bytes | None] = lambda data: data

    def add(self, number: int, **config: object) -> Node:
        """A node with LID `lid` and GID `gid` of ``number``."""
        lmc = config.get("lmc", 0)
        assert isinstance(lmc, int)
        options = {"gids": (gid(number),), "framing": NATIVE, "lid": lid(number, lmc), "sm_lid": SM_LID}
        node = Node(self, number, **{**options, **config})
        node.gid = gid(number)
        self.nodes[node.gid] = node
        return node

    def _send(self) -> None:
        burst = self.burst
        for offset in range(0, burst.length, burst.stride):
            data = bytes(burst.buffer[offset : min(offset + burst.stride, burst.length)])
            self.packets.append(data)
            self.decoded.append(checked(data))
            changed = self.alter(data)
            if changed is not None:
                self.flying.append((self.now + self.latency_ns, b"", b"", 0, 0, changed))

    def _deliver(self, source: bytes, destination: bytes, port: int, traffic_class: int, data: bytes) -> None:
        lrh = Lrh.decode(data)
        for node in self.nodes.values():
            own = node.adapter.port.owns_lid(lrh.slid)
            if node.adapter.port.owns_lid(lrh.dlid) or (lrh.dlid >= 0xC000 and not own):
                self.arrive(node, data)

    def arrive(self, node: Node, data: bytes, stride: int = 0) -> None:
        """Hand bytes to an adapter as its link would."""
        arrival = self.arrival
        arrival.buffer[: len(data)] = data
        arrival.length = len(data)
        arrival.stride = stride or len(data)
        arrival.framing = framing.NATIVE
        arrival.source = arrival.destination = None
        arrival.source_port = arrival.traffic_class = 0
        node.adapter.receive(PORT_NUMBER, arrival, self.now)


def checked(data: bytes) -> Packet:
    """The packet, which must be sound in every way that tools can see."""
    packet = decode(data, LINKTYPE_INFINIBAND)
    assert packet is not None
    assert packet.framing == framing.NATIVE
    assert packet.icrc_ok
    assert packet.vcrc_ok
    assert packet.encode() == data
    assert not any(packet.transport.padding)
    return packet


def changed(data: bytes, crcs: bool = True, **fields: object) -> bytes:
    """A packet with other header fields: ``lrh_dlid=5`` and the like; with right CRCs, unless told otherwise.

    ``grh=False`` takes the GRH away, without changing what the LRH says of it; lengths stay as given.
    """
    packet = decode(data, LINKTYPE_INFINIBAND)
    assert packet is not None
    network = list(packet.network)
    transport = packet.transport
    for name, value in fields.items():
        header, _, field = name.partition("_")
        if header == "lrh":
            network[0] = replace(network[0], **{field: value})
        elif header == "grh":
            network[1] = replace(network[1], **{field: value})
        else:
            transport = replace(transport, bth=replace(transport.bth, **{field: value}))
    packet = replace(packet, network=tuple(network), transport=transport)
    return (packet.with_crcs() if crcs else packet).encode()


def resealed(data: bytes) -> bytes:
    """The bytes LRH … ICRC with a right VCRC behind them."""
    return data + vcrc.compute(data).to_bytes(2, "little")


def path_to(end: End, peer: End, grh: bool, **details: int) -> services.Path:
    """The path between two ends, by the ports' present LIDs."""
    dgid = peer.node.adapter.port.gid_table[0] if grh else None
    mtu = end.node.adapter.config.active_mtu
    return services.Path(dgid, mtu=mtu, **{"dlid": peer.node.adapter.port.lid, **details})


def connect(
    left: tuple[End, QpHandle],
    right: tuple[End, QpHandle],
    kind: int = RC,
    grh: bool = False,
    there: dict[str, int] | None = None,
    back: dict[str, int] | None = None,
    **reliability: int,
) -> None:
    """Connect two queue pairs, both to RTS; ``there`` and ``back`` are details of the two paths."""
    how = services.Reliability(**reliability) if kind == RC else None
    for (end, qp), (peer, peer_qp), psn, peer_psn, details in (
        (left, right, 100, 0xFFFFF0, there),
        (right, left, 0xFFFFF0, 100, back),
    ):
        path = path_to(end, peer, grh, **(details or {}))
        services.connect(qp, path, peer_qp.number, peer_psn, psn, ALL_RIGHTS, how)


def native_pair(
    kind: int = RC, grh: bool = False, memory_bytes: int = 1 << 16, lmc: int = 0, mtu: int = 3, **options: int
) -> tuple[NativeWorld, End, QpHandle, End, QpHandle]:
    """A world with two connected queue pairs."""
    world = NativeWorld()
    left, right = (End(world.add(number, lmc=lmc, active_mtu=mtu), memory_bytes) for number in (1, 2))
    left_qp, right_qp = left.qp(kind), right.qp(kind)
    connect((left, left_qp), (right, right_qp), kind, grh, **options)
    return world, left, left_qp, right, right_qp


def lrh_of(packet: Packet) -> Lrh:
    """A native packet's LRH."""
    header = packet.network[0]
    assert isinstance(header, Lrh)
    return header


def grh_of(packet: Packet) -> Grh | None:
    """Its GRH."""
    header = packet.network[1] if len(packet.network) > 1 else None
    assert header is None or isinstance(header, Grh)
    return header
