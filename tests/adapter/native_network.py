"""Native InfiniBand links that check every packet that is sent, and what tests do to packets of theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from softhca.adapter.config import native_gid
from softhca.driver import services
from softhca.driver.device import QpHandle
from softhca.testing import SENT, Datagram, Network
from softhca.testing.addressing import FIRST_LID, GUID
from softhca.testing.ends import RC, End, pair
from softhca.wire import framing, vcrc
from softhca.wire.capture_file import LINKTYPE_INFINIBAND
from softhca.wire.grh import Grh
from softhca.wire.lrh import Lrh
from softhca.wire.packet import Packet, decode

PREFIX = 0xFE80_0000_0000_0000


def lid(number: int, lmc: int = 0) -> int:
    """The base LID of adapter ``number``."""
    return (FIRST_LID + number) << lmc


def gid(number: int) -> bytes:
    """Its GID."""
    return native_gid(GUID + number)


class NativeNetwork(Network):
    """``packets`` are those that were sent; ``decoded`` the same, each checked: it is whole, and both CRCs
    are right.
    """

    def __init__(self) -> None:
        super().__init__(link="native")
        self.packets: list[bytes] = []
        self.decoded: list[Packet] = []
        self.observers.append(self._check)

    def _check(self, datagram: Datagram) -> None:
        if datagram.event == SENT:
            self.packets.append(datagram.data)
            self.decoded.append(checked(datagram.data))


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
    mtu = end.node.adapter.config.active_mtu
    return end.network.addressing.path(peer.node, mtu=mtu, grh=grh, **details)


def native_pair(
    kind: int = RC,
    grh: bool = False,
    memory_bytes: int = 1 << 16,
    lmc: int = 0,
    mtu: int = 3,
    there: dict[str, Any] | None = None,
    back: dict[str, Any] | None = None,
    **options: int,
) -> tuple[NativeNetwork, End, QpHandle, End, QpHandle]:
    """A network with two connected queue pairs; ``there`` and ``back`` are details of the two paths."""
    network = NativeNetwork()
    there, back = ({"grh": grh, **(details or {})} for details in (there, back))
    config = {"lmc": lmc, "active_mtu": mtu}
    _, *ends = pair(kind, network, memory_bytes, config, there=there, back=back, **options)
    return network, *ends


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
