"""Two adapters with connected queue pairs of every service, and guarded memory, for `target_engine`.

Worlds are made once and used for many inputs: `Side.begin` takes the queue pairs of one service back to a
state that follows from its arguments alone.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable

from softhca.adapter.config import native_gid
from softhca.adapter.resources import Kind
from softhca.driver.errors import DriverError
from softhca.driver.qp import QpHandle
from softhca.machine.primitives import address_of
from softhca.testing import Network
from softhca.testing.addressing import gid
from softhca.testing.ends import ALL_RIGHTS, LOCAL_WRITE, RC, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, UC, UD
from softhca.transport.states import ERR, INIT, RESET, RTR, RTS, SQD
from softhca.wire import icrc, vcrc
from softhca.wire.burst import Burst
from softhca.wire.framing import NATIVE as NATIVE_FRAMING
from softhca.wire.framing import ROCE_V4
from softhca.wire.opcodes import READ_RESPONSE
from softhca.wire.packet_view import PacketView
from softhca.wire.route import Route

MAP_BYTES = 16_384
VA = 0x100000
SECRET = 0xF1  # every byte of the map that no peer may learn
MTU = 1  # ibv_mtu: 256 bytes
MTU_BYTES = 256
QKEY = 0x1234567
MAX_SOURCES = 8
ENTRIES = 16
MAX_BURSTS = 600
MAX_DEADLINES = 400
KEYS_WITHOUT_SECRET = 200  # seeds that are tried for keys in which no byte is SECRET

# (start, bytes, access): windows of the map, with guard bytes between them
GRANTED = (1000, 2000, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ)
READABLE = (4003, 2000, REMOTE_READ)
COUNTERS = (7000, 64, LOCAL_WRITE | REMOTE_ATOMIC)
INBOX = (8001, 2000, LOCAL_WRITE)
OUTBOX = (11_000, 1000, 0)
FOREIGN = (13_000, 500, ALL_RIGHTS)  # of another protection domain
FLEETING = (14_002, 600, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ)  # its rights may be taken away
WINDOWS = (GRANTED, READABLE, COUNTERS, INBOX, OUTBOX, FOREIGN, FLEETING)
PUBLIC = (GRANTED, READABLE, OUTBOX, FLEETING)
READ_WINDOWS = {GRANTED, READABLE, FLEETING}
GROUP = bytes(10) + b"\xff\xff\xe0\0\0\x05"  # 224.0.0.5
NATIVE_GROUP = b"\xff\x12" + bytes(13) + b"\x05"
GROUP_LID = 0xC005
ROCE, LOCAL, GLOBAL = "roce", "native", "native with GRH"
FRAMINGS = (ROCE, LOCAL, GLOBAL)
NAMES = ("rc", "srq", "uc", "ud")
KINDS = {"rc": RC, "srq": RC, "uc": UC, "ud": UD}


def clean(data: bytes) -> bytes:
    """The same bytes without SECRET, so that whoever sends one has read it from where nobody may read."""
    return data.replace(bytes([SECRET]), b"\0")


class PlayedNetwork(Network):
    """The input plays the links and the time: no poll drives an adapter."""

    def poll(self) -> bool:
        return False

    def wait(self, ready: Callable[[], bool], timeout_s: float | None) -> bool:
        return ready()


class Side:
    """One adapter, its open device, its memory, and a queue pair of each of ``NAMES``."""

    def __init__(self, number: int, seed: int, framing: str = ROCE) -> None:
        self.native, self.has_grh = framing != ROCE, framing == GLOBAL
        self.lid, self.peer_lid = 8 * number, 8 * (3 - number)
        name = native_gid if self.native else gid
        self.gid, self.peer_gid, self.unknown = name(number), name(3 - number), name(77)
        self.group = NATIVE_GROUP if self.native else GROUP
        options = {"lid": self.lid} if self.native else {}
        self.network = PlayedNetwork(link="native" if self.native else "ipv4")
        # one side's packets are so dear that few of them fill the window towards the other
        overhead_bytes = 30_000 * (number - 1)
        self.node = self.network.add(
            number, seed=seed, overhead_for=lambda to: overhead_bytes, gids=(self.gid,), active_mtu=MTU,
            max_sources=MAX_SOURCES, max_windows=4, **options,
        )  # fmt: skip
        self.adapter = self.node.adapter
        self.device = self.node.open()
        self.events = self.device.session.channel.events
        self.map = mmap.mmap(-1, MAP_BYTES)
        self.image = self._image()
        self._register()
        self._queues()
        self.view, self.burst = PacketView(), Burst()
        self.route = self._route(self.gid, self.peer_gid, self.lid, self.peer_lid)
        self.route_here = self._route(self.peer_gid, self.gid, self.peer_lid, self.lid)
        self.fed = 0
        self.counted = self._counted()

    @property
    def now(self) -> int:
        """The time on this side."""
        return self.network.now

    @now.setter
    def now(self, time_ns: int) -> None:
        self.network.now = time_ns

    def _route(
        self,
        source: bytes,
        destination: bytes,
        slid: int,
        dlid: int,
        port: int = 0xC000,
        has_grh: bool = False,
    ) -> Route:
        """A route in this side's framing."""
        if not self.native:
            return Route(ROCE_V4, source, destination, port)
        has_grh |= self.has_grh
        target = destination if has_grh else bytes(16)
        return Route(NATIVE_FRAMING, source, target, slid=slid, dlid=dlid, has_grh=has_grh)

    def _vector(self, to: bytes, dlid: int) -> dict[str, object]:
        """The address vector of a port or group."""
        vector = {"dgid": to, "is_global": 1, "port_num": 1, "hop_limit": 9}
        if self.native:
            vector.update(dlid=dlid, is_global=int(self.has_grh or to == self.group))
        return vector

    def _image(self) -> bytes:
        """The map as it is at first."""
        image = bytearray([SECRET]) * MAP_BYTES
        for start, length, _ in PUBLIC:
            image[start : start + length] = bytes(i & 0x7F for i in range(length))
        start, length, _ = COUNTERS
        image[start : start + length] = bytes(length)
        return bytes(image)

    def _register(self) -> None:
        base = address_of(self.map)
        self.pd, other = self.device.alloc_pd(), self.device.alloc_pd()
        self.keys = {}
        for window in WINDOWS:
            start, length, access = window
            pd = other if window is FOREIGN else self.pd
            self.keys[window] = self.device.reg_mr(pd, base + start, length, access, iova=VA + start)

        self.key_bytes = {window: key.rkey.to_bytes(4, "big") for window, key in self.keys.items()}

    def _queues(self) -> None:
        self.cqs = {name: self.device.create_cq(4 * ENTRIES, "c") for name in NAMES}
        self.srq = self.device.create_srq(self.pd, ENTRIES, 2, 0)
        self.handles: dict[str, QpHandle] = {}
        for name in NAMES:
            cq, srq = self.cqs[name], self.srq if name == "srq" else None
            self.handles[name] = self.device.create_qp(
                self.pd, KINDS[name], cq, cq, srq, ENTRIES, ENTRIES, 2, 2, 64, False)  # fmt: skip
        self.idle = self.device.create_qp(self.pd, RC, cq, cq, None, 1, 1, 1, 1, 0, False)
        self.engines = {name: self.adapter.queue_pairs[qp.number] for name, qp in self.handles.items()}
        self.device.attach_mcast(self.engines["ud"].number, self.group)
        self.shared = self.engines["srq"].shared_receive
        places = (
            (self.peer_gid, self.peer_lid),
            (self.gid, self.lid),
            (self.unknown, 77),
            (self.group, GROUP_LID),
        )
        own = [self.device.create_ah(self.pd, self._vector(to, dlid)) for to, dlid in places]
        self.address_handles = own

    # one input

    def begin(
        self, name: str, peer: Side, now: int, psn: int, peer_psn: int, access: int, tries: int
    ) -> None:
        """Queue pair ``name`` anew, connected with its peer, and everything else as at first."""
        self.now, self.name = now, name
        self.peer_number = peer.engines[name].number
        self.fed = 0
        self.engine, self.handle, self.cq = self.engines[name], self.handles[name], self.cqs[name]
        self.adapter.port.sources.unconnected.clear()
        self.adapter.port.sources.last = None
        self.adapter.port.windows.clear()
        self.map[:] = self.image
        engine, vector = self.engine, self._vector(self.peer_gid, self.peer_lid)
        if name == "ud":
            self.modify({"qp_state": INIT, "pkey_index": 0, "port_num": 1, "qkey": QKEY})
            self.modify({"qp_state": RTR})
            self.modify({"qp_state": RTS, "sq_psn": psn})
            engine.path_mtu_bytes = MTU_BYTES
            for number in self.address_handles:
                handle = self.adapter.handles[number]
                handle.window = self.adapter.window_for(handle.route)
        else:
            self.modify({"qp_state": INIT, "pkey_index": 0, "port_num": 1, "qp_access_flags": access})
            path = {
                "ah_attr": vector,
                "path_mtu": MTU,
                "dest_qp_num": peer.engines[name].number,
                "rq_psn": peer_psn,
            }
            reliable = name != "uc"
            more = {"max_dest_rd_atomic": 2, "min_rnr_timer": 1} if reliable else {}
            self.modify({"qp_state": RTR, **path, **more}, self.route)
            more = (
                {"timeout": 1, "retry_cnt": tries, "rnr_retry": tries, "max_rd_atomic": 2} if reliable else {}
            )
            self.modify({"qp_state": RTS, "sq_psn": psn, **more})
        self.handle.state = RTS
        self.access = access
        self.sends: deque[tuple[int, bool]] = deque()
        self.receives: deque[int] = deque()
        self.next_id = 1
        self.named: set[tuple[int, int, int]] = set()
        self.takes = False
        self.revoked = False

    def modify(self, attributes: dict[str, object], route: Route | None = None) -> int:
        """As the command does, without the way through the rings; 0 or an errno."""
        code = self.engine.modify(attributes, self.now, route=route)
        self.handle.state = self.engine.state
        return code

    def end(self) -> None:
        """Back to RESET; nothing may be left of what was in flight."""
        assert self.modify({"qp_state": RESET}) == 0
        self.poll()
        self.drain_events()
        windows = list(self.adapter.port.windows.values())
        windows += [self.adapter.handles[number].window for number in self.address_handles]
        for window in windows:
            assert window.in_flight_bytes == 0, "bytes are in flight of a queue pair that was reset"
            assert not window.waiters
            assert window.turn is None
        if self.name == "srq":
            layout = self.shared.consumer.layout
            layout.clear()
            self.shared.consumer.reset()
            self.srq._poster.producer.reset()
            self.shared.set_limit(0)
        if self.revoked:
            self.revoke(back=True)

    def close(self) -> None:
        """Close the device: no resource may be left."""
        self.network.close()
        left = {kind: count for kind in Kind if (count := self.adapter.resources.count(kind))}
        assert not left, left
        assert not len(self.adapter.regions)
        assert not self.adapter.queue_pairs
        assert not self.adapter.timers.count()

    # what the application does

    def post_send(
        self, fields: tuple[int, ...], sges: list[tuple[int, int, int]], inline: bytes | None
    ) -> None:
        """Post and ring; what the driver refuses is not posted."""
        opcode, flags, imm, va, rkey, ah, qpn, qkey = fields
        try:
            self.handle.post_send(
                opcode, flags, imm, self.next_id, va, rkey, 0, 1, ah, qpn, qkey, sges, inline
            )
        except DriverError:
            return
        self.sends.append((self.next_id, bool(flags & 2)))
        self.takes |= opcode in (4, 5, 6)
        self.next_id += 1
        self.handle.ring()

    def post_receive(self, sges: list[tuple[int, int, int]]) -> None:
        """Likewise."""
        number = 1 << 63 | self.next_id
        try:
            if self.name == "srq":
                self.srq.post(number, sges)
            else:
                self.handle.post_recv(number, sges)
        except DriverError:
            return
        self.receives.append(number)
        self.takes = True
        self.next_id += 1
        self.adapter.kick(self.now)

    def poll(self) -> None:
        """Every completion is of what was posted, in its order, once."""
        for entry in self.cq.poll(8 * ENTRIES):
            assert entry.qp_num == self.engine.number
            assert 0 <= entry.status <= 21
            if entry.wr_id >> 63:
                assert self.receives, "a receive completes that was not posted"
                assert self.receives.popleft() == entry.wr_id
                continue
            while True:
                assert self.sends, "a send completes that was not posted"
                number, signaled = self.sends.popleft()
                if number == entry.wr_id:
                    assert signaled or entry.status
                    break
                assert not signaled, "a signaled send was passed over"

    def drain_events(self) -> None:
        """Take what the adapter told."""
        self.adapter.take_notifications()
        while self.events.take() is not None:
            pass
        assert self.events.waiting() <= 8 * len(NAMES)

    def revoke(self, back: bool = False) -> None:
        """Take the rights of the fleeting region away, or give them back."""
        access = FLEETING[2] if back else 0
        self.device.rereg_mr(self.keys[FLEETING].handle, 4, 0, 0, 0, access)
        self.revoked = not back

    # packets

    def route_from(self, source: bytes, port: int, group: bool) -> Route:
        """The way of a packet to this side, or to the group."""
        if source == self.peer_gid and port == 0xC000 and not group:
            self.route_here.identification = 0
            return self.route_here
        slid = self.peer_lid if source == self.peer_gid else 77
        if group:
            return self._route(source, self.group, slid, GROUP_LID, port, has_grh=True)
        return self._route(source, self.gid, slid, self.lid, port)

    def sealed(self, body: bytearray, route: Route, wrong: int, change: tuple[int, int]) -> bytes:
        """BTH … pad with its CRCs and, native, its headers; ``wrong`` is laid over the ICRC, ``change``
        (offset and bits) over the headers before the CRCs are made.
        """
        if not self.native:
            check = icrc.compute(route, address_of(body), len(body)) if len(body) >= 12 else 0
            return bytes(body) + (check ^ wrong).to_bytes(4, "little")
        front = bytearray(route.headers(len(body) + 4))
        front[change[0] % len(front)] ^= change[1]
        check = icrc.of_packet(NATIVE_FRAMING, bytes(front), bytes(body)) ^ wrong
        packet = bytes(front) + body + check.to_bytes(4, "little")
        return packet + vcrc.compute(packet).to_bytes(2, "little")

    def transport_of(self, segment: bytes) -> bytearray:
        """BTH … pad of a packet as it crossed the link."""
        route = self.route_here
        return bytearray(segment[route.prefix_bytes : len(segment) - 4 - route.suffix_bytes])

    def receive(self, data: bytes, source: bytes, port: int, stride: int, group: bool = False) -> None:
        """Bytes arrive, for this side or for the group."""
        n = len(data)
        if not n:
            return
        for window, key in self.key_bytes.items():
            if key in data:
                self.named.add(window)
        self.fed += 1 if stride == 0 or stride > n else -(-n // stride)
        to = self.group if group else self.gid
        self.network.inject(self.node, data, source, source_port=port, stride=stride, destination=to)

    def transmit(self, flight: list[bytes], bursts: int) -> int:
        """Up to ``bursts`` bursts; what they hold is checked and joins ``flight``.  How many there were."""
        burst = self.burst
        for count in range(bursts):
            if not self.adapter.transmit(1, burst, self.now):
                return count
            for offset in range(0, burst.length, burst.stride):
                n = min(burst.stride, burst.length - offset)
                self._check_sent(burst.route, offset, n)
                if burst.route.peer == self.route.peer and len(flight) < 64:
                    flight.append(bytes(burst.buffer[offset : offset + n]))
        return bursts

    def _check_sent(self, route: Route, offset: int, n: int) -> None:
        """A packet that leaves is sound, and shows nothing that may not be read."""
        data, view = self.burst.buffer, self.view
        if self.native:
            packet = bytes(data[offset : offset + n])
            assert vcrc.compute(packet[:-2]) == int.from_bytes(packet[-2:], "little")
        offset, n = offset + route.prefix_bytes, n - route.prefix_bytes - route.suffix_bytes
        assert icrc.syndrome(route, self.burst.address + offset, n) == 0
        assert view.decode(self.burst.data, offset, n) == 0
        payload = data[view.payload : view.payload + view.payload_bytes]
        assert SECRET not in payload, "a byte that nobody may read has left"
        if payload and view.operation == READ_RESPONSE:
            assert self.named & READ_WINDOWS, "bytes are read without their key"

    def rest(self, flight: list[bytes]) -> None:
        """What is asked comes to an end without anybody's answer."""
        for _ in range(MAX_DEADLINES):
            assert self.transmit(flight, MAX_BURSTS) < MAX_BURSTS, "the engine transmits without end"
            deadline = self.adapter.next_deadline()
            if deadline >= 1 << 62:
                return
            self.now = max(deadline, self.now)
            self.adapter.expire(self.now)
        raise AssertionError("the engine does not come to rest")

    # what must hold

    def check(self) -> None:
        """Memory, completions and counters, at rest."""
        self.poll()
        self._check_memory()
        if self.engine.state != SQD:
            assert not any(signaled for _, signaled in self.sends), "a send never completes"
        if self.engine.state == ERR and self.name != "srq":
            assert not self.receives, "a receive is not flushed"
        received, dropped, loopback = self._counted()
        was = self.counted
        self.counted = received, dropped, loopback
        fed = self.fed + loopback - was[2]
        assert received - was[0] + dropped - was[1] == fed, "a packet is not accounted for"
        port = self.adapter.port
        assert len(port.sources.unconnected) <= MAX_SOURCES
        assert len(port.windows) <= 4 + len(NAMES)
        assert self.adapter.timers.count() <= len(NAMES)
        assert self.adapter.port.scheduler.length == 0

    def _counted(self) -> tuple[int, int, int]:
        counters = self.adapter.port.counters
        return counters.packets_received, sum(counters.drops), counters.loopback_packets

    def _check_memory(self) -> None:
        """Only what was granted has changed, and only if a packet named its key."""
        open_windows = [INBOX] if self.takes else []
        if self.access & REMOTE_ATOMIC and self.name in ("rc", "srq"):
            open_windows += [window for window in (COUNTERS,) if window in self.named]
        if self.access & REMOTE_WRITE and self.name != "ud":
            open_windows += [window for window in (GRANTED, FLEETING) if window in self.named]
        at = 0
        for start, length, _ in sorted(open_windows):
            assert self.map[at:start] == self.image[at:start], "bytes changed that were not granted"
            at = start + length
        assert self.map[at:] == self.image[at:], "bytes changed that were not granted"


def make_pair(framing: str) -> tuple[Side, Side]:
    """Two sides whose keys hold no byte that is SECRET."""
    sides = []
    for number in (1, 2):
        for seed in range(KEYS_WITHOUT_SECRET):
            side = Side(number, seed, framing)
            if all(SECRET not in key.rkey.to_bytes(4, "big") for key in side.keys.values()):
                break
            side.close()
        sides.append(side)
    return sides[0], sides[1]
