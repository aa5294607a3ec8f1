"""What checks stand on: adapters in memory and virtual time, the packets between them, packets made by hand.

::

    with setting.pair(UC) as pair:                       # two adapters, connected queue pairs, PMTU 256
        pair.receive(0, 300)                             # a receive of the right one, at memory[0:300]
        pair.give(pair.packet(UC_SEND_ONLY, 7, b"abc"))  # a packet that seems to come from the left one
        expect("completions", pair.right.completions(), …)

Nothing here knows the clock, a socket or chance: the same check does the same every time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from softhca.adapter.config import HCA_PROFILE, NATIVE, ROCE
from softhca.adapter.profile import Profile
from softhca.driver import services
from softhca.driver.device import Completion, QpHandle
from softhca.testing import SENT, Datagram, Network, Node
from softhca.testing.ends import (
    ALL_RIGHTS,
    LOCAL_WRITE,
    QKEY,
    RC,
    SIGNALED,
    UD,
    End,
    Region,
    post,
)
from softhca.wire import framing
from softhca.wire.bth import Bth
from softhca.wire.deth import Deth
from softhca.wire.ieth import Ieth
from softhca.wire.immdt import ImmDt
from softhca.wire.layout import Header
from softhca.wire.opcodes import OPCODES
from softhca.wire.packet import EXTENSIONS, Packet, assemble
from softhca.wire.reth import Reth
from softhca.wire.route import Route

MTU = 1
PMTU_BYTES = 256
MEMORY_BYTES = 8192
UNTOUCHED = 0xA5
LEFT_PSN, RIGHT_PSN = 0xFFFFFD, 0x345678
"""The first PSNs of a pair's two directions; the left one's wraps soon."""

SETTLE_NS = 1_000_000
INLINE = 8


class Station(End):
    """One adapter with one open device: a domain, a completion queue, registered ``memory``."""

    def __init__(self, rig: Rig, node: Node) -> None:
        super().__init__(node, MEMORY_BYTES, 256, UNTOUCHED, work_requests=32)
        self.rig = rig
        self.number = node.number
        self.adapter = node.adapter
        self.gid = node.gid
        self.lid = node.lid

    def state_of(self, qp: QpHandle) -> int:
        """The state that the adapter has a queue pair in."""
        state: int = qp.query()["qp_state"]
        return state

    def completions(self) -> list[Completion]:
        """Everything that completes by the time nothing more happens."""
        self.rig.settle()
        return self.cq.poll(1024)

    def drops(self) -> dict[str, int]:
        """How many packets were dropped, by reason (``drops_…`` of the port and of its queue pairs)."""
        found: dict[str, int] = {}
        for name, value in self.adapter.port_counters().items():
            reason = name.removeprefix("transport_").removeprefix("drops_")
            if value and "drops_" in name:
                found[reason] = found.get(reason, 0) + value
        return found

    def counter(self, name: str) -> int:
        """One counter of the adapter (``transport_…`` are those over all queue pairs)."""
        value: int = self.adapter.port_counters()[name]
        return value

    def events(self) -> list[tuple[int, int]]:
        """Asynchronous events that wait to be taken: (``ibv_event_type``, number of the element)."""
        self.rig.settle()
        return list(iter(lambda: self.device.next_event(0), None))


class Rig(Network):
    """Stations on a network without faults.  ``log`` is all that was sent."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(link="native" if setting.native else "ipv6")
        self.setting = setting
        self.log = self.record(SENT)

    def station(self, **options: Any) -> Station:
        """One more station; ``options`` are `AdapterConfig`'s beyond the setting's."""
        return Station(self, self.add(**{"active_mtu": MTU, **self.setting.options, **options}))

    def settle(self, until: Callable[[], object] = lambda: False) -> bool:
        """Let everything happen that is due within `SETTLE_NS`, or until ``until()``; what that says."""
        return self.run(until, SETTLE_NS)

    def give(self, target: Station, data: bytes, route: Any) -> None:
        """Hand bytes to a station as if they had come along ``route`` (native: LRH … VCRC), and let what
        follows happen.
        """
        if self.setting.native:
            self.inject(target.node, data)
        else:
            self.inject(
                target.node, data, route.source, source_port=route.source_port,
                traffic_class=route.traffic_class, destination=route.destination,
            )  # fmt: skip
        self.settle()

    def route(self, source: Station, target: Station, has_grh: bool = False) -> Route:
        """The way of packets made by hand."""
        if self.setting.native:
            return Route(
                framing.NATIVE, source.gid, target.gid, slid=source.lid, dlid=target.lid, has_grh=has_grh
            )
        return Route(framing.ROCE_V6, source.gid, target.gid)

    def path(self, target: Station, **changes: Any) -> services.Path:
        """The path to a station, for connections and address handles."""
        return self.addressing.path(target.node, **changes)


