"""What checks stand on: adapters in memory and virtual time, the packets between them, packets made by hand.

::

    with setting.pair(UC) as pair:                       # two adapters, connected queue pairs, PMTU 256
        pair.receive(0, 300)                             # a receive of the right one, at memory[0:300]
        pair.give(pair.packet(UC_SEND_ONLY, 7, b"abc"))  # a packet that seems to come from the left one
        expect("completions", pair.right.completions(), …)

Nothing here knows the clock, a socket or chance: the same check does the same every time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, NamedTuple, Self

from softhca.adapter.config import HCA_PROFILE, NATIVE, ROCE, AdapterConfig, native_gid
from softhca.adapter.engine import PORT_NUMBER, Adapter
from softhca.adapter.profile import Profile
from softhca.driver import services
from softhca.driver.channels import EmbeddedChannel
from softhca.driver.device import Completion, DeviceDriver, QpHandle
from softhca.machine.primitives import address_of
from softhca.memory.host import HostMemory
from softhca.wire import framing
from softhca.wire.bth import Bth
from softhca.wire.burst import Arrival, Burst
from softhca.wire.capture_file import LINKTYPE_INFINIBAND, LINKTYPE_RAW
from softhca.wire.deth import Deth
from softhca.wire.ieth import Ieth
from softhca.wire.immdt import ImmDt
from softhca.wire.layout import Header
from softhca.wire.opcodes import OPCODES
from softhca.wire.packet import EXTENSIONS, Packet, assemble, captured, decode
from softhca.wire.reth import Reth
from softhca.wire.route import Route

RC, UC, UD = 2, 3, 4
"""Types of queue pairs (``ibv_qp_type``)."""

LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC = 1, 2, 4, 8
ALL_RIGHTS = 15
WRITE, WRITE_IMM, SEND, SEND_IMM, READ, COMPARE_SWAP, FETCH_ADD = range(7)
"""Work requests (``ibv_wr_opcode``)."""

MTU = 1
PMTU_BYTES = 256
MEMORY_BYTES = 8192
UNTOUCHED = 0xA5
QKEY = 0x1234567
LEFT_PSN, RIGHT_PSN = 0xFFFFFD, 0x345678
"""The first PSNs of a pair's two directions; the left one's wraps soon."""

LATENCY_NS = 1_000
SETTLE_NS = 1_000_000
START_NS = 1_000_000
HOST_BYTES = 64 << 20
MAX_STEPS = 100_000


class Region(NamedTuple):
    """Registered memory: ``offset`` in its station's ``memory``, ``va`` of its first byte, its keys."""

    handle: int
    offset: int
    length: int
    va: int
    lkey: int
    rkey: int


@dataclass(frozen=True)
class Sent:
    """A packet that an adapter sent: when, by whom, its bytes on the link, its headers (None: raw)."""

    moment_ns: int
    source: Station
    data: bytes
    packet: Packet | None

    @property
    def bth(self) -> Bth:
        """Its BTH; ValueError for one without."""
        if self.packet is None:
            raise ValueError("a packet without transport headers")
        return self.packet.transport.bth

    @property
    def payload_bytes(self) -> int:
        """Length of its payload."""
        return 0 if self.packet is None else len(self.packet.transport.payload)

    @property
    def opcode(self) -> str:
        """Its opcode's name."""
        return OPCODES[self.bth.opcode].name


