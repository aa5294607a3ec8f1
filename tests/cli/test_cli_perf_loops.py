"""The loops of the performance tests against an end that only keeps account."""

import itertools
import socket
import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from softhca.cli import perf_ends
from softhca.cli.control import ControlConnection
from softhca.cli.errors import CommandError
from softhca.cli.perf import result_of
from softhca.cli.perf_bandwidth import BandwidthClient, Measured, Receiver, serve
from softhca.cli.perf_bidirectional import BothWays
from softhca.cli.perf_ends import measured_of, report_of
from softhca.cli.perf_latency import LatencyEnd
from softhca.cli.perf_plan import BATCH, RECEIVE_DEPTH, TRANSMIT_DEPTH, Plan
from softhca.cli.perftest_exchange import Keys, Report
from softhca.verbs import enums as e

KEYS = Keys(0, 16, 5, 0, 0xABCD, 0x10000, bytes(16))


class Request:
    """A work request of which the chain, and what it is addressed to, can be seen."""

    def __init__(self, opcode, wr_id, signaled, inline, following):
        self.opcode, self.wr_id, self.signaled, self.inline = opcode, wr_id, signaled, inline
        self.following = following
        self.target = None

    def set_wr_rdma(self, rkey, address):
        self.target = (rkey, address)

    def set_wr_atomic(self, rkey, address, compare_add, swap=0):
        self.target = (rkey, address, compare_add, swap)

    def chain(self):
        request, chain = self, []
        while request is not None:
            chain.append(request)
            request = request.following
        return chain


class Account:
    """An end whose work completes at once, in order."""

    def __init__(self, plan):
        self.plan = plan
        self.posted = []
        self.receives = [0] * plan.queue_pairs
        self.most = 0
        self.pending = []
        self.done = []
        self.memory = bytearray(2 * 4096 * plan.queue_pairs)
        self.needs = SimpleNamespace(silence_s=5.0)
        self.send_cq = "send"
        self.receive_cq = SimpleNamespace(poll=self.poll)
        self.context = SimpleNamespace(progress=self.progress)
        self.links = [SimpleNamespace(qp=self.queue_pair(index)) for index in range(plan.queue_pairs)]
        self.arriving = []
        self.on_progress = lambda: None
        self.progressed = 0

    def queue_pair(self, index):
        return SimpleNamespace(
            post_send=lambda chain: self.post_send(index, chain),
            post_recv=lambda count: self.receives.__setitem__(index, self.receives[index] + count),
        )

    def post_send(self, index, chain):
        requests = chain.chain()
        self.posted += [(index, request) for request in requests]
        asked = self.plan.iterations * self.plan.queue_pairs
        assert self.plan.seconds or len(self.posted) <= asked, "more is posted than was asked for"
        # as an adapter does, it takes what stands in a request when it is posted
        self.pending += [
            SimpleNamespace(wr_id=request.wr_id, signaled=request.signaled) for request in requests
        ]
        self.most = max(self.most, len(self.pending))

    def send_area(self, index=0):
        return index * 4096

    def receive_area(self, index=0):
        return (self.plan.queue_pairs + index) * 4096

    def sge(self, offset, length):
        return (offset, length)

    def send_request(self, index, opcode, element, *, wr_id, signaled, inline, following):
        self.element = element
        return Request(opcode, wr_id, signaled, inline, following)

    def receive_chain(self, index, element, count):
        self.receive_element = element
        return count

    def wait(self, cq, most=1):
        completed = []
        while self.pending and len(completed) < most:
            request = self.pending.pop(0)
            if request.signaled:
                completed.append(SimpleNamespace(wr_id=request.wr_id))
        assert completed, "nothing that was posted is signaled"
        return completed

    def poll(self, most):
        taken, self.arriving = self.arriving[:most], self.arriving[most:]
        return len(taken), [SimpleNamespace(wr_id=index, status=0) for index in taken]

    def progress(self):
        self.progressed += 1
        self.on_progress()

    def check_silence(self, deadline_s):
        raise CommandError("silence")


