"""Programs of worlds with reliable datagrams: what they send, and what they are judged by.

A program has a few queue pairs, and EE contexts to every other adapter.  A queue pair's messages go to any
queue pair of another adapter by any EE context to it.  Only what programs see is judged: a SEND bears its
source and its number, so that the receiver knows order and number; what was written, read and counted is
looked at in memory.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass

from softhca.driver import services
from softhca.driver.device import EeHandle, QpHandle
from softhca.queues.control_fields import QPT_RD
from softhca.queues.states import ERR, INIT, RESET, RTR, RTS
from softhca.simulation.arena import BASE_VA
from softhca.simulation.conditions import RETRIES, TIMEOUT
from softhca.simulation.kinds import ADD, OPCODES, READ, RECEIVED, RETRY_EXCEEDED, SEND, SUCCESS, WRITE
from softhca.simulation.mailboxes import Place
from softhca.simulation.node import Node

ABORTED, INVALID_EE_STATE = 16, 18
"""ibv_wc_status: a message that its sender gave up; an EE context that is in error."""
EE_FAILED = frozenset({RETRY_EXCEEDED, INVALID_EE_STATE})
ONCE, WHOLE, ORDER, SUCCEEDS, INDEPENDENT = (
    "datagrams arrive once, in order", "datagrams arrive whole", "requests complete as they were posted",
    "requests by living EE contexts succeed", "living EE contexts do not wait for failing ones",
)  # fmt: skip
SOON_NS = 1_000_000
"""How long a request may take that nothing holds up."""
QKEY, SIGNALED, RIGHTS = 0x5244, 2, 1 | 2 | 4 | 8
HEADER_BYTES, WORD_BYTES = 12, 8
_PLACE_STEP = 1 << 32


class Channel:
    """A pair of EE contexts; ``failed_ns``: when one of them got into error, ``renewed_ns``: when both were
    set up again; 0: never."""

    def __init__(self, number: int, programs: tuple[DatagramProgram, DatagramProgram]) -> None:
        self.number = number
        self.programs = programs
        self.ees: list[EeHandle] = [each.device.create_ee(each.rdd) for each in programs]
        self.failed_ns = self.renewed_ns = 0

    def connect(self, dice: random.Random) -> None:
        """Both contexts to RTS, from RESET, with new PSNs."""
        psns = [dice.randrange(1 << 24) for _ in self.ees]
        left, right = (each.node for each in self.programs)
        paths = left.world.frames.paths(left.number, right.number, min(left.mtu, right.mtu), dice)
        ends = [(each.node.number, ee.number) for each, ee in zip(self.programs, self.ees, strict=True)]
        for own in (0, 1):
            left.world.wire.connect_datagrams(ends[own], ends[1 - own], psns[own], 128 << paths[own].mtu)
        how = services.Reliability(TIMEOUT, RETRIES, RETRIES, 1, 1, 1)
        for own, ee in enumerate(self.ees):
            ee.modify({"qp_state": INIT, "pkey_index": 0, "port_num": 1})
            ee.modify({
                "qp_state": RTR, "ah_attr": paths[own].vector(), "path_mtu": paths[own].mtu,
                "dest_qp_num": self.ees[1 - own].number, "rq_psn": psns[1 - own], "max_dest_rd_atomic": 1,
            })  # fmt: skip
            ee.modify({
                "qp_state": RTS, "sq_psn": psns[own], "timeout": how.timeout, "retry_cnt": how.retry_cnt,
                "rnr_retry": how.rnr_retry, "max_rd_atomic": 1,
            })  # fmt: skip

    def end(self, own: int, now: int) -> None:
        """One end is in error, as after an error of its own."""
        self.failed_ns = now
        self.ees[own].modify({"qp_state": ERR})

    def may_fail(self, datagram: Datagram) -> bool:
        """Whether a request by it may end as one whose EE context is in error."""
        return bool(self.failed_ns) and not 0 < self.renewed_ns <= datagram.posted_ns

    def renew(self, now: int, dice: random.Random) -> None:
        """Set both contexts up again."""
        self.renewed_ns = now
        for ee in self.ees:
            ee.modify({"qp_state": RESET})
        self.connect(dice)


@dataclass(slots=True)
class Datagram:
    """One request of queue pair ``source``, to queue pair ``target`` of another program, by an EE context.

    ``posted_ns`` and ``ended_ns`` are 0 before; ``arrived_ns`` is when a SEND was received.
    """

    kind: str
    source: RdQueuePair
    target: RdQueuePair
    channel: Channel
    length: int
    number: int
    content: bytes = b""
    posted_ns: int = 0
    arrived_ns: int = 0
    ended_ns: int = 0
    status: int = SUCCESS


class RdQueuePair:
    """One queue pair of a program: its requests, and the last number received from each source."""

    def __init__(
        self, program: DatagramProgram, index: int, messages: int, largest: int, kinds: tuple[str, ...]
    ) -> None:
        self.program = program
        self.index = index
        self.kinds = kinds
        self.datagrams: list[Datagram] = []
        self.completed = 0
        self.last_received: dict[tuple[RdQueuePair, Channel], int] = {}
        self._largest = largest
        device, pd, cq = program.device, program.pd, program.cq
        # what it sends, what it receives, a constant that others read, a counter, and a place for each writer
        self.sent = Place(device, pd, messages * largest, RIGHTS, next(program.places))
        self.received = Place(device, pd, messages * largest, RIGHTS, next(program.places))
        self.constant = Place(device, pd, largest, RIGHTS, next(program.places))
        self.counter = Place(device, pd, WORD_BYTES, RIGHTS, next(program.places))
        self.boards: dict[tuple[RdQueuePair, Channel], Place] = {}
        self.counted: Counter[int] = Counter()
        self.constant.view[:] = program.dice.randbytes(largest)
        self.qp: QpHandle = device.create_qp(
            pd, QPT_RD, cq, cq, None, messages, messages, 1, 1, 0, True, rdd=program.rdd
        )
        self.qp.modify({"qp_state": INIT, "qkey": QKEY, "qp_access_flags": RIGHTS})
        self.qp.modify({"qp_state": RTR, "min_rnr_timer": 1})
        self.qp.modify({"qp_state": RTS})
        program.by_number[self.qp.number] = self

    def __str__(self) -> str:
        return f"adapter {self.program.node.number}, queue pair {self.qp.number}"

    def fail(self, rule: str, text: str) -> None:
        """A rule is broken."""
        self.program.node.world.report.fail(rule, f"{self}: {text}")

    def board(self, writer: RdQueuePair, channel: Channel) -> Place:
        """Where one other queue pair writes by one EE context: so the order of its WRITEs is known."""
        if (writer, channel) not in self.boards:
            program = self.program
            place = Place(program.device, program.pd, self._largest, RIGHTS, next(program.places))
            self.boards[writer, channel] = place
        return self.boards[writer, channel]

    def plan(self, target: RdQueuePair, channel: Channel, dice: random.Random) -> Datagram:
        """One more request; what it moves comes from the dice."""
        kind = dice.choice(self.kinds)
        length = WORD_BYTES if kind == ADD else dice.randint(HEADER_BYTES, self._largest)
        made = Datagram(kind, self, target, channel, length, len(self.datagrams))
        if kind == SEND:
            names = (self.program.node.number, self.index, channel.number)
            head = b"".join(name.to_bytes(2, "big") for name in names)
            made.content = head + made.number.to_bytes(6, "big") + dice.randbytes(length - HEADER_BYTES)
        elif kind == WRITE:
            made.content = dice.randbytes(length)
            target.board(self, channel)
        self.datagrams.append(made)
        return made

    def post_receive(self, slot: int) -> None:
        """Post a receive."""
        start = self.received.va + slot * self._largest
        self.qp.post_recv(slot, [(start, self._largest, self.received.lkey)])

    def post(self, datagram: Datagram) -> None:
        """Post it."""
        start = datagram.number * self._largest
        if datagram.content:
            self.sent.view[start : start + datagram.length] = datagram.content
        target, channel = datagram.target, datagram.channel
        at = {READ: target.constant, ADD: target.counter}.get(datagram.kind)
        if datagram.kind == WRITE:
            at = target.board(self, channel)
        datagram.posted_ns = self.program.node.world.now
        self.qp.post_send(
            OPCODES[datagram.kind], SIGNALED, 0, datagram.number, at.va if at else 0, at.rkey if at else 0,
            1, 0, channel.ees[channel.programs.index(self.program)].number, target.qp.number, QKEY,
            [(self.sent.va + start, datagram.length, self.sent.lkey)], None,
        )  # fmt: skip
        self.qp.ring()

    def request_completed(self, number: int, status: int) -> None:
        """A request has completed."""
        datagram, now = self.datagrams[self.completed], self.program.node.world.now
        if number != datagram.number:
            self.fail(ORDER, f"{number} instead of {datagram.number}")
            return
        self.completed += 1
        datagram.ended_ns, datagram.status = now, status
        start = number * self._largest
        result = bytes(self.sent.view[start : start + datagram.length])
        if status:
            may_fail = self.program.breakable or datagram.channel.may_fail(datagram)
            if status not in EE_FAILED or not may_fail:
                self.fail(SUCCEEDS, f"{datagram.kind} {number}: status {status}")
            if status == RETRY_EXCEEDED and not self.program.breakable:
                self._judge_others(datagram)
        elif datagram.kind == READ and result != bytes(datagram.target.constant.view[: datagram.length]):
            self.fail(WHOLE, f"READ {number} brings something else")
        elif datagram.kind == ADD:
            datagram.target.counted[int.from_bytes(result, "little")] += 1

    def _judge_others(self, failed: Datagram) -> None:
        """A request has failed with its EE context: those behind it by others have not waited for it."""
        for each in self.datagrams[failed.number + 1 :]:
            waits = each.kind == SEND and each.posted_ns and not each.arrived_ns
            if waits and not each.channel.failed_ns and failed.ended_ns - each.posted_ns > SOON_NS:
                self.fail(INDEPENDENT, f"SEND {each.number} has waited for {failed.number}")

    def receive_completed(self, slot: int, status: int, length: int) -> None:
        """A receive has completed."""
        start = slot * self._largest
        content = bytes(self.received.view[start : start + length])
        if status == SUCCESS:
            self._take(content)
        elif status != ABORTED:
            self.fail(SUCCEEDS, f"a receive ends with status {status}")
        self.post_receive(slot)

    def _take(self, content: bytes) -> None:
        names = [int.from_bytes(content[at : at + 2], "big") for at in (0, 2, 4)]
        number = int.from_bytes(content[6:HEADER_BYTES], "big")
        source = self.program.all_queue_pairs.get((names[0], names[1]))
        if source is None or number >= len(source.datagrams):
            self.fail(WHOLE, f"from nobody: {content[:HEADER_BYTES].hex()}")
            return
        datagram = source.datagrams[number]
        if datagram.content != content or datagram.target is not self or datagram.channel.number != names[2]:
            self.fail(WHOLE, f"SEND {number} of {source} is another one")
            return
        key = source, datagram.channel
        if number <= self.last_received.get(key, -1):
            self.fail(ONCE, f"SEND {number} of {source} behind {self.last_received[key]}")
        self.last_received[key] = number
        datagram.arrived_ns = self.program.node.world.now

    def close(self) -> None:
        """Give everything back."""
        self.qp.destroy()
        for place in (self.sent, self.received, self.constant, self.counter, *self.boards.values()):
            place.close()

    def judge(self) -> None:
        """The world is at rest."""
        if self.completed != len(self.datagrams):
            self.fail(ORDER, f"{self.completed} of {len(self.datagrams)} requests have completed")
        for datagram in self.datagrams:
            done = datagram.ended_ns and datagram.status == SUCCESS
            if done and datagram.kind == SEND and not datagram.arrived_ns:
                self.fail(ONCE, f"SEND {datagram.number} completed, and did not arrive")
        for (writer, channel), board in self.boards.items():
            self._judge_board(writer, channel, board)
        everything = [each for other in self.program.all_queue_pairs.values() for each in other.datagrams]
        asked = [each for each in everything if each.kind == ADD and each.target is self]
        found = int.from_bytes(self.counter.view, "little")
        least = sum(each.status == SUCCESS for each in asked if each.ended_ns)
        if not least <= found <= len(asked) or any(count > 1 for count in self.counted.values()):
            self.fail(ONCE, f"counted to {found}; {least} of {len(asked)} succeeded")

    def _judge_board(self, writer: RdQueuePair, channel: Channel, board: Place) -> None:
        """What stands there is the last that was written; of what failed, some may stand there, too."""
        last = [each for each in writer.datagrams
                if (each.kind, each.target, each.channel) == (WRITE, self, channel)][-1]  # fmt: skip
        if last.status == SUCCESS and bytes(board.view[: last.length]) != last.content:
            self.fail(WHOLE, f"what {writer} wrote last, WRITE {last.number}, is not there")


class DatagramProgram:
    """The program of a host.  ``all_queue_pairs``: those of the world, by adapter and index.  ``breakable``:
    links may lose so much that an EE context fails by itself."""

    def __init__(
        self, node: Node, dice: random.Random, all_queue_pairs: dict[tuple[int, int], RdQueuePair],
        breakable: bool,
    ) -> None:  # fmt: skip
        self.node = node
        self.dice = dice
        self.all_queue_pairs = all_queue_pairs
        self.breakable = breakable
        self.device = node.device
        self.pd = self.device.alloc_pd()
        self.rdd = self.device.alloc_rdd()
        self.places = itertools.count(BASE_VA * node.number, _PLACE_STEP)
        self.by_number: dict[int, RdQueuePair] = {}

    def populate(
        self, queue_pairs: int, messages: int, largest: int, receives: int, kinds: tuple[str, ...]
    ) -> None:
        """Make queue pairs, with receives posted."""
        self.cq = self.device.create_cq(2 * queue_pairs * messages)
        for index in range(queue_pairs):
            queue_pair = RdQueuePair(self, index, messages, largest, kinds)
            self.all_queue_pairs[self.node.number, index] = queue_pair
            for slot in range(min(receives, messages)):
                queue_pair.post_receive(slot)

    def turn(self) -> bool:
        """Take completions; whether there were any."""
        worked = False
        for completion in self.cq.poll(1_000):
            worked = True
            queue_pair = self.by_number[completion.qp_num]
            if completion.opcode == RECEIVED:
                queue_pair.receive_completed(completion.wr_id, completion.status, completion.byte_len)
            else:
                queue_pair.request_completed(completion.wr_id, completion.status)
        return worked

    def close(self) -> None:
        """Give everything back, but for EE contexts."""
        for queue_pair in self.by_number.values():
            queue_pair.close()
        self.cq.destroy()
        self.device.dealloc_rdd(self.rdd)
        self.device.dealloc_pd(self.pd)
