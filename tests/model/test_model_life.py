"""Random lives of verbs resources on two devices, each call judged by a model that knows only the standard.

The rules about resources stand in ``life_resources.py`` and ``life_queues.py``, those about traffic here.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test
from life_model import (
    ADD,
    ERR,
    FLUSHED,
    GUARD_BYTES,
    INIT,
    OK,
    OPERATIONS,
    READ,
    RESET,
    RTR,
    RTS,
    SEND,
    SQD,
    SWAP,
    WRITE,
    WRITE_IMM,
    Element,
    Operation,
    Outcome,
    Pair,
    Region,
    SharedQueue,
)
from life_queues import QueueRules
from life_resources import NAMES

from machine_speed import limit_s
from softhca.driver import registry
from softhca.runtime import devices
from softhca.verbs import enums as e
from softhca.verbs.qp import QPAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR
from suite_plan import random_inputs

LONG = bool(os.environ.get("SOFTHCA_LONG"))
EXAMPLES, STEPS = (1500, 80) if LONG else (random_inputs(45), 40)
WANTED = st.sampled_from((0, 1, 8, 100, 256, 257, 1024, 5000, 12_000))
HOW = st.sampled_from(("right",) * 12 + ("before", "behind", "guess", "near", "dead", "other"))
MANNERS = [
    (receives, parked, tail) for receives in (1, 2, 0) for parked in (False, True) for tail in (False, True)
]
NOTHING = Element(0, 0, 0)
RETRIES_EXCEEDED = int(e.IBV_WC_RETRY_EXC_ERR)


def sge(element: Element) -> SGE:
    """An element as the verbs take it."""
    return SGE(element.va, element.length, element.key)


class Life(QueueRules):
    """Traffic between queue pairs, with keys that live, died or are guessed, inside and outside of ranges."""

    # elements

    def element(self, data: st.DataObject, side: int, length: int, chosen: Region | None = None) -> Element:
        """An element for one side: mostly of a region there (``chosen``) and inside it, else wrong in one
        way.
        """
        own = [region for region in self.regions if region.domain.side == side]
        if not own:
            return Element(1 << 40, length, data.draw(st.integers(0, 0xFFFFFFFF)))
        region = data.draw(st.sampled_from(own))
        if self.favourite in own and data.draw(st.booleans()):
            region = self.favourite
        region = chosen or region
        length = min(length, region.length)
        last = region.length - length
        at = region.va + data.draw(st.sampled_from((0, last, last // 2, last & ~7)))
        how = data.draw(HOW)
        key = region.key
        if how == "before":
            return Element(region.va - 1 - data.draw(st.integers(0, GUARD_BYTES - 1)), length, key)
        if how == "behind":
            return Element(region.va + last + 1 + data.draw(st.integers(0, 4096)), length, key)
        if how == "guess":
            key = data.draw(st.integers(0, 0xFFFFFFFF))
        elif how == "near":
            key ^= 1 << data.draw(st.integers(0, 31))
        elif how == "dead" and self.keys.dead:
            key = data.draw(st.sampled_from(self.keys.dead[-3:]))[1]
        elif how == "other":
            key = data.draw(st.sampled_from(self.regions)).key
        return Element(at, length, key)

    def spans(self, side: int, element: Element) -> tuple[Region | None, int, int]:
        """The bytes of a region's keeper that an element names, if its key lives."""
        region = self.keys.live.get((side, element.key))
        start = element.va - region.va + region.start if region is not None else 0
        return region, start, start + element.length

    def overlap(self, *elements: tuple[int, Element]) -> bool:
        """Whether two of them share bytes: what a message does to itself is not the standard's matter."""
        spans = [self.spans(side, element) for side, element in elements if element.length]
        return any(
            one[0] is not None and one[0] is other[0] and one[1] < other[2] and other[1] < one[2]
            for i, one in enumerate(spans)
            for other in spans[:i]
        )

    def operation(self, data: st.DataObject, pair: Pair, opcode: int, target: Region | None) -> Operation:
        length = 8 if opcode in (SWAP, ADD) else data.draw(WANTED)
        remote = self.element(data, pair.peer.side, length, target)
        length = length if opcode == SEND else remote.length
        local = self.element(data, pair.side, length)
        length = min(length, local.length) if opcode not in (SWAP, ADD) else 8
        if opcode in (SWAP, ADD):
            remote = Element(remote.va & ~7 if data.draw(st.integers(0, 7)) else remote.va, 8, remote.key)
        operation = Operation(
            opcode, Element(local.va, length, local.key), Element(remote.va, length, remote.key)
        )
        if opcode in (SWAP, ADD):
            operands = st.sampled_from((0, 1, 1 << 63, (1 << 64) - 1))
            operation.operands = (data.draw(operands), data.draw(operands))
            known = self.keys.reach(pair.peer.domain, operation.remote, 0)
            if opcode == SWAP and known is not None and data.draw(st.booleans()):
                present = int.from_bytes(known.load(operation.remote.va, 8), "little")
                operation.operands = (present, operation.operands[1])
        elif opcode != READ and length <= 64 and data.draw(st.booleans()):
            region = self.keys.reach(pair.domain, operation.local, 0)
            if region is not None and region.va == region.address:
                operation.inline = region
                operation.local = Element(
                    local.va, length, data.draw(st.sampled_from((0, local.key, 0xFFFFFFFF)))
                )
        return operation

    # receives

    def receive(self, queue: Pair | SharedQueue, element: Element) -> None:
        """Post a receive, which is refused exactly where it must be."""
        post = queue.thing.post_recv
        wr_id = self.next_id()
        wr = RecvWR(wr_id, 1, [sge(element)])
        own = isinstance(queue, Pair)
        if own and (queue.shared is not None or queue.state == RESET):
            self.refused(errno.EINVAL, lambda: post(wr), lambda: self.attributes_of(queue))
        elif len(queue.receives.waiting) >= queue.receives.capacity:
            bad = RecvWR()
            self.refused(errno.ENOMEM, lambda: post(wr, bad))
            assert bad.wr_id == wr_id
        elif own and queue.state == ERR:
            post(wr)
            self.expect(queue.recv_cq, wr_id, FLUSHED)
            self.settle()
        else:
            post(wr)
            queue.receives.waiting.append((wr_id, element))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), length=WANTED)
    def post_receive(self, data: st.DataObject, length: int) -> None:
        pair = data.draw(st.sampled_from(self.pairs))
        element = self.element(data, pair.side, length)
        self.receive(pair, element)
        wr = RecvWR(0, 4, [sge(element)] * 4)
        self.refused(errno.EINVAL, lambda: pair.thing.post_recv(wr), lambda: self.attributes_of(pair))

    @precondition(lambda self: self.shared)
    @rule(data=st.data(), length=WANTED)
    def post_shared_receive(self, data: st.DataObject, length: int) -> None:
        srq = data.draw(st.sampled_from(self.shared))
        element = self.element(data, srq.domain.side, length)
        self.receive(srq, element)
        wr = RecvWR(0, 4, [sge(element)] * 4)
        self.refused(errno.EINVAL, lambda: srq.thing.post_recv(wr))

    # sends

    def request(self, operation: Operation, wr_id: int) -> SendWR:
        flags = e.IBV_SEND_SIGNALED | (e.IBV_SEND_INLINE if operation.inline else 0)
        wr = SendWR(wr_id, operation.opcode, 1, 7, [sge(operation.local)], flags)
        wr.set_wr_atomic(operation.remote.key, operation.remote.va, *operation.operands)
        return wr

    def send(self, pair: Pair, operations: list[Operation]) -> None:
        """Post them as a chain and take what the model says comes of it."""
        requests = [self.request(operation, self.next_id()) for operation in operations]
        for request, following in pairwise(requests):
            request.next_wr = following
        pair.thing.post_send(requests[0])
        self.judge(pair, operations, [request.wr_id for request in requests])

    def judge(self, pair: Pair, operations: list[Operation], wr_ids: list[int]) -> None:
        """What each operation gives; after the first that fails the others are flushed."""
        peer, outcome = pair.peer, Outcome()
        for operation, wr_id in zip(operations, wr_ids, strict=True):
            if outcome.status == OK:
                outcome = self.keys.carry_out(pair, operation)
                self.expect(pair.send_cq, wr_id, outcome.status)
                if outcome.received is not None:
                    self.expect(peer.recv_cq, *outcome.received)
            else:
                self.expect(pair.send_cq, wr_id, FLUSHED)
        if outcome.status != OK:
            self.fail(pair)
            if outcome.responder_fails:
                self.fail(peer)
        self.settle()
        if outcome.unknown is not None:
            region, va, length = outcome.unknown
            region.accept(va, length)
        for end in (pair, peer):
            assert self.attributes_of(end)["qp_state"] == end.state

    def talking(self) -> list[Pair]:
        """Queue pairs that may send to a peer which listens."""
        return [
            pair
            for pair in self.pairs
            if pair.state == RTS and pair.peer is not None and pair.peer.state in (RTR, RTS, SQD)
        ]

    def meet(self, data: st.DataObject, target: Region | None) -> Pair | None:
        """A queue pair that may send (to the side of ``target``); two are connected when there is none."""
        if not self.talking():
            self.connect_two(data)
        able = [pair for pair in self.talking() if target is None or pair.peer.side == target.domain.side]
        return data.draw(st.sampled_from(able)) if able else None

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        self.exchange(data, WRITE)

    @rule(data=st.data())
    def write_with_immediate(self, data: st.DataObject) -> None:
        self.exchange(data, WRITE_IMM)

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        self.exchange(data, READ)

    @rule(data=st.data(), opcode=st.sampled_from((SWAP, ADD)))
    def atomic(self, data: st.DataObject, opcode: int) -> None:
        self.exchange(data, opcode)

    @rule(data=st.data())
    def message(self, data: st.DataObject) -> None:
        self.exchange(data, SEND)

    @rule(data=st.data(), opcodes=st.lists(st.sampled_from(OPERATIONS), min_size=3, max_size=7))
    def one_after_another(self, data: st.DataObject, opcodes: list[int]) -> None:
        for opcode in opcodes:
            self.exchange(data, opcode)

    @precondition(lambda self: self.favourite in self.regions)
    @rule(data=st.data(), opcodes=st.lists(st.sampled_from((READ, WRITE, ADD)), min_size=1, max_size=2))
    def to_what_was_changed_last(self, data: st.DataObject, opcodes: list[int]) -> None:
        for opcode in opcodes:
            self.exchange(data, opcode, self.favourite)

    def exchange(self, data: st.DataObject, opcode: int, target: Region | None = None) -> None:
        """One operation, alone or with an empty write behind it; ``parked``: posted while SQD holds it."""
        pair = self.meet(data, target)
        if pair is None:
            return
        receives, parked, tail = data.draw(st.sampled_from(MANNERS))
        operation = self.operation(data, pair, opcode, target)
        if operation.opcode in (SEND, WRITE_IMM):
            for _ in range(receives):
                queue = pair.peer.shared or pair.peer
                length = max(operation.local.length, data.draw(WANTED))
                self.receive(queue, self.element(data, pair.peer.side, length))
        waiting = (pair.peer.shared or pair.peer).receives.waiting
        elements = [(pair.side, operation.local)]
        if operation.opcode == SEND:
            elements += [(pair.peer.side, waiting[0][1])] if waiting else []
        else:
            elements.append((pair.peer.side, operation.remote))
        if self.overlap(*elements):
            return
        operations = [operation]
        if tail and pair.max_send_wr > 1:
            operations.append(Operation(WRITE, NOTHING, NOTHING))
        if not parked:
            self.send(pair, operations)
            return
        self.change(pair, QPAttr(qp_state=SQD), e.IBV_QP_STATE)
        wr_ids = [self.next_id() for _ in operations]
        for operation, wr_id in zip(operations, wr_ids, strict=True):
            pair.thing.post_send(self.request(operation, wr_id))
        self.settle()
        pair.thing.modify(QPAttr(qp_state=RTS), e.IBV_QP_STATE)
        pair.state = RTS
        self.judge(pair, operations, wr_ids)

    @precondition(lambda self: self.talking())
    @rule(data=st.data(), end=st.sampled_from((RTS, RESET, ERR)))
    def fill_the_send_queue(self, data: st.DataObject, end: int) -> None:
        """As many as fit while SQD holds them, one more is ENOMEM; then they go, are flushed or dropped."""
        pair = data.draw(st.sampled_from(self.talking()))
        self.change(pair, QPAttr(qp_state=SQD), e.IBV_QP_STATE)
        operations = [Operation(WRITE, NOTHING, NOTHING) for _ in range(pair.max_send_wr)]
        wr_ids = [self.next_id() for _ in operations]
        for operation, wr_id in zip(operations, wr_ids, strict=True):
            pair.thing.post_send(self.request(operation, wr_id))
        bad = SendWR(0, SEND, 1, 0, [sge(NOTHING)])
        extra = self.request(operations[0], self.next_id())
        self.refused(errno.ENOMEM, lambda: pair.thing.post_send(extra, bad), lambda: self.attributes_of(pair))
        assert bad.wr_id == extra.wr_id
        if end == RTS:
            pair.thing.modify(QPAttr(qp_state=RTS), e.IBV_QP_STATE)
            pair.state = RTS
            self.judge(pair, operations, wr_ids)
            return
        if end == ERR:
            for wr_id in wr_ids:
                self.expect(pair.send_cq, wr_id, FLUSHED)
        self.change(pair, QPAttr(qp_state=end), e.IBV_QP_STATE)

    @precondition(lambda self: any(pair.state in (RESET, INIT, RTR, ERR) for pair in self.pairs))
    @rule(data=st.data())
    def send_in_the_wrong_state(self, data: st.DataObject) -> None:
        """Before RTS it is refused; in the error state it is taken and comes back flushed."""
        pairs = [pair for pair in self.pairs if pair.state in (RESET, INIT, RTR, ERR)]
        pair = data.draw(st.sampled_from(pairs))
        wr = SendWR(self.next_id(), SEND, 1, 0, [sge(NOTHING)])
        if pair.state == ERR:
            pair.thing.post_send(wr)
            self.expect(pair.send_cq, wr.wr_id, FLUSHED)
            self.settle()
        else:
            self.refused(errno.EINVAL, lambda: pair.thing.post_send(wr), lambda: self.attributes_of(pair))

    @precondition(lambda self: self.talking())
    @rule(data=st.data(), bad=st.sampled_from(("elements", "inline", "opcode", "flags")))
    def malformed_requests(self, data: st.DataObject, bad: str) -> None:
        pair = data.draw(st.sampled_from(self.talking()))
        wr = SendWR(1, SEND, 3, 0, [sge(NOTHING)] * 3)
        if bad == "inline":
            keeper = next(iter(self.regions), None)
            if keeper is None or keeper.length < 65:
                return
            wr = SendWR(1, SEND, 1, 0, [SGE(keeper.address, 65, 0)], e.IBV_SEND_INLINE)
        elif bad == "opcode":
            wr = SendWR(1, 10, 1, 0, [sge(NOTHING)])
        elif bad == "flags":
            wr = SendWR(1, SEND, 1, 0, [sge(NOTHING)], 1 << 10)
        self.refused(errno.EINVAL, lambda: pair.thing.post_send(wr), lambda: self.attributes_of(pair))
        self.settle()

    def abandoned(self) -> list[Pair]:
        """Queue pairs whose last peer is gone or in a state in which it answers nothing."""
        return [
            pair
            for pair in self.pairs
            if pair.state == RTS
            and pair.former is not None
            and pair.peer is None
            and (pair.former.closed or pair.former.state in (RESET, INIT, ERR))
        ]

    @precondition(lambda self: self.abandoned())
    @rule(data=st.data(), retries=st.integers(0, 2))
    def a_peer_that_is_gone_is_given_up(self, data: st.DataObject, retries: int) -> None:
        pair = data.draw(st.sampled_from(self.abandoned()))
        attr = QPAttr(qp_state=SQD)
        attr.timeout, attr.retry_cnt = 1, retries
        pair.thing.modify(attr, e.IBV_QP_STATE)
        pair.thing.modify(attr, e.IBV_QP_TIMEOUT | e.IBV_QP_RETRY_CNT)
        pair.thing.modify(QPAttr(qp_state=RTS), e.IBV_QP_STATE)
        wr_ids = [self.next_id() for _ in range(pair.max_send_wr)]
        for wr_id in wr_ids:
            pair.thing.post_send(self.request(Operation(WRITE, NOTHING, NOTHING), wr_id))
        for wr_id in wr_ids:
            self.expect(pair.send_cq, wr_id, FLUSHED if wr_id != wr_ids[0] else RETRIES_EXCEEDED)
        self.fail(pair)
        self.settle()
        assert self.attributes_of(pair)["qp_state"] == ERR


@pytest.fixture
def two_devices(loopback_address: Callable[[], str]) -> Iterator[None]:
    """Two embedded devices whose adapters live as long as the test."""
    devices.add(",".join(f"{name}=udp:{loopback_address()}" for name in NAMES), "embedded")
    observers = [registry.open_device(name) for name in NAMES]
    yield
    for observer in observers:
        observer.close()
    for name in NAMES:
        devices.remove(name)


@pytest.mark.timeout(limit_s(3600 if LONG else 900))
def test_every_call_gives_what_the_model_says_and_refusals_change_nothing(two_devices: None) -> None:
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            derandomize=True,
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            print_blob=False,
            phases=(Phase.generate, Phase.shrink) if LONG else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )
