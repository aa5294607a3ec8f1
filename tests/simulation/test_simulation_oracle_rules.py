"""What oracles call broken, and what not: each rule at its bound, without a world."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest

from softhca.simulation import oracle_wire_packets as wire
from softhca.simulation.kinds import FLUSHED, SUCCESS
from softhca.simulation.oracle import (
    GUARD,
    UNTOUCHED,
    CompletionOrder,
    Report,
    check_guards,
    check_mixture,
    check_resources,
)
from softhca.simulation.oracle_rc import BoardOracle, CounterOracle, ReliableOracle
from softhca.simulation.oracle_uc import UnreliableOracle
from softhca.simulation.oracle_ud import GROUP_QP, DatagramOracle
from softhca.wire.opcodes import OPCODES

ERROR, OTHER = 10, 12
AA, BB, CC = b"aa", b"bb", b"cc"


@pytest.fixture
def report() -> Report:
    return Report()


def rules(report: Report) -> list[str]:
    return [each.rule for each in report.violations]


def order(report: Report, posted: str = "", legal: frozenset[int] = frozenset()) -> CompletionOrder:
    """One with requests: ``s`` is signaled, ``u`` is not, ``e`` has to fail."""
    made = CompletionOrder(report, "one", legal)
    for each in posted:
        made.post(each != "u", ERROR if each == "e" else SUCCESS)
    return made


# completions


def test_a_completion_says_that_those_before_it_are_done(report: Report) -> None:
    made = order(report, "usus")
    assert made.complete(1, SUCCESS) == range(2)
    assert made.complete(3, SUCCESS) == range(2, 4)
    made.finish()
    assert rules(report) == []


@pytest.mark.parametrize(("posted", "completions"), [
    ("ss", [(1, SUCCESS)]), ("s", [(0, SUCCESS), (0, SUCCESS)]), ("s", [(1, SUCCESS)]),
    ("eus", [(0, ERROR), (2, FLUSHED)]), ("u", [(1, SUCCESS)]),
])  # fmt: skip
def test_none_is_passed_over_nor_comes_twice(
    report: Report, posted: str, completions: list[tuple[int, int]]
) -> None:
    made = order(report, posted)
    for index, status in completions:
        made.complete(index, status)
    assert rules(report) == ["completions in order"]


def test_what_has_to_fail_completes_also_where_silence_was_asked_for(report: Report) -> None:
    made = order(report)
    made.post(False, ERROR)
    made.post()
    made.complete(1, SUCCESS)
    assert rules(report) == ["completions in order"]


def test_behind_an_error_all_are_flushed_and_the_first_error_is_remembered(report: Report) -> None:
    made = order(report, "seus")
    assert [made.complete(0, SUCCESS), made.complete(1, ERROR)] == [range(1), range(1, 1)]
    made.complete(2, FLUSHED)
    assert (made.failed_at, rules(report)) == (1, [])
    made.finish()
    assert rules(report) == ["every request completes"]
    made.complete(3, SUCCESS)
    assert rules(report)[1:] == ["flush after an error"]


def test_an_unsignaled_request_is_missing_behind_an_error_alone(report: Report) -> None:
    made = order(report, "su")
    made.complete(0, SUCCESS)
    made.finish()
    assert rules(report) == []
    broken = order(report, "eu")
    broken.complete(0, ERROR)
    broken.finish()
    assert rules(report) == ["every request completes"]


@pytest.mark.parametrize(("posted", "status", "rule"), [
    ("e", SUCCESS, "nobody is let in"), ("u", SUCCESS, "silence where it was asked for"),
    ("s", FLUSHED, "an error before a flush"), ("s", OTHER, "no error without cause"),
    ("e", OTHER, "no error without cause"),
])  # fmt: skip
def test_an_outcome_has_a_cause(report: Report, posted: str, status: int, rule: str) -> None:
    order(report, posted).complete(0, status)
    assert rules(report) == [rule]


def test_a_legal_status_needs_an_excuse_where_one_is_asked_for(report: Report) -> None:
    excuses: list[tuple[Callable[[int], bool] | None, list[str]]] = [
        (None, []), (lambda status: status == OTHER, []), (lambda status: False, ["no error without cause"]),
    ]  # fmt: skip
    for excuse, found in excuses:
        made, report.violations = order(report, "ss", frozenset((OTHER,))), []
        made.excuse = excuse
        made.complete(0, OTHER)
        assert rules(report) == found
        made.complete(1, OTHER)
        assert rules(report)[len(found) :] == ["one error, then flushes"]


def test_who_may_break_is_flushed_without_an_error(report: Report) -> None:
    made = CompletionOrder(report, "one", frozenset(), flushable=True)
    made.post()
    made.complete(0, FLUSHED)
    assert rules(report) == []


def test_receives_that_complete_apart_are_judged_by_themselves(report: Report) -> None:
    made = order(report, "e")
    made.receives_apart = True
    made.complete(0, ERROR)
    assert made.receive(SUCCESS)
    assert not made.receive(FLUSHED)
    assert rules(report) == []
    assert not made.receive(OTHER)
    assert (rules(report), made.receive_error, made.failed) == (["no error without cause"], OTHER, True)
    together = order(report, "e")
    together.complete(0, ERROR)
    together.receive(SUCCESS)
    assert rules(report)[1:] == ["flush after an error"]


def test_a_report_is_bounded(report: Report) -> None:
    for number in range(Report.LIMIT + 5):
        report.fail("rule", str(number))
    assert len(report.violations) == Report.LIMIT


# memory


def test_bytes_outside_of_all_buffers_are_guarded(report: Report) -> None:
    memory = bytearray([GUARD]) * 20
    memory[4:12] = bytes(8)
    check_guards(report, "m", bytes(memory), [(6, 2), (4, 8)])  # one lies within the other
    assert rules(report) == []
    memory[19] = 0
    check_guards(report, "m", bytes(memory), [(4, 8)])
    assert rules(report) == ["guard bytes"]


def test_a_byte_that_nobody_wrote_is_seen_beside_untouched_ones(report: Report) -> None:
    check_mixture(report, "m", bytes((UNTOUCHED, AA[0])), [AA])
    assert rules(report) == []
    check_mixture(report, "m", bytes((UNTOUCHED, 1)), [AA, BB])
    assert rules(report) == ["writes bring their own bytes"]
    check_mixture(report, "m", bytes((UNTOUCHED, 1)), [])  # nobody wrote there
    assert rules(report) == ["writes bring their own bytes"] * 2


def test_one_resource_that_is_left_is_too_many(report: Report) -> None:
    check_resources(report, 1, {"qp": 0})
    assert rules(report) == []
    check_resources(report, 1, {"qp": 1})
    assert rules(report) == ["resources return to zero"]


# reliable connections


def reliable(report: Report, count: int = 6) -> ReliableOracle:
    made = ReliableOracle(report, order(report, "s" * count), order(report))
    for index, data in ((0, AA), (2, BB), (4, CC)):
        made.post_write(index, 0, data)
    return made


@pytest.mark.parametrize(("index", "memory", "good"), [
    (0, AA, True), (0, BB, True), (2, BB, True), (2, AA, False), (2, b"bc", True), (2, b"ab", False),
    (4, CC, True), (4, b"bc", False),
])  # fmt: skip
def test_a_write_that_succeeded_stands_there_or_a_later_one(
    report: Report, index: int, memory: bytes, good: bool
) -> None:
    reliable(report).succeed_write(index, 0, memory)
    assert rules(report) == ([] if good else ["success means written"])


def test_a_read_returns_what_memory_held(report: Report) -> None:
    made = reliable(report)
    made.succeed_read(1, AA, AA)
    made.succeed_read_back(3, 0, BB)
    assert rules(report) == []
    made.succeed_read(1, AA, BB)
    made.succeed_read_back(3, 0, AA)
    assert rules(report) == ["a read returns what memory held"] * 2


@pytest.mark.parametrize(("written", "refused", "memory", "good"), [
    ((0, 2, 4), -1, CC, True), ((0, 2, 4), -1, BB, False), ((0, 2), -1, AA, False), ((0, 2), -1, CC, True),
    ((0,), 2, AA, True), ((0,), 2, BB, False), ((0,), 3, BB, True), ((), -1, AA, True),
    ((), -1, b"xy", False),
])  # fmt: skip
def test_at_rest_memory_has_the_last_write_that_is_known(
    report: Report, written: tuple[int, ...], refused: int, memory: bytes, good: bool
) -> None:
    made = reliable(report)
    made._written = set(written)
    if refused >= 0:
        made.requester.failed_at = refused
        made.requester.expected = {refused: ERROR}
    made.finish({0: memory})
    assert (rules(report) == []) == good


def test_messages_that_never_arrive_are_missing_unless_an_end_has_broken(report: Report) -> None:
    for end, what in ((None, ""), ("requester", "failed"), ("responder", "abandoned")):
        made, report.violations = ReliableOracle(report, order(report), order(report)), []
        made.post_message(0, AA, None)
        if end is not None:
            setattr(getattr(made, end), what, True)
        made.finish({})
        assert rules(report) == ([] if end else ["every message once"])


def test_a_message_that_succeeded_has_arrived(report: Report) -> None:
    made = ReliableOracle(report, order(report), order(report))
    made.post_message(0, AA, None)
    made.deliver(AA, None, True)
    made.succeed_message(0)
    assert rules(report) == []
    made.succeed_message(1)
    assert rules(report) == ["success means delivered"]


@pytest.mark.parametrize(("arrived", "rule"), [
    ((AA, 5, True), None), ((BB, 5, True), "every message in order, unchanged"),
    ((b"a", 5, True), "every message in order, unchanged"), ((AA, 6, True), "every message unchanged"),
    ((AA, None, True), "every message unchanged"), ((AA, 5, False), "no byte beyond a message"),
])  # fmt: skip
def test_what_a_receive_says_arrived_is_the_next_message_as_it_was_sent(
    report: Report, arrived: tuple[bytes, int | None, bool], rule: str | None
) -> None:
    made = ReliableOracle(report, order(report), order(report))
    made.post_message(0, AA, 5)
    assert made.deliver(*arrived) == 0
    assert rules(report) == ([] if rule is None else [rule])
    assert made.deliver(*arrived) == -1
    assert rules(report)[-1] == "every message once"


# counters


def counted(report: Report, *requests: tuple[int, int, int | None]) -> CounterOracle:
    """Requests one after the other: what each saw, adds, and compares."""
    made = CounterOracle(report, 0)
    for index, (original, addend, compare) in enumerate(requests):
        made.post("one", index, addend, compare)
        made.complete("one", index, original)
    return made


@pytest.mark.parametrize(("requests", "good"), [
    ([(0, 1, None), (1, 2, None), (3, 4, 3)], True), ([(10, 1, 99), (3, 1, 77)], False),
    ([(4, 1, None), (3, 1, 77)], False), ([(10, 1, 99), (10, 1, None)], True),
])  # fmt: skip
def test_who_sees_a_counter_sees_no_less_than_was_known(
    report: Report, requests: list[tuple[int, int, int | None]], good: bool
) -> None:
    counted(report, *requests)
    assert (rules(report) == []) == good


@pytest.mark.parametrize(("first", "second"), [((0, 5), (3, 5)), ((5, 1), (3, 5)), ((3, 1), (3, 1))])
def test_no_two_increases_pass_at_one_place(
    report: Report, first: tuple[int, int], second: tuple[int, int]
) -> None:
    made = CounterOracle(report, 0)
    for index, (_, addend) in enumerate((first, second)):
        made.post("one", index, addend, None)  # both are under way
    made.complete("one", 0, first[0])
    assert rules(report) == []
    made.complete("one", 1, second[0])
    assert rules(report) == ["atomics are linearizable"]


def test_an_increase_may_end_where_another_one_begins(report: Report) -> None:
    made = CounterOracle(report, 0)
    for index in range(3):
        made.post("one", index, 1, None)
    for index, original in enumerate((3, 2, 4)):
        made.complete("one", index, original)
    assert rules(report) == []


@pytest.mark.parametrize(("version", "good"), [(4, False), (5, True), (6, True), (7, False)])
def test_a_board_has_words_of_their_places_and_of_the_versions_that_can_be(
    report: Report, version: int, good: bool
) -> None:
    made = BoardOracle(report)
    made.post_write(6)
    words = array("Q", [5 << 16 | place for place in range(300)])
    made.succeed_read("one", 5, words.tobytes())
    assert rules(report) == []
    words[299] = version << 16 | 299
    made.succeed_read("one", 5, words.tobytes())
    assert (rules(report) == []) == good
    report.violations = []
    words[299] = 5 << 16 | 43  # the place's low byte alone
    made.succeed_read("one", 5, words.tobytes())
    assert rules(report) == ["a read returns what memory held"]


@pytest.mark.parametrize(("value", "good"), [(2, False), (3, True), (4, False), (5, True), (6, False)])
def test_a_counter_has_each_increase_once(report: Report, value: int, good: bool) -> None:
    made = counted(report, (0, 1, None), (1, 2, None))
    if value > 4:
        made.post("one", 9, 2, None)  # nobody knows whether that was done
    made.finish(value)
    assert (rules(report) == []) == good


def test_an_increase_that_was_seen_is_not_lost(report: Report) -> None:
    counted(report, (0, 1, None), (2, 1, None)).finish(2)
    assert rules(report) == ["atomics act once"]


# datagrams

HERE, THERE, ELSEWHERE = (b"a" * 16, 2), (b"b" * 16, 3), (b"c" * 16, 4)


def datagrams(report: Report, destination: int) -> DatagramOracle:
    made = DatagramOracle(report, once=True, lossless=True)
    for member in (HERE, THERE, ELSEWHERE):
        made.join(member)
    made.post(AA, HERE[1], HERE[0], destination, None)
    return made


def test_a_datagram_comes_once_from_whom_it_is_and_whole(report: Report) -> None:
    deliveries: list[Callable[[DatagramOracle], None]] = [
        lambda made: made.deliver(AA, THERE, HERE[1], HERE[0], None),
        lambda made: made.deliver(AA, THERE, HERE[1], HERE[0], None),
        lambda made: made.deliver(AA, THERE, HERE[1], THERE[0], None),
        lambda made: made.deliver(BB, THERE, HERE[1], HERE[0], None),
        lambda made: made.deliver(AA, ELSEWHERE, HERE[1], HERE[0], None),
    ]
    made, found = datagrams(report, THERE[1]), []
    for deliver in deliveries:
        report.violations = []
        deliver(made)
        found.append(rules(report))
    twice, stranger = "nothing is repeated without cause", "datagrams from their source to their destination"
    assert found == [[], [twice], [stranger, twice], ["datagrams whole or not at all"], [stranger]]


def test_a_group_s_datagram_is_for_all_others(report: Report) -> None:
    made = datagrams(report, GROUP_QP)
    made.deliver(AA, THERE, HERE[1], HERE[0], None)
    assert rules(report) == []
    made.finish()
    assert rules(report) == ["nothing is lost without cause"]
    made.deliver(AA, ELSEWHERE, HERE[1], HERE[0], None)
    report.violations = []
    made.finish()
    assert rules(report) == []
    made.deliver(AA, HERE, HERE[1], HERE[0], None)
    assert rules(report) == ["datagrams of a group for its other members"]


# unreliable connections


@pytest.mark.parametrize(("deliveries", "found"), [
    ([(AA, None), (BB, 7)], []), ([(AA, 7), (BB, 7)], ["a completed message is one sent message, whole"]),
    ([(AA, None), (BB, None)], ["a completed message is one sent message, whole"]),
    ([(BB, 7), (AA, None)], ["order where the network keeps it"]),
    ([(AA, None)], ["nothing is lost without cause"]),
    ([(AA, None), (AA, None)], ["order where the network keeps it"]),
])  # fmt: skip
def test_what_arrives_is_what_was_sent_in_order(
    report: Report, deliveries: list[tuple[bytes, int | None]], found: list[str]
) -> None:
    made = UnreliableOracle(report, order(report), orderly=True, lossless=True)
    made.post_message(0, AA, None)
    made.post_message(1, BB, 7)
    for data, immediate in deliveries:
        made.deliver(data, immediate)
    made.finish({})
    assert rules(report) == found


@pytest.mark.parametrize(("orderly", "lossless"), [(True, True), (True, False), (False, True)])
def test_a_write_is_missing_where_nothing_is_lost(report: Report, orderly: bool, lossless: bool) -> None:
    made = UnreliableOracle(report, order(report), orderly, lossless)
    made.post_write(0, AA)
    made.finish({0: AA})
    assert rules(report) == []
    made.finish({0: bytes((UNTOUCHED, UNTOUCHED))})
    assert rules(report) == (["nothing is lost without cause"] if orderly and lossless else [])


# packets


def named(*words: str) -> set[int]:
    """The reliable connection's requests in whose names these words are."""
    names = {code: OPCODES[code].name for code in range(0x18) if code in OPCODES}
    kinds = ("RC_SEND", "RC_RDMA_WRITE")
    return {
        code for code, name in names.items() if name.startswith(kinds) and all(word in name for word in words)
    }


