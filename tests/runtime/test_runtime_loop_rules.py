"""The order and the bounds of what one turn does: hosts, clients, rings, links, and what is held back."""

import os
from types import SimpleNamespace

import pytest
from fake_engine import Bench, FakeEngine

from softhca.driver.poll_back_off import CONTENTION_MEMORY_NS
from softhca.runtime.delayed_acknowledgement import QUICK_NS, QUICK_REPLIES
from softhca.runtime.doorbell_batching import EXPECTED, LEFT_NS
from softhca.runtime.loop import KICK_NS, NEVER, POLLS_AT_ONCE, EngineLoop
from softhca.runtime.same_host_ring import PacketReceiver
from softhca.runtime.sleeper import LATE_NS
from softhca.runtime.transmitter import BURSTS
from softhca.runtime.turn_lock import TurnLock
from softhca.transport.flow import Flow

NOW = 1_000_000_000
LONG_BYTES = 16_384
SINGLE_BYTES = 1024
RECEIVE_BURSTS = 8
SAME_HOST_NS = 100_000
GRAIN_NS = 1_000_000


class NotedEngine(FakeEngine):
    """Says in ``noted`` what it was asked, in order."""

    def __init__(self, noted):
        super().__init__()
        self.noted = noted
        self.commands_find = True
        self.raises = {}

    def _note(self, what):
        self.noted.append(what)
        if what in self.raises:
            raise self.raises[what]

    def ring(self, now):
        self._note("ring")
        return super().ring(now)

    def command(self, now):
        self._note("command")
        super().command(now)
        return self.commands_find

    def expire(self, now):
        self._note("expire")

    def receive(self, port_number, arrival, now):
        self._note(("received", arrival.source))

    def transmit(self, port_number, burst, now):
        sent = super().transmit(port_number, burst, now)
        if sent:
            self._note(("sent", burst.length))
        return sent

    def next_deadline(self, port_number=0):
        self._note("deadline")
        return self.deadline_ns


class FakeClients:
    """Clients that say what they were asked; ``busy``: their turn finds something."""

    def __init__(self, noted):
        self.noted = noted
        self.busy = False

    def dismiss_ended(self):
        self.noted.append("dismiss")

    def turn(self, now):
        self.noted.append("clients' turn")
        return self.busy

    def notify(self):
        self.noted.append("told")


class FakeRing(PacketReceiver):
    """The ring of a peer on this host, with words instead of bursts."""

    def __init__(self, *words):
        self.words_left = list(words)
        self.fresh = True
        self.taken = 0
        self.wanted = 0

    def take_wake_request(self):
        wanted, self.wanted = self.wanted, 0
        return bool(wanted)

    def waiting(self):
        return bool(self.words_left)

    def receive(self, arrival):
        if not self.words_left:
            return False
        arrival.source = self.words_left.pop(0)
        self.taken += 1
        return True

    def done(self):
        self.taken -= 1


class FakeSameHost:
    """Peers on this host, whose rings are ``rings``; ``found``: what the next polls find."""

    def __init__(self, loop, rings):
        port = SimpleNamespace(number=1, receivers=rings, changed=None, take_rest=None)
        port.link_of = lambda _: None
        self.ports = {1: port}
        self.polls = []
        self.found = []
        self.loop = loop

    def poll(self):
        self.polls.append(self.loop.round_ns)
        return bool(self.found) and self.found.pop()


class Rules:
    """A loop over a `NotedEngine` at moments that the test says."""

    def __init__(self, sees_polls=True):
        self.noted = []
        self.woken = 0
        self.now = NOW
        self.bench = Bench()
        self.wire = self.bench.wire
        self.engine = NotedEngine(self.noted)
        self.loop = EngineLoop(self.engine, (self.wire,), self.wake, clock=lambda: self.now,
                               sees_polls=sees_polls)
        self.loop.sleeper.wakeup_ns = 0  # somebody looks all the time
        self.loop.yield_processor = lambda: self.noted.append("yield")
        self.clients = FakeClients(self.noted)

    def wake(self):
        self.woken += 1

    def attach(self):
        self.loop.clients, self.loop.attached = self.clients, True

    def share(self, *rings):
        same_host = FakeSameHost(self.loop, list(rings))
        self.loop.share(same_host)
        return same_host

    def only(self, *words):
        """What was noted of these words."""
        return [word for word in self.noted if word in words or word[0] in words]

    def flow(self, quick_replies=QUICK_REPLIES, replies=False):
        flow = Replying(self.engine, 7)
        flow.quick_replies, flow.replies = quick_replies, replies
        return flow

    def holds_acknowledgement(self, flow=None):
        """A message has come whose acknowledgement waits for a reply."""
        flow = flow or self.flow()
        assert self.loop.acknowledgement.received(flow, self.now)
        return flow

    def holds_doorbell(self):
        """A doorbell waits for the next ones."""
        for number in range(4 * EXPECTED):
            if self.loop.batching.on_doorbell(7 + number % 2, self.now):
                return
            self.loop.batching.sent(self.now)
        raise AssertionError("nothing waits")