def plan_for(verb="write", kind="bw", service="rc", size=64, iterations=1000, seconds=0.0, queue_pairs=1):
    return Plan(verb, kind, service, size, iterations, seconds, queue_pairs)


@pytest.fixture
def control():
    near, far = socket.socketpair()
    connection = object.__new__(ControlConnection)
    connection._socket = near
    yield SimpleNamespace(readable=connection.readable, speak=lambda: far.send(b"x"))
    near.close()
    far.close()


def client(plan):
    account = Account(plan)
    return account, BandwidthClient(account, plan, [KEYS] * plan.queue_pairs).run(lambda done: None)


@pytest.mark.parametrize("iterations", [1, 15, 16, 17, 1000])
def test_exactly_the_iterations_are_posted_and_counted(iterations):
    account, measured = client(plan_for(iterations=iterations, queue_pairs=2))
    assert measured.operations == 2 * iterations
    assert [index for index, _ in account.posted].count(1) == iterations
    assert measured.elapsed_ns > 0


def test_the_send_queue_is_kept_full_and_never_overfilled():
    account, _ = client(plan_for())
    assert account.most == TRANSMIT_DEPTH


def test_only_the_last_of_a_chain_is_signaled():
    account, measured = client(plan_for(iterations=2 * BATCH + 3))
    signaled = [position for position, (_, request) in enumerate(account.posted) if request.signaled]
    assert signaled == [BATCH - 1, 2 * BATCH - 1, 2 * BATCH + 2]
    assert len(measured.samples_ns) == 3


def test_time_ends_the_posting_and_what_is_posted_completes():
    account, measured = client(plan_for(iterations=0, seconds=0.01))
    # one chain comes before what is measured
    assert measured.operations == len(account.posted) - BATCH
    assert measured.operations > 0
    assert not account.pending


@pytest.mark.parametrize(("verb", "opcode", "target"), [
    ("write", e.IBV_WR_RDMA_WRITE, (0xABCD, 0x10000)), ("read", e.IBV_WR_RDMA_READ, (0xABCD, 0x10000)),
    ("send", e.IBV_WR_SEND, None), ("atomic", e.IBV_WR_ATOMIC_FETCH_AND_ADD, (0xABCD, 0x10000, 1, 0)),
])  # fmt: skip
def test_every_verb_has_its_opcode_and_target(verb, opcode, target):
    account, _ = client(plan_for(verb, iterations=1, size=8))
    ((_, request),) = account.posted
    assert (request.opcode, request.target, request.inline) == (opcode, target, False)
    assert account.element == (0, 8)


@pytest.mark.parametrize(
    ("verb", "size", "inline"),
    [("write", 64, True), ("send", 64, True), ("write", 65, False), ("read", 8, False), ("atomic", 8, False)],
)
def test_small_latency_messages_go_inline(verb, size, inline, control):
    end = LatencyEnd(
        Account(plan_for(verb, "lat", size=size)), plan_for(verb, "lat", size=size), KEYS, control, True
    )
    assert end.request.inline is inline


def test_receiver_fills_its_queue_and_posts_anew_in_batches(control):
    plan = plan_for("send", iterations=40, queue_pairs=2)
    account = Account(plan)
    receiver = Receiver(account, plan)
    receiver.post()
    assert account.receives == [RECEIVE_DEPTH] * 2
    account.arriving = [0, 1] * 40
    receiver.run(control)
    assert receiver.received == 80
    assert account.receives == [RECEIVE_DEPTH + 2 * BATCH] * 2


def test_receiver_of_datagrams_has_room_for_the_grh():
    plan = plan_for("send", service="ud", size=100)
    account = Account(plan)
    Receiver(account, plan)
    assert account.receive_element == (4096, 140)


def test_receiver_ends_when_the_client_says_so(control):
    plan = plan_for("send", iterations=1000)
    account = Account(plan)
    receiver = Receiver(account, plan)
    account.arriving = [0] * 10
    control.speak()
    receiver.run(control)
    assert receiver.received == 10


