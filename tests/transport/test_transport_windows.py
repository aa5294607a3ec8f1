"""Memory windows on the wire: binding in its turn, keys that die under way, SEND with Invalidate, users."""

import pytest

from softhca.memory.regions import LOCAL_WRITE, MW_BIND, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE
from softhca.queues import cqe, wqe
from softhca.queues.control_fields import EVENT_SQ_DRAINED
from softhca.testing.transport_node import PD
from softhca.testing.transport_pair import Faults
from softhca.transport.states import ERR, RTS, SQD, SQE, UC
from softhca.wire import opcodes

RIGHTS = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
NUMBER = 8


class Window:
    """A window of the right node over a region of it, and its bind requests."""

    def __init__(self, pair, kind=2, size=1 << 16, number=NUMBER):
        self.pair = pair
        self.region = pair.right.region(size, LOCAL_WRITE | MW_BIND)
        self.windows = pair.b.memory_windows
        self.window = self.windows.allocate(number, PD, kind)
        self.number = number

    @property
    def key(self):
        return self.window.key

    @property
    def va(self):
        return self.region.va

    def post(self, end=None, offset=0, length=None, access=RIGHTS, byte=None, **more):
        byte = (self.key + 1) & 0xFF if byte is None else byte
        length = len(self.region.data) - offset if length is None else length
        (end or self.pair.right).post(
            wqe.BIND_MW, rkey=self.number, va=self.va + offset, imm=byte, compare=length,
            swap=access << 32 | self.region.key, **more,
        )  # fmt: skip

    def bind(self, *arguments, **more):
        self.post(*arguments, **more)
        self.pair.run()
        assert statuses(self.pair.right.sent()) == [0]
        return self


def statuses(completions):
    return [c.status for c in completions]


def invalidate(end, key, **more):
    end.post(wqe.LOCAL_INV, imm=key, **more)


def users(window):
    return len(window.window.users)


def arrive(pair, bursts):
    """Let the left side's next ``bursts`` arrive, and nothing else happen."""
    for _ in range(bursts):
        pair.transmit(pair.a)
    pair.now += pair.DELAY_NS
    pair.deliver()


def test_binds_and_invalidations_wait_for_what_stands_before_them_and_hold_what_is_behind(pair):
    p = pair()
    w, target = Window(p), p.left.region(64)
    key = (w.key & ~0xFF) | 0x42
    p.right.post(wqe.RDMA_WRITE, inline=b"1", remote=target, wr_id=1, ring=False)
    w.post(byte=0x42, wr_id=2, ring=False)
    p.right.post(wqe.RDMA_WRITE, inline=b"2", remote=target, wr_id=3, offset=1, ring=False)
    invalidate(p.right, key, wr_id=4, ring=False)
    p.right.post(wqe.RDMA_WRITE, inline=b"3", remote=target, wr_id=5, offset=2)
    seen = []
    p.faults.rule = lambda way, packet: seen.append((way, w.window.valid)) or 1
    p.run()
    assert [(c.wr_id, c.status, c.opcode) for c in p.right.sent()] == [
        (1, 0, cqe.WC_RDMA_WRITE), (2, 0, cqe.WC_BIND_MW), (3, 0, cqe.WC_RDMA_WRITE),
        (4, 0, cqe.WC_LOCAL_INV), (5, 0, cqe.WC_RDMA_WRITE),
    ]  # fmt: skip
    assert [valid for way, valid in seen if way == "ba"] == [False, True, False]
    assert target.data[:3] == b"123"
    assert w.region.region.bound_windows == 0


def test_a_queue_whose_last_request_is_never_sent_tells_that_it_is_drained(pair):
    """It ends in a turn, and not by an answer."""
    p = pair()
    w, target = Window(p), p.left.region(64)
    p.right.post(wqe.RDMA_WRITE, inline=b"1", remote=target, wr_id=1, ring=False)
    w.post(byte=0x42, wr_id=2)
    while p.transmit(p.b):
        pass
    assert p.right.qp.modify({"qp_state": SQD, "en_sqd_async_notify": 1}, p.now) == 0
    assert p.right.qp.query()["sq_draining"] == 1
    p.run()
    assert [(c.wr_id, c.status) for c in p.right.sent()] == [(1, 0), (2, 0)]
    assert p.right.qp.query()["sq_draining"] == 0
    assert p.b.events == [(EVENT_SQ_DRAINED, p.right.number)]


