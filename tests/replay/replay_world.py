"""Replays: one side of a conversation is ours, the other side is the capture.

Each yields `Sent` packets, already under the capture's names, with the place at which they went out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from replay_capture import Captured, Conversation, Message, Record, conversation, record_of
from replay_differences import REPLAYED, TIME_OUTS, lost_requests
from replay_memory import ATOMICS, GUARD, UNTOUCHED, images
from replay_names import Names

from softhca.machine.primitives import address_of
from softhca.memory.regions import LOCAL_WRITE, MW_BIND, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE
from softhca.queues import wqe
from softhca.testing.transport_node import ALL_ACCESS, PD
from softhca.testing.transport_pair import Pair
from softhca.transport.states import UD
from softhca.wire.framing import ROCE_V6
from softhca.wire.icrc import syndrome
from softhca.wire.packet import assemble, decode_transport

GRH_BYTES = 40
LAST_NS = 10_000_000  # time enough for what is still to be answered
WRONG_KEY = 0xFF  # flips the key's low byte, its owner's half
REQUESTER_KEY = 0x5A000000
REQUESTER_SHIFT = 1 << 40
TIMEOUT = 14
RD_ATOMIC = 16
MIN_RNR_TIMER = 12


class Sent(NamedTuple):
    """A packet of ours: its fields, the number of the captured packet at whose place it went, and when."""

    record: Record
    place: int
    now_ns: int


def pieces(length: int) -> list[int]:
    """Lengths of the scatter/gather elements for a message: three odd ones where it is long enough."""
    if length < 8:
        return [length] if length else []
    return [3, length // 2, length - 3 - length // 2]


class Replay:
    """What both kinds share: the pair of ends, of which one is played by the capture."""

    def __init__(self, name: str, direction: int, credits: bool) -> None:
        self.name = name
        self.plan = REPLAYED[name]
        self.talk: Conversation = conversation(name, direction)
        talk = self.talk
        timers = [p.syndrome & 31 for p in talk.replies if p.syndrome is not None and p.syndrome >> 5 == 1]
        first = talk.requests[0]
        self.pair = Pair(
            service=self.plan.service, pmtu=self.plan.pmtu, left_psn=first.psn, timeout=TIMEOUT, retry_cnt=7,
            rnr_retry=7, min_rnr_timer=timers[0] if timers else MIN_RNR_TIMER, rd_atomic=RD_ATOMIC,
            access=REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC, v6=first.framing == ROCE_V6, credits=credits,
        )  # fmt: skip
        if self.plan.service == UD:
            for end in (self.pair.left, self.pair.right):
                assert end.qp.modify({"qkey": record_of(first.transport)["qkey"]}) == 0
        self.there = (talk.responder_qp, self.pair.right.number)
        self.here = (talk.requester_qp, self.pair.left.number)
        self.sent: list[Sent] = []

    def names(self, keys: dict[int, tuple[int, int]]) -> Names:
        """Capture's to our names, for requests."""
        return Names(self.there, self.here, keys)

    def feed(self, way: str, packet: Captured, names: Names) -> None:
        """Let our side receive the captured packet under our names."""
        renamed = names.apply(packet.transport)
        a, b = self.pair.a.gid, self.pair.b.gid
        route = self.pair.route(a, b) if way == "ab" else self.pair.route(b, a)
        sealed = assemble(route, renamed.bth, renamed.extensions, renamed.payload)
        self.pair.inject(way, sealed.transport.encode())

    def drain(self, way: str, names: Names, place: int) -> None:
        """Take everything that our side wants to send now; ``names`` leads back to the capture's."""
        node = self.pair.a if way == "ab" else self.pair.b
        other = self.pair.b if way == "ab" else self.pair.a
        start = len(self.pair.log)
        while self.pair.transmit(node):
            pass
        self.pair.flying.clear()
        route = self.pair.route(node.gid, other.gid)
        for _, segment in self.pair.log[start:]:
            data = bytearray(segment)
            assert syndrome(route, address_of(data), len(data)) == 0, "ICRC"
            self.sent.append(Sent(record_of(names.apply(decode_transport(segment))), place, self.pair.now))


    def advance(self, way: str, target_ns: int, then: Callable[[], None]) -> None:
        """Virtual time goes to ``target_ns``; every deadline of who sends ``way`` is kept at its moment, and
        ``then`` follows."""
        node = self.pair.a if way == "ab" else self.pair.b
        while node.deadlines and min(node.deadlines.values()) <= target_ns:
            flow = min(node.deadlines, key=node.deadlines.__getitem__)
            self.pair.now = node.now = max(self.pair.now, node.deadlines.pop(flow))
            flow.expire(self.pair.now)
            then()
        self.pair.now = node.now = max(self.pair.now, target_ns)


