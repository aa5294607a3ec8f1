"""The data path and the remote-key manager's model lose the same keys, and only those."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from softhca.adapter.remote_keys import RemoteKeyModel, outstanding
from softhca.memory.regions import LOCAL_WRITE, MW_BIND, REMOTE_READ, REMOTE_WRITE
from softhca.testing.transport_node import HOST, PD
from softhca.testing.transport_pair import Pair
from softhca.transport.states import ERR
from softhca.wire import opcodes
from suite_plan import random_inputs

QPS, READS, MTU = 4, 4, 256
DOMAINS = (PD, PD, PD + 1, PD + 1)
NUMBERS = range(2, 8)
WRITE_BYTES = 4 * MTU
GRANT = REMOTE_READ | REMOTE_WRITE


class Keys(RuleBasedStateMachine):
    """Four responders of two domains, six windows, and the model beside them.

    What is under way is told to the model by what was sent, not by what the data path shows.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(qps=QPS, rd_atomic=READS, pmtu=MTU)
        self.table = self.pair.b.memory_windows
        self.model = RemoteKeyModel(QPS, 1, READS)
        self.memory = bytearray(1 << 14)
        first, offset = HOST.attach_buffer(self.memory)
        self.first = first
        pages = [(first, -(-(offset + len(self.memory)) // 4096))]
        self.regions = {
            pd: self.pair.b.regions.register(
                HOST.address_map, pd, 0x10000, len(self.memory), LOCAL_WRITE | MW_BIND, pages, offset
            )
            for pd in set(DOMAINS)
        }
        self.windows = {number: self._window(number) for number in NUMBERS}
        self.ids: dict[int, int] = {}
        self.writes: dict[int, tuple[int, int, int]] = {}  # by queue pair: key, generation, bytes received
        self.withdrawn = 0
        for vi in range(QPS):
            self.pair.rights[vi].qp.pd = DOMAINS[vi]
            self.model.set_domain(vi, DOMAINS[vi])

    def _window(self, number: int):
        return self.table.allocate(number, DOMAINS[number % QPS], 1 + number % 2)

    def teardown(self) -> None:
        self.pair.close()
        for region in self.regions.values():
            self.pair.b.regions.deregister(region)
        HOST.detach(self.first)

    def id_of(self, key: int) -> int:
        return self.ids.setdefault(key, len(self.ids) + 1)

    def withdraw(self, pd: int, key: int) -> None:
        """What the SQ tells the model."""
        before = sum(key is not None for vi in range(QPS) for key in self.model.valid_keys(vi))
        self.model.start(pd, self.id_of(key))
        self.model.walk()
        after = sum(key is not None for vi in range(QPS) for key in self.model.valid_keys(vi))
        self.withdrawn += before - after

    # the send side

    @rule(number=st.sampled_from(NUMBERS), vi=st.integers(0, QPS - 1), byte=st.integers(0, 255))
    def bind(self, number: int, vi: int, byte: int) -> None:
        window = self.windows[number]
        key, bound, pd = window.key, window.valid, window.pd
        code = self.table.bind(
            number, self.pair.rights[vi].number, DOMAINS[vi], byte, self.regions[DOMAINS[vi]].key, 0x10000,
            WRITE_BYTES, GRANT,
        )  # fmt: skip
        if code == 0 and bound:
            self.withdraw(pd, key)

    @rule(number=st.sampled_from(NUMBERS))
    def invalidate(self, number: int) -> None:
        window = self.windows[number]
        key, pd = window.key, window.pd
        if self.table.invalidate(key, window.queue_pair, pd, True) == 0:
            self.withdraw(pd, key)

    @rule(number=st.sampled_from(NUMBERS))
    def replace(self, number: int) -> None:
        window = self.windows[number]
        self.table.deallocate(window)
        self.withdraw(window.pd, window.key)
        self.windows[number] = self._window(number)

    # the receive side

    def send(self, vi: int, opcode: int, **fields: object) -> None:
        """The next packet of a connection."""
        self.pair.left, self.pair.right = self.pair.lefts[vi], self.pair.rights[vi]
        self.pair.forge(opcode, self.pair.right.qp.receive_engine().epsn, **fields)

    def usable(self, vi: int) -> list[int]:
        """Keys that give a queue pair the right to read and write."""
        number = self.pair.rights[vi].number
        return [window.key for window in self.windows.values()
                if window.valid and window.pd == DOMAINS[vi] and window.queue_pair in (0, number)]

    @rule(vi=st.integers(0, QPS - 1), pick=st.integers(0, 5))
    def begin_write(self, vi: int, pick: int) -> None:
        keys = self.usable(vi)
        if vi in self.writes or not keys:
            return
        key = keys[pick % len(keys)]
        self.send(
            vi, opcodes.RC_RDMA_WRITE_FIRST, payload=bytes(MTU), va=0x10000, rkey=key, length=WRITE_BYTES
        )  # fmt: skip
        self.writes[vi] = (key, 0, MTU)
        self.model.enter(vi, 0, self.id_of(key))

    @precondition(lambda self: self.writes)
    @rule(pick=st.integers(0, QPS - 1))
    def go_on(self, pick: int) -> None:
        vi = sorted(self.writes)[pick % len(self.writes)]
        key, _, received = self.writes[vi]
        last = received + MTU == WRITE_BYTES
        lives = self.model.valid_keys(vi)[0] == self.id_of(key)
        opcode = opcodes.RC_RDMA_WRITE_LAST if last else opcodes.RC_RDMA_WRITE_MIDDLE
        self.send(vi, opcode, payload=bytes(MTU))
        assert (self.pair.rights[vi].qp.state != ERR) == lives
        self.writes[vi] = (key, 0, received + MTU)
        if not lives:
            self.restart(vi)
        elif last:
            del self.writes[vi]
            self.model.leave(vi, 0)

    @rule(vi=st.integers(0, QPS - 1), pick=st.integers(0, 5))
    def read(self, vi: int, pick: int) -> None:
        keys, slots = self.usable(vi), self.model.valid_keys(vi)[1:]
        ring = self.pair.rights[vi].qp.receive_engine().replies.ring
        if vi in self.writes or not keys or ring.pending == READS:
            return
        key = keys[pick % len(keys)]
        self.send(vi, opcodes.RC_RDMA_READ_REQUEST, va=0x10000, rkey=key, length=2 * MTU)
        self.model.enter(vi, 1 + slots.index(None), self.id_of(key))

    @rule(vi=st.integers(0, QPS - 1))
    def answer(self, vi: int) -> None:
        qp, burst = self.pair.rights[vi].qp, self.pair.burst
        pending = qp.receive_engine().replies.ring.pending
        lives = sum(key is not None for key in self.model.valid_keys(vi)[1:])
        while qp.receive_engine().has_work():
            burst.reset()
            qp.receive_engine().produce(burst, self.pair.now)
        assert (qp.state == ERR) == (lives < pending)
        for slot in range(READS):
            self.model.leave(vi, 1 + slot)
        if lives < pending:
            self.restart(vi)

    @rule(vi=st.integers(0, QPS - 1))
    def restart(self, vi: int) -> None:
        """The queue pair begins anew: nothing is under way."""
        end = self.pair.rights[vi]
        assert end.qp.modify({"qp_state": 0}, self.pair.now) == 0
        self.pair.connect(end, self.pair.lefts[vi], 0, 0)
        self.writes.pop(vi, None)
        for slot in range(1 + READS):
            self.model.leave(vi, slot)

    @invariant()
    def both_show_the_same(self) -> None:
        shown: dict[int, int] = {}
        for vi in range(QPS):
            mine = [key for key in outstanding(self.pair.rights[vi].qp) if key is not None]
            assert sorted(map(self.id_of, mine)) == sorted(filter(None, self.model.valid_keys(vi)))
            for key in mine:
                shown[key] = shown.get(key, 0) + 1
        for window in self.windows.values():
            assert len(window.users) == (shown.get(window.key, 0) if window.valid else 0)
        assert self.table.keys_withdrawn == self.withdrawn


@pytest.mark.parametrize("steps", [50])
def test_model_and_data_path_agree_on_who_loses_a_key(steps: int) -> None:
    run_state_machine_as_test(
        Keys,
        settings=settings(
            max_examples=random_inputs(40), stateful_step_count=steps, deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )  # fmt: skip
