"""Two communication managers and a network between them, in virtual time."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace

from softhca.management.cm import messages as m
from softhca.management.cm.elements import NEVER_NS, Event
from softhca.management.cm.manager import ConnectionManager
from softhca.management.mad import Address

GIDS = (bytes(10) + b"\xff\xff\x0a\0\0\x01", bytes(10) + b"\xff\xff\x0a\0\0\x02")
GUIDS = (0x0200_0000_0000_0001, 0x0200_0000_0000_0002)
DELAY_NS = 10_000
SERVICE = 0x0106_1C46


class Program:
    """An owner: it keeps what it is told; ``room`` bounds how much."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.events: list[Event] = []

    def deliver(self, event: Event) -> bool:
        if len(self.events) >= self.room:
            return False
        self.events.append(event)
        return True

    def take(self) -> Event:
        return self.events.pop(0)

    @property
    def kinds(self) -> list[int]:
        return [event.kind for event in self.events]


class Network:
    """Managers 0 and 1; datagrams arrive `DELAY_NS` later, or as ``fate`` says: a list of delays, one a copy
    that arrives.
    """

    def __init__(self, seed: int = 1) -> None:
        self.now = 0
        self.sent: list[tuple[int, bytes]] = []
        self.managers = [
            ConnectionManager(lambda data, to, own=own: self._sent(own, data, to), GUIDS[own], seed + own)
            for own in (0, 1)
        ]
        self.programs = [Program(), Program()]
        self._arrivals: list[tuple[int, int, int, bytes]] = []
        self._order = 0
        self.fate = lambda own, data: [DELAY_NS]
        self.cut: set[int] = set()

    def _sent(self, own: int, data: bytes, to: Address) -> bool:
        self.sent.append((own, data))
        for delay in self.fate(own, data):
            self._order += 1
            heapq.heappush(self._arrivals, (self.now + delay, self._order, 1 - own, data))
        return True

    def address(self, of: int) -> Address:
        return Address(qpn=1, gid=GIDS[of], own_gid=GIDS[1 - of])

    def names(self) -> list[str]:
        """The messages sent so far."""
        return [type(m.decode(data)[1]).__name__ for _, data in self.sent]

    def step(self) -> bool:
        """Go on to what happens next; False: nothing does."""
        deadlines = [manager.next_deadline() for manager in self.managers]
        due = min([*deadlines, *(arrival[0] for arrival in self._arrivals[:1])])
        if due >= NEVER_NS:
            return False
        self.now = max(self.now, due)
        if self._arrivals and self._arrivals[0][0] <= self.now:
            self.arrive_one()
        for number, manager in enumerate(self.managers):
            if number not in self.cut:
                manager.expire(self.now)
        return True

    def arrive(self) -> None:
        """Let everything that is on its way arrive."""
        while self._arrivals:
            self.now = max(self.now, self._arrivals[0][0])
            self.arrive_one()

    def arrive_one(self) -> None:
        """The next of what is on its way arrives."""
        _, _, to, data = heapq.heappop(self._arrivals)
        if to not in self.cut:
            self.managers[to].receive(data, self.address(1 - to), self.now)

    def pass_time(self, duration_ns: int) -> None:
        """Let so much time pass."""
        end = self.now + duration_ns
        while min([m_.next_deadline() for m_ in self.managers] + [a[0] for a in self._arrivals[:1]]) <= end:
            self.step()
        self.now = end

    # what programs do

    def listen(self, backlog: int = 128) -> int:
        return self.managers[1].listen(self.programs[1], SERVICE, backlog)

    def connect(self, request: m.Req | None = None) -> int:
        return self.managers[0].connect(self.programs[0], self.address(1), request or REQUEST, self.now)

    def reply(self, number: int, reply: m.Rep | None = None) -> None:
        self.managers[1].reply(self.programs[1], number, reply or REPLY, self.now)

    def establish(self) -> tuple[int, int]:
        """A connection from 0 to 1, with nothing lost; its numbers."""
        active = self.connect()
        self.arrive()
        passive = self.programs[1].take().number
        self.reply(passive)
        self.arrive()
        self.programs[0].take()
        self.managers[0].ready(self.programs[0], active, b"", self.now)
        self.arrive()
        self.programs[1].take()
        return active, passive

    def state(self, own: int, number: int) -> str:
        element = self.managers[own]._tables.find(number)
        return "" if element is None else element.state


REQUEST = m.Req(
    service_id=SERVICE,
    local_qpn=0x11,
    starting_psn=0x123456,
    responder_resources=4,
    initiator_depth=3,
    remote_cm_response_timeout=14,
    local_cm_response_timeout=14,
    retry_count=7,
    rnr_retry_count=6,
    path_mtu=3,
    max_cm_retries=15,
    primary_local_gid=GIDS[0],
    primary_remote_gid=GIDS[1],
    primary_hop_limit=64,
    primary_ack_timeout=14,
    private_data=b"request".ljust(92, b"\0"),
)
REPLY = m.Rep(local_qpn=0x22, starting_psn=0x654321, responder_resources=3, initiator_depth=4)


def lossy(seed: int, loss: float, duplicate: float = 0.05, reorder: float = 0.1):
    """A fate that loses, duplicates and delays."""
    generator = random.Random(seed)

    def fate(own: int, data: bytes) -> list[int]:
        if generator.random() < loss:
            return []
        copies = 2 if generator.random() < duplicate else 1
        return [
            DELAY_NS * (generator.randrange(1, 50) if generator.random() < reorder else 1)
            for _ in range(copies)
        ]

    return fate


def from_other(address: Address) -> Address:
    """An address that is nobody's here."""
    return replace(address, gid=bytes(10) + b"\xff\xff\x0a\0\0\x63")
