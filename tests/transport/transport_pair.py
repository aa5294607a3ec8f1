"""Two adapters' worth of queue pairs, a link between them that loses, repeats and reorders, and virtual time.

Everything but the link and the clock is real: rings, regions, completion queues, packets with their ICRC.
"""

import random
from collections import deque

from softhca.machine import primitives
from softhca.memory.host import HostMemory
from softhca.memory.regions import RegionTable
from softhca.memory.tpt import TranslationTable
from softhca.queues import cqe, wqe
from softhca.queues.completion import CompletionQueue, CompletionReader, pages_for
from softhca.queues.ring import RingConsumer, RingLayout, RingProducer, plan
from softhca.queues.shared_receive import SharedReceiveQueue
from softhca.transport.context import QueuePair
from softhca.transport.counters import TransportCounters
from softhca.transport.environment import MEMORY_RETRY_NS, AddressHandle, Environment
from softhca.transport.services import SERVICES
from softhca.transport.states import (
    ERR,
    INIT,
    RAW,
    RC,
    RD,
    RD_EEC,
    RESET,
    RTR,
    RTS,
    SQD,
    SQE,
    UC,
    UD,
    XRC,
    XRC_TARGET,
)
from softhca.transport.window import DestinationWindow
from softhca.wire import build, opcodes
from softhca.wire.bth import FLAGS, MIGREQ_BIT
from softhca.wire.burst import Arrival, Burst
from softhca.wire.icrc import compute
from softhca.wire.icrc import syndrome as icrc_syndrome
from softhca.wire.packet_view import PacketView
from softhca.wire.route import ROCE_V4, ROCE_V6, V4_MAPPED_PREFIX, Route

HOST = HostMemory(1 << 30)
PD = 7
ALL_ACCESS = 1 | 2 | 4 | 8
CQ_ENTRIES = 256
MAX_SGE = 4
MAX_INLINE = 256
SETTLED_STEPS = 200_000


def gid(last):
    return V4_MAPPED_PREFIX + bytes((192, 0, 2, last))


class Completion(dict):
    """A completion by its fields' names."""

    __getattr__ = dict.__getitem__


