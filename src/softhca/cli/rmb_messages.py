"""``softhca rmb subsystem --messages``: the adapter in gates and the software adapter move messages."""

from __future__ import annotations

import argparse
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from softhca.cli.errors import CommandError, UsageError
from softhca.cli.output import print_json, print_table
from softhca.cli.rmb_files import make_empty, write_text
from softhca.wire.capture_file import LINKTYPE_INFINIBAND
from softhca.wire.opcodes import OPCODES
from softhca.wire.packet import decode
from softhca.wire.pcap import PcapWriter

if TYPE_CHECKING:
    from softhca.hardware.activity import Activity
    from softhca.hardware.budget import Budget, TaskClocks
    from softhca.hardware.message_host import Region

MTUS = (256, 512, 1024, 2048, 4096)
MOST_BYTES = 16_384
MOST_TOGETHER = 16
"""Places of a send queue."""
READS = 4
"""Of the gates, under way at most."""
SHORT_BYTES = 256
"""Of a SEND, at most."""
VIS, QP, PD, LID = 4, 2, 7, 5
PSNS = 100, 0xFFFFF0
ALL_RIGHTS = 7
VA = 0x7000_0000_0F20
ENGINE_NAMES = ("SQ", "RQ")
STEP_CLOCKS = 8
PATIENCE_CLOCKS = 400_000


class MessageFigures(NamedTuple):
    """A message: who asked, how long it took, what each part was busy with, and whether all was right."""

    name: str
    asked_by: str
    bytes: int
    packets: int
    clocks: int
    busy: dict[str, int]
    is_right: bool
    budget: list[TaskClocks]

    def document(self) -> dict[str, Any]:
        """The message for JSON; shares are in percent of its clocks."""
        shares = {name: round(100 * clocks / self.clocks, 1) for name, clocks in self.busy.items()}
        each = round(self.clocks / self.packets, 1)
        return {
            "message": self.name, "asked_by": self.asked_by, "bytes": self.bytes, "packets": self.packets,
            "clocks": self.clocks, "clocks_a_packet": each, "right": self.is_right, "busy_percent": shares,
            "budget": [{**row._asdict(), "engine": ENGINE_NAMES[row.engine]} for row in self.budget],
        }  # fmt: skip


class Packet(NamedTuple):
    """In ``clock`` a packet had left ``sender``."""

    clock: int
    sender: str
    data: bytes


def run(args: argparse.Namespace) -> int:
    """Move the messages; CommandError when one does not come as it must."""
    if args.mtu not in MTUS:
        raise UsageError(f"--mtu is one of {', '.join(map(str, MTUS))}, not {args.mtu}")
    if not 1 <= args.size <= MOST_BYTES:
        raise UsageError(f"--size is 1 to {MOST_BYTES}, not {args.size}")
    if not 1 <= args.together <= MOST_TOGETHER:
        raise UsageError(f"--together is 1 to {MOST_TOGETHER}, not {args.together}")
    for path in (args.vcd, args.svg, args.pcap):
        make_empty(path)
    talk = _Adapters(args.mtu, args.size, args.together)
    talk.run(args.vcd)
    if args.svg is not None:
        from softhca.hardware.activity import draw

        write_text(args.svg, draw(talk.activity.spans, talk.marks, talk.begin, talk.bench.clock))
    if args.pcap is not None:
        with args.pcap.open("wb") as stream:
            writer = PcapWriter(stream, LINKTYPE_INFINIBAND)
            for packet in talk.packets:
                writer.write(packet.clock * 8, packet.data)
    _show(args, talk)
    if wrong := [told.name for told in talk.told if not told.is_right]:
        raise CommandError(f"not as it must be: {', '.join(wrong)}")
    return 0


def _show(args: argparse.Namespace, talk: _Adapters) -> None:
    rows = [told.document() for told in talk.told]
    packets = []
    for packet in talk.packets:
        decoded: Any = decode(packet.data, LINKTYPE_INFINIBAND)
        bth = decoded.transport.bth
        packets.append((packet.clock, packet.sender, OPCODES[bth.opcode].name, bth.psn, len(packet.data)))
    columns = ("clock", "sender", "opcode", "psn", "bytes")
    if args.json:
        found = [dict(zip(columns, packet, strict=True)) for packet in packets]
        print_json({"mtu": args.mtu, "messages": rows, "packets": found})
        return
    print_table("Packets of both sides", columns, packets)
    names = [name for name in rows[0] if name not in ("busy_percent", "budget")]
    print_table(
        "Messages", [name.replace("_", " ") for name in names], [[row[n] for n in names] for row in rows]
    )
    shares = list(rows[0]["busy_percent"])
    table = [(row["message"], row["asked_by"], *row["busy_percent"].values()) for row in rows]
    print_table("Percent of the clocks in which a part is busy", ("message", "asked by", *shares), table)
    budget = [(row["message"], row["asked_by"], *task.values()) for row in rows for task in row["budget"]]
    heads = ("message", "asked by", "engine", "task", "works", "waits")
    print_table("Clocks of the engines by what they are for", heads, budget)


def _more(done: list[Any], found: list[Any], count: int = 1) -> bool:
    """Keep what is found; whether there are ``count`` now."""
    done += found
    return len(done) >= count


