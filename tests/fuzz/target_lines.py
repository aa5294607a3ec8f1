"""Hostile packets and commands between adapters with XRC, and with RC that has ATOMIC WRITE and FLUSH:
nothing raises, memory changes only where a right, a key and a domain allow it, and nothing is left.

Input: one step after another: a request of an XRC initiator to one of two queues, or of an RC queue pair; a
receive; a packet that was sent before with bytes changed and a sound ICRC, from the peer or from a stranger;
a queue that is closed and made anew; a change of state; time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fuzz_choices import Choices

from softhca.adapter.resources import Kind
from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.machine.primitives import address_of
from softhca.queues.control_fields import QPT_XRC_RECV, QPT_XRC_SEND
from softhca.queues.states import ERR, RESET
from softhca.testing import SENT, Network
from softhca.testing.ends import ALL_RIGHTS, RC, SEND, WRITE, End
from softhca.wire import icrc
from softhca.wire.framing import ROCE_V4
from softhca.wire.packet import Transport
from softhca.wire.route import Route

MOST_STEPS = 60
GUARDED_BYTES = 4096
PUBLIC_BYTES = 16_384
MEMORY_BYTES = 1 << 15
FLUSH_RIGHTS = 256 | 512
FLUSH, ATOMIC_WRITE = 14, 15
OPCODES = (WRITE, 1, SEND, 3, 4, 5, 6, FLUSH, ATOMIC_WRITE)
LENGTHS = (8, 0, 300, 3000)
TIMES_NS = (0, 5_000, 1_000_000, 40_000_000)
STRANGER = bytes(10) + b"\xff\xff\xc0\x00\x02\x63"
HOW = services.Reliability(timeout=1, retry_cnt=1, rnr_retry=1)
ICRC_BYTES = 4


class Place:
    """An adapter with an XRC domain of two queues, and memory that others may reach: a part of what it has;
    the rest must stay as it is.  ``other``: a key of a protection domain that no queue pair has."""

    def __init__(self, network: Network) -> None:
        self.end = end = End(network.add(), MEMORY_BYTES, work_requests=16)
        end.device.dereg_mr(end.key.handle)
        end.memory[:] = b"\x5a" * len(end.memory)
        self.va = end.va + GUARDED_BYTES
        base = address_of(end.memory) + GUARDED_BYTES
        self.key = end.device.reg_mr(end.pd, base, PUBLIC_BYTES, ALL_RIGHTS | 256, iova=self.va)
        self.domain = end.device.open_xrcd()
        self.queues = [self.queue() for _ in range(2)]
        self.posted = 0

    def queue(self) -> object:
        """A shared receive queue."""
        return self.end.device.create_srq(self.end.pd, 4, 1, 0, self.end.cq, self.domain)

    def check(self) -> None:
        """What is not registered has not changed."""
        memory = self.end.memory
        assert memory.count(0x5A, 0, GUARDED_BYTES) == GUARDED_BYTES
        behind = GUARDED_BYTES + PUBLIC_BYTES
        assert memory.count(0x5A, behind) == len(memory) - behind


class World:
    """Two places; from the first to the second an XRC connection, between them one of RC; all that they
    send."""

    def __init__(self) -> None:
        self.network = Network(seed=1)
        self.places = [Place(self.network) for _ in range(2)]
        left, right = (place.end for place in self.places)
        self.senders = [
            left.device.create_qp(left.pd, QPT_XRC_SEND, left.cq, None, None, 8, 0, 1, 0, 0, True),
            left.device.create_qp(left.pd, RC, left.cq, left.cq, None, 8, 4, 1, 1, 0, True),
        ]
        self.receivers = [
            right.device.create_qp(
                0, QPT_XRC_RECV, None, None, None, 0, 0, 0, 0, 0, True, xrcd=self.places[1].domain
            ),
            right.device.create_qp(right.pd, RC, right.cq, right.cq, None, 8, 4, 1, 1, 0, True),
        ]
        for which in range(2):
            self.connect(which, 0xFFFFFE, 0)
        self.sent = self.network.record(SENT)

    def connect(self, which: int, psn: int, peer_psn: int) -> None:
        """Both ends of a connection to RTS."""
        ends = ((self.senders[which], self.receivers[which]), (self.receivers[which], self.senders[which]))
        psns = (psn, peer_psn)
        for own, (qp, peer) in enumerate(ends):
            node = self.places[1 - own].end.node
            path = self.network.addressing.path(node, sl=0, mtu=node.adapter.config.active_mtu)
            services.connect(
                qp, path, peer.number, psns[own], psns[1 - own], ALL_RIGHTS | FLUSH_RIGHTS, HOW
            )

    def request(self, choices: Choices) -> None:
        """Post one; what the driver refuses is not posted."""
        which, opcode, length = choices.below(2), choices.pick(OPCODES), choices.pick(LENGTHS)
        left, right = self.places
        if opcode in (5, 6, ATOMIC_WRITE):
            length = 8
        number = choices.pick(right.queues).number ^ (choices.once_in(16) << 20)
        va, flags = right.va + choices.below(256), 2 | choices.once_in(8)
        rkey = right.key.rkey ^ (choices.once_in(8) << 8)
        how = choices.byte() & 0x3F
        sges = [] if opcode == FLUSH else [(left.va, length, left.key.lkey)]
        with contextlib.suppress(DriverError):
            self.senders[which].post_send(
                opcode, flags, 7, left.posted, va, rkey, length, how, 0, number, 0, sges, None
            )
            left.posted += 1
            self.senders[which].ring()

    def receive(self, choices: Choices) -> None:
        right = self.places[1]
        which, length = choices.below(3), choices.pick(LENGTHS)
        sge = (right.va + 8192, length, right.key.lkey)
        with contextlib.suppress(DriverError):
            if which < 2:
                right.queues[which].post(1, [sge])
            else:
                self.receivers[1].post_recv(1, [sge])

    def packet(self, choices: Choices) -> None:
        """Something like what was sent, again."""
        if not self.sent:
            return
        template = self.sent[choices.below(min(256, len(self.sent)))]
        target = self.places[choices.below(2)].end.node
        data = bytearray(template.data[:-ICRC_BYTES])
        for _ in range(choices.below(4)):
            data[choices.byte() % min(48, len(data))] = choices.byte()
        if choices.once_in(8):
            del data[choices.byte() % len(data) :]
        source = STRANGER if choices.once_in(4) else template.source.gid
        route = Route(ROCE_V4, source, target.gid)
        data += bytes(ICRC_BYTES)
        if len(data) >= 16:
            data[-ICRC_BYTES:] = icrc.compute(route, address_of(data), len(data) - ICRC_BYTES).to_bytes(
                ICRC_BYTES, "little"
            )
        self.network.inject(target, bytes(data), source)

    def change(self, choices: Choices) -> None:
        """A queue is closed and another one made, or a connection fails, or is made anew."""
        which, what = choices.below(2), choices.below(3)
        right = self.places[1]
        if what == 0:
            right.queues[which].destroy()
            right.queues[which] = right.queue()
            return
        ends = self.senders[which], self.receivers[which]
        with contextlib.suppress(DriverError):
            if what == 1:
                choices.pick(ends).modify({"qp_state": ERR})
                return
            for qp in ends:
                qp.modify({"qp_state": RESET})
            self.connect(which, choices.byte(), choices.byte())

    def close(self) -> None:
        """All goes; nothing is left."""
        for qp in (*self.senders, *self.receivers):
            qp.destroy()
        for place in self.places:
            place.check()
            for queue in place.queues:
                queue.destroy()
            place.end.device.close_xrcd(place.domain)
        for sent in self.sent:
            if sent.packet is not None and isinstance(sent.packet.transport, Transport):
                assert sent.packet.icrc_ok
        self.network.close()
        for place in self.places:
            adapter = place.end.node.adapter
            left = {kind: count for kind in Kind if (count := adapter.resources.count(kind))}
            assert not left, left
            assert not adapter.timers.count()
            assert not adapter.queue_pairs


def one_input(data: bytes) -> None:
    choices, world = Choices(data), World()
    packet = world.packet
    steps = (world.request, world.request, world.receive, packet, packet, packet, world.change)
    for _ in range(MOST_STEPS):
        if not choices.more:
            break
        which = choices.below(8)
        if which < len(steps):
            steps[which](choices)
        else:
            world.network.elapse(choices.pick(TIMES_NS))
    world.network.elapse(TIMES_NS[-1])
    world.close()


def seeds() -> Iterator[bytes]:
    """Each operation by XRC and RC, with and without a receive, alone and with its packets again; queues that
    are closed in between."""
    later, again = bytes([7, 2]), bytes([3, 0, 1, 0, 0, 0])
    for which in range(2):
        receive = bytes([2, 2 * which, 3])
        for opcode in range(len(OPCODES)):
            request = bytes([0, which, opcode, 3 * (opcode & 1), 0, 1, 0, 1, 1, 1 | 16 * (which & 1)])
            yield receive + request + later + again + bytes([3, 1, 0, 1, 9, 7, 0, 0]) + later
        yield request + bytes([6, which, 2, 1, 1]) + request + later
        yield receive + request + bytes([6, 0, 0]) + request + later + bytes([6, which, 1, 0]) + later