def test_credits_do_not_count_what_is_not_sent(pair):
    p = pair()
    w = Window(p)
    for n in range(20):
        w.post(byte=n, ring=False)
        invalidate(p.right, w.key & ~0xFF | n, ring=False)
    p.left.post_receive([p.left.region(8).sge()])
    p.right.post(wqe.SEND, inline=b"sent", wr_id=9)
    p.run()
    sent = p.right.sent()
    assert statuses(sent) == [0] * 41
    assert p.right.qp.counters.retransmissions == 0
    assert statuses(p.left.received()) == [0]
    assert p.right.qp.send_engine().next_ssn == 2


@pytest.mark.parametrize("opcode", [wqe.BIND_MW, wqe.LOCAL_INV, wqe.REG_MR])
def test_a_refused_request_ends_its_queue_pair_and_nothing_else(pair, opcode):
    p = pair()
    w = Window(p).bind()
    key, generation = w.key, w.window.generation
    p.right.post(opcode, rkey=NUMBER, imm=key + 1, va=w.va, compare=8, swap=w.region.key, wr_id=4, ring=False)
    p.right.post(wqe.RDMA_WRITE, inline=b"x", wr_id=5)
    p.run()
    sent = [(c.wr_id, c.status) for c in p.right.sent()]
    assert sent == [(4, cqe.WC_MW_BIND_ERR), (5, cqe.WC_WR_FLUSH_ERR)]
    assert p.right.qp.state == ERR
    assert (w.key, w.window.generation, w.region.region.bound_windows) == (key, generation, 1)


@pytest.mark.parametrize("opcode", [wqe.RDMA_WRITE, wqe.RDMA_READ, wqe.ATOMIC_FETCH_AND_ADD])
def test_a_peer_uses_a_window_and_its_death_is_an_access_error(pair, opcode):
    p = pair()
    w = Window(p).bind()
    local = p.left.region(3000, fill=b"\7" * 3000)
    n = 8 if opcode == wqe.ATOMIC_FETCH_AND_ADD else 3000
    for status in (0, cqe.WC_REM_ACCESS_ERR):
        p.left.post(opcode, [local.sge(0, n)], rkey=w.key, va=w.va, compare=5)
        p.run()
        assert statuses(p.left.sent()) == [status]
        assert users(w) == 0
        if status == 0:
            invalidate(p.right, w.key)
            p.run()
            assert statuses(p.right.sent()) == [0]
    assert p.right.qp.counters.key_refusals == p.b.counters.key_refusals == 1


def test_another_queue_pair_of_the_domain_has_no_right_to_a_window_of_type_2(pair):
    p = pair(qps=2)
    w = Window(p).bind()
    p.lefts[1].post(wqe.RDMA_WRITE, inline=b"x", rkey=w.key, va=w.va)
    p.run()
    assert statuses(p.lefts[1].sent()) == [cqe.WC_REM_ACCESS_ERR]
    p.left.post(wqe.RDMA_WRITE, inline=b"x", rkey=w.key, va=w.va)
    p.run()
    assert statuses(p.left.sent()) == [0]


def test_a_window_is_no_local_memory(pair):
    p = pair()
    w = Window(p).bind()
    p.right.post(wqe.SEND, [(w.va, 8, w.key)])
    p.run()
    assert statuses(p.right.sent()) == [cqe.WC_LOC_PROT_ERR]


def test_after_an_invalidation_no_byte_of_a_write_under_way_lands(pair):
    p = pair()
    w = Window(p).bind()
    arrived = []

    def rule(way, packet):
        if way == "ab":
            arrived.append(packet)
            if len(arrived) == 4:  # three packets have been executed when this one is on its way
                invalidate(p.right, w.key)
        return 1

    p.faults.rule = rule
    local = p.left.region(10_000, fill=b"\5" * 10_000)
    before = []
    p.left.post(wqe.RDMA_WRITE, [local.sge()], rkey=w.key, va=w.va)
    for _ in range(10_000):
        if not p.step():
            break
        if not w.window.valid and not before:
            before.append(bytes(w.region.data))
    assert statuses(p.left.sent()) == [cqe.WC_REM_ACCESS_ERR]
    assert bytes(w.region.data) == before[0]
    assert users(w) == 0
    assert p.right.sent()[0].status == 0


