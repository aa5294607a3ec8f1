"""Hostile packets and commands between adapters with reliable datagrams: nothing raises, memory changes only
where a right, a key and a domain allow it, what is sent is well formed, and nothing is left in the end.

Input: one step after another: a request of a queue pair by one of two EE contexts, a receive, a packet that
was sent before with bytes changed and a sound ICRC, from the peer or from a stranger, to either adapter; a
change of state of a queue pair or an EE context; time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fuzz_choices import Choices
from fuzz_network import GUARDED_BYTES, PUBLIC_BYTES, HostileNetwork
from fuzz_network import Place as GuardedPlace

from softhca.driver.errors import DriverError
from softhca.queues.states import ERR, INIT, RESET, RTR, RTS
from softhca.testing import Network
from softhca.testing.ends import ALL_RIGHTS, QKEY, SEND, WRITE
from softhca.testing.reliable_datagrams import DatagramEnd, establish, join

OPCODES = (WRITE, 1, SEND, 3, 4, 5, 6)
LENGTHS = (0, 8, 300, 3000)
HOW = {"timeout": 1, "retry_cnt": 1, "rnr_retry": 1}


class Place(GuardedPlace):
    """An adapter with two queue pairs, EE contexts to the other one, and memory that others may reach: a part
    of what it has; the rest must stay as it is."""

    def __init__(self, network: Network) -> None:
        end = DatagramEnd(network.add(ee_error_cache=1), work_requests=8)
        super().__init__(end)
        self.public = end.region(GUARDED_BYTES, PUBLIC_BYTES)
        self.qps = [end.queue_pair() for _ in range(2)]



class World(HostileNetwork):
    """Two places with two pairs of EE contexts, and all that they send."""

    def __init__(self) -> None:
        super().__init__(Place)
        left, right = (place.end for place in self.places)
        self.ees = [join(left, right, **HOW) for _ in range(2)]
        self.record()

    def request(self, choices: Choices) -> None:
        """Post one; what the driver refuses is not posted."""
        own = choices.below(2)
        place, other = self.places[own], self.places[1 - own]
        qp, opcode, length = choices.pick(place.qps), choices.pick(OPCODES), choices.pick(LENGTHS)
        if opcode in (5, 6):
            length = 8
        ee = self.ees[choices.below(2)][own].number + choices.once_in(16)
        target = choices.pick(other.qps).number + choices.once_in(16)
        qkey = choices.pick((QKEY, QKEY, QKEY, 1 << 31, 1))
        va, flags = other.public.va + choices.below(256), 2 | choices.once_in(8)
        rkey = other.public.rkey ^ (choices.once_in(8) << 8)
        with contextlib.suppress(DriverError):
            qp.post_send(opcode, flags, 7, place.posted, va, rkey, 1, 2, ee, target, qkey,
                         [(place.public.va, length, place.public.lkey)], None)  # fmt: skip
            place.posted += 1
            qp.ring()

    def receive(self, choices: Choices) -> None:
        place = self.places[choices.below(2)]
        length = choices.pick(LENGTHS)
        with contextlib.suppress(DriverError):
            sge = (place.public.va + 8192, length, place.public.lkey)
            choices.pick(place.qps).post_recv(1, [sge])

    def state(self, choices: Choices) -> None:
        """A queue pair or an EE context goes to another state."""
        own, which, state = choices.below(2), choices.below(4), choices.pick((RESET, ERR, RTS))
        place, pair = self.places[own], self.ees[which % 2]
        with contextlib.suppress(DriverError):
            if which < 2:
                qp = place.qps[which]
                qp.modify({"qp_state": RESET if state == RTS else state})
                if state == RTS:
                    qp.modify({"qp_state": INIT, "qkey": QKEY, "qp_access_flags": ALL_RIGHTS})
                    qp.modify({"qp_state": RTR, "min_rnr_timer": 1})
                    qp.modify({"qp_state": RTS})
            elif state == RTS:
                pair[own].modify({"qp_state": RESET})
                number = pair[1 - own].number
                other = self.places[1 - own].end
                establish(place.end, pair[own], other, number, choices.byte(), choices.byte())
            else:
                pair[own].modify({"qp_state": state})

    def close(self) -> None:
        """All goes; nothing is left."""
        for place in self.places:
            place.check()
            adapter, end = place.end.node.adapter, place.end
            assert len(adapter.ee_errors.entries) <= 1
            for pair in self.ees:
                with contextlib.suppress(DriverError):
                    pair[self.places.index(place)].destroy()
            for qp in place.qps:
                qp.destroy()
            assert not adapter.ee_errors.entries
            assert not adapter.ee_errors.queues
            end.device.dealloc_rdd(end.rdd)
        self.finish()
        for place in self.places:
            assert not place.end.node.adapter.ee_contexts


def one_input(data: bytes) -> None:
    choices, world = Choices(data), World()
    packet = world.packet
    steps = (world.request, world.request, world.receive, packet, packet, packet, world.state)
    world.run(choices, steps)
    world.close()


def seeds() -> Iterator[bytes]:
    """Each operation, with and without a receive, alone and with its packets again; states in between."""
    receive, later, again = bytes([2, 1, 3, 0]), bytes([7, 2]), bytes([3, 0, 1, 0, 0, 0])
    for opcode in range(len(OPCODES)):
        for length in range(len(LENGTHS)):
            request = bytes([0, 0, 0, opcode, length, 0, 1, 0, 1, 0, 0, 1, 1])
            yield receive + request + later
            yield receive + request + later + again + bytes([3, 1, 0, 1, 9, 7, 0, 0]) + later
            yield request + bytes([6, 1, 2, 1]) + later + bytes([6, 1, 2, 2, 5, 5]) + request + later
            yield request + request + bytes([6, 0, 0, 0]) + later