@pytest.mark.parametrize("target", ["poll", "idle", "busy", "asleep"])
def test_target_serves_until_the_client_speaks(target, control):
    account = Account(plan_for())
    control.speak()
    serve(account, control, target)
    assert account.progressed == 0


def test_polling_target_drives_its_adapter(control):
    account = Account(plan_for())
    account.on_progress = lambda: control.speak() if account.progressed == 300 else None
    serve(account, control, "poll")
    assert account.progressed >= 300


def answered_by_memory(account):
    """Each progress makes the peer's next message land."""
    offset = account.receive_area() + account.plan.size_bytes - 1

    def land():
        account.memory[offset] = (account.memory[offset] + 1) & 0xFF

    account.on_progress = land


@pytest.mark.parametrize("is_client", [True, False])
def test_write_latency_counts_in_the_last_byte(is_client, control):
    plan = plan_for("write", "lat", size=4, iterations=300)
    account = Account(plan)
    answered_by_memory(account)
    end = LatencyEnd(account, plan, KEYS, control, is_client)
    measured = end.run(lambda done: None)
    assert measured.operations == 300
    assert len(account.posted) == 300
    assert len(measured.samples_ns) == 299
    assert account.memory[3] == 300 & 0xFF
    assert account.progressed == 300


def test_write_latency_server_begins_and_client_waits(control):
    plan = plan_for("write", "lat", size=4, iterations=1)
    for is_client, before in ((False, 1), (True, 0)):
        account = Account(plan)
        seen = []
        answered_by_memory(account)
        land = account.on_progress
        account.on_progress = lambda land=land, account=account, seen=seen: (
            seen.append(len(account.posted)),
            land(),
        )
        LatencyEnd(account, plan, KEYS, control, is_client).run(lambda done: None)
        assert seen[0] == before


def test_send_latency_client_begins_and_receives_are_posted_anew(control):
    plan = plan_for("send", "lat", size=4, iterations=20)
    account = Account(plan)
    end = LatencyEnd(account, plan, KEYS, control, True)
    end.post()
    assert account.receives == [RECEIVE_DEPTH]
    account.arriving = [0] * 20
    assert end.run(lambda done: None).operations == 20
    assert account.receives == [RECEIVE_DEPTH + 20]
    assert account.arriving == []


@pytest.mark.parametrize("verb", ["read", "atomic"])
def test_answered_operations_take_their_whole_time(verb, control):
    plan = plan_for(verb, "lat", size=8, iterations=25)
    account = Account(plan)
    measured = LatencyEnd(account, plan, KEYS, control, True).run(lambda done: None)
    assert (measured.operations, len(measured.samples_ns), len(account.posted)) == (25, 25, 25)
    assert sum(measured.samples_ns) == measured.elapsed_ns


def test_latency_server_ends_with_its_client(control):
    plan = plan_for("send", "lat", size=4, iterations=0, seconds=1.0)
    control.speak()
    end = LatencyEnd(Account(plan), plan, KEYS, control, False)
    assert end.run(lambda done: None).operations == 0


def test_latency_client_whose_server_ends_is_an_error(control):
    plan = plan_for("send", "lat", size=4, iterations=5)
    control.speak()
    with pytest.raises(CommandError, match="server ended"):
        LatencyEnd(Account(plan), plan, KEYS, control, True).run(lambda done: None)


def test_silent_peer_is_an_error(control):
    plan = plan_for("send", "lat", size=4, iterations=5)
    with pytest.raises(CommandError, match="silence"):
        LatencyEnd(Account(plan), plan, KEYS, control, True).run(lambda done: None)