@pytest.mark.parametrize("opcode", [wqe.RDMA_WRITE, wqe.RDMA_WRITE_WITH_IMM])
def test_a_write_that_is_to_come_again_uses_no_key_meanwhile(pair, opcode):
    """It is refused with an RNR NAK, for its memory is held, or for there is no receive."""
    p = pair()
    w = Window(p).bind()
    local = p.left.region(100, fill=b"\5" * 100)
    p.b.data_access(opcode == wqe.RDMA_WRITE_WITH_IMM)
    p.left.post(opcode, [local.sge()], rkey=w.key, va=w.va)
    arrive(p, 1)
    assert p.right.qp.receive_engine().replies.nak_pending >> 5 == 1
    assert users(w) == 0
    p.b.data_access(True)
    p.right.post_receive([])
    p.run()
    assert statuses(p.left.sent()) == [0]
    assert w.region.data[:100] == local.data
    assert users(w) == w.windows.keys_withdrawn == 0


def test_after_an_invalidation_no_answer_of_a_read_under_way_leaves(pair):
    p = pair()
    w = Window(p).bind()
    local = p.left.region(60_000)
    p.left.post(wqe.RDMA_READ, [local.sge()], rkey=w.key, va=w.va)
    arrive(p, 1)
    assert users(w) == 1
    assert w.windows.invalidate(w.key, p.right.number, PD, False) == 0
    assert users(w) == 0
    assert w.windows.keys_withdrawn == 1
    p.run()
    assert statuses(p.left.sent()) == [cqe.WC_REM_ACCESS_ERR]
    assert not any(opcodes.RC_RDMA_READ_RESPONSE_FIRST <= packet[0] <= opcodes.RC_RDMA_READ_RESPONSE_ONLY
                   for way, packet in p.log if way == "ba")


def test_a_read_that_is_asked_for_again_uses_its_key_again(pair):
    lost = []

    def rule(way, packet):
        if way == "ba" and len(lost) < 98:  # the whole first answer
            lost.append(packet)
            return 0
        return 1

    p = pair()
    w = Window(p, size=100_000).bind()
    p.faults.rule = rule
    p.left.post(wqe.RDMA_READ, [p.left.region(100_000).sge()], rkey=w.key, va=w.va)
    counts = [0]
    while p.step():
        if users(w) != counts[-1]:
            counts.append(users(w))
    assert statuses(p.left.sent()) == [0]
    assert counts == [0, 1, 0, 1, 0]


def test_an_atomic_has_been_executed_before_it_is_answered_and_loses_nothing(pair):
    p = pair()
    w = Window(p).bind()
    p.left.post(wqe.ATOMIC_FETCH_AND_ADD, [p.left.region(8).sge()], rkey=w.key, va=w.va, compare=5)
    arrive(p, 1)
    assert users(w) == 0
    assert w.windows.invalidate(w.key, p.right.number, PD, False) == 0
    assert w.windows.keys_withdrawn == 0
    p.run()
    assert statuses(p.left.sent()) == [0]


@pytest.mark.parametrize("end", ["reset", "error", "close"])
def test_who_is_gone_uses_no_key(pair, end):
    p = pair()
    w = Window(p, kind=1).bind()
    local = p.left.region(60_000)
    p.left.post(wqe.RDMA_READ, [local.sge()], rkey=w.key, va=w.va, ring=False)
    p.left.post(wqe.RDMA_WRITE, [local.sge()], rkey=w.key, va=w.va)
    arrive(p, 2)
    assert users(w) == 2
    if end == "close":
        p.right.qp.close()
    else:
        assert p.right.qp.modify({"qp_state": ERR}, p.now) == 0
        if end == "reset":
            assert p.right.qp.modify({"qp_state": 0}, p.now) == 0
    assert users(w) == 0


@pytest.mark.parametrize("fast", [False, True])
def test_a_send_with_invalidate_tells_its_key_and_leaves_nothing_to_use(pair, fast):
    p = pair()
    w = Window(p).bind()
    key = w.key
    if fast:
        frame = w.region.first
        region = w.windows.allocate_fast(NUMBER + 1, PD, 4, w.region.region.address_map)
        p.right.post(wqe.REG_MR, [(frame, 1, 0)], rkey=NUMBER + 1, imm=7, va=0x4000, compare=64,
                     swap=(LOCAL_WRITE | REMOTE_WRITE) << 32)
        p.run()
        assert [(c.status, c.opcode) for c in p.right.sent()] == [(0, cqe.WC_DRIVER1)]
        key = region.key
    receive = p.right.region(64)
    p.right.post_receive([receive.sge()])
    p.left.post(wqe.SEND_WITH_INV, inline=b"bye", imm=key)
    p.run()
    assert statuses(p.left.sent()) == [0]
    done = p.right.received()[0]
    assert (done.status, done.byte_len, done.imm_or_key) == (0, 3, key)
    assert done.wc_flags == cqe.WC_WITH_INV
    p.left.post(wqe.RDMA_WRITE, inline=b"x", rkey=key, va=0x4000 if fast else w.va)
    p.run()
    assert statuses(p.left.sent()) == [cqe.WC_REM_ACCESS_ERR]


