"""A network whose adapters are joined by Ethernet switches that mark, drop and pause (`fabric.ethernet`).

::

    network = Network()
    ethernet = Ethernet(network, Cabling((0, 0, 0), host_mbps=8000))     # before anything is sent
"""

from __future__ import annotations

from softhca.fabric.ethernet.network import Cabling, EthernetNetwork
from softhca.fabric.ethernet.port import Frame
from softhca.fabric.ethernet.settings import SwitchSettings
from softhca.testing.datagram import Datagram
from softhca.testing.event_pump import EventPump
from softhca.testing.network import Network
from softhca.testing.node import Node
from softhca.wire.framing import ROCE_V4
from softhca.wire.ip import ECN_MASK

IPV4_BYTES = 46
IPV6_BYTES = 66
"""Ethernet's header and FCS, IP's and UDP's together."""
PRIORITY_SHIFT = 5
"""Of the traffic class: the upper three bits of its DSCP are the priority."""

_Content = tuple[Datagram, Node, int, bytes]


def frame_of(source: int, destination: int, route: object, data: bytes, content: object) -> Frame:
    """The frame in which an adapter's packet BTH … ICRC goes along a RoCE route from host to host."""
    headers = IPV4_BYTES if route.framing == ROCE_V4 else IPV6_BYTES  # type: ignore[attr-defined]
    traffic_class: int = route.traffic_class  # type: ignore[attr-defined]
    return Frame(
        source, destination, len(data) + headers, traffic_class >> PRIORITY_SHIFT, traffic_class & ECN_MASK,
        route.source_port, content,  # type: ignore[attr-defined]
    )  # fmt: skip


class Ethernet:
    """Carries the packets of ``network``, whose adapter N is the host N of ``cabling``."""

    def __init__(
        self, network: Network, cabling: Cabling, settings: SwitchSettings | None = None, seed: int = 0
    ) -> None:
        self.network = network
        self.fabric = EthernetNetwork(cabling, self._arrived, settings=settings, lost=self._lost, seed=seed)
        self._pump = EventPump(network, self.fabric.events)
        network.carrier = self._carry

    def _carry(self, sent: Datagram, target: Node, port_number: int, data: bytes) -> None:
        assert sent.source is not None
        frame = frame_of(
            sent.source.number, target.number, sent.route, data, (sent, target, port_number, data)
        )
        self._pump.keep_up()
        self.fabric.send(frame)
        self._pump.plan()

    def _arrived(self, host: int, frame: Frame, now_ps: int) -> None:
        content: _Content = frame.content
        sent, target, port_number, data = content
        traffic_class: int = sent.route.traffic_class & ~ECN_MASK | frame.ecn
        self.network.at(
            self.network.now, lambda _: self.network.deliver(sent, target, port_number, data, traffic_class)
        )

    def _lost(self, frame: Frame, why: str) -> None:
        content: _Content = frame.content
        sent, target, _, data = content
        self.network.lose(sent, target, data, why)
