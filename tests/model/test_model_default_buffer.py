"""Many connections at once through sockets of default size: nothing is lost, so nothing is repeated."""

from __future__ import annotations

import ipaddress
import random
import socket
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import pytest
from traffic import wait_until

from softhca.runtime import devices
from softhca.testing.verbs import ALL_ACCESS, connect
from softhca.testing.verbs import VerbsEnd as TrafficEnd
from softhca.verbs import enums as e
from softhca.verbs.cq import CQ
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.qp import QP, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR

CONNECTIONS = 64
TIMEOUT = 20  # 8.6 s before a packet is sent again: only a loss could be the reason
WRITE, SEND, READ = e.IBV_WR_RDMA_WRITE, e.IBV_WR_SEND, e.IBV_WR_RDMA_READ
MIXES: dict[str, tuple[tuple[int, int], ...]] = {
    "everything": (
        *((WRITE, length) for length in (1, 700, 9_000, 66_000)),
        *((SEND, length) for length in (0, 300, 5_000, 20_000)),
        *((READ, length) for length in (8, 3_000, 40_000)),
    ),
    "reads": ((READ, 61_000), (READ, 20_000), (READ, 4096), (READ, 45_000)),
}
"""(opcode, length) of the messages of one connection in one direction; all travel at once."""
AREA_BYTES = 1 << 18
MOST = max(len(mix) for mix in MIXES.values())
QUIET = ("retransmissions", "timeouts", "implied_naks", "out_of_sequence", "duplicates", "naks_sent")


@dataclass
class Side:
    """One device with one region, in which each connection has a source and, behind it, a destination."""

    context: Context
    source: bytes
    pd: PD = field(init=False)
    send_cq: CQ = field(init=False)
    recv_cq: CQ = field(init=False)
    mr: MR = field(init=False)
    ends: list[TrafficEnd] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pd = PD(self.context)
        entries = CONNECTIONS * MOST
        self.send_cq, self.recv_cq = CQ(self.context, entries), CQ(self.context, entries)
        self.mr = MR(self.pd, 2 * CONNECTIONS * AREA_BYTES, ALL_ACCESS)
        cap = QPCap(MOST, MOST, 1, 1, 0)
        for number in range(CONNECTIONS):
            init = QPInitAttr(e.IBV_QPT_RC, scq=self.send_cq, rcq=self.recv_cq, cap=cap)
            end = TrafficEnd(self.context, self.pd, self.send_cq, self.recv_cq, self.mr, QP(self.pd, init))
            self.ends.append(end)
            self.mr.write(self.area(number), AREA_BYTES, 2 * number * AREA_BYTES)

    def area(self, number: int) -> bytes:
        """What stands in the source of a connection."""
        return self.source[number : number + AREA_BYTES]

    def place(self, number: int, offset: int, destination: bool) -> int:
        """The address of a byte of a connection's source or destination."""
        return self.mr.buf + (2 * number + destination) * AREA_BYTES + offset

    def element(self, number: int, offset: int, length: int, destination: bool) -> SGE:
        """Bytes of a connection's source or destination."""
        return SGE(self.place(number, offset, destination), length, self.mr.lkey)


def layout(mix: str) -> list[tuple[int, int, int]]:
    """(opcode, offset, length) of every message of one direction, one behind the other."""
    lengths = [length for _, length in MIXES[mix]]
    offsets = accumulate(lengths, initial=0)
    return [(opcode, offset, length) for (opcode, length), offset in zip(MIXES[mix], offsets, strict=False)]


def post_everything(side: Side, peer: Side, number: int, mix: str, order: random.Random) -> None:
    """All messages of one connection in one direction, in some order, as one chain."""
    messages = layout(mix)
    order.shuffle(messages)
    sends = [(offset, length) for opcode, offset, length in messages if opcode == SEND]
    for offset, length in sends:
        peer.ends[number].qp.post_recv(RecvWR(number, 1, [peer.element(number, offset, length, True)]))
    chain: SendWR | None = None
    for opcode, offset, length in reversed(messages):
        reading = opcode == READ
        request = SendWR(number, opcode, 1, 0, [side.element(number, offset, length, reading)])
        request.set_wr_rdma(peer.mr.rkey, peer.place(number, offset, not reading))
        request.next_wr = chain
        chain = request
    side.ends[number].qp.post_send(chain)


def socket_drops(address: str) -> list[int]:
    """Datagrams that the kernel dropped, for each socket on an IPv4 address."""
    packed = ipaddress.IPv4Address(address).packed
    text = f"{socket.htonl(int.from_bytes(packed, 'big')):08X}"
    rows = Path("/proc/net/udp").read_text().splitlines()[1:]
    return [int(row.split()[-1]) for row in rows if row.split()[1].split(":")[0] == text]


def finished(sides: tuple[Side, Side], mix: str, sent: list[Counter], received: list[Counter]) -> bool:
    """Take completions; whether all have come."""
    receives_each = sum(opcode == SEND for opcode, _ in MIXES[mix])
    for side, sends, receives in zip(sides, sent, received, strict=True):
        for cq, found in ((side.send_cq, sends), (side.recv_cq, receives)):
            for wc in cq.poll(64)[1]:
                found[wc.wr_id, wc.status] += 1
    return all(each.total() == CONNECTIONS * len(MIXES[mix]) for each in sent) and all(
        each.total() == CONNECTIONS * receives_each for each in received
    )


@pytest.mark.parametrize("mix", MIXES)
def test_sixty_four_connections_both_ways_lose_nothing_in_default_buffers(verbs_pair, mix: str) -> None:
    noise = random.Random(64).randbytes(2 * AREA_BYTES)
    client, server = Side(verbs_pair.client, noise), Side(verbs_pair.server, noise[::-1])
    for one, other in zip(client.ends, server.ends, strict=True):
        connect(one, other, timeout=TIMEOUT)
    order = random.Random(65)
    for number in range(CONNECTIONS):
        post_everything(client, server, number, mix, order)
        post_everything(server, client, number, mix, order)
    sides, sent, received = (client, server), [Counter(), Counter()], [Counter(), Counter()]
    wait_until(lambda: finished(sides, mix, sent, received), client, server)
    for found, wanted in ((sent, len(MIXES[mix])), (received, sum(op == SEND for op, _ in MIXES[mix]))):
        for counter in found:
            assert +counter == +Counter({(n, e.IBV_WC_SUCCESS): wanted for n in range(CONNECTIONS)})
    total = sum(length for _, length in MIXES[mix])
    for side, peer in (sides, sides[::-1]):
        for number in range(CONNECTIONS):
            there = side.mr.read(AREA_BYTES, (2 * number + 1) * AREA_BYTES)
            assert there == peer.area(number)[:total] + bytes(AREA_BYTES - total)
    for name in ("pair0", "pair1"):
        drops = socket_drops(devices.find(name).specification.place)
        assert drops, "no socket was found"
        assert not any(drops)
    for side in sides:
        counters = side.context.query_counters()
        assert {name: counters[f"transport_{name}"] for name in QUIET} == dict.fromkeys(QUIET, 0)
        assert not any(value for name, value in counters.items() if name.startswith("drops_"))