class ResponderReplay(Replay):
    """The captured requests against our responder, which may send after each of them or, ``held_back``, only
    where the capture has a reply."""

    def __init__(self, name: str, direction: int, credits: bool = True, held_back: bool = False) -> None:
        super().__init__(name, direction, credits)
        self.held_back = held_back
        self.images = images(self.talk.messages)
        self.regions = {}
        keys = {}
        invalidated = {m.last["rkey"] for m in self.talk.messages if m.opcode == wqe.SEND_WITH_INV}
        for key, image in self.images.items():
            access = LOCAL_WRITE | MW_BIND if key in invalidated else ALL_ACCESS
            region = self.pair.right.region(len(image.before) + 8, access)
            align = (image.low - GUARD - region.va) % 8
            region.data[align : align + len(image.before)] = image.before
            refused = any(m.refused and m.first.get("rkey") == key for m in self.talk.messages)
            shift = region.va + align + GUARD - image.low
            if key in invalidated:
                keys[key] = (self.window_over(region), shift)
            else:
                keys[key] = (region.key ^ WRONG_KEY if refused else region.key, shift)
            self.regions[key] = (region, align)
        self.requests = self.names(keys)
        self.replies = Names(self.here, self.there).inverse()
        self.receives: list[tuple[Message, bytearray]] = []

    def window_over(self, region) -> int:
        """The key of a memory window of type 2 that our queue pair has bound to a whole region."""
        windows, end = self.pair.b.memory_windows, self.pair.right
        window = windows.allocate(2, PD, 2)
        rights = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
        assert windows.bind(2, end.number, PD, 7, region.key, region.va, len(region.data), rights) == 0
        return window.key

    def post_receive(self, message: Message) -> None:
        """A receive for ``message`` in several elements, a little longer than it is."""
        grh = GRH_BYTES if self.plan.service == UD else 0
        length = grh + (0 if message.opcode == wqe.RDMA_WRITE_WITH_IMM else len(message.data))
        region = self.pair.right.region(length + GUARD, fill=bytes([UNTOUCHED]) * (length + GUARD))
        sges, offset = [], 0
        for piece in (*pieces(length), GUARD):
            sges.append(region.sge(offset, piece))
            offset += piece
        assert self.pair.right.post_receive(sges, wr_id=message.psn)
        self.receives.append((message, region.data))

    def send_at_once(self, place: int) -> None:
        """Something is due at its time, and nobody holds answers back."""
        if not self.held_back:
            self.drain("ba", self.replies, place)

    def run(self) -> ResponderReplay:
        waiting = [m for m in self.talk.messages if m.consumes_receive]
        begin_ns = self.pair.now
        for packet in self.talk.packets:
            self.advance("ba", begin_ns + packet.time_ns, partial(self.send_at_once, packet.number - 1))
            while waiting and waiting[0].unready < packet.number:
                self.post_receive(waiting.pop(0))
            if packet in self.talk.requests:
                self.feed("ab", packet, self.requests)
                if not self.held_back:
                    self.drain("ba", self.replies, packet.number)
            elif packet in self.talk.replies and self.held_back:
                self.drain("ba", self.replies, packet.number)
        last = self.talk.packets[-1]
        self.advance("ba", begin_ns + last.time_ns + LAST_NS, lambda: None)
        self.drain("ba", self.replies, last.number)
        return self