class Region:
    """Registered memory of a node, its bytes in ``data``."""

    def __init__(self, node, size, access=ALL_ACCESS, fill=None):
        self.node = node
        self.data = bytearray(size)
        if fill is not None:
            self.data[:] = fill
        first, offset = HOST.attach_buffer(self.data)
        self.first = first
        self.va = primitives.address_of(self.data)
        self.region = node.regions.register(
            HOST.address_map, PD, self.va, size, access, [(first, -(-(offset + size) // 4096))], offset
        )
        node.owned.append(self)

    @property
    def key(self):
        return self.region.key

    def sge(self, offset=0, length=None):
        return (self.va + offset, len(self.data) - offset if length is None else length, self.key)

    def deregister(self):
        if self.region.valid:
            self.node.regions.deregister(self.region)

    def close(self):
        self.deregister()
        HOST.detach(self.first)


class Node(Environment):
    """One side: the environment of its queue pairs, its completion queues, timers and events."""

    def __init__(self, name, address, seed, **options):
        super().__init__(
            RegionTable(TranslationTable(1 << 16), random.Random(seed)), TransportCounters(), **options
        )
        self.name = name
        self.gid = gid(address)
        self.queue = deque()
        self.deadlines = {}
        self.held = {}
        self.now = 0
        self.events = []
        self.handles = {}
        self.windows = {}
        self.owned = []
        self.frames = []
        self.cq_events = 0
        self.limits = 0

    def schedule(self, flow):
        if not flow.scheduled:
            flow.scheduled = True
            self.queue.append(flow)

    def arm(self, flow, deadline_ns):
        """As the adapter's timers: who waits for an earlier moment is called then, and asks again."""
        self.deadlines[flow] = min(self.deadlines.get(flow, deadline_ns), deadline_ns)

    def wait_for_memory(self, flow):
        self.held.setdefault(flow, self.now + MEMORY_RETRY_NS)

    def data_access(self, allowed):
        """The adapter's mode bit; lifting it lets all that wait try at once."""
        self.regions.tpt.stopped = not allowed
        if allowed:
            held, self.held = self.held, {}
            for flow in held:
                flow.resume(self.now)

    def event(self, kind, number):
        self.events.append((kind, number))

    def address_handle(self, number):
        return self.handles.get(number)

    def window_for(self, route):
        return self.windows.setdefault(route.destination, DestinationWindow())

    # hooks of the queues
    def completion_event(self, cq):
        self.cq_events += 1

    def overflow(self, cq):
        self.events.append((0, cq.number))

    def limit_reached(self, srq):
        self.limits += 1

    def srq_error(self, srq):
        self.events.append((14, srq.number))

    def ring(self, entries, body_bytes):
        frames = HOST.allocate(plan(entries, body_bytes))
        self.frames.extend(frames)
        layout = RingLayout.over(frames, HOST.address_map, entries, body_bytes)
        layout.clear()
        return layout

    def completion_queue(self, number, entries=CQ_ENTRIES):
        frames = HOST.allocate(pages_for(entries))
        self.frames.extend(frames)
        layout = RingLayout.over(frames, HOST.address_map, entries, entries * cqe.CQE_BYTES)
        layout.clear()
        return CompletionQueue(number, layout, self), CompletionReader(layout)

    def shared_receive_queue(self, number, entries=64):
        layout = self.ring(entries, entries * wqe.receive_bytes(MAX_SGE))
        return SharedReceiveQueue(number, PD, layout, MAX_SGE, self), RingProducer(layout)

    def close(self):
        for key in sorted(self.memory_windows.members.values(), key=lambda key: not key.window):
            self.memory_windows.deallocate(key)
        for owned in self.owned:
            owned.close()
        HOST.free(self.frames)


class End:
    """One queue pair of a node and the host's half of it."""

    def __init__(
        self, node, number, service=RC, entries=64, cq_entries=CQ_ENTRIES, srq=None, signal_all=False
    ):
        self.node = node
        self.number = number
        send = node.ring(entries, entries * wqe.send_bytes(MAX_SGE, MAX_INLINE))
        receive = node.ring(entries, entries * wqe.receive_bytes(MAX_SGE))
        self.send_producer = RingProducer(send)
        self.receive_producer = RingProducer(receive)
        self.send_cq, self.send_reader = node.completion_queue(number * 2, cq_entries)
        self.receive_cq, self.receive_reader = node.completion_queue(number * 2 + 1, cq_entries)
        shared = None
        if srq is not None:
            shared, self.receive_producer = srq
        self.qp = QueuePair(
            node,
            number,
            SERVICES[service],
            PD,
            RingConsumer(send),
            None if srq else RingConsumer(receive),
            self.send_cq,
            self.receive_cq,
            shared_receive=shared,
            max_send_wr=entries,
            max_recv_wr=entries,
            max_send_sge=MAX_SGE,
            max_recv_sge=MAX_SGE,
            max_inline_bytes=MAX_INLINE,
            signal_all=signal_all,
        )
        self.scratch = bytearray(4096)
        self.address = primitives.address_of(self.scratch)

    def region(self, size, access=ALL_ACCESS, fill=None):
        return Region(self.node, size, access, fill)

    def post(
        self,
        opcode,
        sges=(),
        wr_id=1,
        flags=wqe.SIGNALED,
        imm=0,
        remote=None,
        offset=0,
        compare=0,
        swap=0,
        ah=0,
        qpn=0,
        qkey=0,
        inline=None,
        rkey=None,
        va=None,
        ring=True,
    ):
        remote_va = (remote.va + offset if remote is not None else 0) if va is None else va
        key = (remote.key if remote is not None else 0) if rkey is None else rkey
        n = wqe.encode_send(
            self.scratch,
            opcode,
            flags,
            imm,
            wr_id,
            remote_va,
            key,
            compare,
            swap,
            ah,
            qpn,
            qkey,
            list(sges),
            inline,
        )
        pushed = self.send_producer.push(self.address, n)
        if ring:
            self.qp.doorbell(self.node.now)
        return pushed

    def post_raw(self, body):
        self.scratch[: len(body)] = body
        self.send_producer.push(self.address, len(body))
        self.qp.doorbell(self.node.now)

    def post_receive(self, sges=(), wr_id=100):
        n = wqe.encode_receive(self.scratch, wr_id, list(sges))
        return self.receive_producer.push(self.address, n)

    def sent(self):
        return [Completion(zip(cqe.FIELDS, row, strict=True)) for row in self.send_reader.poll(1 << 20)]

    def received(self):
        return [Completion(zip(cqe.FIELDS, row, strict=True)) for row in self.receive_reader.poll(1 << 20)]


class Faults:
    """What the link does to packets: probabilities, or one function ``(direction, packet bytes) ->
    copies``."""

    def __init__(self, seed=0, loss=0.0, duplication=0.0, reordering=0.0, rule=None):
        self.random = random.Random(seed)
        self.loss = loss
        self.duplication = duplication
        self.reordering = reordering
        self.rule = rule

    def apply(self, direction, packets):
        out = []
        for packet in packets:
            copies = 1
            if self.rule is not None:
                copies = self.rule(direction, packet)
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


class Pair:
    """Nodes ``a`` and ``b`` with connected queue pairs ``left`` and ``right``; ``log`` of ``(direction,
    packet)``."""

    DELAY_NS = 10_000

    def __init__(
        self,
        service=RC,
        pmtu=1024,
        faults=None,
        left_psn=0,
        right_psn=0,
        timeout=8,
        retry_cnt=7,
        rnr_retry=7,
        min_rnr_timer=1,
        rd_atomic=4,
        access=14,
        v6=False,
        slice_bytes=128 * 1024,
        credits=True,
        qps=1,
        connect=True,
        srq=False,
        entries=64,
        cq_entries=CQ_ENTRIES,
        window=None,
        signal_all=False,
    ):
        self.now = 1_000_000
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
        options = {"read_slice_bytes": slice_bytes, "credits": credits}
        self.a = Node("a", 1, 11, **options)
        self.b = Node("b", 2, 22, **options)
        self.v6 = v6
        if window is not None:
            self.a.window_for = self.b.window_for = lambda route: window
        self.a.now = self.b.now = self.now
        self.srq = self.b.shared_receive_queue(5) if srq else None
        self.lefts, self.rights = [], []
        for i in range(qps):
            self.lefts.append(End(self.a, 0x11 + i, service, entries, cq_entries, signal_all=signal_all))
            self.rights.append(End(self.b, 0x1011 + i, service, entries, cq_entries, srq=self.srq))
        self.left, self.right = self.lefts[0], self.rights[0]
        self.by_number = {end.number: end for end in self.lefts + self.rights}
        self.burst = Burst()
        self.arrival = Arrival()
        self.view = PacketView()
        self.flying = deque()
        self.plans = []
        self.log = []
        self.bursts = []
        if connect:
            for left, right in zip(self.lefts, self.rights, strict=True):
                self.connect(left, right, left_psn, right_psn)
                self.connect(right, left, right_psn, left_psn)

    def route(self, source, destination):
        if self.v6:
            return Route(
                ROCE_V6,
                bytes.fromhex("20010db8") + bytes(11) + source[15:],
                bytes.fromhex("20010db8") + bytes(11) + destination[15:],
            )
        return Route(ROCE_V4, source, destination)

    def attributes(self, state, end, peer, sq_psn, rq_psn):
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
            extra = {"qkey": 0x1234} if self.service == UD else {"qp_access_flags": given["access"]}
            return {"qp_state": INIT, "pkey_index": 0, "port_num": 1, **extra}
        if state == RTR:
            if self.service == UD:
                return {"qp_state": RTR}
            values = {
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

    def connect(self, end, peer, sq_psn, rq_psn, until=RTS):
        for state in (INIT, RTR, RTS):
            connects = state == RTR and self.service not in (UD, RAW, RD)
            route = self.route(end.node.gid, peer.node.gid) if connects else None
            assert (
                end.qp.modify(self.attributes(state, end, peer, sq_psn, rq_psn), self.now, route=route) == 0
            )
            if self.service == UD and state == RTR:
                end.qp.path_mtu_bytes = self.pmtu
            if state == until:
                return

    def handle(self, end, peer, number=1):
        route = self.route(end.node.gid, peer.node.gid)
        end.node.handles[number] = AddressHandle(number, PD, route, end.node.window_for(route))
        return number

    # the world's machinery

    def transmit(self, node):
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
            stride, length = self.burst.stride, self.burst.length
            segments = [bytes(self.burst.data[o : min(o + stride, length)]) for o in range(0, length, stride)]
            self.log.extend((direction, segment) for segment in segments)
            self.bursts.append((direction, packets, length))
            for segment in self.faults.apply(direction, segments):
                self.flying.append((self.now + self.DELAY_NS, direction, segment, self.burst.route))
            if flow.has_work():
                node.schedule(flow)
        return True

    def _check_burst(self, packets):
        burst = self.burst
        assert 1 <= packets == burst.packets <= 64
        assert 0 < burst.length <= 65_000
        assert (packets - 1) * burst.stride < burst.length <= packets * burst.stride

    def deliver(self):
        """Everything that has arrived by now."""
        delivered = False
        while self.flying and self.flying[0][0] <= self.now:
            _, direction, segment, route = self.flying.popleft()
            self.inject(direction, segment, route)
            delivered = True
        return delivered

    def inject(self, direction, segment, route=None):
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
        opcode,
        psn,
        payload=b"",
        way="ab",
        va=0,
        rkey=0,
        length=0,
        ack=True,
        imm=0,
        syndrome=0,
        msn=0,
        swap_add=0,
        compare=0,
        original=0,
        qkey=0x1234,
        source_qp=None,
        pad=None,
        migreq=True,
        selectivity=0,
        placement=0,
    ):
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

    def step(self):
        """Do what can be done at this moment, or move to the next moment at which something can; False: at
        rest."""
        busy = self.deliver()
        busy = self.transmit(self.a) or busy
        busy = self.transmit(self.b) or busy
        if busy:
            return True
        moments = [self.flying[0][0]] if self.flying else []
        moments.extend(moment for moment, _ in self.plans)
        for node in (self.a, self.b):
            moments.extend(node.deadlines.values())
            moments.extend(node.held.values())
            moments.extend(moment for moment, _ in self.plans)
        if not moments:
            return False
        self.now = max(self.now, min(moments))
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
        for planned in [planned for planned in self.plans if planned[0] <= self.now]:
            self.plans.remove(planned)
            planned[1]()
        return True

    def after(self, delay_ns, action):
        """Have ``action()`` called so much later."""
        self.plans.append((self.now + delay_ns, action))

    def run(self, steps=SETTLED_STEPS):
        """Until nothing moves any more."""
        for _ in range(steps):
            if not self.step():
                return self
        raise AssertionError("the pair does not come to rest")

    def at_rest(self):
        """Nothing may be left charged to a window when nothing moves."""
        for node in (self.a, self.b):
            for window in node.windows.values():
                assert window.in_flight_bytes == 0
                assert not window.waiters
                assert window.turn is None

    def decoded(self, direction=None):
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

    def close(self):
        self.a.close()
        self.b.close()


__all__ = [
    "ALL_ACCESS",
    "ERR",
    "INIT",
    "PD",
    "RC",
    "RESET",
    "RTR",
    "RTS",
    "SQD",
    "SQE",
    "UC",
    "UD",
    "Completion",
    "End",
    "Faults",
    "Node",
    "Pair",
    "Region",
    "gid",
]