class Station:
    """One adapter with one open device: a domain, a completion queue, and ``memory``, all of it registered.

    ``key`` is that registration; ``va`` names memory[0] in requests.
    """

    def __init__(self, rig: Rig, number: int, options: Mapping[str, Any]) -> None:
        self.rig = rig
        self.number = number
        self.adapter = Adapter(AdapterConfig(**options), seed=number, now=rig.now)
        self.gid = self.adapter.port.gid_table[0]
        self.lid = self.adapter.port.lid
        channel = EmbeddedChannel(
            HostMemory(HOST_BYTES),
            lambda: self.adapter.kick(rig.now),
            rig.step,
            lambda ready, timeout_s: rig.settle(ready),
            lambda: self.adapter.detach_host(host),
        )
        host = self.adapter.attach_host(channel)
        self.device = DeviceDriver(f"station{number}", channel)
        self.pd = self.device.alloc_pd()
        self.cq = self.device.create_cq(256, "completions")
        self.memory = bytearray([UNTOUCHED]) * MEMORY_BYTES
        self.key = self.region(0, MEMORY_BYTES)
        self.va = self.key.va

    def region(
        self, offset: int, length: int, access: int = ALL_RIGHTS, pd: int = 0, va: int | None = None
    ) -> Region:
        """Register a part of the memory (once more), by default under its place's usual address."""
        name = 0x10000 + offset if va is None else va
        address = address_of(self.memory) + offset
        key = self.device.reg_mr(pd or self.pd, address, length, access, name, self.memory)
        return Region(key.handle, offset, length, name, key.lkey, key.rkey)

    def sge(self, offset: int, length: int) -> tuple[int, int, int]:
        """An element of a work request."""
        return (self.va + offset, length, self.key.lkey)

    def qp(self, kind: int, **changes: Any) -> QpHandle:
        """A queue pair in RESET; every send is signaled."""
        caps = {"send": 32, "receive": 32, "sge": 2, "inline": 64, "srq": None, "pd": self.pd, **changes}
        return self.device.create_qp(
            caps["pd"], kind, self.cq, self.cq, caps["srq"], caps["send"], caps["receive"],
            caps["sge"], caps["sge"], caps["inline"], True,
        )  # fmt: skip

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


class Rig:
    """Stations, the link between them, and virtual time.

    ``log`` is all that was sent.  ``tamper`` may change or swallow (None) a packet on its way.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.now = START_NS
        self.stations: list[Station] = []
        self.log: list[Sent] = []
        self.tamper: Callable[[Sent], bytes | None] = lambda sent: sent.data
        self._flying: deque[tuple[int, Station, bytes, Any]] = deque()
        self._burst = Burst()
        self._arrival = Arrival()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for station in self.stations:
            station.device.close()

    def add(self, **options: Any) -> Station:
        """One more station; ``options`` are `AdapterConfig`'s beyond the setting's."""
        number = len(self.stations) + 1
        values = {**self.setting.config(number), **options}
        station = Station(self, number, values)
        self.stations.append(station)
        return station

    # time and the link

    def settle(self, until: Callable[[], bool] = lambda: False, limit_ns: int = SETTLE_NS) -> bool:
        """Let everything happen that is due within ``limit_ns``, or until ``until()``; what that says."""
        end = self.now + limit_ns
        for _ in range(MAX_STEPS):
            if until():
                return True
            if self.step():
                continue
            moment = min(
                [station.adapter.next_deadline() for station in self.stations]
                + [flight[0] for flight in self._flying]
            )
            if moment > end:
                break
            self.now = max(moment, self.now)
        return until()

    def elapse(self, time_ns: int) -> None:
        """Let ``time_ns`` pass, with all that happens in it."""
        end = self.now + time_ns
        self.settle(limit_ns=time_ns)
        self.now = end
        self.settle(limit_ns=0)

    def step(self) -> bool:
        """What is due at this moment; whether there was anything."""
        worked = False
        for station in self.stations:
            station.adapter.expire(self.now)
            for _ in range(64):
                if not station.adapter.transmit(PORT_NUMBER, self._burst, self.now):
                    break
                self._send(station)
                worked = True
        while self._flying and self._flying[0][0] <= self.now:
            _, target, data, route = self._flying.popleft()
            self._hand_over(target, data, route)
            worked = True
        return worked

    def _send(self, source: Station) -> None:
        burst = self._burst
        route: Any = burst.route
        for offset in range(0, burst.length, burst.stride):
            data = bytes(burst.buffer[offset : min(offset + burst.stride, burst.length)])
            link_type = LINKTYPE_INFINIBAND if self.setting.native else LINKTYPE_RAW
            sent = Sent(self.now, source, data, decode(captured(route, data), link_type))
            self.log.append(sent)
            changed = self.tamper(sent)
            for target in self.stations:
                if changed is not None and self._leads_to(target, data, route):
                    self._flying.append((self.now + LATENCY_NS, target, changed, route))

    def _leads_to(self, target: Station, data: bytes, route: Any) -> bool:
        if self.setting.native:
            owns: bool = target.adapter.port.owns_lid(int.from_bytes(data[2:4], "big"))
            return owns
        return bool(target.gid == route.destination)

    def _hand_over(self, target: Station, data: bytes, route: Any) -> None:
        arrival = self._arrival
        arrival.buffer[: len(data)] = data
        arrival.length = arrival.stride = len(data)
        arrival.framing = framing.NATIVE if self.setting.native else framing.ROCE_V6
        arrival.source = arrival.destination = None
        arrival.source_port = arrival.traffic_class = 0
        if not self.setting.native:
            arrival.source, arrival.destination = route.source, route.destination
            arrival.source_port, arrival.traffic_class = route.source_port, route.traffic_class
        target.adapter.receive(PORT_NUMBER, arrival, self.now)

    def inject(self, target: Station, data: bytes, route: Any) -> None:
        """Hand bytes to a station as if they had come along ``route`` (native: LRH … VCRC), and let what
        follows happen.
        """
        self._hand_over(target, data, route)
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
        if self.setting.native:
            return services.Path(None, mtu=MTU, **{"dlid": target.lid, **changes})
        return services.Path(target.gid, mtu=MTU, **changes)


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
        self.left, self.right = rig.add(), rig.add()
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
        values = dict.fromkeys(("imm", "wr_id", "va", "rkey", "compare", "swap", "ah", "qpn", "qkey"), 0)
        if self.kind == UD:
            values.update(ah=self.handle, qpn=self.right_qp.number, qkey=QKEY)
        values.update(fields)
        inline = sges if isinstance(sges, bytes) else None
        elements = [] if isinstance(sges, bytes) else sges
        flags = 2 | (8 if inline is not None else 0) | values.pop("flags", 0)
        self.left_qp.post_send(
            opcode, flags, values["imm"], values["wr_id"], values["va"], values["rkey"], values["compare"],
            values["swap"], values["ah"], values["qpn"], values["qkey"], elements, inline,
        )  # fmt: skip
        self.left_qp.ring()

    def receive(self, offset: int, length: int, wr_id: int | None = None) -> int:
        """Post a receive of the right queue pair into its memory; its ``wr_id``, by default 1, 2, 3 …"""
        self.received += 1
        number = self.received if wr_id is None else wr_id
        self.right_qp.post_recv(number, [self.right.sge(offset, length)] if length else [])
        return number

    def sent(self) -> list[Sent]:
        """What the left station has sent by the time nothing more happens."""
        self.rig.settle()
        return [sent for sent in self.rig.log if sent.source is self.left]

    def answers(self) -> list[Sent]:
        """What the right station has sent."""
        self.rig.settle()
        return [sent for sent in self.rig.log if sent.source is self.right]

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
            self.rig.inject(self.right, data, self.route)

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

    def config(self, number: int) -> dict[str, Any]:
        """The options of station ``number``'s adapter."""
        if self.native:
            own = {"gids": (native_gid(0x0200_5EFF_FE00_5300 + number),), "lid": 0x10 + number, "sm_lid": 1}
        else:
            own = {"gids": (bytes.fromhex("20010db8") + bytes(11) + bytes([number]),)}
        return {"framing": self.framing, "active_mtu": MTU, **own, **self.options}

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