def test_figures_are_per_second():
    plan = plan_for(size=1 << 20, iterations=500, queue_pairs=2)
    measured = Measured(1000, 500_000_000, [1000, 3000])
    result = result_of(SimpleNamespace(link="udp"), plan, measured)
    assert result["message_rate_per_s"] == 2000
    assert result["bandwidth_bytes_per_s"] == 2000 << 20
    assert result["latency_us"] == {"min": 1.0, "p50": 1.0, "p99": 3.0, "max": 3.0}
    report = report_of(plan, measured)
    assert (report.size_bytes, report.iterations) == (1 << 20, 500)
    assert (report.average_mib_per_s, report.million_messages_per_s) == (2000.0, 0.002)


def test_queue_pairs_with_one_target_share_a_chain_and_complete_as_themselves():
    plan = plan_for(iterations=2 * BATCH, queue_pairs=12)
    account = Account(plan)
    account.send_area = lambda index=0: index % 3 * 4096
    measured = BandwidthClient(account, plan, [KEYS] * 12).run(lambda done: None)
    assert len({id(request) for _, request in account.posted}) == 3 * BATCH
    assert [sum(index == number for index, _ in account.posted) for number in range(12)] == [2 * BATCH] * 12
    assert measured.operations == 24 * BATCH
    assert len(measured.samples_ns) == 24


def test_one_request_at_a_time_is_timed_from_before_it_is_posted_to_its_completion(monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(ticks))
    plan = replace(plan_for(iterations=3), tx_depth=1)
    account = Account(plan)
    client = BandwidthClient(account, plan, [KEYS])
    wait = account.wait
    account.links[0].qp.post_send = lambda chain: (next(ticks), account.post_send(0, chain))
    account.wait = lambda cq, most=1: (next(ticks), wait(cq, most))[1]
    measured = client.run(lambda done: None)
    assert (measured.operations, measured.samples_ns) == (3, [3] * 3)
    assert account.most == 1
    assert all(request.signaled for _, request in account.posted)


