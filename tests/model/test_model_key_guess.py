"""The promise about remote memory: what was not granted is neither changed nor told, whatever arrives."""

from __future__ import annotations

import mmap
import os
import random
import struct
from collections import Counter
from collections.abc import Iterator

import pytest
from hostile_packets import Attacker, Range, Victim
from traffic import connected, poll

from softhca.driver import services
from softhca.machine.primitives import address_of
from softhca.testing import SENT
from softhca.testing.addressing import gid
from softhca.testing.ends import ALL_RIGHTS, QKEY, RC, UC, UD, End
from softhca.testing.network import Network
from softhca.testing.verbs import VerbsEnd, connect
from softhca.transport.execution import NOTHING
from softhca.transport.states import ERR, RESET
from softhca.verbs import enums as e
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.qp import QPAttr
from softhca.wire.opcodes import WRITE as WRITE_OPERATION

GUESSES = 18
OPERATIONS = (e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ, e.IBV_WR_ATOMIC_FETCH_AND_ADD)


def guesses(seed: int, right: int, others: list[int]) -> Iterator[int]:
    """Wrong keys: any number, the right one with a bit or its low byte changed, keys of other memory."""
    generator = random.Random(seed)
    ways = (
        lambda: generator.getrandbits(32),
        lambda: right ^ 1 << generator.randrange(32),
        lambda: right ^ generator.randrange(1, 256),
        lambda: generator.choice(others),
    )
    while True:
        key = generator.choice(ways)()
        if key != right:
            yield key


def reset(end: VerbsEnd) -> None:
    """Back to RESET."""
    end.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)


def test_each_wrong_key_costs_both_queue_pairs_and_moves_not_a_byte(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    secret = bytes(range(255, 15, -1))
    server.mr.write(secret, len(secret))
    client.mr.write(b"own".ljust(240, b"-"), 240)
    elsewhere = PD(verbs_pair.server)
    other = MR(elsewhere, 4096, ALL_RIGHTS)
    dead = MR(server.pd, 4096, ALL_RIGHTS)
    other.write(b"elsewhere", 9)
    keys = guesses(20, server.mr.rkey, [other.rkey, dead.rkey, client.mr.rkey ^ 1])
    dead.close()
    for number in range(GUESSES):
        server.receive(8, 1000, wr_id=number)
        opcode = OPERATIONS[number % 3]
        client.send(opcode, 8, 16, to=(next(keys), server.mr.buf + 8 * number), wr_id=number)
        failed = poll(client.send_cq, 1, client, server)[0]
        assert (failed.wr_id, failed.status) == (number, e.IBV_WC_REM_ACCESS_ERR)
        flushed = poll(server.recv_cq, 1, client, server)[0]
        assert (flushed.wr_id, flushed.status) == (number, e.IBV_WC_WR_FLUSH_ERR)
        assert client.state() == server.state() == e.IBV_QPS_ERR
        assert server.mr.read(240, 0) == secret
        assert client.mr.read(240, 0) == b"own".ljust(240, b"-")
        assert other.read(9, 0) == b"elsewhere"
        reset(client), reset(server)
        connect(client, server)
    client.send(e.IBV_WR_RDMA_WRITE, 8, to=(server.mr.rkey, server.mr.buf))
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    assert server.mr.read(240, 0) == b"own-----" + secret[8:]


# forged packets

PACKETS = 25_000
SECRET = 0xF1
MTU = 1  # ibv_mtu: 256 bytes
PEER, PEER_QPN, STRANGER = gid(66), 0x66, gid(67)
GRANTED, READABLE, COUNTERS = (4096 + 100, 8000), (16_384 + 8, 3000), (20_480 + 8, 256)
INBOX, FOREIGN, DEAD = (24_576 + 16, 4000), (32_768, 4096), (40_960 + 5, 4000)
MAP_BYTES = 49_152
SLOTS, SLOT_BYTES, SLOT_STRIDE = 13, 200, 300
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC = 1, 2, 4, 8
ACCESS = (ALL_RIGHTS,) * 5 + (REMOTE_WRITE, REMOTE_READ, 0)
READ = 4


class Prey:
    """An adapter with queue pairs that talk to a peer whom only the attacker plays, and its memory.

    Everything in the map is secret but for what remote reads may see; ``open_bytes`` marks what the peer may
    change: ``GRANTED`` by writes, ``COUNTERS`` by atomics, the slots of ``INBOX`` by messages and answers.
    """

    def __init__(self) -> None:
        self.network = Network()
        self.node = self.network.add(1, active_mtu=MTU)
        self.sent = self.network.record(SENT)
        self.end = End(self.node, entries=4096)
        self.device = self.end.device
        self.map = mmap.mmap(-1, MAP_BYTES)
        self.map[:] = bytes([SECRET]) * MAP_BYTES
        for start, length in (GRANTED, READABLE, COUNTERS):
            self.map[start : start + length] = bytes(length)
        self.base = address_of(self.map)
        self.keys = {
            GRANTED: self.register(GRANTED, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ),
            READABLE: self.register(READABLE, REMOTE_READ),
            COUNTERS: self.register(COUNTERS, LOCAL_WRITE | REMOTE_ATOMIC),
            INBOX: self.register(INBOX, LOCAL_WRITE),
            FOREIGN: self.register(FOREIGN, ALL_RIGHTS, self.device.alloc_pd()),
            DEAD: self.register(DEAD, ALL_RIGHTS),
        }
        self.device.dereg_mr(self.keys[DEAD].handle)
        kinds = [(RC, "RC", access) for access in ACCESS] + [(UC, "UC", access) for access in ACCESS[3:]]
        kinds += [(UD, "UD", 0)]
        self.qps = [(self.end.qp(kind, receive=4), kind, name, access) for kind, name, access in kinds]
        self.engines = self.node.adapter.queue_pairs
        for number in range(len(self.qps)):
            self.connect(number)
        self.slot = 0
        self.statuses: Counter[int] = Counter()
        self.before = bytes(self.map)

    def register(self, where: tuple[int, int], access: int, pd: int = 0):
        start, length = where
        return self.device.reg_mr(pd or self.end.pd, self.base + start, length, access)

    def range(self, where: tuple[int, int]) -> Range:
        """A region as the attacker names it."""
        return Range(self.base + where[0], where[1], self.keys[where].rkey)

    def connect(self, number: int) -> None:
        """From RESET to RTS, towards the attacker."""
        qp, kind, _, access = self.qps[number]
        qp.modify({"qp_state": RESET})
        if kind == UD:
            services.start_datagrams(qp, QKEY)
            return
        path = services.Path(PEER, mtu=MTU)
        reliability = services.Reliability() if kind == RC else None
        services.connect(qp, path, PEER_QPN, 0xFFFF00, 100, access, reliability)

    def element(self) -> list[tuple[int, int, int]]:
        """The next slot of the inbox."""
        self.slot = (self.slot + 1) % SLOTS
        at = self.base + INBOX[0] + self.slot * SLOT_STRIDE
        return [(at, SLOT_BYTES, self.keys[INBOX].lkey)]

    def tend(self) -> None:
        """What an application does: take completions, connect again, post receives, and reads of its own."""
        while found := self.end.cq.poll(64):
            self.statuses.update(entry.status for entry in found)
        for number, (qp, kind, _, _) in enumerate(self.qps):
            engine = self.engines[qp.number]
            if engine.state == ERR:
                self.connect(number)
            while engine.receive_ring.count() < 2:
                qp.post_recv(0, self.element())
            if kind == RC and engine.send_engine().drained() and number % 2:
                granted = self.range(GRANTED)
                qp.post_send(READ, 2, 0, 0, granted.va, 1, 0, 0, 0, 0, 0, self.element(), None)
                qp.ring()

    def victim(self, number: int) -> Victim:
        """What the attacker knows of a queue pair."""
        qp, kind, name, _ = self.qps[number]
        engine = self.engines[qp.number]
        if kind == UD:
            return Victim(name, qp.number, 256, 0, 0, "")
        responder = engine.receive_engine()
        operation = responder.execution.operation
        under_way = "" if operation == NOTHING else "write" if operation == WRITE_OPERATION else "send"
        answered = engine.send_engine().una_psn if kind == RC else 0
        return Victim(name, qp.number, 256, responder.epsn, answered, under_way)

    def closed_ranges(self) -> list[tuple[int, int]]:
        """(start, end) of everything that no peer may change."""
        slots = [(INBOX[0] + i * SLOT_STRIDE, SLOT_BYTES) for i in range(SLOTS)]
        ranges, at = [], 0
        for start, length in sorted([GRANTED, COUNTERS, *slots]):
            ranges.append((at, start))
            at = start + length
        return [*ranges, (at, MAP_BYTES)]

    def check_memory(self) -> None:
        """Nothing has changed that no peer may change."""
        for start, end in self.closed_ranges():
            assert self.map[start:end] == self.before[start:end]

    def answers(self) -> Counter[int]:
        """Opcodes of what was sent since it was last asked; none of it shows a secret or goes elsewhere."""
        opcodes: Counter[int] = Counter()
        for sent in self.sent:
            assert sent.route.destination == PEER
            data = sent.data
            opcodes[data[0]] += 1
            if 0x0D <= data[0] <= 0x10:
                payload = data[12:-4] if data[0] == 0x0E else data[16:-4]
                assert SECRET not in payload
        self.sent.clear()
        return opcodes


@pytest.fixture
def prey() -> Iterator[Prey]:
    prey = Prey()
    yield prey
    for _, key in prey.keys.items():
        if key is not prey.keys[DEAD]:
            prey.device.dereg_mr(key.handle)
    prey.network.close()
    assert not len(prey.node.adapter.regions)


@pytest.mark.parametrize("seed", range(12 if os.environ.get("SOFTHCA_LONG") else 1))
def test_forged_packets_neither_change_nor_learn_what_was_not_granted(prey: Prey, seed: int) -> None:
    closed = [prey.range(where) for where in (READABLE, INBOX, FOREIGN, DEAD, COUNTERS)]
    attackers = {
        source: Attacker(seed, source, prey.node.gid, prey.range(GRANTED), prey.range(COUNTERS), closed)
        for seed, source in enumerate((PEER, STRANGER), 70 + 2 * seed)
    }
    generator = random.Random(seed)
    fed = 0
    opcodes: Counter[int] = Counter()
    prey.tend()
    while fed < PACKETS:
        source = PEER if generator.random() < 0.97 else STRANGER
        data = attackers[source].packet(prey.victim(generator.randrange(len(prey.qps))))
        copies, stride = 1, len(data)
        if fed % 16 == 0:  # a run, cut in the right places or not
            copies = generator.randint(2, 5)
            stride = generator.choice((stride, stride, 0, 17, stride + 4, 3 * stride))
        prey.network.inject(prey.node, data * copies, source, stride=stride)
        n = len(data) * copies
        fed += 1 if stride == 0 or stride > n else -(-n // stride)
        prey.network.step()
        if generator.random() < 0.05:
            prey.tend()
            opcodes += prey.answers()
            prey.check_memory()
    prey.tend()
    opcodes += prey.answers()
    prey.check_memory()
    account(prey, fed)
    assert prey.map[slice(GRANTED[0], sum(GRANTED))] != prey.before[slice(GRANTED[0], sum(GRANTED))]
    assert prey.map[slice(COUNTERS[0], sum(COUNTERS))] != prey.before[slice(COUNTERS[0], sum(COUNTERS))]
    assert {0x0D, 0x0E, 0x0F, 0x10, 0x11, 0x12} <= opcodes.keys()
    wanted = {e.IBV_WC_SUCCESS, e.IBV_WC_WR_FLUSH_ERR, e.IBV_WC_BAD_RESP_ERR, e.IBV_WC_LOC_LEN_ERR}
    assert wanted <= prey.statuses.keys()


def account(prey: Prey, fed: int) -> None:
    """Every packet was received by a queue pair or dropped for a reason, and there were all kinds of both."""
    counters = prey.device.query_counters()
    drops = {name: value for name, value in counters.items() if name.startswith("drops_")}
    assert counters["packets_received"] + sum(drops.values()) == fed
    received = sum(engine.counters.packets_received for engine in prey.engines.values())
    received += counters["management1_received"] + counters["management1_drops_qkey"]
    received += counters["management1_drops_rate"]
    assert received == counters["packets_received"]
    reasons = (
        "truncated",
        "length",
        "opcode",
        "version",
        "pad",
        "icrc",
        "unknown_qp",
        "pkey",
        "service",
        "state",
        "source",
    )
    assert all(drops["drops_" + reason] for reason in reasons), drops
    assert received > fed // 4


def test_a_right_packet_after_the_flood_is_executed_and_answered(prey: Prey) -> None:
    closed = [prey.range(FOREIGN)]
    attacker = Attacker(9, PEER, prey.node.gid, prey.range(GRANTED), prey.range(COUNTERS), closed)
    generator = random.Random(10)
    for _ in range(500):
        prey.network.inject(prey.node, attacker.packet(prey.victim(generator.randrange(len(prey.qps)))), PEER)
        prey.network.step()
    prey.connect(0)
    prey.answers()
    attacker.random = Meek()
    victim = prey.victim(0)
    packet = attacker.packet(victim)
    va, _, length = struct.unpack(">QII", packet[12:28])
    prey.network.inject(prey.node, packet, PEER)
    prey.network.step()
    assert prey.answers() == {0x11: 1}
    start = va - prey.base
    assert prey.map[start : start + length] == packet[28 : 28 + length]
    assert length


class Meek(random.Random):
    """Draws of an attacker that behaves: the first choice everywhere, no field spoilt."""

    def random(self) -> float:
        return 0.99

    def choice(self, choices):
        return choices[0] if choices[0] != 0 or len(choices) < 6 else choices[3]

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 5 if stop is not None else 0
