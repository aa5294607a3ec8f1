"""Two adapters in memory, in virtual time, with drivers on top: what the tests of adapter and driver stand
on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from softhca.adapter.config import AdapterConfig
from softhca.adapter.engine import NEVER, PORT_NUMBER, Adapter
from softhca.driver import services
from softhca.driver.channels import EmbeddedChannel
from softhca.driver.device import Completion, CqHandle, DeviceDriver, QpHandle
from softhca.memory.host import HostMemory
from softhca.wire.burst import Arrival, Burst
from softhca.wire.framing import ROCE_V4

MEMORY_BYTES = 256 << 20
RC, UC, UD = 2, 3, 4
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC = 1, 2, 4, 8
ALL_RIGHTS = 15
SIGNALED = 2
WRITE, WRITE_IMM, SEND, SEND_IMM, READ, COMPARE_SWAP, FETCH_ADD = range(7)
QKEY = 0x1234567


def gid(number: int) -> bytes:
    """The GID of 192.0.2.``number``."""
    return bytes(10) + b"\xff\xff\xc0\x00\x02" + bytes([number])


class Node:
    """An adapter and the drivers that are open on it.  Its numbers come from its seed."""

    def __init__(self, world: World, number: int, seed: int | None = None, **config: object) -> None:
        self.world = world
        self.gid = gid(number)
        options: dict[str, object] = {"gids": (self.gid,), "active_mtu": 3, **config}
        self.adapter = Adapter(AdapterConfig(**options), number if seed is None else seed, now=world.now)
        self.notices = 0
        self.adapter.notice = self._notice
        self.hosts: list[int] = []
        self.devices: list[DeviceDriver] = []

    def _notice(self) -> None:
        self.notices += 1

    def open(self) -> DeviceDriver:
        """One more device on this adapter."""
        number = -1
        channel = EmbeddedChannel(
            HostMemory(MEMORY_BYTES),
            lambda: self.adapter.kick(self.world.now),
            self.world.step,
            self.world.wait,
            lambda: self.adapter.detach_host(number),
        )
        number = self.adapter.attach_host(channel)
        self.hosts.append(number)
        device = DeviceDriver(f"softhca{len(self.devices)}", channel)
        self.devices.append(device)
        return device


class World:
    """Nodes, the packets between them, and the clock.  ``tamper`` may change or swallow (None) what is on the
    way.
    """

    def __init__(self, latency_ns: int = 1000) -> None:
        self.now = 1_000_000
        self.latency_ns = latency_ns
        self.nodes: dict[bytes, Node] = {}
        self.flying: deque[tuple[int, bytes, bytes, int, int, bytes]] = deque()
        self.tamper: Callable[[bytes], bytes | None] = lambda data: data
        self.sent: list[tuple[bytes, bytes]] = []
        self.burst = Burst()
        self.arrival = Arrival()

    def add(self, number: int, **config: object) -> Node:
        """A new node, 192.0.2.``number``."""
        node = Node(self, number, **config)
        self.nodes[node.gid] = node
        return node

    def close(self) -> None:
        """Close what is open."""
        for node in self.nodes.values():
            for device in node.devices:
                device.close()

    def step(self) -> bool:
        """One round of everybody at the present moment; whether anything happened."""
        worked = False
        for node in self.nodes.values():
            node.adapter.expire(self.now)
            for _ in range(64):
                if not node.adapter.transmit(PORT_NUMBER, self.burst, self.now):
                    break
                self._send()
                worked = True
        while self.flying and self.flying[0][0] <= self.now:
            self._deliver(*self.flying.popleft()[1:])
            worked = True
        return worked

    def _send(self) -> None:
        burst = self.burst
        for offset in range(0, burst.length, burst.stride):
            data = bytes(burst.buffer[offset : min(offset + burst.stride, burst.length)])
            changed = self.tamper(data)
            if changed is None:
                continue
            self.sent.append((burst.route.destination, changed))
            self.flying.append(
                (
                    self.now + self.latency_ns,
                    burst.route.source,
                    burst.route.destination,
                    burst.route.source_port,
                    burst.route.traffic_class,
                    changed,
                )
            )

    def _deliver(self, source: bytes, destination: bytes, port: int, traffic_class: int, data: bytes) -> None:
        node = self.nodes.get(destination)
        if node is not None:
            self.inject(node, data, source, port, traffic_class)

    def inject(
        self,
        node: Node,
        data: bytes,
        source: bytes,
        port: int = 0xC000,
        traffic_class: int = 0,
        stride: int = 0,
        destination: bytes | None = None,
    ) -> None:
        """Hand bytes to an adapter as if they had arrived."""
        arrival = self.arrival
        arrival.buffer[: len(data)] = data
        arrival.length = len(data)
        arrival.stride = stride or len(data)
        arrival.framing = ROCE_V4
        arrival.source = source
        arrival.source_port = port
        arrival.destination = node.gid if destination is None else destination
        arrival.traffic_class = traffic_class
        node.adapter.receive(PORT_NUMBER, arrival, self.now)

    def advance(self, limit_ns: int = NEVER) -> bool:
        """To the next moment at which something is due; False when nothing is, up to ``limit_ns``
        from now.
        """
        moments = [node.adapter.next_deadline() for node in self.nodes.values()]
        if self.flying:
            moments.append(self.flying[0][0])
        moment = max(min(moments), self.now)
        if moment >= NEVER or moment > self.now + limit_ns:
            return False
        self.now = moment
        return True

    def run(self, until: Callable[[], bool] = lambda: False, limit_ns: int = 60_000_000_000) -> bool:
        """Rounds until ``until()`` is true or nothing more happens within ``limit_ns``; what ``until`` says
        at last.
        """
        end = self.now + limit_ns
        for _ in range(200_000):
            if until():
                return True
            if not self.step() and not self.advance(end - self.now):
                break
        return until()

    def wait(self, ready: Callable[[], bool], timeout_s: float | None) -> bool:
        """A channel's wait, in virtual time."""
        return self.run(ready, 60_000_000_000 if timeout_s is None else int(timeout_s * 1e9))