def test_each_chain_is_timed_from_its_own_posting_to_its_completion(monkeypatch):
    """Several are under way in a queue pair, and the first one completes first."""
    now_ns = itertools.count(1000)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(now_ns))
    plan = plan_for(iterations=40 * BATCH, queue_pairs=2)
    account = Account(plan)
    client = BandwidthClient(account, plan, [KEYS] * 2)
    post, note, before, after = client._post, client._note, [], []
    client._post = lambda index, count: (before.append((index, next(now_ns))), post(index, count))
    client._note = lambda found, measured: (
        after.extend(each.wr_id >> 16 for each in found),
        note(found, measured),
    )
    wait = account.wait
    account.wait = lambda cq, most: wait(cq, 1)
    samples = client.run(lambda done: None).samples_ns
    assert len(samples) == len(before) == len(after) == 80
    assert account.most == 2 * TRANSMIT_DEPTH
    posted = {index: [at for other, at in before if other == index] for index in range(2)}
    ends = [posted[index].pop(0) + sample for index, sample in zip(after, samples, strict=True)]
    assert ends == sorted(ends)
    assert max(samples) < (2 * TRANSMIT_DEPTH // BATCH + 2) * 8


def test_datagrams_share_no_chain_for_each_says_to_whom_it_goes():
    plan = plan_for("send", service="ud", queue_pairs=3)
    account = Account(plan)
    account.send_area = lambda index=0: 0
    made, send_request = [], account.send_request

    def noted(index, *rest, **more):
        made.append(index)
        return send_request(index, *rest, **more)

    account.send_request = noted
    client = BandwidthClient(account, plan, [KEYS] * 3)
    assert len({id(chain) for chain in client.chains}) == 3
    assert made == [index for index in range(3) for _ in range(BATCH)]


@pytest.mark.parametrize(("depth", "most"), [(20, 16), (5, 5), (48, 48)])
def test_a_send_queue_has_room_for_whole_chains_alone(depth, most):
    plan = replace(plan_for(iterations=200), tx_depth=depth)
    account = Account(plan)
    assert BandwidthClient(account, plan, [KEYS]).run(lambda done: None).operations == 200
    assert account.most == most


@pytest.mark.parametrize(
    ("queue_pairs", "depth", "receives", "areas"),
    [(1, 128, 512, 1), (64, 128, 512, 64), (200, 80, 320, 64), (10_000, 16, 64, 64)],
)
def test_many_queue_pairs_keep_less_posted_and_share_memory(queue_pairs, depth, receives, areas):
    plan = plan_for(queue_pairs=queue_pairs)
    assert (plan.depth, plan.receive_depth, plan.areas, plan.batch) == (depth, receives, areas, BATCH)


class TwoWays(Account):
    """An account whose peer sends a message of its own for each that completes here, up to ``owed``."""

    def __init__(self, plan, owed):
        super().__init__(plan)
        self.owed = owed
        self.receive_cq = SimpleNamespace(poll=self.poll_receives)

    def poll_receives(self, most):
        return self.poll(most)

    def poll(self, cq, most=1):
        if cq != "send":
            return super().poll(cq)
        completed = self.wait(cq, most)
        for completion in completed:
            come = min(self.owed, completion.wr_id & 0xFFFF)
            self.owed -= come
            self.arriving += [completion.wr_id >> 16] * come
        return completed


def both_ways(plan, owed, control):
    account = TwoWays(plan, owed)
    receiver = Receiver(account, plan)
    receiver.post()
    ends = BothWays(BandwidthClient(account, plan, [KEYS] * plan.queue_pairs), receiver, control)
    return account, receiver, ends


@pytest.mark.parametrize("queue_pairs", [1, 3])
def test_both_ways_ends_when_all_is_sent_and_all_has_come(queue_pairs, control):
    plan = plan_for("send", iterations=333, queue_pairs=queue_pairs)
    account, receiver, ends = both_ways(plan, 333 * queue_pairs, control)
    measured = ends.run(lambda done: None)
    assert (measured.operations, receiver.received) == (333 * queue_pairs, 333 * queue_pairs)
    assert len(account.posted) == 333 * queue_pairs
    assert measured.elapsed_ns > 0


def test_both_ways_takes_what_has_come_before_it_sends(control):
    plan = plan_for("send", service="ud", iterations=40)
    account, receiver, ends = both_ways(plan, 0, control)
    account.arriving = [0] * 40
    post_send, seen = account.post_send, []
    account.post_send = lambda index, chain: (seen.append(receiver.received), post_send(index, chain))
    ends.run(lambda done: None)
    assert seen[0] == BATCH


def test_both_ways_waits_for_a_reliable_peer_as_long_as_it_was_told(control):
    plan = plan_for("send", iterations=20)
    account, _, ends = both_ways(plan, 7, control)
    ends.silence_s = 0.0
    with pytest.raises(CommandError, match="7 of 20 messages"):
        ends.run(lambda done: None)
    assert len(account.posted) == 20


def test_both_ways_goes_on_without_datagrams_that_are_lost_when_the_peer_speaks(control):
    plan = plan_for("send", service="ud", iterations=20)
    _, receiver, ends = both_ways(plan, 7, control)
    control.speak()
    assert ends.run(lambda done: None).operations == 20
    assert receiver.received == 7


def test_both_ways_for_a_time_ends(control):
    plan = plan_for("send", iterations=0, seconds=0.01)
    account, _, ends = both_ways(plan, 5, control)
    measured = ends.run(lambda done: None)
    assert measured.operations == len(account.posted) > 0
    assert not account.pending


def test_both_ways_the_time_is_that_of_sending_alone(monkeypatch, control):
    now_ns = itertools.count(1)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(now_ns))
    plan = plan_for("send", iterations=20)
    account, receiver, ends = both_ways(plan, 0, control)
    polls = iter(range(1000))
    late = account.poll

    def poll(most):
        if next(polls) == 500:
            account.arriving = [0] * 20
        return late(most)

    account.receive_cq.poll = poll
    assert 0 < ends.run(lambda done: None).elapsed_ns < 50
    assert receiver.received == 20
    assert next(now_ns) < 60, "it looks at the clock when all is sent, and when something has come"


