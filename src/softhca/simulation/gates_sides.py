"""The two programs that talk when one end of a connection is in gates: the same calls for both.

Each has memory of its own, registered three times: open to the peer, in another domain, and without a right
for the peer.  ``image`` is what stands in it if all goes well; who expects a change makes it there.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from softhca.driver import services
from softhca.driver.services import Path, Reliability
from softhca.hardware.message_host import (
    READ_MESSAGE,
    SEND_IMMEDIATE,
    SEND_MESSAGE,
    WRITE_IMMEDIATE,
    WRITE_MESSAGE,
    MessageHost,
)
from softhca.simulation.gates_node import GatesNode
from softhca.simulation.kinds import OPCODES, RC, READ, SEND, SEND_IMM, WRITE, WRITE_IMM
from softhca.simulation.node import Node
from softhca.simulation.oracle import UNTOUCHED

MTU_BYTES, MTU_CODE = 256, 1
ROOM_BYTES = 32_768
PD, OTHER_PD = 7, 8
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ = 1, 2, 4
EVERY = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ
OPENED, FOREIGN, CLOSED = "open", "foreign", "closed"
"""Registrations."""
FENCE, SIGNALED = 1, 2
"""Of the software's requests, as verbs have them."""
DEPTH = 16
GATES_OPCODES = {
    SEND: SEND_MESSAGE, SEND_IMM: SEND_IMMEDIATE, WRITE: WRITE_MESSAGE, WRITE_IMM: WRITE_IMMEDIATE,
    READ: READ_MESSAGE,
}  # fmt: skip


class Place(NamedTuple):
    """Registered memory, as the peer names it."""

    va: int
    key: int


class Ended(NamedTuple):
    """A completion: on which queue pair (the gates' number), of which ``work`` request."""

    qp: int
    work: int
    status: int
    immediate: int | None


class Wanted(NamedTuple):
    """A request for ``length`` bytes at offset ``here`` of the own memory, and of RDMA at ``there``."""

    kind: str
    work: int
    here: int
    length: int
    there: Place = Place(0, 0)
    immediate: int = 0
    fence: bool = False


class Side(Protocol):
    """A program and its memory."""

    name: str
    image: bytearray

    def place(self, offset: int, registration: str = OPENED) -> Place:
        """How the peer names a byte of it."""
        ...

    def fill(self, offset: int, data: bytes) -> None:
        """Put bytes there, and into the image."""
        ...

    def content(self) -> bytes:
        """All of its memory."""
        ...

    async def ask(self, context: Any, qp: int, wanted: Wanted) -> None:
        """Post a request."""
        ...

    async def receive(self, context: Any, qp: int, work: int, offset: int, length: int) -> None:
        """Post a receive."""
        ...

    def poll(self) -> list[Ended]:
        """What has completed."""
        ...


class GatesSide:
    """The gates' host."""

    name = "gates"

    def __init__(self, node: GatesNode) -> None:
        self.node = node
        self.host = MessageHost(node.bench)
        self.image = bytearray([UNTOUCHED]) * ROOM_BYTES

    async def start(self, context: Any) -> None:
        """Microcode and memory."""
        await self.host.start(context)
        # a page and a bit away from a page's begin, and in the upper half of addresses
        spans = {OPENED: (0x7000_0000_0F23, PD, EVERY), CLOSED: (0xFFFF_0000_0000_0311, PD, LOCAL_WRITE),
                 FOREIGN: (0x1_0000_0105, OTHER_PD, EVERY)}  # fmt: skip
        self.regions = {
            name: self.host.region(va, ROOM_BYTES, pd, rights) for name, (va, pd, rights) in spans.items()
        }
        for region in self.regions.values():
            self.host.write_bytes(region, 0, bytes(self.image))

    async def connect(
        self, context: Any, qp: int, peer: int, lid: int, psns: tuple[int, int], timeout: int,
        reads: int,
    ) -> None:  # fmt: skip
        """A queue pair that talks to ``peer``."""
        await self.host.connect(
            context, qp, pd=PD, peer=peer, lids=(self.node.lid, lid), psns=psns, mtu=MTU_BYTES,
            timeout=timeout, reads=reads,
        )  # fmt: skip

    def place(self, offset: int, registration: str = OPENED) -> Place:
        region = self.regions[registration]
        return Place(region.va + offset, region.key)

    def fill(self, offset: int, data: bytes) -> None:
        self.image[offset : offset + len(data)] = data
        self.host.write_bytes(self.regions[OPENED], offset, data)

    def content(self) -> bytes:
        return self.host.read_bytes(self.regions[OPENED], 0, ROOM_BYTES)

    def untouched(self) -> bool:
        """Whether what the peer has no right to is as it was."""
        plain = bytes([UNTOUCHED]) * ROOM_BYTES
        return all(self.host.read_bytes(self.regions[name], 0, ROOM_BYTES) == plain
                   for name in (CLOSED, FOREIGN))  # fmt: skip

    async def ask(self, context: Any, qp: int, wanted: Wanted) -> None:
        half = wanted.length // 2
        region = self.regions[OPENED]
        pieces = region.piece(wanted.here, half), region.piece(wanted.here + half, wanted.length - half)
        await self.host.post_send(
            context, qp, GATES_OPCODES[wanted.kind], pieces, work=wanted.work, va=wanted.there.va,
            key=wanted.there.key, immediate=wanted.immediate, fence=wanted.fence,
        )  # fmt: skip

    async def receive(self, context: Any, qp: int, work: int, offset: int, length: int) -> None:
        await self.host.post_receive(context, qp, (self.regions[OPENED].piece(offset, length),), work=work)

    def poll(self) -> list[Ended]:
        return [Ended(one.qp, one.work, one.status, one.immediate) for one in self.host.poll()]


