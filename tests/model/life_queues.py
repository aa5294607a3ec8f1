"""The machine's rules about completion queues, shared receive queues, queue pairs and their states."""

from __future__ import annotations

import errno
from collections import deque
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from life_model import (
    ATTRIBUTES,
    ERR,
    GUARD_BYTES,
    IMPOSSIBLE,
    INIT,
    RC,
    RESET,
    RTR,
    RTS,
    SQD,
    TRANSITIONS,
    UC,
    UD,
    CompletionQueue,
    Domain,
    Pair,
    Queue,
    SharedQueue,
    allowed,
)
from life_resources import EVERYTHING, RIGHTS, SIDES, ResourceRules

from softhca.verbs import enums as e
from softhca.verbs.cq import CQ
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr

TIMEOUT = 19  # 4.3 s before a packet is sent again: no answer is ever so late
BITS = tuple(ATTRIBUTES)
RESERVED_QPN = 1  # management's: no queue pair of a program has it


class QueueRules(ResourceRules):
    """Queues and queue pairs, on top of the other resources."""

    @initialize()
    def begin(self) -> None:
        """A connection to begin with, one end of it with a shared receive queue, and memory on both sides."""
        for side in (0, 1):
            self.new_domain(side)
            self.new_domain(side)
            domain = self.domains[-1]
            self.cqs.append(cq := CompletionQueue(side, CQ(self.contexts[side], 100)))
            for _ in range(2):
                self.register(domain, EVERYTHING, GUARD_BYTES, 12_000, False)
            shared = self.make_shared(domain, 5, 1) if side else None
            self.make_pair(domain, RC, cq, cq, shared, 4, 4)
        self.connect(*self.pairs)

    # queues

    @precondition(lambda self: self.room("cqs"))
    @rule(side=SIDES, entries=st.sampled_from((0, 64, 100, 1 << 23)))
    def new_completion_queue(self, side: int, entries: int) -> None:
        if entries not in (64, 100):
            self.refused(errno.EINVAL, lambda: CQ(self.contexts[side], entries))
            return
        self.cqs.append(CompletionQueue(side, CQ(self.contexts[side], entries)))

    @precondition(lambda self: self.cqs)
    @rule(data=st.data(), entries=st.sampled_from((0, 64, 300)))
    def resize(self, data: st.DataObject, entries: int) -> None:
        cq = data.draw(st.sampled_from(self.cqs)).thing
        if entries:
            cq.resize(entries)
            assert cq.cqe >= entries
        else:
            self.refused(errno.EINVAL, lambda: cq.resize(entries), lambda: cq.cqe)

    @precondition(lambda self: len(self.cqs) > 4)
    @rule(data=st.data())
    def close_completion_queue_with_its_queue_pairs(self, data: st.DataObject) -> None:
        cq = data.draw(st.sampled_from(self.cqs))
        cq.thing.close()
        for pair in [pair for pair in self.pairs if cq in (pair.send_cq, pair.recv_cq)]:
            self.forget_pair(pair)
        self.cqs.remove(cq)
        self.closed.append(lambda: cq.thing.poll())

    @precondition(lambda self: self.domains and self.room("shared"))
    @rule(data=st.data(), max_wr=st.sampled_from((0, 2, 5, 32_769)))
    def new_shared_queue(self, data: st.DataObject, max_wr: int) -> None:
        max_sge = data.draw(st.sampled_from((0, 1, 1, 3, 257)))
        domain = data.draw(st.sampled_from(self.domains))
        init = SrqInitAttr(SrqAttr(max_wr, max_sge))
        if max_wr not in (2, 5) or max_sge not in (1, 3):
            self.refused(errno.EINVAL, lambda: SRQ(domain.thing, init))
            return
        self.make_shared(domain, max_wr, max_sge)

    def make_shared(self, domain: Domain, max_wr: int, max_sge: int) -> SharedQueue:
        srq = SRQ(domain.thing, SrqInitAttr(SrqAttr(max_wr, max_sge)))
        made = srq.query()
        assert made.max_wr >= max_wr
        assert (made.max_sge, made.srq_limit) == (max_sge, 0)
        self.shared.append(shared := SharedQueue(domain, srq, max_sge, Queue(made.max_wr)))
        return shared

    @precondition(lambda self: self.shared)
    @rule(data=st.data(), limit=st.integers(0, 7), resize=st.booleans())
    def arm_shared_queue(self, data: st.DataObject, limit: int, resize: bool) -> None:
        srq = data.draw(st.sampled_from(self.shared))

        def look() -> tuple[int, int, int]:
            found = srq.thing.query()
            return found.max_wr, found.max_sge, found.srq_limit

        attr = SrqAttr(100, 1, limit)
        if resize or limit > srq.receives.capacity:
            mask = e.IBV_SRQ_LIMIT | (e.IBV_SRQ_MAX_WR if resize else 0)
            self.refused(errno.EINVAL, lambda: srq.thing.modify(attr, mask), look)
            return
        srq.thing.modify(attr, e.IBV_SRQ_LIMIT)
        fires = limit > len(srq.receives.waiting)
        assert srq.thing.query().srq_limit in ((0, limit) if fires else (limit,))

    @precondition(lambda self: self.shared)
    @rule(data=st.data())
    def close_shared_queue_with_its_queue_pairs(self, data: st.DataObject) -> None:
        srq = data.draw(st.sampled_from(self.shared))
        srq.thing.close()
        for pair in [pair for pair in self.pairs if pair.shared is srq]:
            self.forget_pair(pair)
        self.shared.remove(srq)
        self.closed.append(lambda: srq.thing.query())

    # queue pairs

    def make_pair(
        self,
        domain: Domain,
        kind: int,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue,
        shared: SharedQueue | None,
        max_send_wr: int,
        max_recv_wr: int,
    ) -> None:
        srq = shared.thing if shared is not None else None
        cap = QPCap(max_send_wr, max_recv_wr, 2, 2, 64)
        qp = QP(domain.thing, QPInitAttr(kind, None, send_cq.thing, recv_cq.thing, srq, cap))
        assert qp.query(e.IBV_QP_CAP)[0].cap.as_dict() == cap.as_dict()
        blank = self.attributes_of(qp)
        assert blank["qp_state"] == RESET
        receives = Queue(max_recv_wr, deque())
        self.pairs.append(Pair(domain, kind, qp, send_cq, recv_cq, shared, max_send_wr, receives, blank))

    @precondition(lambda self: self.domains and self.room("pairs"))
    @rule(
        data=st.data(),
        kind=st.sampled_from((RC, RC, UC, UD)),
        wrong=st.sampled_from((None, None, None, "max_recv_wr", "max_send_sge", "max_inline_data")),
    )
    def new_pair(self, data: st.DataObject, kind: int, wrong: str | None) -> None:
        domain = data.draw(st.sampled_from(self.domains))
        cqs = [cq for cq in self.cqs if cq.side == domain.side]
        if not cqs:
            return
        send_cq, recv_cq = data.draw(st.sampled_from(cqs)), data.draw(st.sampled_from(cqs))
        shared = data.draw(
            st.sampled_from([None, *[srq for srq in self.shared if srq.domain.side == domain.side]])
        )
        if wrong is not None:
            cap = QPCap(1, 1, 1, 1, 0)
            setattr(cap, wrong, 100_000)
            init = QPInitAttr(kind, None, send_cq.thing, recv_cq.thing, cap=cap)
            self.refused(errno.EINVAL, lambda: QP(domain.thing, init))
            return
        sends, receives = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 4))
        self.make_pair(domain, kind, send_cq, recv_cq, shared, sends, receives)

    def forget_pair(self, pair: Pair) -> None:
        pair.part()
        pair.closed = True
        self.pairs.remove(pair)
        self.closed.append(lambda: pair.thing.query(0))

    @precondition(lambda self: len(self.pairs) > 2)
    @rule(data=st.data())
    def close_pair(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(self.pairs))
        pair.thing.close()
        self.forget_pair(pair)

    def attributes_for(self, pair: Pair, data: st.DataObject) -> QPAttr:
        """Values that a modify may have, so chosen that a connection stays what the model knows of it."""
        draw = data.draw
        attr = QPAttr(cur_qp_state=pair.state, port_num=1, path_mtu=draw(st.integers(1, self.mtu)))
        attr.ah_attr = self.vector(pair.peer.side if pair.peer is not None else pair.side)
        attr.dest_qp_num = RESERVED_QPN
        attr.qkey = draw(st.integers(0, 0xFFFFFFFF))
        attr.qp_access_flags = draw(RIGHTS)
        attr.rq_psn, attr.sq_psn = draw(st.integers(0, 0xFFFFFF)), draw(st.integers(0, 0xFFFFFF))
        attr.min_rnr_timer, attr.timeout = draw(st.integers(1, 3)), TIMEOUT
        attr.retry_cnt, attr.rnr_retry = draw(st.integers(0, 7)), draw(st.integers(0, 1))
        attr.max_rd_atomic, attr.max_dest_rd_atomic = draw(st.integers(0, 4)), draw(st.integers(0, 4))
        return attr

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), steps=st.integers(1, 4), more=st.booleans())
    def advance(self, data: st.DataObject, steps: int, more: bool) -> None:
        """One queue pair on its way through the states, with what each step needs or all that it takes."""
        pair = data.draw(st.sampled_from(self.pairs))
        for _ in range(steps):
            goal = {RESET: INIT, INIT: RTR, RTR: RTS, RTS: SQD, SQD: RTS, ERR: RESET}[pair.state]
            attr = self.attributes_for(pair, data)
            attr.qp_state = goal
            required, optional = TRANSITIONS.get((pair.kind, pair.state, goal), (0, 0))
            self.change(pair, attr, required | (optional if more else 0) | e.IBV_QP_STATE)
            again = TRANSITIONS.get((pair.kind, goal, goal), (0, 0))[1]
            if more and again:
                attr.cur_qp_state = goal
                self.change(pair, attr, again)

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), goal=st.sampled_from((ERR, ERR, RESET)))
    def stop(self, data: st.DataObject, goal: int) -> None:
        """To the error state, where receives come back flushed, or to RESET, which drops them."""
        pair = data.draw(st.sampled_from(self.pairs))
        self.change(pair, QPAttr(qp_state=goal), e.IBV_QP_STATE)

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def modifies_that_are_wrong(self, data: st.DataObject) -> None:
        """To every state: one attribute too few, one too many, one with a value that cannot be."""
        pair = data.draw(st.sampled_from(self.pairs))
        for goal in range(8):
            attr = self.attributes_for(pair, data)
            required, optional = TRANSITIONS.get((pair.kind, pair.state, goal), (0, 0))
            masks = {required & ~data.draw(st.sampled_from(BITS)), required, required | optional}
            if goal not in (RESET, ERR):
                masks.add(required | data.draw(st.sampled_from(BITS)))
            for mask in sorted(masks):
                if not allowed(pair.kind, pair.state, goal, mask):
                    self.refuse(pair, attr, goal, mask)
            if allowed(pair.kind, pair.state, goal, required) and required | optional:
                spoilt = self.spoilt(attr, pair, required | optional, data)
                if spoilt is not None:
                    self.refuse(pair, spoilt, goal, required | optional)

    def spoilt(self, attr: QPAttr, pair: Pair, mask: int, data: st.DataObject) -> QPAttr | None:
        """The same with one value of those in ``mask`` that is impossible, or untrue; None where none is."""
        names = [name for bit, name in ATTRIBUTES.items() if bit & mask and name in IMPOSSIBLE]
        if mask & e.IBV_QP_CUR_STATE:
            names.append("cur_qp_state")
        if not names:
            for name in ("qkey", "en_sqd_async_notify"):  # the attribute itself takes no such value
                with pytest.raises(OverflowError):
                    setattr(attr, name, 1 << 32)
            attr.qp_access_flags = 1 << 12
            return attr if mask & e.IBV_QP_ACCESS_FLAGS else None
        name = data.draw(st.sampled_from(names))
        values = IMPOSSIBLE.get(name, ((pair.state + 1) % 7,))
        setattr(attr, name, data.draw(st.sampled_from(values)))
        return attr

    def refuse(self, pair: Pair, attr: QPAttr, goal: int, mask: int) -> None:
        """A modify that is EINVAL and changes nothing."""
        attr.qp_state = goal
        modify = partial(pair.thing.modify, attr, mask | e.IBV_QP_STATE)
        self.refused(errno.EINVAL, modify, partial(self.attributes_of, pair))

    def change(self, pair: Pair, attr: QPAttr, mask: int) -> None:
        """A modify that is allowed: a query says what was given, and all else as before."""
        before = self.attributes_of(pair)
        pair.thing.modify(attr, mask)
        after = self.attributes_of(pair)
        goal = attr.qp_state if mask & e.IBV_QP_STATE else pair.state
        given = {name: getattr(attr, name) for bit, name in ATTRIBUTES.items() if bit & mask}
        if "ah_attr" in given:
            given["ah_attr"] = attr.ah_attr.as_dict()
        for name in ("en_sqd_async_notify", "cur_qp_state"):  # an order and a condition, not attributes
            given.pop(name, None)
        wanted = dict(pair.blank) if goal == RESET else {**before, **given, "qp_state": goal}
        wanted["cur_qp_state"] = goal
        for name in ("en_sqd_async_notify", *(("path_mtu",) if pair.kind == UD else ())):
            after.pop(name), wanted.pop(name)
        assert after == wanted
        if goal == ERR:
            self.fail(pair)
        elif goal == RESET:
            pair.part()
            if pair.shared is None:
                pair.receives.waiting.clear()
        pair.state = goal
        pair.access = after["qp_access_flags"]
        pair.reads, pair.answers = after["max_rd_atomic"], after["max_dest_rd_atomic"]
        if goal == RTR:
            pair.former = None
        self.settle()

    def connect(self, left: Pair, right: Pair) -> None:
        """Both from RESET to RTS, towards each other."""
        self.connections += 1
        for pair in (left, right):
            self.change(pair, QPAttr(qp_state=RESET), e.IBV_QP_STATE)
        start = (0xFFFFFE + self.connections * 0x10000) & 0xFFFFFF
        ways = ((left, right, start, start ^ 0x800), (right, left, start ^ 0x800, start))
        for pair, peer, own, other in ways:
            attr = QPAttr(port_num=1, path_mtu=1 + self.connections % self.mtu)
            attr.qp_access_flags = EVERYTHING
            attr.ah_attr = self.vector(peer.side)
            attr.dest_qp_num, attr.sq_psn, attr.rq_psn = peer.thing.qp_num, own, other
            attr.max_rd_atomic, attr.max_dest_rd_atomic = -self.connections % 5, -self.connections % 6
            attr.min_rnr_timer, attr.timeout, attr.retry_cnt = 1, TIMEOUT, 7
            attr.rnr_retry = self.connections % 2
            pair.thing.to_rts(attr)
            pair.state, pair.access = RTS, EVERYTHING
            pair.reads, pair.answers = attr.max_rd_atomic, attr.max_dest_rd_atomic
            pair.peer = pair.former = peer

    @rule(data=st.data())
    def connect_two(self, data: st.DataObject) -> None:
        pairs = [pair for pair in self.pairs if pair.kind == RC]
        if len(pairs) > 1:
            left, right = data.draw(st.lists(st.sampled_from(pairs), min_size=2, max_size=2, unique_by=id))
            self.connect(left, right)