class End:
    """A device with a domain, completion queues, registered memory, and queue pairs made on demand."""

    def __init__(self, node: Node, memory_bytes: int = 1 << 16, entries: int = 64, **caps: int) -> None:
        self.node = node
        self.world = node.world
        self.device = node.open()
        self.pd = self.device.alloc_pd()
        self.cq = self.device.create_cq(entries, "channel")
        self.memory = bytearray(memory_bytes)
        self.key = self.device.reg_mr(self.pd, 0, memory_bytes, ALL_RIGHTS, iova=0x10000, buffer=self.memory)
        self.va = 0x10000

    def qp(
        self,
        kind: int = RC,
        cq: CqHandle | None = None,
        srq: object = None,
        signal_all: bool = True,
        send: int = 16,
        receive: int = 16,
        sge: int = 2,
        inline: int = 64,
    ) -> QpHandle:
        """A queue pair in RESET."""
        cq = cq or self.cq
        return self.device.create_qp(self.pd, kind, cq, cq, srq, send, receive, sge, sge, inline, signal_all)

    def sge(self, offset: int, length: int) -> tuple[int, int, int]:
        """An element of the registered memory."""
        return (self.va + offset, length, self.key.lkey)

    def poll(self, count: int, cq: CqHandle | None = None) -> list[Completion]:
        """``count`` completions, or fewer when nothing more happens."""
        found: list[Completion] = []
        queue = cq or self.cq

        def enough() -> bool:
            found.extend(queue.poll(count - len(found)))
            return len(found) >= count

        self.world.run(enough)
        return found


def post(
    qp: QpHandle,
    opcode: int,
    sges: list[tuple[int, int, int]],
    *,
    wr_id: int = 0,
    flags: int = SIGNALED,
    imm: int = 0,
    va: int = 0,
    rkey: int = 0,
    compare: int = 0,
    swap: int = 0,
    ah: int = 0,
    qpn: int = 0,
    qkey: int = 0,
    inline: bytes | None = None,
    ring: bool = True,
) -> None:
    """Post one send work request and ring."""
    qp.post_send(opcode, flags, imm, wr_id, va, rkey, compare, swap, ah, qpn, qkey, sges, inline)
    if ring:
        qp.ring()


def join(
    left: tuple[End, QpHandle],
    right: tuple[End, QpHandle],
    kind: int = RC,
    sl: int = 0,
    access: int = ALL_RIGHTS,
    **reliability: int,
) -> None:
    """Connect two queue pairs, both to RTS."""
    how = services.Reliability(**reliability) if kind == RC else None
    for (end, qp), (peer, peer_qp), psn, peer_psn in (
        (left, right, 100, 0xFFFFF0),
        (right, left, 0xFFFFF0, 100),
    ):
        path = services.Path(peer.node.gid, sl=sl, mtu=end.node.adapter.config.active_mtu)
        services.connect(qp, path, peer_qp.number, peer_psn, psn, access, how)


def pair(kind: int = RC, **options: int) -> tuple[World, End, QpHandle, End, QpHandle]:
    """A world with two connected queue pairs."""
    world = World()
    left, right = End(world.add(1)), End(world.add(2))
    left_qp, right_qp = left.qp(kind), right.qp(kind)
    join((left, left_qp), (right, right_qp), kind, **options)
    return world, left, left_qp, right, right_qp