def test_both_ways_silence_begins_anew_with_whatever_comes(monkeypatch, control):
    now_s = itertools.count(100)
    monkeypatch.setattr(time, "monotonic", lambda: next(now_s))
    plan = plan_for("send", iterations=20)
    account, receiver, ends = both_ways(plan, 0, control)
    late, polls = account.poll, itertools.count(1)

    def poll(most):
        if next(polls) % 700 == 0:
            account.arriving = [0]
        return late(most)

    account.receive_cq.poll = poll
    ends.silence_s = 8
    ends.run(lambda done: None)
    assert receiver.received == 20


def test_both_ways_does_not_give_up_what_it_still_sends(monkeypatch, control):
    plan = plan_for("send", service="uc", iterations=20)
    account, _, ends = both_ways(plan, 0, control)
    control.speak()
    ready, polls = account.poll, itertools.count(1)
    account.poll = lambda cq, most=1: ready(cq, most) if cq != "send" or next(polls) > 600 else []
    assert ends.run(lambda done: None).operations == 20


def test_a_latency_is_half_of_the_time_between_two_messages_of_ones_own(monkeypatch, control):
    now_ns = itertools.count(0, 1000)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(now_ns))
    plan = plan_for("write", "lat", size=4, iterations=5)
    account = Account(plan)
    answered_by_memory(account)
    measured = LatencyEnd(account, plan, KEYS, control, True).run(lambda done: None)
    assert measured.samples_ns == [500] * 4


def test_one_send_of_32_is_signaled_in_a_latency_test(control):
    plan = plan_for("send", "lat", size=4, iterations=70)
    account = Account(plan)
    account.arriving = [0] * 70
    LatencyEnd(account, plan, KEYS, control, True).run(lambda done: None)
    assert [number for number, (_, each) in enumerate(account.posted, 1) if each.signaled] == [32, 64]


@pytest.mark.parametrize(("room_bytes", "length"), [(0, 44), (8232, 8232)])
def test_receives_of_a_latency_test_have_room_for_later_messages(room_bytes, length, control):
    plan = plan_for("send", "lat", service="ud", size=4)
    account = Account(plan)
    LatencyEnd(account, plan, KEYS, control, True, room_bytes)
    assert account.receive_element == (4096, length)


def test_the_client_alone_ends_a_latency_test_by_its_clock(control):
    plan = plan_for("send", "lat", size=4, iterations=0, seconds=1.0)
    ends = [LatencyEnd(Account(plan), plan, KEYS, control, is_client) for is_client in (True, False)]
    assert [end._going_on(7, 0) for end in ends] == [False, True]


def test_a_message_that_has_come_before_the_peers_last_word_is_seen(control):
    plan = plan_for("write", "lat", size=4, iterations=1)
    account = Account(plan)
    offset = account.receive_area() + 3

    def land():
        if account.progressed == 256:
            account.memory[offset] = 1
            control.speak()

    account.on_progress = land
    measured = LatencyEnd(account, plan, KEYS, control, True).run(lambda done: None)
    assert measured.operations == len(account.posted) == 1


def test_a_receive_in_error_ends_the_receiver(control):
    plan = plan_for("send", iterations=20)
    account = Account(plan)
    account.receive_cq = SimpleNamespace(poll=lambda most: (1, [SimpleNamespace(wr_id=0, status=5)]))
    with pytest.raises(CommandError, match="status 5"):
        Receiver(account, plan).run(control)


def test_a_receiver_that_nobody_sends_to_ends_in_time(control):
    plan = plan_for("send", iterations=20)
    account = Account(plan)
    account.needs.silence_s = 0.0
    with pytest.raises(CommandError, match="0 of 20 messages"):
        Receiver(account, plan).run(control)


def test_a_receivers_time_is_from_the_first_message_to_the_last(monkeypatch, control):
    now_ns = itertools.count(100, 10)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(now_ns))
    plan = plan_for("send", iterations=3)
    account = Account(plan)
    came = iter([[0], [], [0], [0]])
    message = SimpleNamespace(wr_id=0, status=0)
    account.receive_cq.poll = lambda most: (len(found := next(came)), [message] * len(found))
    receiver = Receiver(account, plan)
    receiver.run(control)
    assert (receiver.measured.operations, receiver.measured.elapsed_ns) == (3, 20)


