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
from fuzz_network import GUARDED_BYTES, PUBLIC_BYTES, HostileNetwork
from fuzz_network import Place as GuardedPlace

from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.machine.primitives import address_of
from softhca.queues.control_fields import QPT_XRC_RECV, QPT_XRC_SEND
from softhca.queues.states import ERR, RESET
from softhca.testing import Network
from softhca.testing.ends import ALL_RIGHTS, RC, SEND, WRITE, End

MEMORY_BYTES = 1 << 15
FLUSH_RIGHTS = 256 | 512
FLUSH, ATOMIC_WRITE = 14, 15
OPCODES = (WRITE, 1, SEND, 3, 4, 5, 6, FLUSH, ATOMIC_WRITE)
LENGTHS = (8, 0, 300, 3000)
HOW = services.Reliability(timeout=1, retry_cnt=1, rnr_retry=1)


class Place(GuardedPlace):
    """An adapter with an XRC domain of two queues, and memory that others may reach: a part of what it has;
    the rest must stay as it is.  ``other``: a key of a protection domain that no queue pair has."""

    def __init__(self, network: Network) -> None:
        end = End(network.add(), MEMORY_BYTES, work_requests=16)
        super().__init__(end)
        self.va = end.va + GUARDED_BYTES
        base = address_of(end.memory) + GUARDED_BYTES
        self.key = end.device.reg_mr(end.pd, base, PUBLIC_BYTES, ALL_RIGHTS | 256, iova=self.va)
        self.domain = end.device.open_xrcd()
        self.queues = [self.queue() for _ in range(2)]

    def queue(self) -> object:
        """A shared receive queue."""
        return self.end.device.create_srq(self.end.pd, 4, 1, 0, self.end.cq, self.domain)



class World(HostileNetwork):
    """Two places; from the first to the second an XRC connection, between them one of RC; all that they
    send."""

    def __init__(self) -> None:
        super().__init__(Place)
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
        self.record()

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
        self.finish()
        for place in self.places:
            assert not place.end.node.adapter.queue_pairs


def one_input(data: bytes) -> None:
    choices, world = Choices(data), World()
    packet = world.packet
    steps = (world.request, world.request, world.receive, packet, packet, packet, world.change)
    world.run(choices, steps)
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