class Replying(Flow):
    """Has requests to send where ``replies``."""

    def has_requests(self):
        return self.replies


@pytest.fixture
def rules():
    made = Rules()
    yield made
    made.bench.close()


@pytest.fixture
def unseen():
    made = Rules(sees_polls=False)
    yield made
    made.bench.close()


# clients


@pytest.mark.parametrize("step", ["serve", "progress", "flush", "turn"])
def test_whose_process_has_ended_is_dismissed_before_the_engine_does_anything(rules, step):
    rules.attach()
    rules.engine.outgoing.append(20)
    if step == "flush":
        rules.holds_acknowledgement()
    getattr(rules.loop, step)(NOW)
    assert rules.noted[0] == "dismiss"
    assert len(rules.noted) > 1


@pytest.mark.parametrize("step", ["serve", "progress", "flush", "turn"])
def test_who_has_no_clients_asks_after_none(rules, step):
    rules.loop.clients = rules.clients
    rules.loop.clients_ns = NEVER
    getattr(rules.loop, step)(NOW)
    assert not rules.only("dismiss", "told", "clients' turn")


def test_a_round_serves_hosts_that_are_clients_and_says_whether_one_had_rung(rules):
    rules.loop.progress(NOW)
    assert not rules.only("ring"), "who polls has rung before"
    rules.attach()
    rules.loop.clients_ns = NEVER
    assert not rules.loop.progress(NOW)
    rules.engine.ringing = 7
    assert rules.loop.progress(NOW)
    assert rules.only("ring") == ["ring", "ring"]


def test_clients_have_a_turn_when_they_have_asked_for_one(rules):
    rules.attach()
    rules.loop.clients_ns = NOW + 5
    for later, turns in ((4, 0), (5, 1), (6, 2)):
        rules.loop.progress(NOW + later)
        assert len(rules.only("clients' turn")) == turns
    assert not rules.loop.progress(NOW + 7)
    rules.clients.busy = True
    assert rules.loop.progress(NOW + 8)


def test_clients_are_told_of_events_behind_a_turn_and_nobody_is_where_there_are_none(rules):
    rules.loop.settle(NOW)
    assert not rules.only("told")
    rules.attach()
    rules.loop.settle(NOW)
    assert rules.only("told") == ["told"]


def single(rules, length, stride):
    rules.loop.arrival.length, rules.loop.arrival.stride = length, stride


def test_an_acknowledgement_waits_for_no_reply_of_a_guest(rules):
    """A client's poll, which would take it along, is not seen."""
    rules.engine.sole = rules.flow()
    rules.loop.poll()
    rules.attach()
    single(rules, 40, 40)
    rules.wire.put(b"one")
    rules.engine.outgoing.append(20)
    assert rules.loop.poll()
    assert (rules.wire.sent, rules.loop.acknowledgement.waits) == ([20], False)


# what is taken at once