def test_sets_of_opcodes_are_those_of_their_names() -> None:
    assert (named("FIRST"), named("MIDDLE")) == (wire.FIRSTS, wire.MIDDLES)
    assert (named("LAST"), named("ONLY")) == (wire.LASTS, wire.ONLYS)
    assert (named("SEND"), named("RDMA_WRITE")) == (wire.SENDS, wire.WRITES)
    ends = named("LAST") | named("ONLY")
    assert ends & (named("SEND") | named("IMMEDIATE")) == wire.MAY_BE_SOLICITED


def test_what_follows_what_is_a_part_of_the_same_message_or_begins_one() -> None:
    requests = named("")
    for kind in ("SEND", "RDMA_WRITE"):
        goes_on = named(kind, "MIDDLE") | named(kind, "LAST")
        for before in named(kind, "FIRST") | named(kind, "MIDDLE"):
            assert {code for code in requests if wire.follows(code, before)} == goes_on
        for before in named(kind, "LAST") | named(kind, "ONLY"):
            begins = named("FIRST") | named("ONLY")
            assert {code for code in requests if wire.follows(code, before)} == begins


@pytest.mark.parametrize(("value", "near", "found"), [
    (0, 0xFFFFFF, 0x1000000), (0xFFFFFF, 0x1000000, 0xFFFFFF), (0x7FFFFF, 0, 0x7FFFFF),
    (0x800000, 0, -0x800000), (0x400000, 0, 0x400000), (0xBFFFFF, 0, 0xBFFFFF - (1 << 24)),
    (5, 0x3000000, 0x3000005),
])  # fmt: skip
def test_a_number_of_24_bits_is_the_nearest(value: int, near: int, found: int) -> None:
    assert wire.near_to(value, near) == found


def test_a_packet_is_of_whole_words_and_a_last_one_has_a_byte() -> None:
    for code in (wire.SEND_ONLY, wire.SEND_LAST):
        for payload, pad, good in ((8, 0, True), (8, 3, True), (7, 0, False), (9, 0, False), (0, 3, False)):
            data = bytes([code, pad << 4]) + bytes(14 + payload)
            assert (wire.wrong_length(data, code, 256) == "") == good
    assert wire.wrong_length(bytes([wire.SEND_ONLY, 0]) + bytes(14), wire.SEND_ONLY, 256) == ""
    assert wire.wrong_length(bytes([wire.SEND_LAST, 0]) + bytes(14), wire.SEND_LAST, 256) != ""


def test_memory_was_held_since_a_moment_where_it_was_so_then() -> None:
    hold = wire.Hold(last_ns=7)
    assert [hold.since(time_ns) for time_ns in (6, 7, 8)] == [True, True, False]
    hold.held = True
    assert hold.since(8)
