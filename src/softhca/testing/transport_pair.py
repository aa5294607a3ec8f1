"""Two nodes with queue pairs, a link that loses, repeats and reorders packets, and virtual time.

::

    pair = Pair(pmtu=256, faults=Faults(seed=7, loss=0.1))
    source, target = pair.left.region(1000, fill=bytes(1000)), pair.right.region(1000)
    pair.left.post(RDMA_WRITE, [source.sge()], remote=target)
    pair.run()
    (done,) = pair.left.sent()

There is no adapter, driver or host here: this is for tests that look at single packets of the transport, or
forge them (`Pair.forge`).  All others are better served by `softhca.testing.Network`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from softhca.machine import primitives
from softhca.testing.timeline import NEVER, Timeline
from softhca.testing.transport_node import CQ_ENTRIES, PD, End, Node
from softhca.transport.environment import AddressHandle
from softhca.transport.states import INIT, RAW, RC, RD, RD_EEC, RTR, RTS, UD, XRC, XRC_TARGET
from softhca.transport.uniform import UniformBursts
from softhca.transport.window import DestinationWindow
from softhca.wire import build, opcodes
from softhca.wire.bth import FLAGS, MIGREQ_BIT
from softhca.wire.burst import Arrival, Burst
from softhca.wire.icrc import compute
from softhca.wire.icrc import syndrome as icrc_syndrome
from softhca.wire.packet_view import PacketView
from softhca.wire.route import ROCE_V4, ROCE_V6, Route

START_NS = 1_000_000
SETTLED_STEPS = 200_000

Rule = Callable[[str, bytes], int]
"""How many copies of a packet arrive, by its direction (``ab``, ``ba``) and its bytes."""


class Faults:
    """What the link does to packets: probabilities, or one function ``(direction, packet bytes) ->
    copies``."""

    def __init__(
        self,
        seed: int = 0,
        loss: float = 0.0,
        duplication: float = 0.0,
        reordering: float = 0.0,
        rule: Rule | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.loss = loss
        self.duplication = duplication
        self.reordering = reordering
        self.rule = rule

    def apply(self, direction: str, packets: list[bytes]) -> list[bytes]:
        """What arrives of ``packets``, in that order."""
        out: list[bytes] = []
        for packet in packets:
            copies = 1
            if self.rule is not None:
                copies = int(self.rule(direction, packet))
            elif self.random.random() < self.loss:
                copies = 0
            elif self.random.random() < self.duplication:
                copies = 2
            out.extend([packet] * copies)
        if self.reordering:
            for i in range(len(out) - 1):
                if self.random.random() < self.reordering:
                    out[i], out[i + 1] = out[i + 1], out[i]
        return out


class Pair(Timeline):
    """Nodes ``a`` and ``b`` with ``qps`` connected queue pairs each, ``lefts`` and ``rights``; ``left`` and
    ``right`` are the first.

    ``log`` has ``(direction, packet)`` of all packets sent, in the directions ``ab`` and ``ba``; ``bursts``
    has ``(direction, packets, bytes)``.  ``window`` replaces the windows of both nodes; with ``srq`` the
    right queue pairs share one receive queue.  All else are attributes of the queue pairs, or limits.
    """

    DELAY_NS = 10_000

    def __init__(
        self,
        service: int = RC,
        pmtu: int = 1024,
        faults: Faults | None = None,
        left_psn: int = 0,
        right_psn: int = 0,
        timeout: int = 8,
        retry_cnt: int = 7,
        rnr_retry: int = 7,
        min_rnr_timer: int = 1,
        rd_atomic: int = 4,
        access: int = 14,
        v6: bool = False,
        slice_bytes: int = 128 * 1024,
        credits: bool = True,
        uniform: UniformBursts | None = None,
        qps: int = 1,
        connect: bool = True,
        srq: bool = False,
        entries: int = 64,
        cq_entries: int = CQ_ENTRIES,
        window: DestinationWindow | None = None,
        signal_all: bool = False,
    ) -> None:
        super().__init__(START_NS)
        self.service = service
        self.pmtu = pmtu
        self.faults = faults or Faults()
        self.settings = {
            "timeout": timeout,
            "retry_cnt": retry_cnt,
            "rnr_retry": rnr_retry,
            "max_rd_atomic": rd_atomic,
            "access": access,
            "min_rnr_timer": min_rnr_timer,
        }
        options = {"read_slice_bytes": slice_bytes, "credits": credits, "uniform_bursts": uniform}
        self.a = Node("a", 1, 11, **options)
        self.b = Node("b", 2, 22, **options)
        self.v6 = v6
        if window is not None:
            for node in (self.a, self.b):
                node.window_for = lambda route: window  # type: ignore[method-assign]
        self.a.now = self.b.now = self.now
        self.srq = self.b.shared_receive_queue(5) if srq else None
        self.lefts: list[End] = []
        self.rights: list[End] = []
        for i in range(qps):
            self.lefts.append(End(self.a, 0x11 + i, service, entries, cq_entries, signal_all=signal_all))
            self.rights.append(End(self.b, 0x1011 + i, service, entries, cq_entries, srq=self.srq))
        self.left, self.right = self.lefts[0], self.rights[0]
        self.by_number = {end.number: end for end in self.lefts + self.rights}
        self.burst = Burst()
        self.arrival = Arrival()
        self.view = PacketView()
        self.flying: deque[tuple[int, str, bytes, Route]] = deque()
        self.log: list[tuple[str, bytes]] = []
        self.bursts: list[tuple[str, int, int]] = []
        if connect:
            for left, right in zip(self.lefts, self.rights, strict=True):
                self.connect(left, right, left_psn, right_psn)
                self.connect(right, left, right_psn, left_psn)

    def route(self, source: bytes, destination: bytes) -> Route:
        """The route between two GIDs."""
        if self.v6:
            return Route(
                ROCE_V6,
                bytes.fromhex("20010db8") + bytes(11) + source[15:],
                bytes.fromhex("20010db8") + bytes(11) + destination[15:],
            )
        return Route(ROCE_V4, source, destination)

    def attributes(self, state: int, end: End, peer: End, sq_psn: int, rq_psn: int) -> dict[str, Any]:
        """The attributes of a usual transition to ``state``."""
        given = self.settings
        if self.service == RAW:
            return {"qp_state": state, **({"port_num": 1} if state == INIT else {})}
        if self.service == RD:
            return {
                INIT: {"qp_state": INIT, "qkey": 0x1234, "qp_access_flags": given["access"]},
                RTR: {"qp_state": RTR, "min_rnr_timer": given["min_rnr_timer"]},
            }.get(state, {"qp_state": state})
        if state == INIT and self.service == RD_EEC:
            return {"qp_state": INIT, "pkey_index": 0, "port_num": 1}
        if state == INIT:
            own = ("qkey", 0x1234) if self.service == UD else ("qp_access_flags", given["access"])
            return {"qp_state": INIT, "pkey_index": 0, "port_num": 1, own[0]: own[1]}
        if state == RTR:
            if self.service == UD:
                return {"qp_state": RTR}
            values: dict[str, Any] = {
                "qp_state": RTR,
                "ah_attr": {"sl": 0},
                "path_mtu": (self.pmtu // 128).bit_length() - 1,
                "dest_qp_num": peer.number,
                "rq_psn": rq_psn,
            }
            if self.service in (RC, XRC_TARGET):
                values.update(max_dest_rd_atomic=given["max_rd_atomic"], min_rnr_timer=given["min_rnr_timer"])
            elif self.service == RD_EEC:
                values["max_dest_rd_atomic"] = given["max_rd_atomic"]
            return values
        values = {"qp_state": RTS, "sq_psn": sq_psn}
        if self.service == XRC_TARGET:
            values["timeout"] = given["timeout"]
        if self.service in (RC, XRC, RD_EEC):
            values.update(
                timeout=given["timeout"],
                retry_cnt=given["retry_cnt"],
                rnr_retry=given["rnr_retry"],
                max_rd_atomic=given["max_rd_atomic"],
            )
        return values

    def connect(self, end: End, peer: End, sq_psn: int, rq_psn: int, until: int = RTS) -> None:
        """Take a queue pair towards ``peer``, as far as the state ``until``."""
        for state in (INIT, RTR, RTS):
            connects = state == RTR and self.service not in (UD, RAW, RD)
            route = self.route(end.node.gid, peer.node.gid) if connects else None
            given = self.attributes(state, end, peer, sq_psn, rq_psn)
            assert end.qp.modify(given, self.now, route=route) == 0
            if self.service == UD and state == RTR:
                end.qp.path_mtu_bytes = self.pmtu
            if state == until:
                return

    def handle(self, end: End, peer: End, number: int = 1) -> int:
        """An address handle of ``end``'s node to ``peer``'s; its ``number``."""
        route = self.route(end.node.gid, peer.node.gid)
        end.node.handles[number] = AddressHandle(number, PD, route, end.node.window_for(route))
        return number

    # the link, and time

    def transmit(self, node: Node) -> bool:
        """One turn of the node's scheduler; whether there was any."""
        if not node.queue:
            return False
        flow = node.queue.popleft()
        flow.scheduled = False
        self.burst.reset()
        packets = flow.produce(self.burst, self.now)
        if packets > 0:
            self._check_burst(packets)
            direction = "ab" if node is self.a else "ba"
            stride, length, route = self.burst.stride, self.burst.length, self.burst.route
            assert route is not None
            segments = [bytes(self.burst.data[o : min(o + stride, length)]) for o in range(0, length, stride)]
            self.log.extend((direction, segment) for segment in segments)
            self.bursts.append((direction, packets, length))
            for segment in self.faults.apply(direction, segments):
                self.flying.append((self.now + self.DELAY_NS, direction, segment, route))
            if flow.has_work():
                node.schedule(flow)
        return True

    def _check_burst(self, packets: int) -> None:
        burst = self.burst
        assert 1 <= packets == burst.packets <= 64
        assert 0 < burst.length <= 65_000
        assert (packets - 1) * burst.stride < burst.length <= packets * burst.stride

    def deliver(self) -> bool:
        """Everything that has arrived by now; whether there was anything."""
        delivered = False
        while self.flying and self.flying[0][0] <= self.now:
            _, direction, segment, route = self.flying.popleft()
            self.inject(direction, segment, route)
            delivered = True
        return delivered

    def inject(self, direction: str, segment: bytes, route: Route | None = None) -> None:
        """Let one packet arrive, whatever it says."""
        arrival = self.arrival
        source, destination = (self.a, self.b) if direction == "ab" else (self.b, self.a)
        route = route or self.route(source.gid, destination.gid)
        arrival.data[: len(segment)] = memoryview(segment)
        arrival.length = arrival.stride = len(segment)
        arrival.framing, arrival.source, arrival.destination = route.framing, route.source, route.destination
        assert icrc_syndrome(route, arrival.address, len(segment)) == 0
        assert self.view.decode(arrival.data, 0, len(segment)) == 0
        end = self.by_number.get(self.view.dest_qp)
        if end is not None and end.node is destination:
            end.qp.flow.receive(self.view, arrival, self.now)

    def forge(
        self,
        opcode: int,
        psn: int,
        payload: bytes = b"",
        way: str = "ab",
        va: int = 0,
        rkey: int = 0,
        length: int = 0,
        ack: bool = True,
        imm: int = 0,
        syndrome: int = 0,
        msn: int = 0,
        swap_add: int = 0,
        compare: int = 0,
        original: int = 0,
        qkey: int = 0x1234,
        source_qp: int | None = None,
        pad: int | None = None,
        migreq: bool = True,
        selectivity: int = 0,
        placement: int = 0,
    ) -> None:
        """Let a packet arrive that no requester or responder of ours has sent; extension headers by the
        opcode."""
        source, destination = (self.left, self.right) if way == "ab" else (self.right, self.left)
        route = self.route(source.node.gid, destination.node.gid)
        out = bytearray(8192)
        names = opcodes.OPCODES[opcode].headers
        padding = -len(payload) % 4 if pad is None else pad
        o = build.put_bth(out, 0, opcode, False, padding, 0xFFFF, destination.number, ack, psn & 0xFFFFFF)
        if not migreq:
            out[FLAGS] &= ~MIGREQ_BIT
        if "deth" in names:
            o = build.put_deth(out, o, qkey, source.number if source_qp is None else source_qp)
        if "feth" in names:
            o = build.put_feth(out, o, selectivity, placement)
        if "reth" in names:
            o = build.put_reth(out, o, va, rkey, length)
        if "atomiceth" in names:
            o = build.put_atomiceth(out, o, va, rkey, swap_add, compare)
        if "aeth" in names:
            o = build.put_aeth(out, o, syndrome, msn)
        if "atomicacketh" in names:
            o = build.put_atomicacketh(out, o, original)
        if "immdt" in names:
            o = build.put_immdt(out, o, imm)
        if "ieth" in names:
            o = build.put_ieth(out, o, imm)
        out[o : o + len(payload)] = payload
        o += len(payload) + padding
        build.put_icrc(out, o, compute(route, primitives.address_of(out), o))
        self.inject(way, bytes(out[: o + 4]), route)

    def step(self) -> bool:
        """Do what can be done at this moment, or move to the next moment at which something can; False: at
        rest."""
        busy = self.deliver()
        busy = self.transmit(self.a) or busy
        busy = self.transmit(self.b) or busy
        if busy:
            return True
        moments = [self.planned_ns()]
        if self.flying:
            moments.append(self.flying[0][0])
        for node in (self.a, self.b):
            moments.extend(node.deadlines.values())
            moments.extend(node.held.values())
        moment = min(moments)
        if moment == NEVER:
            return False
        self.now = max(self.now, moment)
        self.a.now = self.b.now = self.now
        for node in (self.a, self.b):
            for flow, deadline in list(node.deadlines.items()):
                if deadline <= self.now:
                    del node.deadlines[flow]
                    flow.expire(self.now)
            for flow, deadline in list(node.held.items()):
                if deadline <= self.now:
                    del node.held[flow]
                    flow.resume(self.now)
        self.do_due()
        return True

    def run(self, steps: int = SETTLED_STEPS) -> Pair:
        """Until nothing moves any more; AssertionError when it takes too many steps."""
        for _ in range(steps):
            if not self.step():
                return self
        raise AssertionError("the pair does not come to rest")

    def at_rest(self) -> None:
        """AssertionError when something is left charged to a window; nothing may be when nothing moves."""
        for node in (self.a, self.b):
            for window in node.windows.values():
                assert window.in_flight_bytes == 0
                assert not window.waiters
                assert window.turn is None

    def decoded(self, direction: str | None = None) -> list[dict[str, Any]]:
        """The packets sent so far, as dictionaries of the fields that tests look at."""
        view = PacketView()
        rows = []
        for way, segment in self.log:
            if direction in (None, way):
                assert view.decode(bytearray(segment), 0, len(segment)) == 0
                rows.append(
                    {
                        "opcode": view.opcode,
                        "psn": view.psn,
                        "bytes": view.payload_bytes,
                        "way": way,
                        "syndrome": view.syndrome if view.has_aeth else None,
                        "msn": view.msn,
                        "ack_request": bool(view.ack_request),
                        "solicited": bool(view.solicited),
                        "length": view.reth_length if view.has_reth else None,
                        "va": view.reth_va if view.has_reth else None,
                    }
                )
        return rows

    def close(self) -> None:
        """Give all memory back."""
        self.a.close()
        self.b.close()
