"""Work queues, tables and queue pairs that receive by them, in any order of commands, posts and frames: what
is refused, and which receive each frame completes, are what a model of a few lines says.
"""

import errno
import struct

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from softhca.driver.errors import DriverError
from softhca.queues import control_fields as control
from softhca.testing.ends import End
from softhca.testing.network import Network
from suite_plan import random_inputs

RESET, RDY, ERR = control.WQS_RESET, control.WQS_RDY, control.WQS_ERR
STEPS = {(RESET, RESET), (RESET, RDY), (RDY, RESET), (RDY, RDY), (RDY, ERR), (ERR, RESET), (ERR, ERR)}
KEY = bytes(11 * n % 256 for n in range(40))
FIELDS = (1, 3, 2 | 128, 64, 3 | 64 | 128, 255)
DEPTH = 4
MOST = 4
FLUSHED = 5


def hash_of(data: bytes) -> int:
    """The Toeplitz hash, by its definition."""
    whole, result = int.from_bytes(KEY, "big"), 0
    for place in range(8 * len(data)):
        if data[place // 8] & 0x80 >> place % 8:
            result ^= whole >> 8 * len(KEY) - 32 - place & 0xFFFFFFFF
    return result


class Queue:
    """A work queue and what the model knows of it."""

    def __init__(self, handle) -> None:
        self.handle = handle
        self.state = RESET
        self.posted: list[int] = []


class Table:
    def __init__(self, number: int, queues: list[Queue]) -> None:
        self.number = number
        self.queues = queues


class Pair:
    """A queue pair with the table and the rule that it receives by."""

    def __init__(self, handle, table: Table, fields: int) -> None:
        self.handle = handle
        self.table = table
        self.fields = fields
        self.flow = 0


class Scaling(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.network = Network()
        self.end = End(self.network.add(max_wq=MOST))
        self.device = self.end.device
        self.queues: list[Queue] = []
        self.tables: list[Table] = []
        self.pairs: list[Pair] = []
        self.due: dict[int, list[tuple[int, int]]] = {}
        self.wr_id = 0

    def refused(self, code: int, call, *arguments) -> None:
        with pytest.raises(DriverError) as found:
            call(*arguments)
        assert found.value.errno == code

    def complete(self, queue: Queue, status: int) -> None:
        self.due.setdefault(queue.handle.number, []).append((queue.posted.pop(0), status))

    @initialize(fields=st.sampled_from(FIELDS), ready=st.integers(1, MOST))
    def begin(self, fields: int, ready: int) -> None:
        """Queues that wait for frames: chance alone seldom makes one."""
        for _ in range(ready):
            self.make_queue()
            queue = self.queues[-1]
            queue.handle.modify_wq(control.WQ_STATE, RDY)
            queue.state = RDY
            for _ in range(DEPTH):
                self.put(queue)
        queues = [self.queues[n % ready] for n in range(4)]
        number = self.device.create_rwq_ind_table(2, [queue.handle for queue in queues])
        self.tables.append(Table(number, queues))
        self.enter_pair(self.tables[0], fields)
        self.turn_rule(self.pairs[0])

    def put(self, queue: Queue) -> None:
        """A receive that is taken."""
        self.wr_id += 1
        queue.handle.post_recv(self.wr_id, [self.end.sge(0, 2048)])
        queue.posted.append(self.wr_id)

    def enter_pair(self, table: Table, fields: int) -> None:
        handle = self.device.create_rss_qp(
            self.end.pd, table.number, control.RX_HASH_TOEPLITZ, fields, KEY
        )
        self.pairs.append(Pair(handle, table, fields))

    def turn_rule(self, pair: Pair) -> None:
        if pair.flow:
            self.device.destroy_flow(pair.flow)
            pair.flow = 0
        else:
            pair.flow = self.device.create_flow(pair.handle.number, 1, control.FLOW_ALL_DEFAULT, 0)

    @rule()
    def make_queue(self) -> None:
        if len(self.queues) == MOST:
            self.refused(errno.ENOMEM, self.device.create_wq, self.end.pd, self.end.cq, DEPTH, 1)
        else:
            self.queues.append(Queue(self.device.create_wq(self.end.pd, self.end.cq, DEPTH, 1)))

    @precondition(lambda self: self.queues)
    @rule(data=st.data(), state=st.sampled_from((RESET, RDY, RDY, ERR)))
    def move(self, data, state: int) -> None:
        queue = data.draw(st.sampled_from(self.queues))
        if (queue.state, state) not in STEPS:
            self.refused(errno.EINVAL, queue.handle.modify_wq, control.WQ_STATE, state)
            return
        queue.handle.modify_wq(control.WQ_STATE | control.WQ_CURR_STATE, state, queue.state)
        queue.state = state
        if state == RESET:
            queue.posted.clear()
        while state == ERR and queue.posted:
            self.complete(queue, FLUSHED)

    @precondition(lambda self: self.queues)
    @rule(data=st.data())
    def post(self, data) -> None:
        queue = data.draw(st.sampled_from(self.queues))
        words = 0, [self.end.sge(0, 2048)]
        if queue.state == RESET:
            self.refused(errno.EINVAL, queue.handle.post_recv, *words)
        elif len(queue.posted) == DEPTH:
            self.refused(errno.ENOMEM, queue.handle.post_recv, *words)
        else:
            self.put(queue)
            if queue.state == ERR:
                self.complete(queue, FLUSHED)

    @precondition(lambda self: self.queues)
    @rule(data=st.data())
    def end_queue(self, data) -> None:
        queue = data.draw(st.sampled_from(self.queues))
        if any(queue in table.queues for table in self.tables):
            self.refused(errno.EBUSY, queue.handle.destroy)
        else:
            queue.handle.destroy()
            self.queues.remove(queue)

    @precondition(lambda self: self.queues and len(self.tables) < MOST)
    @rule(data=st.data(), log=st.integers(0, 3))
    def make_table(self, data, log: int) -> None:
        queues = [data.draw(st.sampled_from(self.queues)) for _ in range(1 << log)]
        number = self.device.create_rwq_ind_table(log, [queue.handle for queue in queues])
        self.tables.append(Table(number, queues))

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def end_table(self, data) -> None:
        table = data.draw(st.sampled_from(self.tables))
        if any(pair.table is table for pair in self.pairs):
            self.refused(errno.EBUSY, self.device.destroy_rwq_ind_table, table.number)
        else:
            self.device.destroy_rwq_ind_table(table.number)
            self.tables.remove(table)

    @precondition(lambda self: self.tables and len(self.pairs) < MOST)
    @rule(data=st.data(), fields=st.sampled_from(FIELDS))
    def make_pair(self, data, fields: int) -> None:
        table = data.draw(st.sampled_from(self.tables))
        self.enter_pair(table, fields)

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def begin_or_end_rule(self, data) -> None:
        self.turn_rule(data.draw(st.sampled_from(self.pairs)))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def end_pair(self, data) -> None:
        pair = data.draw(st.sampled_from(self.pairs))
        if pair.flow:
            self.refused(errno.EBUSY, pair.handle.destroy)
        else:
            pair.handle.destroy()
            self.pairs.remove(pair)

    @rule(source=st.integers(0, 7), goal=st.integers(0, 7), port=st.integers(0, 7))
    def frame(self, source: int, goal: int, port: int) -> None:
        addresses = bytes([10, 0, 0, source]), bytes([10, 1, 0, goal])
        ports = struct.pack(">H", port), struct.pack(">H", 4791)
        front = struct.pack(">BBHIBBH", 0x45, 0, 48, 0, 64, 17, 0)
        packet = front + b"".join(addresses + ports) + bytes(24)
        datagram = bytes.fromhex("0800000000000100" "020000000002" "020000000001" "0800") + packet
        for pair in self.pairs:
            if pair.flow:
                bits = (1, 2, 64, 128)
                parts = zip((*addresses, *ports), bits, strict=True)
                hashed = hash_of(b"".join(part for part, bit in parts if pair.fields & bit))
                queue = pair.table.queues[hashed & len(pair.table.queues) - 1]
                if queue.state == RDY and queue.posted:
                    self.complete(queue, 0)
        self.network.inject(self.end.node, datagram, self.end.node.gid, frames=True)

    @invariant()
    def what_is_due_completes(self) -> None:
        found: dict[int, list[tuple[int, int]]] = {}
        for done in self.end.poll(sum(map(len, self.due.values())) + 1):
            found.setdefault(done.qp_num, []).append((done.wr_id, done.status))
        assert found == self.due
        self.due = {}

    def teardown(self) -> None:
        self.device.close()
        assert len(self.end.node.adapter.port.segment.steering) == 0
        self.network.close()


TestScaling = Scaling.TestCase
TestScaling.settings = settings(max_examples=random_inputs(120), stateful_step_count=50, deadline=None)