class RequesterReplay(Replay):
    """Our requester, given the work requests that the capture's was given, against the captured replies."""

    def __init__(self, name: str, direction: int, credits: bool = True) -> None:
        super().__init__(name, direction, credits)
        used = {m.first["rkey"] for m in self.talk.messages if "rkey" in m.first}
        self.requests = self.names({key: (key ^ REQUESTER_KEY, REQUESTER_SHIFT) for key in used})
        self.back = self.requests.inverse()
        self.replies = Names(self.here, self.there)
        self.start_ns = self.pair.now
        self.skipped_ns = 0
        self.buffers: list[tuple[Message, bytearray]] = []
        self.handle = self.pair.handle(self.pair.left, self.pair.right) if self.plan.service == UD else 0

    def post(self, message: Message) -> None:
        """The work request of ``message``, its local bytes in several elements."""
        brings = message.opcode == wqe.RDMA_READ or message.opcode in ATOMICS
        length = 8 if message.opcode in ATOMICS else len(message.data)
        fill = bytes([UNTOUCHED]) * (length + GUARD) if brings else message.data + bytes([UNTOUCHED]) * GUARD
        region = self.pair.left.region(length + GUARD, fill=fill)
        self.buffers.append((message, region.data))
        sges, offset = [], 0
        for piece in pieces(length):
            sges.append(region.sge(offset, piece))
            offset += piece
        adds = message.opcode == wqe.ATOMIC_FETCH_AND_ADD
        key = message.first.get("rkey", 0)
        invalidates = message.opcode == wqe.SEND_WITH_INV
        assert self.pair.left.post(
            message.opcode, sges, wr_id=message.psn,
            flags=wqe.SIGNALED | (wqe.SOLICITED if message.last["solicited"] else 0),
            imm=self.requests.keys[key][0] if invalidates else message.last.get("immediate", 0),
            va=self.requests.address(key, message.first.get("va", 0)),
            rkey=self.requests.keys.get(key, (0, 0))[0],
            compare=message.first.get("swap_add" if adds else "compare", 0),
            swap=0 if adds else message.first.get("swap_add", 0),
            ah=self.handle, qpn=self.pair.right.number, qkey=message.first.get("qkey", 0),
        )  # fmt: skip

    def advance_to(self, target_ns: int, place: int) -> None:
        """Virtual time goes to ``target_ns``, and what our requester sends then goes out at ``place``."""
        self.advance("ab", target_ns, lambda: self.drain("ab", self.back, place))

    def time_out(self, place: int) -> None:
        """Go to the requester's deadline, which the capture's requester has reached here."""
        (moment,) = self.pair.a.deadlines.values()
        before = self.pair.now
        self.advance_to(moment, place)
        self.skipped_ns += self.pair.now - before

    def run(self) -> RequesterReplay:
        lost = lost_requests(self.name)
        waiting = [
            (min([message.numbers[0], *(before for psn, before in lost if message.holds(psn))]), message)
            for message in self.talk.messages
        ]
        for packet in self.talk.packets:
            self.advance_to(self.start_ns + self.skipped_ns + packet.time_ns, packet.number)
            while waiting and waiting[0][0] <= packet.number:
                self.post(waiting.pop(0)[1])
                self.drain("ab", self.back, packet.number)
            if packet.number in TIME_OUTS.get(self.name, ()):
                self.time_out(packet.number)
            if packet in self.talk.replies:
                self.feed("ba", packet, self.replies)
                self.drain("ab", self.back, packet.number)
        return self