class _Adapters:
    """Both adapters, and what happens between them."""

    def __init__(self, mtu: int, size: int, together: int) -> None:
        from softhca.hardware.activity import Activity
        from softhca.hardware.budget import Budget
        from softhca.hardware.message_host import MessageHost
        from softhca.hardware.subsystem import Subsystem
        from softhca.hardware.subsystem_bench import SubsystemBench
        from softhca.simulation.native_peer import NativePeer

        self.mtu, self.size, self.together = mtu, size, together
        self.bench = SubsystemBench(Subsystem(VIS, 1, 4096, 4), limit=1 << 24)
        self.host = MessageHost(self.bench)
        self.peer = NativePeer(self._from_peer)
        self.activity: Activity = Activity(self.bench)
        self.budget: Budget = Budget(self.bench)
        self.packets: list[Packet] = []
        self.told: list[MessageFigures] = []
        self.marks: dict[str, int] = {}
        self.begin = 0
        self._departed = 0

    def _from_peer(self, data: bytes) -> None:
        self.packets.append(Packet(self.bench.clock, "software", data))
        self.bench.arrivals.append(data)

    def run(self, vcd: Any) -> None:
        """Move all messages."""
        self.bench.run(self._script, vcd)

    async def _until(self, context: Any, reached: Any) -> None:
        for _ in range(PATIENCE_CLOCKS // STEP_CLOCKS):
            for data in self.bench.departed[self._departed :]:
                self.packets.append(Packet(self.bench.clock, "gates", data))
                self.peer.receive(data)
            self._departed = len(self.bench.departed)
            self.peer.elapse(STEP_CLOCKS * 8)
            if reached():
                return
            await context.tick().repeat(STEP_CLOCKS)
        raise CommandError("the adapters do not go on")

    async def _script(self, context: Any) -> None:
        from softhca.hardware.message_host import READ_MESSAGE, SEND_MESSAGE, WRITE_MESSAGE

        host, end = self.host, self.peer.end
        await host.start(context)
        lids = LID, self.peer.lid
        self.qp = self.peer.connect(LID, QP, PSNS, self.mtu)
        await host.connect(
            context, QP, pd=PD, peer=self.qp.number, lids=lids, psns=PSNS, mtu=self.mtu, reads=READS
        )
        self.region = region = host.region(VA, 2 * MOST_BYTES, PD, ALL_RIGHTS)
        self.begin = self.bench.clock
        for name, opcode, length in (
            ("SEND", SEND_MESSAGE, min(SHORT_BYTES, self.size)), ("RDMA WRITE", WRITE_MESSAGE, self.size),
            ("RDMA READ", READ_MESSAGE, self.size),
        ):  # fmt: skip
            await self._ask(context, name, opcode, length, region, end)
        for name, opcode, length in (
            ("SEND", 2, min(SHORT_BYTES, self.size)), ("RDMA WRITE", 0, self.size),
            ("RDMA READ", 4, self.size),
        ):  # fmt: skip
            await self._answer(context, name, opcode, length, region, end)

    async def _ask(self, context: Any, name: str, opcode: int, length: int, region: Region, end: Any) -> None:
        """Messages that the gates ask for, in two pieces each."""
        data = random.Random(name).randbytes(length)
        half = length // 2
        reads = name == "RDMA READ"
        count = self.together
        if reads:
            end.memory[:length] = data
        else:
            end.memory[:length] = bytes(length)
            self.host.write_bytes(region, 3, data[:half])
            self.host.write_bytes(region, MOST_BYTES, data[half:])
        if name == "SEND":
            for _ in range(count):
                self.qp.post_recv(1, [end.sge(0, length)])
        pieces = region.piece(3, half), region.piece(MOST_BYTES, length - half)
        done: list[Any] = []

        async def move() -> None:
            for _ in range(count):
                await self.host.post_send(context, QP, opcode, pieces, va=end.va, key=end.key.rkey)
            await self._until(context, lambda: _more(done, self.host.poll(), count))

        def right() -> bool:
            there = bytes(end.memory[:length])
            if reads:
                there = self.host.read_bytes(region, 3, half)
                there += self.host.read_bytes(region, MOST_BYTES, length - half)
            return there == data and [one.status for one in done] == [0] * count

        await self._timed(name, "gates", length, move, right, count)
        end.cq.poll(MOST_TOGETHER)

    async def _answer(
        self, context: Any, name: str, opcode: int, length: int, region: Region, end: Any
    ) -> None:
        """A message that the software adapter asks for."""
        data = random.Random(name + "!").randbytes(length)
        reads = name == "RDMA READ"
        end.memory[:length] = bytes(length) if reads else data
        if reads:
            self.host.write_bytes(region, 9, data)
        if name == "SEND":
            await self.host.post_receive(context, QP, (region.piece(9, length),))
        done: list[Any] = []

        async def move() -> None:
            self.qp.post_send(opcode, 2, 0, 1, VA + 9, region.key, 0, 0, 0, 0, 0, [end.sge(0, length)], None)
            self.qp.ring()
            await self._until(context, lambda: _more(done, end.cq.poll(8)))

        def right() -> bool:
            there = bytes(end.memory[:length]) if reads else self.host.read_bytes(region, 9, length)
            return there == data and done[0].status == 0

        await self._timed(name, "software", length, move, right)
        self.host.poll()

    async def _timed(
        self, name: str, asked_by: str, length: int, move: Any, right: Any, count: int = 1
    ) -> None:
        begin = self.bench.clock
        self.budget.take()
        self.marks[f"{name} of the {asked_by}"] = begin
        await move()
        end = self.bench.clock
        packets = -(-length // self.mtu) * count
        busy = self.activity.clocks(begin, end)
        told = MessageFigures(name, asked_by, length, packets, end - begin, busy, right(), self.budget.take())
        self.told.append(told)
