"""Chains of work requests from verbs objects to entries in a ring, and completions from a ring to objects."""

import errno
from types import SimpleNamespace

import pytest

from softhca.driver.cq import Completion
from softhca.driver.errors import DriverError, PostError
from softhca.driver.liveness import Liveness
from softhca.driver.polling import MANY, CompletionPoller
from softhca.driver.posting import ReceivePoster, SendPoster, swapped
from softhca.machine.primitives import address_of, store64
from softhca.memory.host import HostMemory
from softhca.queues import wqe
from softhca.queues.completion import CompletionQueue, pages_for
from softhca.queues.cqe import CQE_BYTES
from softhca.queues.layout import RING_HEAD_AT
from softhca.queues.ring import RingConsumer, RingLayout, plan
from softhca.queues.states import ERR
from softhca.testing.ends import pair
from softhca.verbs import enums as e
from softhca.verbs.wc import WC
from softhca.verbs.wr import SGE, RecvWR, SendWR

MEMORY = HostMemory(1 << 26)


def layout_of(entries, body_bytes):
    layout = RingLayout.over(
        MEMORY.allocate(plan(entries, body_bytes)), MEMORY.address_map, entries, body_bytes
    )
    layout.clear()
    return layout


class Sends:
    """A poster, and what an adapter would take out of its ring."""

    def __init__(self, entries=8, max_sge=2, inline_bytes=32):
        layout = layout_of(entries, entries * wqe.send_bytes(max_sge, inline_bytes))
        self.poster = SendPoster(layout, entries, max_sge, inline_bytes)
        self.consumer = RingConsumer(layout)
        self.work = wqe.SendWork(max_sge, inline_bytes)

    def take(self):
        """The next entry, decoded; None for none."""
        return self.work if self.work.fetch(self.consumer) > 0 else None


def request(wr_id=1, following=None, **values):
    made = SendWR(wr_id, num_sge=1, sg=[SGE(0x1000, 8, 5)], next_wr=following)
    for name, value in values.items():
        setattr(made, name, value)
    return made


def refused(poster, chain):
    """Why a chain is refused (an errno), and at which request."""
    with pytest.raises(PostError) as caught:
        poster.write(chain)
    return caught.value.errno, caught.value.request


def test_every_value_of_a_request_arrives_in_the_ring():
    sends = Sends()
    wr = SendWR(
        7, e.IBV_WR_SEND_WITH_IMM, 2, 0x04030201, [SGE(1 << 40, 2, 3), SGE(4, 5, 6)],
        e.IBV_SEND_FENCE | e.IBV_SEND_SOLICITED,
    )  # fmt: skip
    wr.remote_addr, wr.remote_rkey, wr.compare_add, wr.swap = 1 << 63, 10, 1 << 62, 1 << 61
    wr.ah, wr.remote_qpn, wr.remote_qkey = SimpleNamespace(number=14), 8, 9
    sends.poster.write(wr)
    work = sends.take()
    assert (work.opcode, work.flags, work.wr_id) == (wqe.SEND_WITH_IMM, wqe.FENCE | wqe.SOLICITED, 7)
    assert work.imm_or_key == 0x01020304, "network byte order outside, a number inside"
    assert (work.remote_va, work.rkey, work.compare_add, work.swap) == (1 << 63, 10, 1 << 62, 1 << 61)
    assert (work.ah, work.remote_qpn, work.remote_qkey) == (14, 8, 9)
    assert work.elements() == [(1 << 40, 2, 3), (4, 5, 6)]


@pytest.mark.parametrize("opcode", [e.IBV_WR_RDMA_WRITE, e.IBV_WR_ATOMIC_FETCH_AND_ADD, e.IBV_WR_SEND])
@pytest.mark.parametrize("name", [None, "remote_addr", "compare_add", "swap", "remote_qpn", "remote_qkey"])
def test_each_value_of_a_request_on_one_element_arrives_alone(name, opcode):
    sends = Sends()
    wr = request(opcode=opcode)
    if name:
        setattr(wr, name, 0x1234)
    sends.poster.write(wr)
    work = sends.take()
    found = {
        "remote_addr": work.remote_va, "compare_add": work.compare_add, "swap": work.swap,
        "remote_qpn": work.remote_qpn, "remote_qkey": work.remote_qkey,
    }  # fmt: skip
    assert found == {**dict.fromkeys(found, 0), **({name: 0x1234} if name else {})}
    assert (work.wr_id, work.flags, work.ah, work.elements()) == (1, wqe.SIGNALED, 0, [(0x1000, 8, 5)])


