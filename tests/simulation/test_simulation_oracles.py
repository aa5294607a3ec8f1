"""Oracles find bugs that are put in on purpose: into worlds, and into their own input."""

import pytest
from changed_polls import altered, change_polls

from softhca.adapter.multicast import MulticastGroups
from softhca.simulation import node as node_module
from softhca.simulation.arena import Arena
from softhca.simulation.oracle import CompletionOrder, Report, check_guards, check_mixture, check_resources
from softhca.simulation.oracle_rc import CounterOracle, ReliableOracle
from softhca.simulation.oracle_ud import GROUP_QP, DatagramOracle
from softhca.simulation.program import RECEIVE_BIT
from softhca.simulation.recorder import Recorder
from softhca.simulation.runner import run_world
from softhca.simulation.scenarios import SCENARIOS


def rules(name, seeds=range(1, 4)):
    return {found.rule for seed in seeds for found in run_world(name, seed).violations}


def tampered_poll(monkeypatch, change):
    """Let every program see ``change(its completions)``."""
    change_polls(monkeypatch, change)


def is_good_receive(completion):
    return completion.wr_id & RECEIVE_BIT and completion.status == 0


def test_a_message_delivered_twice_is_found(monkeypatch):
    def twice(found):
        return [copy for one in found for copy in [one] * (2 if is_good_receive(one) else 1)]

    tampered_poll(monkeypatch, twice)
    assert "every receive once" in rules("rc-mix") | rules("srq")


@pytest.mark.parametrize(("name", "rule"), [
    ("rc-mix", "every message in order, unchanged"),
    ("uc-mix", "a completed message is one sent message, whole"),
    ("ud-mix", "datagrams whole or not at all"),
    ("raw-mix", "datagrams whole or not at all"),
])  # fmt: skip
def test_a_byte_that_changes_behind_the_icrc_is_found(monkeypatch, name, rule):
    receives = Recorder.receives

    def spoil(self, index, completion):
        buffer = self.end.receives.buffers[index]
        if completion.byte_len:
            arena = self.end.host.arena
            pieces, left = buffer.pieces or ((buffer.offset, buffer.length),), completion.byte_len - 1
            for offset, length in pieces:
                if 0 <= left < length:
                    arena.memory[arena.regions[buffer.region].start + offset + left] ^= 1
                left -= length
        return receives(self, index, completion)

    monkeypatch.setattr(Recorder, "receives", spoil)
    assert rule in rules(name)


def test_a_message_acknowledged_and_dropped_is_found(monkeypatch):
    tampered_poll(monkeypatch, lambda found: [one for one in found if not is_good_receive(one)])
    assert "success means delivered" in rules("rc-mix")


def test_a_request_that_never_completes_is_found(monkeypatch):
    tampered_poll(monkeypatch, lambda found: [one for one in found if one.wr_id != 3])
    assert {"every request completes", "completions in order"} & rules("rc-mix")


def test_a_write_outside_every_buffer_is_found(monkeypatch):
    arenas = []

    def spoil(node):
        for arena in arenas:
            arena.memory[3:4] = b"\0"

    freeze = Arena.freeze
    monkeypatch.setattr(Arena, "freeze", lambda self: (freeze(self), arenas.append(self)))
    turn = node_module.Node.turn

    def stray(self):
        turn(self)
        spoil(self)

    monkeypatch.setattr(node_module.Node, "turn", stray)
    assert rules("rc-mix", [1]) == {"guard bytes"}


def test_datagrams_from_a_wrong_source_are_found(monkeypatch):
    tampered_poll(monkeypatch, lambda found: [altered(one, src_qp=one.src_qp ^ 1) for one in found])
    assert rules("ud-mix", [1]) == {"datagrams from their source to their destination"}


@pytest.mark.parametrize(("field", "bit"), [("slid", 2), ("src_qp", 1)])
def test_raw_datagrams_from_a_wrong_port_or_of_a_wrong_service_are_found(monkeypatch, field, bit):
    def changed(one):
        return altered(one, **{field: getattr(one, field) ^ bit})

    tampered_poll(monkeypatch, lambda found: [changed(one) for one in found])
    assert rules("raw-mix", [1]) == {"datagrams from their source to their destination"}


def test_a_raw_datagram_that_is_lost_without_cause_is_found(monkeypatch):
    tampered_poll(monkeypatch, lambda found: [one for one in found if not is_good_receive(one)])
    assert "nothing is lost without cause" in rules("raw-mix", [1])


def test_a_success_after_an_error_and_a_flush_without_one_are_found():
    report = Report()
    late = CompletionOrder(report, "a", frozenset({12}))
    late.post()
    late.post()
    assert not late.complete(0, 12)
    late.complete(1, 0)
    early = CompletionOrder(report, "b", frozenset({12}))
    early.post()
    early.complete(0, 5)
    assert [found.rule for found in report.violations] == ["flush after an error", "an error before a flush"]


def test_reads_and_writes_that_do_not_hold_their_bytes_are_found():
    report = Report()
    order = CompletionOrder(report, "a", frozenset())
    oracle = ReliableOracle(report, order, CompletionOrder(report, "b", frozenset()))
    oracle.succeed_read(0, b"abcd", b"abcd")
    oracle.post_write(1, 1, b"abcd")
    oracle.succeed_write(1, 1, b"abcd")
    assert not report.violations
    oracle.succeed_read(2, b"abcX", b"abcd")
    oracle.post_write(3, 3, b"abcd")
    oracle.succeed_write(3, 3, b"abc\x5a")
    check_mixture(report, "w", b"a\x5aX", [b"abc"])
    assert [found.rule for found in report.violations] == [
        "a read returns what memory held", "success means written", "writes bring their own bytes",
    ]  # fmt: skip


