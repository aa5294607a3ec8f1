"""Requests that wait: deadlines, tries, and how much is remembered of those that were answered."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.management.dispatcher import Client
from softhca.management.mad import Address, MadHeader
from softhca.management.outstanding import comes_from
from softhca.management.pending import NEVER_NS, Pending, PendingRequests, is_request, request_key
from suite_plan import random_inputs

PEER = Address(1)


def client(number: int) -> Client:
    made = Client(4, 1, (), lambda data, address: True)
    made.number = number
    return made


CLIENTS = [client(number) for number in (1, 2)]


def pending(who: int, tid: int, deadline_ns: int, retries: int = 0) -> Pending:
    return Pending(CLIENTS[who], (4, tid), b"", PEER, 10, retries, deadline_ns)


def test_the_earliest_comes_first_and_once() -> None:
    waiting = PendingRequests()
    for tid, deadline in ((1, 30), (2, 10), (3, 20)):
        waiting.add(pending(0, tid, deadline))
    assert (waiting.next_ns, waiting.due(9)) == (10, [])
    assert [each.key[1] for each in waiting.due(20)] == [2, 3]
    assert (len(waiting), waiting.next_ns) == (1, 30)
    assert [each.key[1] for each in waiting.due(1000)] == [1]
    assert (len(waiting), waiting.next_ns, waiting.due(2000)) == (0, NEVER_NS, [])


def test_the_same_request_of_two_clients_is_two() -> None:
    waiting = PendingRequests()
    waiting.add(pending(0, 1, 10))
    waiting.add(pending(1, 1, 10))
    waiting.answered(CLIENTS[0], (4, 1))
    assert not waiting.has(CLIENTS[0], (4, 1))
    assert (waiting.count(CLIENTS[0]), waiting.count(CLIENTS[1])) == (0, 1)
    assert [each.client for each in waiting.due(10)] == [CLIENTS[1]]


def test_a_request_that_was_answered_and_asked_again_has_the_new_deadline() -> None:
    waiting = PendingRequests()
    waiting.add(pending(0, 1, 10))
    waiting.answered(CLIENTS[0], (4, 1))
    waiting.add(pending(0, 1, 50))
    assert waiting.due(49) == []
    assert len(waiting.due(50)) == 1


def test_a_response_of_another_port_answers_nothing() -> None:
    waiting, request = PendingRequests(), pending(1, 7, 10)
    waiting.add(request)
    there = request.destination
    waiting.answered(request.client, request.key, replace(there, lid=there.lid + 1))
    assert waiting.has(request.client, request.key)
    waiting.answered(request.client, request.key, there)
    assert not waiting.has(request.client, request.key)


def test_a_directed_route_says_itself_whence_its_response_comes() -> None:
    asked = Address(qpn=0, lid=0xFFFF)
    assert comes_from(Address(qpn=0, lid=5), asked)
    assert not comes_from(Address(qpn=0, lid=5), replace(asked, lid=0xFFFE))


def test_a_client_that_goes_is_forgotten() -> None:
    waiting = PendingRequests()
    waiting.add(pending(0, 1, 10))
    waiting.add(pending(1, 1, 20))
    waiting.forget(CLIENTS[0])
    assert [each.client.number for each in waiting.due(100)] == [2]


def test_what_is_sent_again_waits_as_long_once_more() -> None:
    again = pending(0, 1, 10, retries=2).again(15)
    assert (again.retries, again.deadline_ns, again.later(99).deadline_ns) == (1, 25, 99)


def test_responses_and_datagrams_without_one_wait_for_nothing() -> None:
    assert is_request(MadHeader(method=0x01))
    assert not any(is_request(MadHeader(method=method)) for method in (0x81, 0x03, 0x05, 0x07))
    assert request_key(MadHeader(management_class=4, transaction_id=0x700000009)) == (4, 9)


def test_what_is_asked_again_and_again_takes_no_more_room_than_what_waits() -> None:
    waiting = PendingRequests()
    for tid in range(200):
        waiting.add(pending(0, tid, 10))
    most = 0
    for deadline in range(20, 1020):
        waiting.add(pending(0, 7, deadline))
        most = max(most, len(waiting._deadlines))
    assert most <= 2 * 200 + 65
    assert len(waiting.due(10)) == 199


@settings(max_examples=random_inputs(60), deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(1, 1 << 40)), max_size=400))
def test_no_more_is_kept_than_waits(steps: list[tuple[bool, int, int]]) -> None:
    waiting = PendingRequests()
    expected: dict[int, int] = {}
    for ends, tid, deadline in steps:
        if ends:
            waiting.answered(CLIENTS[0], (4, tid))
            expected.pop(tid, None)
        else:
            waiting.add(pending(0, tid, deadline))
            expected[tid] = deadline
        assert len(waiting) == len(expected)
        assert len(waiting._deadlines) <= 2 * len(expected) + 65
        assert waiting.next_ns <= min(expected.values(), default=NEVER_NS)
    assert sorted((each.key[1], each.deadline_ns) for each in waiting.due(1 << 41)) == sorted(
        expected.items()
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_earliest_comes_first_also_when_the_answered_ones_were_taken_out(seed: int) -> None:
    dice, waiting = Random(seed), PendingRequests()
    deadlines = {tid: dice.randrange(10, 1000) for tid in range(100)}
    for tid, deadline in deadlines.items():
        waiting.add(pending(0, tid, deadline))
    for tid in range(90):
        waiting.answered(CLIENTS[0], (4, tid))
        del deadlines[tid]
    waiting.add(pending(0, 200, 1001))
    assert len(waiting._deadlines) == 11, "what was answered has been taken out"
    assert [each.deadline_ns for each in waiting.due(1000)] == sorted(deadlines.values())
