"""What a message costs, counted: system calls, packets, acknowledgements, bytes copied, calls of Python
functions.

Two devices of this process over loopback sockets, both driven by this thread; nothing here is timed.
"""

import gc
import itertools
import tracemalloc
from types import SimpleNamespace

import pytest
from runtime_costs import COPIES_ARE_CALLS, MIB, PMTU, End, payload_copied, python_calls

from softhca.machine.primitives import BODY
from softhca.runtime import devices
from softhca.runtime.clock import now_ns
from softhca.runtime.delayed_acknowledgement import QUICK_NS, QUICK_REPLIES
from softhca.runtime.progress_thread import Progress
from softhca.verbs import enums as e

BURST_PACKETS = 15
TICK_NS = 500  # so long, by its clock, until an engine looks at it again
LEARNED = QUICK_REPLIES + 2  # rounds: a queue pair also wakes up


@pytest.fixture
def ends(loopback_address, monkeypatch):
    """Two ends that nobody drives but the test, on clocks that go by the turn: what is counted depends on no
    machine's speed."""
    monkeypatch.setattr(Progress, "_serve", lambda self, loop: None)
    devices.add(",".join(f"{name}=udp:{loopback_address()}?same_host=0" for name in ("cost0", "cost1")))
    left, right = End("cost0"), End("cost1")
    ticks = itertools.count(now_ns(), TICK_NS)
    for end in (left, right):
        devices.find(end.name).engine.loop.clock = lambda: next(ticks)
    left.join(right)
    right.join(left)
    yield left, right
    for end in (left, right):
        end.context.close()
        devices.remove(end.name)


def run(left, right, chain, queue_pairs=()):
    """Post ``chain``, to each of ``queue_pairs`` or the first one, and then drive both ends until all has
    completed."""
    for qp in queue_pairs or (left.qp,):
        qp.post_send(chain)
    completions = len(queue_pairs) or 1
    for _ in range(100_000):
        right.context.progress()
        count, found = left.cq.poll(completions)
        assert all(each.status == 0 for each in found)
        completions -= count
        if not completions:
            return
    raise AssertionError("nothing completes")


def cost(left, right, chain, queue_pairs=()):
    """What both ends have sent for ``chain``."""
    before = left.counted(), right.counted()
    run(left, right, chain, queue_pairs)
    after = left.counted(), right.counted()
    mine, theirs = (
        SimpleNamespace(**{name: getattr(b, name) - getattr(a, name) for name in vars(a)})
        for a, b in zip(before, after, strict=True)
    )
    assert mine.again == 0, "something was sent twice"
    return mine, theirs


def test_a_chain_of_small_writes_is_one_call_and_one_acknowledgement(ends):
    left, right = ends
    run(left, right, left.chain(right, e.IBV_WR_RDMA_WRITE, 8, 1))
    mine, theirs = cost(left, right, left.chain(right, e.IBV_WR_RDMA_WRITE, 8, 64))
    assert (mine.calls, mine.datagrams, mine.bytes) == (1, 64, 64 * (12 + 16 + 8 + 4))
    assert (theirs.calls, theirs.datagrams, theirs.bytes) == (1, 1, 12 + 4 + 4)