def counter(*steps):
    report = Report()
    oracle = CounterOracle(report, 0)
    for step in steps[:-1]:
        if step[0] == "post":
            oracle.post("q", step[1], 1, step[2])
        else:
            oracle.complete("q", *step[1:])
    oracle.finish(steps[-1])
    return [found.rule for found in report.violations]


def test_a_counter_is_linearizable_or_the_oracle_says_so():
    post_two = (("post", 0, None), ("post", 1, None))
    assert counter(*post_two, ("done", 0, 0), ("done", 1, 1), 2) == []
    assert "atomics are linearizable" in counter(*post_two, ("done", 0, 0), ("done", 1, 0), 2)
    assert "atomics are linearizable" in counter(
        ("post", 0, None), ("done", 0, 1), ("post", 1, None), ("done", 1, 0), 2
    )
    assert counter(("post", 0, 5), ("done", 0, 0), 0) == []
    assert counter(("post", 0, None), ("done", 0, 0), 2) == ["atomics act once"]
    assert counter(("post", 0, None), ("done", 0, 0), 0)[0] == "atomics act once"
    assert counter(("post", 0, None), 1) == counter(("post", 0, None), 0) == []


def test_guards_resources_and_repetitions_are_checked():
    report = Report()
    check_guards(report, "m", b"\xa5\xa5xx\xa5", [(2, 2)])
    check_resources(report, 1, {"QP": 0})
    assert not report.violations
    check_guards(report, "m", b"\xa5bxx\xa5", [(2, 2)])
    check_resources(report, 1, {"QP": 2})
    oracle = DatagramOracle(report, once=True, lossless=True)
    gid = bytes(10) + b"\xff\xff" + bytes((192, 0, 2, 1))
    oracle.post(b"datagram", 5, gid, 6, None)
    oracle.finish()
    oracle.deliver(b"datagram", (gid, 6), 5, gid, None)
    oracle.deliver(b"datagram", (gid, 6), 5, gid, None)
    assert [found.rule for found in report.violations] == [
        "guard bytes", "resources return to zero", "nothing is lost without cause",
        "nothing is repeated without cause",
    ]  # fmt: skip


@pytest.mark.parametrize("seen", [(4, b"left", 7), (5, b"right", 7), (5, b"left", 8), (5, b"left", None)])
def test_who_sent_a_datagram_and_what_came_with_it_are_checked(seen):
    report = Report()
    oracle = DatagramOracle(report, once=True, lossless=True)
    oracle.post(b"datagram", 5, b"left", 6, 7)
    source_qp, gid, immediate = seen
    oracle.deliver(b"datagram", (b"here", 6), source_qp, gid, immediate)
    oracle.finish()
    assert [found.rule for found in report.violations] == ["datagrams from their source to their destination"]


def test_c10_58_datagrams_of_a_group_are_checked():
    def broken(*deliveries, lossless=True):
        report = Report()
        oracle = DatagramOracle(report, once=True, lossless=lossless)
        for member in ((b"left", 5), (b"left", 6), (b"right", 5)):
            oracle.join(member)
        oracle.post(b"datagram", 5, b"left", GROUP_QP, None)
        for at, source_qp in deliveries:
            oracle.deliver(b"datagram", at, source_qp, b"left", None)
        oracle.finish()
        return [found.rule for found in report.violations]

    all_others = ((b"left", 6), 5), ((b"right", 5), 5)
    assert broken(*all_others) == []
    assert broken(*all_others[:1]) == broken(*all_others[1:]) == broken() == ["nothing is lost without cause"]
    assert broken(lossless=False) == []
    assert broken(*all_others, ((b"left", 5), 5)) == ["datagrams of a group for its other members"]
    assert broken(*all_others, ((b"right", 6), 5)) == ["datagrams of a group for its other members"]
    assert broken(*all_others, all_others[0]) == ["nothing is repeated without cause"]
    assert broken(all_others[0], ((b"right", 5), 6)) == ["datagrams from their source to their destination"]


KINDS = (
    "conversations", "datagrams", "sockets", "disks", "streams", "lines", "proposes", "failures", "mailbox",
)  # fmt: skip
"""What tells scenarios of other settings than the ordinary one."""


OTHERS = [next(name for name, each in SCENARIOS.items() if getattr(each, kind)) for kind in KINDS]


@pytest.mark.parametrize("name", ["rc-mix", "ud-mix", *OTHERS])
def test_what_a_world_leaves_behind_is_found(name, monkeypatch):
    monkeypatch.setattr(node_module.Node, "resources", lambda self: {"PD": 1})
    assert "resources return to zero" in rules(name, [1])


def test_neighbours_of_a_sender_that_hear_nothing_are_found(monkeypatch):
    monkeypatch.setattr(MulticastGroups, "heard", lambda self, gid: False)
    assert rules("ud-multicast", [1]) == {"nothing is lost without cause"}


def test_members_of_a_group_that_are_left_out_are_found(monkeypatch):
    members = MulticastGroups.members
    monkeypatch.setattr(MulticastGroups, "members", lambda self, gid: members(self, gid)[:-1])
    assert rules("ud-multicast", [1]) == {"nothing is lost without cause"}