def test_a_receiver_is_silent_for_as_long_as_nothing_comes(monkeypatch, control):
    now_s = itertools.count(100)
    monkeypatch.setattr(time, "monotonic", lambda: next(now_s))
    plan = plan_for("send", iterations=20)
    account = Account(plan)
    late, polls = account.poll, itertools.count(1)

    def poll(most):
        if next(polls) % 700 == 0:
            account.arriving = [0]
        return late(most)

    account.receive_cq.poll, account.needs.silence_s = poll, 8
    receiver = Receiver(account, plan)
    receiver.run(control)
    assert receiver.received == 20


def test_a_receiver_takes_what_came_before_the_clients_last_word(control):
    plan = plan_for("send", iterations=20)
    account = Account(plan)
    late, polls = account.poll, itertools.count(1)

    def poll(most):
        if next(polls) == 256:
            account.arriving = [0, 0]
            control.speak()
            return 0, []
        return late(most)

    account.receive_cq.poll = poll
    receiver = Receiver(account, plan)
    receiver.run(control)
    assert receiver.received == 2


def test_a_receiver_counts_each_size_anew_and_keeps_its_receives(control):
    plan = plan_for("send", iterations=BATCH + 3)
    account = Account(plan)
    receiver = Receiver(account, plan)
    receiver.post()
    for _ in range(2):
        receiver.begin()
        account.arriving = [0] * (BATCH + 3)
        receiver.run(control)
        assert receiver.measured.operations == BATCH + 3
    assert account.receives == [RECEIVE_DEPTH + 2 * BATCH]


@pytest.mark.parametrize(("service", "sizes"), [("rc", 23), ("ud", 10)])
def test_all_sizes_are_powers_of_two_up_to_8_mib_or_the_mtu(service, sizes):
    plan = replace(plan_for("send", service=service), all_sizes=True)
    assert plan.sizes_bytes(1024) == [2 << power for power in range(sizes)]
    assert plan_for(size=77).sizes_bytes(1024) == [77]


def test_a_report_is_what_a_peer_measured():
    plan = plan_for(size=1 << 20, iterations=500, queue_pairs=2)
    measured = measured_of(report_of(plan, Measured(1000, 500_000_000)), plan)
    assert (measured.operations, measured.elapsed_ns) == (1000, 500_000_000)
    assert measured_of(Report(8, 5, 0.0, 0.0, 0.0), plan).elapsed_ns == 0


def test_packets_are_counted_before_the_peer_can_send_any(monkeypatch):
    """It has this end's keys when they are exchanged, and may be finished before this thread runs again."""
    received = itertools.count(100)
    context = SimpleNamespace(query_counters=lambda: {"packets_received": next(received)})
    endpoint = SimpleNamespace(
        context=context, needs=SimpleNamespace(area_bytes=4096), active_mtu_code=5, close=lambda: None
    )
    started = []

    class Exchange:
        def __init__(self, control, client):
            pass

        def introduce(self, mtu_code):
            for _ in range(50):  # packets of a quick peer
                next(received)
            return mtu_code, 4096

    def end(*arguments):
        started.append(arguments[-1])
        return SimpleNamespace(run=lambda asks, sizes: [])

    monkeypatch.setattr(perf_ends, "PerftestExchange", Exchange)
    monkeypatch.setattr(perf_ends, "open_endpoint", lambda *_: nullcontext(endpoint))
    monkeypatch.setattr(perf_ends, "keys_of", lambda *_: KEYS)
    monkeypatch.setattr(perf_ends, "join", lambda *_: [KEYS])
    monkeypatch.setattr(perf_ends, "End", end)
    assert perf_ends.run_end(SimpleNamespace(listen=True), plan_for(), None) == []
    assert started == [100]