class Pair:
    """Two stations with one queue pair each, ready to send: RC and UC connected, UD with `QKEY`.

    ``left`` sends and is whom packets made by hand seem to come from; ``right`` receives.  ``access``: what
    of it the adapters can give.
    """

    def __init__(
        self, rig: Rig, kind: int, access: int = ALL_RIGHTS, left_psn: int = LEFT_PSN,
        right_psn: int = RIGHT_PSN, reliability: services.Reliability | None = None,
    ) -> None:  # fmt: skip
        self.rig = rig
        self.kind = kind
        access &= LOCAL_WRITE | rig.setting.profile.rights
        self.left, self.right = rig.station(), rig.station()
        self.left_qp, self.right_qp = self.left.qp(kind), self.right.qp(kind)
        self.received = 0
        self.handle = 0
        if kind == UD:
            for qp, psn in ((self.left_qp, left_psn), (self.right_qp, right_psn)):
                services.start_datagrams(qp, QKEY, psn)
            self.handle = self.left.device.create_ah(self.left.pd, rig.path(self.right).vector())
        else:
            how = (reliability or services.Reliability()) if kind == RC else None
            ends = ((self.left_qp, self.right, self.right_qp), (self.right_qp, self.left, self.left_qp))
            for (qp, peer, peer_qp), own, other in zip(
                ends, (left_psn, right_psn), (right_psn, left_psn), strict=True
            ):
                services.connect(qp, rig.path(peer), peer_qp.number, other, own, access, how)
        self.route = rig.route(self.left, self.right)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rig.__exit__(kind, error, trace)

    def post(self, opcode: int, sges: list[tuple[int, int, int]] | bytes, **fields: Any) -> None:
        """Post one send work request of the left queue pair and ring; bytes are sent inline."""
        if self.kind == UD:
            fields = {"ah": self.handle, "qpn": self.right_qp.number, "qkey": QKEY, **fields}
        inline = sges if isinstance(sges, bytes) else None
        elements = [] if isinstance(sges, bytes) else sges
        flags = SIGNALED | (INLINE if inline is not None else 0) | fields.pop("flags", 0)
        post(self.left_qp, opcode, elements, flags=flags, inline=inline, **fields)

    def receive(self, offset: int, length: int, wr_id: int | None = None) -> int:
        """Post a receive of the right queue pair into its memory; its ``wr_id``, by default 1, 2, 3 …"""
        self.received += 1
        number = self.received if wr_id is None else wr_id
        self.right_qp.post_recv(number, [self.right.sge(offset, length)] if length else [])
        return number

    def sent(self) -> list[Datagram]:
        """What the left station has sent by the time nothing more happens."""
        self.rig.settle()
        return [sent for sent in self.rig.log if sent.source is self.left.node]

    def answers(self) -> list[Datagram]:
        """What the right station has sent."""
        self.rig.settle()
        return [sent for sent in self.rig.log if sent.source is self.right.node]

    def packet(
        self, opcode: int, psn: int, payload: bytes = b"", extensions: tuple[Header, ...] | None = None,
        **fields: Any,
    ) -> Packet:  # fmt: skip
        """A packet from left to right, sound unless ``fields`` make it otherwise.

        ``fields``: those of `Bth`; ``va rkey length`` of a RETH (the length is the payload's by default),
        ``imm``, ``key`` (IETH), ``qkey source_qp`` of a DETH.  Other extension headers are zeros.
        """
        own = {name: fields.pop(name) for name in list(fields) if name not in _BTH_FIELDS}
        if extensions is None:
            extensions = tuple(self._extension(name, payload, own) for name in OPCODES[opcode].headers)
        values = {"pkey": 0xFFFF, "migreq": 1, "dest_qp": self.right_qp.number, **fields}
        return assemble(self.route, Bth(opcode=opcode, psn=psn, **values), extensions, payload)

    def _extension(self, name: str, payload: bytes, own: dict[str, Any]) -> Header:
        if name == "reth":
            return Reth(own.get("va", 0), own.get("rkey", 0), own.get("length", len(payload)))
        if name == "immdt":
            return ImmDt(own.get("imm", 0))
        if name == "ieth":
            return Ieth(own.get("key", 0))
        if name == "deth":
            return Deth(own.get("qkey", QKEY), source_qp=own.get("source_qp", self.left_qp.number))
        return EXTENSIONS[name].decode(bytes(28))

    def give(self, *packets: Packet | bytes) -> None:
        """Hand packets to the right station, one after another; bytes are those of the link."""
        for packet in packets:
            data = packet if isinstance(packet, bytes) else on_link(packet)
            self.rig.give(self.right, data, self.route)

    def write(self, region: Region, opcode: int, psn: int, payload: bytes, **fields: Any) -> Packet:
        """A packet of an RDMA WRITE to the begin of ``region``."""
        return self.packet(opcode, psn, payload, **{"va": region.va, "rkey": region.rkey, **fields})


_BTH_FIELDS = frozenset(part.name for part in Bth.LAYOUT)


def on_link(packet: Packet) -> bytes:
    """A packet as a link carries it: native whole, RoCE from BTH to ICRC."""
    return packet.encode() if packet.framing == framing.NATIVE else packet.transport.encode()


def altered(packet: Packet, **fields: Any) -> Packet:
    """The same packet with other BTH fields (``payload`` too) and right CRCs."""
    transport = packet.transport
    if "payload" in fields:
        transport = replace(transport, payload=fields.pop("payload"))
    transport = replace(transport, bth=replace(transport.bth, **fields))
    return replace(packet, transport=transport).with_crcs()


@dataclass(frozen=True)
class Setting:
    """Where a check runs: ``framing`` of the ports (`ROCE`, over IPv6, or `NATIVE`), and ``options``, more of
    `AdapterConfig` for every adapter.
    """

    name: str
    framing: str = ROCE
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def profile(self) -> Profile:
        """What its adapters have."""
        found: Profile = self.options.get("profile", HCA_PROFILE)
        return found

    @property
    def native(self) -> bool:
        """Whether packets have LRH and VCRC."""
        return self.framing == NATIVE

    def rig(self) -> Rig:
        """No station yet."""
        return Rig(self)

    def pair(self, kind: int, **details: Any) -> Pair:
        """Two stations with ready queue pairs of ``kind``; ``details`` are `Pair`'s."""
        return Pair(Rig(self), kind, **details)


ON_ROCE = Setting("RoCEv2", ROCE)
ON_NATIVE = Setting("native", NATIVE)
HCA_SETTINGS = (ON_ROCE, ON_NATIVE)
"""Where checks of channel adapters of hosts run."""