def test_requests_on_one_element_arrive_all_round_the_ring():
    sends = Sends(entries=3, max_sge=3, inline_bytes=0)
    for n in range(1, 50):
        elements = [SGE(n << 32, n + each, each) for each in range(1 + n % 5 // 4)]
        sends.poster.write(request(n, remote_addr=1 << n, remote_rkey=n, sg_list=elements))
        work = sends.take()
        sends.consumer.release(1)
        assert (work.wr_id, work.remote_va, work.rkey) == (n, 1 << n, n)
        assert work.elements() == [(each.addr, each.length, each.lkey) for each in elements]


def test_a_queue_of_no_elements_takes_none():
    sends = Sends(max_sge=0)
    bad = request()
    assert refused(sends.poster, bad) == (errno.EINVAL, bad)
    assert sends.take() is None


def test_a_key_that_is_not_an_immediate_keeps_its_order():
    sends = Sends()
    sends.poster.write(SendWR(opcode=e.IBV_WR_SEND_WITH_INV, imm_data=0x01020304))
    assert sends.take().imm_or_key == 0x01020304


def test_a_chain_is_taken_whole_and_in_order():
    sends = Sends()
    sends.poster.write(request(1, request(2, request(3))))
    assert (sends.poster.written, sends.poster.request) == (3, None)
    assert [sends.take().wr_id for _ in range(3)] == [1, 2, 3]
    assert sends.take() is None


@pytest.mark.parametrize("values", [{"send_flags": 16}, {"opcode": 10}, {"sg_list": [SGE(1, 1, 1)] * 3}])
def test_the_first_that_is_refused_ends_a_chain(values):
    sends = Sends()
    bad = request(2, request(3), **values)
    assert refused(sends.poster, request(1, bad)) == (errno.EINVAL, bad)
    assert sends.poster.request is bad
    assert sends.poster.written == 1
    assert sends.take().wr_id == 1
    assert sends.take() is None


def test_a_full_queue_refuses_the_one_that_does_not_fit():
    sends = Sends(entries=2)
    bad = request(3)
    assert refused(sends.poster, request(1, request(2, bad))) == (errno.ENOMEM, bad)
    assert (sends.poster.request, sends.poster.written) == (bad, 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("wr_id", -1), ("remote_addr", 1 << 64), ("remote_rkey", 1 << 32), ("imm_data", 1 << 32), ("swap", -1)],
)
@pytest.mark.parametrize("opcode", [e.IBV_WR_SEND, e.IBV_WR_SEND_WITH_IMM])
def test_a_value_that_its_field_cannot_hold_is_refused_and_writes_nothing(name, value, opcode):
    sends = Sends()
    bad = request(2, opcode=opcode)
    setattr(bad, name, value)
    assert refused(sends.poster, request(1, bad)) == (errno.EINVAL, bad)
    assert (sends.poster.request, sends.poster.written) == (bad, 1)
    sends.take()
    assert sends.take() is None


def test_inline_data_is_taken_when_it_is_posted():
    sends, memory = Sends(), bytearray(b"0123456789")
    base = address_of(memory)
    wr = SendWR(num_sge=2, sg=[SGE(base + 8, 2, 0), SGE(base, 1, 0)], send_flags=e.IBV_SEND_INLINE)
    sends.poster.write(wr)
    memory[:] = bytes(10)
    work = sends.take()
    assert bytes(work.buffer[work.inline_offset : work.inline_offset + work.inline_bytes]) == b"890"
    for sges in ([SGE(16, 33, 0)], [SGE(16, 1, 0), SGE(16, 0xFFFFFFFF, 0)]):  # what is not mapped is not read
        wr.sg_list = sges
        assert refused(sends.poster, wr) == (errno.EINVAL, wr)


@pytest.mark.parametrize(("length", "code"), [(32, 0), (33, errno.EINVAL), (100, errno.EINVAL)])
def test_inline_data_has_up_to_the_most_bytes(length, code):
    sends = Sends(max_sge=4, inline_bytes=32)
    data = bytes(range(length))
    assert sends.poster.post(wqe.SEND, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, [], data) == code
    taken = sends.take()
    assert (taken is None) is (code != 0)
    if not code:
        assert (taken.wr_id, taken.inline_bytes) == (7, 32)


@pytest.mark.parametrize(("flags", "expected"), [
    (0, 0),
    (e.IBV_SEND_SIGNALED, wqe.SIGNALED),
    (e.IBV_SEND_SOLICITED | e.IBV_SEND_FENCE, wqe.SOLICITED | wqe.FENCE),
])  # fmt: skip
def test_one_run_is_posted_without_an_object_for_it(flags, expected):
    sends, memory = Sends(), bytearray(b"0123456789")
    base = address_of(memory)
    assert sends.poster.post_run(wqe.RDMA_WRITE, flags, 5, 6, 0x7000, 8, base, 10, 9) == 0
    work = sends.take()
    assert (work.opcode, work.flags, work.imm_or_key, work.wr_id) == (wqe.RDMA_WRITE, expected, 5, 6)
    assert (work.remote_va, work.rkey, work.elements()) == (0x7000, 8, [(base, 10, 9)])
    assert sends.poster.post_run(wqe.RDMA_WRITE, flags | e.IBV_SEND_INLINE, 5, 7, 0x7000, 8, base, 10, 9) == 0
    memory[:] = bytes(10)
    work = sends.take()
    assert (work.flags, work.inline_bytes) == (expected | wqe.INLINE, 10)
    assert bytes(work.buffer[work.inline_offset : work.inline_offset + 10]) == b"0123456789"


@pytest.mark.parametrize(("opcode", "flags", "length", "code"), [
    (31, 0, 8, errno.EINVAL),
    (wqe.RDMA_WRITE, e.IBV_SEND_INLINE, 33, errno.EINVAL),
    (wqe.RDMA_WRITE, 0, 33, 0),
])  # fmt: skip
def test_a_run_that_cannot_be_is_refused(opcode, flags, length, code):
    sends = Sends(max_sge=4)  # whose entries have room for more
    assert sends.poster.post_run(opcode, flags, 0, 1, 2, 3, 0x1000, length, 4) == code  # is not read
    assert (sends.take() is None) is (code != 0)


def test_a_full_queue_takes_no_run():
    sends = Sends(entries=1)
    assert [sends.poster.post_run(wqe.RDMA_WRITE, 0, 0, 1, 2, 3, 16, 8, 4) for _ in "12"] == [0, errno.ENOMEM]


def test_what_was_written_of_a_chain_goes_although_the_rest_is_refused():
    world, left, queue_pair, right, _ = pair()
    left.memory[:8] = b"the good"
    good = SendWR(5, num_sge=1, sg=[SGE(left.va, 8, left.key.lkey)], opcode=e.IBV_WR_RDMA_WRITE)
    good.set_wr_rdma(right.key.rkey, right.va + 64)
    good.following = SendWR(6, num_sge=1, sg=[SGE(left.va, 8, left.key.lkey)], send_flags=1 << 10)
    with pytest.raises(DriverError) as caught:
        queue_pair.post_chain(good)
    assert caught.value.errno == errno.EINVAL
    assert [(each.wr_id, each.status) for each in left.poll(1)] == [(5, 0)]
    assert right.memory[64:72] == b"the good"
    world.close()


def test_a_chain_says_whether_it_binds_a_window_itself():
    world, left, queue_pair, _, _ = pair()
    bind, plain = SendWR(1, opcode=e.IBV_WR_BIND_MW), request(2)
    assert queue_pair.post_chain(bind) is True
    assert queue_pair.post_chain(plain) is False
    assert len(left.poll(2)) == 2
    world.close()


def test_a_receive_that_comes_after_the_error_is_flushed_at_once():
    """Nobody need poll for it: its program may sleep until it completes."""
    world, _, _, right, queue_pair = pair()
    queue_pair.modify({"qp_state": ERR})
    queue_pair.post_receives(RecvWR(9, 1, [SGE(right.va, 8, right.key.lkey)]))
    assert right.cq.poller.waiting()
    world.close()


def test_a_receive_ring_that_the_adapter_has_broken_is_no_full_one():
    layout = layout_of(1, wqe.receive_bytes(1))
    poster, bad = ReceivePoster(layout, 1, 1), RecvWR(2)
    poster.write(RecvWR(1, 1, [SGE(5, 6, 7)]))
    assert refused(poster, bad) == (errno.ENOMEM, bad)
    store64(layout.control + RING_HEAD_AT, 2)
    assert refused(poster, bad) == (errno.EIO, bad)


def test_receives_go_in_chains():
    layout = layout_of(2, 2 * wqe.receive_bytes(1))
    poster, consumer, work = ReceivePoster(layout, 2, 1), RingConsumer(layout), wqe.ReceiveWork(1)
    bad = RecvWR(3)
    assert refused(poster, RecvWR(1, 1, [SGE(5, 6, 7)], RecvWR(2, next_wr=bad))) == (errno.ENOMEM, bad)
    assert (poster.request, poster.written) == (bad, 2)
    assert work.fetch(consumer) > 0
    assert (work.wr_id, work.elements()) == (1, [(5, 6, 7)])
    assert work.fetch(consumer) > 0
    assert (work.wr_id, work.num_sge) == (2, 0)


def test_numbers_are_swapped_whole():
    assert swapped(0x01020304) == 0x04030201
    assert swapped(0xFF000000) == 0xFF
    with pytest.raises(OverflowError):
        swapped(1 << 32)


class Polled:
    """A completion queue with its poller; ``on_progress`` stands for the engine."""

    def __init__(self, entries=4):
        layout = layout_of(entries, entries * CQE_BYTES)
        assert pages_for(entries) == plan(entries, entries * CQE_BYTES)
        self.queue = CompletionQueue(1, layout, self)
        self.failed, self.progressed = [], 0
        self.on_progress = lambda: None
        self.session = Liveness()
        self.poller = CompletionPoller(layout, self.session, self.progress, self.failed.append)
        self.layout = layout

    def overflow(self, queue):
        pass

    def progress(self):
        self.poller.acquire()  # would wait for ever if the lock were held
        self.poller.release()
        self.progressed += 1
        self.on_progress()

    def post(self, wr_id, status=0, qp_num=5):
        self.queue.post(wr_id, status, 1, 2, qp_num, 3, 4, 6, 7, 8, 9, 10, 11, 12)


FIELDS = {
    "wr_id": 1 << 63, "status": 0, "opcode": 1, "wc_flags": 2, "qp_num": 5, "byte_len": 3, "imm_data": 4,
    "src_qp": 6, "vendor_err": 7, "pkey_index": 8, "sl": 9, "slid": 10, "dlid_path_bits": 11,
    "timestamp_ns": 12,
}  # fmt: skip


@pytest.mark.parametrize("kind", [Completion, WC])
def test_completions_are_objects_of_the_kind_that_is_asked_for(kind):
    polled = Polled()
    polled.post(1 << 63)
    (completion,) = polled.poller.poll(9, kind)
    assert type(completion) is kind
    assert {name: getattr(completion, name) for name in FIELDS} == FIELDS
    assert polled.progressed == 0


def test_the_engine_is_driven_once_when_there_is_nothing():
    polled = Polled()
    assert polled.poller.poll(1) == []
    assert polled.progressed == 1
    polled.on_progress = lambda: [polled.post(number) for number in (1, 2, 3)]
    assert [each.wr_id for each in polled.poller.poll(2)] == [1, 2]
    assert [each.wr_id for each in polled.poller.poll(2)] == [3]
    assert polled.progressed == 2


def test_the_engine_is_driven_although_there_always_are_completions():
    polled, turns = Polled(8), MANY // 8
    for turn in range(1, 2 * turns):
        for number in range(8):
            polled.post(number)
        assert len(polled.poller.poll(8)) == 8
        assert polled.progressed == turn // turns
    assert polled.poller.poll(1) == []  # begins to count anew
    for number in range(8):
        polled.post(number)
    assert len(polled.poller.poll(8)) == 8
    assert polled.progressed == 2


def test_a_poll_makes_room_for_more():
    polled = Polled(2)
    for number in range(0, 20, 2):
        polled.post(number)
        polled.post(number + 1)
        assert [each.wr_id for each in polled.poller.poll(5)] == [number, number + 1]
    assert not polled.queue.overflowed


def taken(polled):
    """The ``wr_id`` of all that is there, by polls of two."""
    found = []
    while some := polled.poller.poll(2):
        found += [each.wr_id for each in some]
    return found


@pytest.mark.parametrize("resized", [False, True])
def test_what_a_queue_pair_has_completed_is_dropped_and_neither_others_nor_later_ones(resized):
    polled = Polled(8)
    for wr_id, qp_num in ((1, 9), (2, 9)):
        polled.post(wr_id, qp_num=qp_num)
    assert taken(polled) == [1, 2]
    for wr_id, qp_num in ((3, 5), (4, 6), (5, 5)):
        polled.post(wr_id, qp_num=qp_num)
    polled.poller.drop(5)
    polled.post(6, qp_num=5)
    polled.post(7, qp_num=6)
    polled.poller.drop(6)
    polled.post(8, qp_num=6)
    if resized:
        layout = layout_of(16, 16 * CQE_BYTES)
        polled.poller.leave()
        polled.queue.move_to(layout)
        polled.poller.move_to(layout)
    assert taken(polled) == [6, 8]
    for wr_id in range(10, 16):
        polled.post(wr_id, qp_num=5 + wr_id % 2)
    assert taken(polled) == list(range(10, 16)), "room was given back"


def test_what_is_dropped_gives_its_room_back_though_nobody_polls():
    polled = Polled(4)
    for qp_num in range(20, 60):
        for wr_id in range(3):
            polled.post(wr_id, qp_num=qp_num)
        polled.poller.drop(qp_num)
        assert polled.poller.waiting() == 0
    polled.post(1, qp_num=7)
    polled.post(2, qp_num=8)
    polled.post(3, qp_num=9)
    polled.poller.drop(8)  # not the first: it keeps its place, and its neighbours theirs
    assert polled.poller.waiting() == 3
    polled.poller.drop(7)
    assert polled.poller.waiting() == 1
    polled.post(4, qp_num=8)
    assert not polled.queue.overflowed
    assert taken(polled) == [3, 4]


def test_what_is_malformed_behind_dropped_completions_is_the_next_polls_matter():
    polled = Polled(4)
    polled.post(1, qp_num=5)
    cut_short = bytearray(CQE_BYTES)
    polled.queue.producer.push(address_of(cut_short), CQE_BYTES - 8)
    polled.poller.drop(5)
    assert polled.poller.waiting() == 1
    with pytest.raises(DriverError) as caught:
        polled.poller.poll(1)
    assert caught.value.errno == errno.EIO


def test_who_drops_in_the_middle_of_an_own_poll_leaves_the_ring_to_it():
    """A signal handler may do it."""
    polled = Polled(4)
    polled.post(1, qp_num=5)
    polled.poller.acquire()
    polled.poller.drop(5)
    assert polled.poller.waiting() == 1
    polled.poller.release()
    assert taken(polled) == []


def test_nothing_is_dropped_where_nothing_waits():
    polled = Polled()
    polled.poller.drop(5)
    polled.post(1, qp_num=5)
    assert taken(polled) == [1]


@pytest.mark.parametrize(("network_order", "immediate"), [(False, 4), (True, 4 << 24)])
def test_an_immediate_is_given_in_the_byte_order_that_is_asked_for(network_order, immediate):
    polled = Polled()
    polled.post(1)
    (found,) = polled.poller.poll(1, Completion, network_order)
    assert found.imm_data == immediate


def test_a_completion_in_error_tells_of_its_queue_pair():
    polled = Polled()
    polled.post(1)
    polled.post(2, status=5, qp_num=77)
    assert [each.status for each in polled.poller.poll(5)] == [0, 5]
    assert polled.failed == [77]


def test_what_the_adapter_cannot_have_written_is_an_error_behind_what_it_has():
    polled = Polled()
    polled.post(1)
    polled.post(2)
    store64(polled.layout.reference(1), 49 << 32)
    assert [each.wr_id for each in polled.poller.poll(5)] == [1]
    with pytest.raises(DriverError) as caught:
        polled.poller.poll(5)
    assert caught.value.errno == errno.EIO


def test_a_dead_session_is_asked_why():
    polled = Polled()

    class Gone(Liveness):
        def check(self):
            raise DriverError(errno.EIO, self.dead)

    polled.poller.session = gone = Gone()
    gone.dead = "gone"
    with pytest.raises(DriverError, match="gone"):
        polled.poller.poll(1)