@pytest.mark.parametrize(
    ("length", "stride", "lone"),
    [
        (40, 40, True), (80, 40, True), (81, 40, False), (120, 40, False),
        (SINGLE_BYTES, SINGLE_BYTES, True), (SINGLE_BYTES + 1, SINGLE_BYTES + 1, False),
        (SINGLE_BYTES, SINGLE_BYTES // 2, True),
    ],
)  # fmt: skip
def test_a_short_request_and_an_acknowledgement_at_most_may_be_all_that_comes(rules, length, stride, lone):
    rules.loop.poll()
    single(rules, length, stride)
    rules.wire.put(b"one")
    rules.wire.put(b"two")
    rules.loop.poll()
    assert len(rules.only("received")) == (1 if lone else 2)


@pytest.mark.parametrize(("length", "between"), [(LONG_BYTES - 1, False), (LONG_BYTES, True)])
def test_a_long_burst_is_answered_before_the_next_one_is_taken(rules, length, between):
    single(rules, length, 4096)
    for word in (b"one", b"two"):
        rules.wire.put(word)
        rules.engine.outgoing.append(1)
    rules.loop.poll()
    order = [word[0] for word in rules.only("received", "sent")]
    # two packets are due, and one call sends both
    assert order.index("sent") == (1 if between else 2)


def test_no_acknowledgement_is_held_back_while_somebody_sleeps_for_what_came(rules):
    rules.engine.sole = rules.flow()
    rules.loop.poll()
    rules.loop.sleeper.waiters = 1
    single(rules, 40, 40)
    rules.wire.put(b"one")
    rules.engine.outgoing.append(20)
    rules.loop.poll()
    assert (rules.wire.sent, rules.loop.acknowledgement.waits) == ([20], False)


# peers on this host


def test_what_a_peer_has_sent_by_the_link_is_taken_before_its_first_burst_of_a_ring(rules):
    ring = FakeRing()
    rules.share(ring)
    words = [bytes([number]) for number in range(3 * RECEIVE_BURSTS)]
    for word in words:
        rules.wire.put(word)
    assert rules.loop.progress(NOW)
    assert len(rules.only("received")) == RECEIVE_BURSTS, "an empty ring asks for nothing"
    ring.words_left.append(b"ring")
    assert rules.loop.progress(NOW)
    assert [word for _, word in rules.only("received")] == [*words, b"ring"]
    assert not ring.fresh
    rules.noted.clear()
    ring.words_left.append(b"again")
    rules.wire.put(b"link")
    rules.loop.progress(NOW)
    assert [word for _, word in rules.only("received")] == [b"again", b"link"]


def test_a_peer_that_wants_threads_to_look_is_an_event_and_work(rules):
    ring = FakeRing()
    rules.share(ring)
    rules.loop.progress(NOW)
    before = rules.loop.sleeper.events
    ring.wanted = 1
    assert rules.loop.progress(NOW)
    assert rules.loop.sleeper.events == before + 1
    assert not rules.loop.progress(NOW)
    assert rules.loop.sleeper.events == before + 1


class BareRing(FakeRing):
    """One whose bursts have no ICRCs."""

    def receive(self, arrival):
        arrival.has_icrc = False
        return super().receive(arrival)


def test_what_a_ring_says_of_icrcs_holds_for_no_link(rules):
    seen = []
    rules.engine.receive = lambda port, arrival, now: seen.append((arrival.source, bool(arrival.has_icrc)))
    ring = BareRing(b"ring")
    rules.share(ring)
    rules.wire.put(b"before")
    rules.loop.progress(NOW)
    ring.words_left.append(b"again")
    rules.wire.put(b"wire")
    rules.loop.progress(NOW)
    assert seen == [(b"before", True), (b"ring", False), (b"again", False), (b"wire", True)]
    assert ring.taken == 0, "each burst's room was given back"


def test_a_ring_is_read_a_bounded_number_of_bursts_a_round(rules):
    ring = FakeRing(*[bytes([number]) for number in range(RECEIVE_BURSTS + 1)])
    rules.share(ring)
    assert rules.loop.progress(NOW)
    assert len(ring.words_left) == 1
    assert rules.loop.progress(NOW)
    assert not rules.loop.progress(NOW)


def test_all_that_a_peer_has_left_is_taken_unless_the_adapter_has_failed(rules):
    ring = FakeRing(*[bytes([number]) for number in range(5 * RECEIVE_BURSTS)])
    rules.loop.dead = True
    rules.loop.take_rest(1, ring)
    assert rules.noted == []
    rules.loop.dead = False
    rules.loop.take_rest(1, ring)
    assert not ring.words_left
    assert len(rules.only("received")) == 5 * RECEIVE_BURSTS


def test_peers_on_this_host_are_read_heard_and_left_to_the_loop(rules):
    port = rules.share(FakeRing(b"shared")).ports[1]
    assert rules.loop.progress(NOW)
    assert rules.only("received") == [("received", b"shared")]
    port.take_rest(1, FakeRing(b"rest"))
    assert rules.only("received")[-1] == ("received", b"rest")
    epoch = rules.loop.ports[0].epoch
    port.changed()
    assert rules.loop.ports[0].epoch != epoch


def test_peers_are_asked_now_and_then_and_at_once_again_where_one_had_something_to_say(rules):
    same_host = rules.share()
    for later in (0, 1, SAME_HOST_NS - 1, SAME_HOST_NS, SAME_HOST_NS + 1):
        assert not rules.loop.progress(NOW + later)
    assert same_host.polls == [NOW, NOW + SAME_HOST_NS]
    same_host.found.append(True)
    assert rules.loop.progress(NOW + 2 * SAME_HOST_NS)
    assert not rules.loop.progress(NOW + 2 * SAME_HOST_NS)
    assert not rules.loop.progress(NOW + 2 * SAME_HOST_NS + 1)
    assert same_host.polls[2:] == [NOW + 2 * SAME_HOST_NS] * 2


# what is held back


def test_a_poll_sends_an_acknowledgement_that_waits_for_a_reply(rules):
    flow = rules.holds_acknowledgement()
    rules.engine.outgoing.append(20)
    rules.loop.poll()
    assert rules.wire.sent == [20]
    assert (flow.quick_replies, rules.loop.acknowledgement.flow) == (0, None)


@pytest.mark.parametrize(("later", "sent"), [(QUICK_NS, []), (QUICK_NS + 1, [20])])
def test_where_polls_are_not_seen_it_waits_until_its_time_is_over(unseen, later, sent):
    flow = unseen.holds_acknowledgement()
    unseen.engine.outgoing.append(20)
    unseen.loop.progress(NOW + later)
    assert unseen.wire.sent == sent
    assert flow.quick_replies == (0 if sent else QUICK_REPLIES), "who does not reply has to earn it anew"


def test_what_is_sent_takes_the_acknowledgement_along(rules):
    rules.holds_acknowledgement()
    assert rules.loop.deadline() == NOW + LEFT_NS
    rules.loop.transmit(NOW)
    assert not rules.loop.acknowledgement.waits
    assert rules.loop.deadline() == NEVER


@pytest.mark.parametrize("what", ["acknowledgement", "doorbell", "nothing"])
def test_a_wait_that_ends_is_followed_by_a_transmission_and_none_by_none(rules, what):
    if what != "nothing":
        getattr(rules, f"holds_{what}")()
    rules.engine.outgoing.append(20)
    rules.loop.flush(NOW)
    assert rules.wire.sent == ([] if what == "nothing" else [20])


def test_only_what_waits_can_be_overdue(rules):
    assert not rules.loop.acknowledgement.received(rules.flow(0), NOW)
    assert not rules.loop.overdue(NOW + 2 * LEFT_NS)
    rules.holds_acknowledgement()
    assert not rules.loop.overdue(NOW + LEFT_NS)
    assert rules.loop.overdue(NOW + LEFT_NS + 1)


def test_doorbells_can_be_overdue_alone(rules):
    rules.holds_doorbell()
    assert not rules.loop.overdue(NOW + LEFT_NS)
    assert rules.loop.overdue(NOW + LEFT_NS + 1)


@pytest.mark.parametrize("first", ["acknowledgement", "doorbell"])
def test_the_first_of_two_that_wait_says_when_something_is_due(rules, first):
    second = "doorbell" if first == "acknowledgement" else "acknowledgement"
    getattr(rules, f"holds_{first}")()
    rules.now = NOW + 10
    getattr(rules, f"holds_{second}")()
    assert rules.loop.deadline() == NOW + LEFT_NS


@pytest.mark.parametrize(("early", "soon"), [(0, False), (1, True)])
def test_what_a_sleep_would_end_for_in_time_is_not_soon(rules, early, soon):
    rules.holds_acknowledgement()
    assert rules.loop.soon(NOW + LEFT_NS - GRAIN_NS + early) is soon
    assert not rules.loop.soon(NOW - 1)


@pytest.mark.parametrize(("replies", "left"), [(True, QUICK_REPLIES), (False, 0)])
def test_a_doorbell_is_a_quick_reply_where_it_is_rung_for_the_flow_of_the_message(rules, replies, left):
    flow = rules.holds_acknowledgement(rules.flow(replies=replies))
    rules.engine.ringing = 7
    rules.loop.kick()
    assert flow.quick_replies == left
    assert rules.loop.acknowledgement.flow is None


def test_one_more_quick_reply_is_counted_for_each(rules):
    flow = rules.flow(QUICK_REPLIES - 1, replies=True)
    assert not rules.loop.acknowledgement.received(flow, NOW)
    rules.engine.ringing = 7
    rules.loop.kick()
    assert rules.loop.acknowledgement.received(flow, NOW)


# commands


def test_a_command_ends_the_wait_for_a_reply_even_where_one_is_posted_with_it(rules):
    flow = rules.holds_acknowledgement(rules.flow(replies=True))
    rules.engine.ringing, rules.engine.commands = 7, 1
    rules.engine.outgoing.append(20)
    assert rules.loop.serve(NOW)
    assert (flow.quick_replies, rules.wire.sent) == (0, [20])
    assert rules.only("ring", "sent", "command") == ["ring", ("sent", 20), "command"]


def test_what_a_command_causes_does_not_wait_for_the_next_doorbells(rules):
    rules.holds_doorbell()
    rules.loop.batching.sent(NOW)
    rules.engine.ringing, rules.engine.commands = 8, 1
    command = rules.engine.command
    rules.engine.command = lambda now: (rules.engine.outgoing.append(33), command(now))[1]
    rules.loop.serve(NOW)
    assert (rules.wire.sent, rules.loop.batching.waits) == ([33], False)


def test_a_host_that_rang_was_served_although_its_command_was_not_there_yet(rules):
    rules.engine.ringing, rules.engine.commands, rules.engine.commands_find = 7, 1, False
    assert rules.loop.serve(NOW)
    rules.engine.commands = 1
    assert not rules.loop.serve(NOW)
    rules.engine.commands, rules.engine.commands_find = 1, True
    assert rules.loop.serve(NOW)


# who polls, and who rings


def test_who_finds_nothing_gives_the_processor_away_after_some_looks_and_then_after_each(rules):
    for _ in range(POLLS_AT_ONCE):
        assert not rules.loop.poll()
    assert not rules.only("yield")
    rules.loop.poll()
    rules.loop.poll()
    assert rules.only("yield") == ["yield"] * 2
    rules.wire.put(b"one")
    assert rules.loop.poll()
    assert not rules.loop.poll()
    assert rules.only("yield") == ["yield"] * 2, "and begins to count anew"


@pytest.mark.parametrize("processors", [1, 2])
def test_a_poller_whose_yield_took_long_does_not_yield_for_a_while(monkeypatch, processors):
    """Who competes for the processor is no peer; on the only one the peer needs it all the same."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    rules = Rules()

    def taken_by_another(took_ns):
        rules.noted.append("yield")
        rules.now += took_ns

    rules.loop.yield_processor = lambda: taken_by_another(3_000_000)
    for _ in range(POLLS_AT_ONCE + 1 if processors == 2 else 1):
        rules.loop.poll()
    assert rules.only("yield") == ["yield"]
    for _ in range(10):
        rules.loop.poll()
    assert rules.only("yield") == ["yield"] * (1 if processors == 2 else 11)
    rules.now += CONTENTION_MEMORY_NS
    rules.loop.yield_processor = lambda: taken_by_another(10_000)
    before = len(rules.only("yield"))
    for _ in range(3):
        rules.loop.poll()
    assert len(rules.only("yield")) == before + 3


def test_on_the_only_processor_nobody_looks_twice_before_the_others_run(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    rules = Rules()
    rules.loop.yield_processor = lambda: rules.noted.append("yield")
    rules.loop.poll()
    assert rules.only("yield") == ["yield"]


class Closing(TurnLock):
    """The adapter is closed while its lock is waited for."""

    def take(self):
        self.loop.dead = True
        return TurnLock.take(self)


def test_who_gets_the_lock_of_an_adapter_that_was_closed_meanwhile_gives_no_round(rules):
    lock = rules.loop.lock = Closing()
    lock.loop = rules.loop
    assert not rules.loop.poll()
    assert (rules.loop.rounds, rules.loop.polls) == (0, 0)
    assert lock.acquire(False)
    lock.release()


@pytest.mark.parametrize("way", ["poll", "kick", "turn"])
def test_nothing_more_is_asked_of_an_engine_that_has_raised(rules, caplog, way):
    rules.engine.raises["expire"] = ValueError("broken")
    rules.engine.raises["deadline"] = AssertionError("asked again")
    rules.loop.sleeper.wakeup_ns = NEVER  # somebody sleeps, whom a deadline might wake
    assert not getattr(rules.loop, way)(*([NOW] if way == "turn" else []))
    assert rules.loop.dead
    assert rules.woken == 1, "who sleeps must see that"
    assert "given up" in caplog.text
    assert not rules.only("deadline")


@pytest.mark.parametrize("way", ["kick", "turn"])
def test_one_that_raises_while_it_serves_its_hosts_is_given_up(rules, caplog, way):
    rules.engine.raises["ring"] = ValueError("broken")
    assert not getattr(rules.loop, way)(*([NOW] if way == "turn" else []))
    assert rules.loop.dead
    assert rules.woken == 1
    assert not rules.only("expire", "deadline")


@pytest.mark.parametrize(("later", "rounds"), [(KICK_NS - 1, 1), (KICK_NS, 2)])
def test_a_doorbell_gives_a_round_where_the_last_one_is_long_ago(rules, later, rounds):
    rules.loop.poll()
    rules.now += later
    rules.loop.kick()
    assert rules.loop.rounds == rounds


def test_the_time_that_such_a_round_takes_does_not_part_doorbells(rules):
    """The next one is soon behind it, however long it took."""
    rules.holds_doorbell()
    rules.loop.batching.sent(NOW)
    moments = iter([NOW + 1, NOW + LEFT_NS])
    rules.loop.clock = lambda: next(moments, NOW + LEFT_NS)
    rules.engine.ringing = 7
    rules.loop.kick()
    assert rules.loop.batching.last_ns == NOW + LEFT_NS


# the end


def test_the_last_turn_sends_all_that_is_due(rules):
    rules.engine.outgoing.extend(range(3 * BURSTS))
    rules.loop.send_rest()
    assert rules.wire.sent == list(range(3 * BURSTS))
    rules.loop.dead = True
    rules.engine.outgoing.append(99)
    rules.loop.send_rest()
    assert rules.wire.sent[-1] == 3 * BURSTS - 1


@pytest.mark.parametrize(("later", "asked"), [(0, 0), (1, 1)])
def test_a_poll_asks_for_the_next_deadline_only_where_somebody_sleeps_long(rules, later, asked):
    rules.loop.clock = lambda: NOW
    rules.loop.sleeper.wakeup_ns = NOW + LATE_NS + later
    rules.loop.poll()
    assert len(rules.only("deadline")) == asked


class NotedRing(FakeRing):
    """Says when the room of a burst is its sender's again."""

    def __init__(self, noted, *words):
        super().__init__(*words)
        self.noted = noted

    def done(self):
        super().done()
        self.noted.append("done")


def test_the_room_of_a_burst_is_its_senders_when_the_engine_has_taken_it(rules):
    rules.share(NotedRing(rules.noted, b"a", b"b"))
    rules.loop.progress(NOW)
    assert rules.only("received", "done") == [("received", b"a"), "done", ("received", b"b"), "done"]


def test_a_doorbell_wakes_who_waits_for_an_event_that_has_come(rules):
    rules.loop.round_ns = NOW  # no round is due
    rules.loop.sleeper.waiters = 1
    rules.loop.sleeper.on_event()
    rules.loop.kick()
    assert (rules.woken, rules.loop.rounds) == (1, 0)


def test_the_first_doorbell_behind_a_poll_waits_for_no_other(rules):
    rules.holds_doorbell()
    rules.loop.poll()
    assert not rules.loop.batching.waits
    assert not rules.loop.batching.on_doorbell(7, NOW)


def test_links_are_told_the_time_in_rounds_with_work_too(rules):
    asked = []
    rules.wire.expire = lambda now: bool(asked.append(now))
    rules.wire.put(b"word")
    rules.loop.progress(NOW)
    rules.loop.progress(NOW + 1)
    assert asked == [NOW, NOW + 1]


def test_the_adapter_notifies_the_sleeper_itself():
    """Compiled, a method with a C body is handed over as such a function, and a caller would leave out one of
    its parameters: newer compilers refuse that."""
    loop = Bench().loop
    assert loop.adapter.notify == loop.sleeper.on_event
    loop.adapter.notify()
    assert loop.sleeper.events == 1