def test_a_long_write_takes_full_bursts_and_few_acknowledgements(ends):
    left, right = ends
    run(left, right, left.chain(right, e.IBV_WR_RDMA_WRITE, 8, 1))
    mine, theirs = cost(left, right, left.chain(right, e.IBV_WR_RDMA_WRITE, MIB, 1))
    packets = MIB // PMTU
    # a FIRST is longer than what follows, so that one packet goes with it; the window may cut one burst
    least = 1 + -(-(packets - 2) // BURST_PACKETS)
    assert least <= mine.calls <= least + 1
    assert (mine.datagrams, mine.bytes) == (packets, MIB + 16 * packets + 16)
    assert theirs.calls == theirs.datagrams <= mine.calls
    assert theirs.bytes == 20 * theirs.datagrams


def test_a_send_of_64_kib_is_two_calls(ends):
    left, right = ends
    right.qp.post_recv(right.receives(MIB, 2))
    run(left, right, left.chain(right, e.IBV_WR_SEND, 8, 1))
    mine, theirs = cost(left, right, left.chain(right, e.IBV_WR_SEND, 16 * PMTU, 1))
    assert (mine.calls, mine.datagrams, mine.bytes) == (2, 16, 16 * (PMTU + 16))
    assert theirs.datagrams <= 2


def test_a_read_is_asked_for_once_and_answered_in_bursts(ends):
    left, right = ends
    run(left, right, left.chain(right, e.IBV_WR_RDMA_READ, 8, 1))
    mine, theirs = cost(left, right, left.chain(right, e.IBV_WR_RDMA_READ, 16 * PMTU, 1))
    assert (mine.calls, mine.datagrams) == (1, 1)
    # an AETH makes the first and the last longer than what is between them
    assert (theirs.calls, theirs.datagrams) == (3, 16)


@pytest.fixture
def talking(ends):
    """Both ends with receives posted, and driven by this thread alone, whose time stands still."""
    at = now_ns()
    loops = [devices.find(end.name).engine.loop for end in ends]
    for end, loop in zip(ends, loops, strict=True):
        loop.clock = lambda: at
        end.qp.post_recv(end.receives(8, 64))
    with loops[0].lock, loops[1].lock:
        yield ends
    for loop in loops:
        loop.clock = now_ns


def say(left, right):
    """One message from ``left``, for which ``right`` has waited."""
    for _ in range(2):  # the first look may find an acknowledgement
        assert not right.receive_cq.poll(1)[0]
    left.qp.post_send(left.chain(right, e.IBV_WR_SEND, 8, 1))
    while not right.receive_cq.poll(1)[0]:
        pass


def talk(left, right, rounds):
    for _ in range(rounds):
        say(left, right)
        say(right, left)


def test_an_answer_given_at_once_takes_the_acknowledgement_along(talking):
    left, right = talking
    talk(left, right, LEARNED)
    before = left.counted(), right.counted()
    talk(left, right, 4)
    for end, earlier in zip(talking, before, strict=True):
        now = end.counted()
        assert (now.calls - earlier.calls, now.datagrams - earlier.datagrams) == (4, 8)
        assert now.bytes - earlier.bytes == 4 * (24 + 20)
    assert sum(left.cq.poll(64)[0] for _ in range(4)) >= QUICK_REPLIES, "all but the last are acknowledged"


def test_who_looks_again_instead_of_answering_acknowledges_first(talking):
    left, right = talking
    talk(left, right, LEARNED)
    say(left, right)
    before = right.counted()
    right.context.progress()
    after = right.counted()
    assert (after.calls - before.calls, after.bytes - before.bytes) == (1, 20)
    say(right, left)
    say(left, right)
    again = right.counted()
    assert again.datagrams - after.datagrams == 2, "and has to earn it anew"


def test_a_command_does_not_leave_a_message_without_acknowledgement(talking):
    left, right = talking
    talk(left, right, LEARNED)
    say(left, right)
    before = right.counted()
    right.qp.close()
    after = right.counted()
    assert (after.calls - before.calls, after.bytes - before.bytes) == (1, 20)


def test_an_answer_that_takes_long_is_not_waited_for(talking):
    left, right = talking
    loop = devices.find(right.name).engine.loop
    late = now_ns() + 10**9
    for _ in range(2 * LEARNED):
        say(left, right)
        late += QUICK_NS + 1
        loop.clock = lambda: late  # noqa: B023 - the value at that moment
        say(right, left)
    before = right.counted()
    say(left, right)
    assert right.counted().bytes - before.bytes == 20


def crowd(left, right, count):
    """``count`` more connections, each of which has carried a message; the left ends."""
    left.more, right.more = ([end.queue_pair() for _ in range(count)] for end in (left, right))
    pairs = list(zip(left.more, right.more, strict=True))
    for mine, theirs in pairs:
        left.join(right, mine, theirs)
        right.join(left, theirs, mine)
    run(left, right, left.chain(right, e.IBV_WR_RDMA_WRITE, 8, 1), left.more)
    return left.more


def test_many_queue_pairs_are_acknowledged_in_few_bursts(ends):
    left, right = ends
    queue_pairs = crowd(left, right, 64)
    mine, theirs = cost(left, right, left.chain(right, e.IBV_WR_RDMA_WRITE, 8, 16), queue_pairs)
    # each doorbell by itself, or where they follow soon up to four in a burst of 64 packets
    assert 16 <= mine.calls <= 64
    assert mine.datagrams == 64 * 16
    # the receiver takes eight bursts a round, fewer where its own thread has begun one before
    assert theirs.datagrams == 64
    assert theirs.calls <= 16


def test_what_waits_for_the_window_leaves_in_bursts_of_many_queue_pairs(ends):
    left, right = ends
    queue_pairs = crowd(left, right, 240)
    (window,) = devices.find(left.name).engine.adapter.port.windows.values()
    chain = 16 * 40 + 1280
    at_once = window.limit_bytes // chain + 1
    mine, theirs = cost(left, right, left.chain(right, e.IBV_WR_RDMA_WRITE, 8, 16), queue_pairs)
    assert at_once < 120
    assert mine.datagrams == 240 * 16
    # the others follow as there is room, one to four chains in a burst of 64 packets
    assert mine.calls <= at_once + (240 - at_once) * 2 // 3
    # one for each chain, and one more where the full window cut a chain: who is cut off has asked
    assert 240 <= theirs.datagrams <= 240 + 12
    assert theirs.calls <= 40




@COPIES_ARE_CALLS
@pytest.mark.parametrize("opcode", [e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ, e.IBV_WR_SEND])
def test_payload_is_copied_once_into_the_burst_and_once_out_of_it(ends, opcode, monkeypatch):
    left, right = ends
    right.qp.post_recv(right.receives(MIB, 2))
    run(left, right, left.chain(right, opcode, 8, 1))
    chain = left.chain(right, opcode, 16 * PMTU, 1)
    assert payload_copied(lambda: run(left, right, chain), monkeypatch) == 2 * 16 * PMTU


def carried(left, right, chain):
    """Calls of the poster, and of the polling peer, for one chain."""
    posting = python_calls(lambda: left.qp.post_send(chain))
    taking = python_calls(right.context.progress)
    for _ in range(100_000):
        if left.cq.poll(1)[0]:
            return posting, taking
        right.context.progress()
    raise AssertionError("nothing completes")


@pytest.mark.skipif(BODY != "compiled", reason="interpreted, everything is a call")
def test_no_python_is_called_for_an_entry_or_a_packet(ends):
    left, right = ends
    one = left.chain(right, e.IBV_WR_RDMA_WRITE, 8, 1)
    many = left.chain(right, e.IBV_WR_RDMA_WRITE, 8, 64)
    carried(left, right, one)
    for end in ends:  # a look for other processes, now and then, belongs to no request
        devices.find(end.name).engine.loop.clients_ns = now_ns() + 10**12
    # one call more looks a chain through for binds
    assert carried(left, right, many)[0] <= carried(left, right, one)[0] + 1
    # at most one look for another burst more
    assert carried(left, right, many)[1] <= carried(left, right, one)[1] + 2


@pytest.mark.skipif(BODY != "compiled", reason="interpreted, everything is a call")
def test_a_receive_is_posted_without_python_but_for_the_question_who_sleeps(ends):
    _, right = ends
    receives = right.receives(8, 1)
    right.qp.post_recv(receives)
    # the call itself, its look at the type, the question whether somebody sleeps; and what counts them
    assert python_calls(lambda: right.qp.post_recv(receives)) <= 3 + 2


def test_nothing_is_kept_for_what_has_completed(ends):
    left, right = ends
    chain = left.chain(right, e.IBV_WR_RDMA_WRITE, 8, 64)
    for _ in range(4):
        run(left, right, chain)
    gc.collect()
    tracemalloc.start()
    try:
        run(left, right, chain)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(8):
            run(left, right, chain)
        gc.collect()
        # an object takes 28 bytes at least; threads of the device keep a little of their own
        assert tracemalloc.get_traced_memory()[0] - before < 64 * 8 * 16
    finally:
        tracemalloc.stop()