def test_a_repeated_send_with_invalidate_does_not_invalidate_twice(pair):
    p = pair()
    w = Window(p).bind()
    key = w.key
    p.right.post_receive([p.right.region(8).sge()])
    held = []
    p.faults.rule = lambda way, packet: held.append(packet) or 1 if way == "ab" else 1
    p.left.post(wqe.SEND_WITH_INV, inline=b"bye", imm=key)
    p.run()
    assert statuses(p.right.received()) == [0]
    w.bind(byte=key & 0xFF)
    assert w.key == key
    p.inject("ab", held[0])
    p.run()
    assert w.window.valid
    assert p.right.qp.state == RTS


def test_a_key_that_cannot_be_invalidated_ends_the_receiver_after_the_message(pair):
    p = pair(qps=2)
    w = Window(p).bind()
    p.rights[1].post_receive([p.right.region(8).sge()])
    p.lefts[1].post(wqe.SEND_WITH_INV, inline=b"bye", imm=w.key)  # bound by the other queue pair
    p.run()
    assert statuses(p.lefts[1].sent()) == [0]
    assert [row["msn"] for row in p.decoded("ba")] == [1]  # it is done, and counts
    assert statuses(p.rights[1].received()) == [cqe.WC_REM_INV_REQ_ERR]
    assert p.rights[1].qp.state == ERR
    assert w.window.valid
    assert p.b.counters.key_refusals == 1


def test_unreliable_connections_bind_in_order_and_write_into_windows(pair):
    p = pair(service=UC)
    w = Window(p).bind()
    p.left.post(wqe.RDMA_WRITE, [p.left.region(3000, fill=b"\3" * 3000).sge()], rkey=w.key, va=w.va)
    p.run()
    assert w.region.data[:3001] == b"\3" * 3000 + b"\0"
    assert users(w) == 0
    invalidate(p.right, w.key, wr_id=1, ring=False)
    p.right.post(wqe.SEND, inline=b"x", wr_id=2, ring=False)
    invalidate(p.right, w.key, wr_id=3)
    p.run()
    assert [(c.wr_id, c.status) for c in p.right.sent()] == [(1, 0), (2, 0), (3, cqe.WC_MW_BIND_ERR)]
    assert p.right.qp.state == SQE
    p.left.post(wqe.RDMA_WRITE, inline=b"y", rkey=w.key, va=w.va)
    p.run()
    assert w.region.data[0] == 3
    assert p.right.qp.counters.drops_protection == p.right.qp.counters.key_refusals == 1


def test_loss_does_not_change_what_binding_means(pair):
    p = pair(faults=Faults(5, loss=0.1, reordering=0.1))
    w = Window(p)
    local = p.left.region(4000, fill=b"\6" * 4000)
    for n in range(10):
        w.post(byte=n)
        p.run()
        p.left.post(wqe.RDMA_WRITE, [local.sge()], rkey=w.key, va=w.va + 4000 * n)
        p.run()
        invalidate(p.right, w.key)
        p.run()
    assert statuses(p.left.sent()) == [0] * 10
    assert statuses(p.right.sent()) == [0] * 20
    assert w.region.data[:40_000] == b"\6" * 40_000
    assert users(w) == 0


@pytest.mark.parametrize("bound_again", [False, True])
def test_the_result_of_an_atomic_is_not_given_again_when_its_key_was_withdrawn_since(pair, bound_again):
    """Though the same key gives the same rights again."""
    p = pair()
    w = Window(p).bind(byte=7)
    key, fields = w.key, {"va": w.va, "rkey": w.key, "swap_add": 5}
    p.forge(opcodes.RC_FETCH_ADD, 0, **fields)
    p.run()
    p.forge(opcodes.RC_FETCH_ADD, 0, **fields)
    p.run()
    answers = [row["opcode"] for row in p.decoded("ba")]
    assert answers == [opcodes.RC_ATOMIC_ACKNOWLEDGE] * 2
    invalidate(p.right, key)
    p.run()
    if bound_again:
        w.post(byte=7)
        p.run()
        assert w.key == key
        assert w.window.valid
    p.forge(opcodes.RC_FETCH_ADD, 0, **fields)
    p.run()
    assert p.right.qp.state == ERR
    assert p.decoded("ba")[-1]["syndrome"] == 0x62
    assert int.from_bytes(w.region.data[:8], "little") == 5