class SoftwareSide:
    """The program of a software adapter."""

    name = "software"

    def __init__(self, node: Node) -> None:
        self.node = node
        device = node.device
        self.image = bytearray([UNTOUCHED]) * ROOM_BYTES
        self.pds = device.alloc_pd(), device.alloc_pd()
        self.cq = device.create_cq(16 * DEPTH)
        spans = {OPENED: (0x6000_0000_0FF1, self.pds[0], EVERY), CLOSED: (0x1000, self.pds[0], LOCAL_WRITE),
                 FOREIGN: (0x5000_0000_0000, self.pds[1], EVERY)}  # fmt: skip
        self.memories = {name: bytearray(self.image) for name in spans}
        self.regions = {
            name: (va, device.reg_mr(pd, 0, ROOM_BYTES, rights, iova=va, buffer=self.memories[name]))
            for name, (va, pd, rights) in spans.items()
        }
        self.qps: dict[int, Any] = {}

    def new_queue_pair(self, qp: int) -> int:
        """The number of the one that will talk to the gates' ``qp``."""
        made = self.node.device.create_qp(
            self.pds[0], RC, self.cq, self.cq, None, DEPTH, DEPTH, 2, 2, 0, True
        )
        self.qps[qp] = made
        return int(made.number)

    def connect(self, qp: int, lid: int, psns: tuple[int, int], how: Reliability) -> None:
        """It talks to the gates' ``qp``; ``psns``: the gates' and its own."""
        services.connect(self.qps[qp], Path(None, mtu=MTU_CODE, dlid=lid), qp, *psns, EVERY, how)

    def place(self, offset: int, registration: str = OPENED) -> Place:
        va, region = self.regions[registration]
        return Place(va + offset, region.rkey)

    def fill(self, offset: int, data: bytes) -> None:
        self.image[offset : offset + len(data)] = data
        self.memories[OPENED][offset : offset + len(data)] = data

    def content(self) -> bytes:
        return bytes(self.memories[OPENED])

    def untouched(self) -> bool:
        """Whether what the peer has no right to is as it was."""
        return all(self.memories[name].count(UNTOUCHED) == ROOM_BYTES for name in (CLOSED, FOREIGN))

    async def ask(self, context: Any, qp: int, wanted: Wanted) -> None:
        flags = SIGNALED | FENCE * wanted.fence
        self.qps[qp].post_send(
            OPCODES[wanted.kind], flags, wanted.immediate, wanted.work, wanted.there.va, wanted.there.key,
            0, 0, 0, 0, 0, [self._element(wanted.here, wanted.length)], None,
        )  # fmt: skip
        self.qps[qp].ring()
        self.node.turn()

    async def receive(self, context: Any, qp: int, work: int, offset: int, length: int) -> None:
        self.qps[qp].post_recv(work, [self._element(offset, length)])

    def _element(self, offset: int, length: int) -> tuple[int, int, int]:
        va, region = self.regions[OPENED]
        return va + offset, length, region.lkey

    def poll(self) -> list[Ended]:
        numbers = {made.number: qp for qp, made in self.qps.items()}
        return [
            Ended(numbers[one.qp_num], one.wr_id, one.status, one.imm_data) for one in self.cq.poll(DEPTH)
        ]

    def destroy(self) -> None:
        """Give everything back."""
        device = self.node.device
        for made in self.qps.values():
            made.destroy()
        for _, region in self.regions.values():
            device.dereg_mr(region.handle)
        self.cq.destroy()
        for pd in self.pds:
            device.dealloc_pd(pd)
