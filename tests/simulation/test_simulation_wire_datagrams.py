"""The oracle of the wire for reliable datagrams: sound traffic breaks no rule, and whatever breaks one is
found."""

import pytest
from judged_wire import BACK, THERE, packet, reth

from softhca.simulation.oracle import Report
from softhca.simulation.oracle_wire import WireOracle
from softhca.simulation.oracle_wire_datagrams import (
    GAPS,
    NAMES,
    ONE_MESSAGE,
    REFUSED,
    RESYNCS,
    SAME,
    SHAPE,
    TRUTH,
)

FIRST, MIDDLE, LAST, ONLY, WRITE_FIRST, WRITE_LAST, READ = 0x40, 0x41, 0x42, 0x44, 0x46, 0x48, 0x4C
READ_FIRST, READ_LAST, ACKNOWLEDGE, ATOMIC_ANSWER, ADD, RESYNC = 0x4D, 0x4F, 0x51, 0x52, 0x54, 0x55
ACK, RNR, SEQUENCE, INVALID, ACCESS, OPERATIONAL, INVALID_RD = 0x1F, 0x21, 0x60, 0x61, 0x62, 0x63, 0x64
PSN, MTU, QP, PEER = 0xFFFFFE, 256, 0x11, 0x22
FULL = bytes(MTU)


class Channel:
    """EE context 0x33 of adapter 1 asks, 0x44 of adapter 2 answers; queue pair 0x11 asks 0x22."""

    def __init__(self):
        self.report = Report()
        self.wire = WireOracle(self.report, {})
        self.wire.connect_datagrams((1, 0x33), (2, 0x44), PSN, MTU)
        self.wire.connect_datagrams((2, 0x44), (1, 0x33), 7, MTU)

    def ask(self, opcode, step, payload=b"", rest=b"", ee=0x44, source=QP, target=PEER, arrives=True, **more):
        """A request goes, and arrives."""
        head = bytes(1) + ee.to_bytes(3, "big") + b"qkey" + bytes(1) + source.to_bytes(3, "big")
        data = packet(THERE, opcode, target, PSN + step, head + rest, payload, **more)
        self.wire.sent(1, 1, 2, data, THERE, data)
        if arrives:
            self.wire.received(1, 2, data)

    def answer(self, step, syndrome=ACK, opcode=ACKNOWLEDGE, ee=0x33, target=QP, arrives=True, sender=2):
        """An answer goes, and arrives."""
        head = bytes(1) + ee.to_bytes(3, "big")
        if opcode not in (0x4E,):
            head += bytes([syndrome, 0, 0, 1])
        if opcode == ATOMIC_ANSWER:
            head += bytes(8)
        data = packet(BACK, opcode, target, PSN + step, head)
        self.wire.sent(1, sender, 1, data, BACK, data)
        if arrives:
            self.wire.received(1, 1, data)

    def broken(self):
        return {each.rule for each in self.report.violations}


@pytest.fixture
def channel():
    return Channel()


def test_traffic_that_keeps_the_rules_breaks_none(channel):
    channel.ask(FIRST, 0, FULL)
    channel.ask(MIDDLE, 1, FULL, arrives=False)
    channel.ask(LAST, 2, b"end")
    channel.answer(1, SEQUENCE)
    channel.ask(MIDDLE, 1, FULL)
    channel.ask(LAST, 2, b"end", ask=True)
    channel.answer(2)
    channel.answer(2)
    channel.ask(READ, 3, rest=reth(3 * MTU))
    channel.answer(3, opcode=READ_FIRST)
    channel.ask(READ, 4, rest=reth(2 * MTU))
    channel.answer(4, opcode=READ_FIRST)
    channel.answer(5, opcode=READ_LAST)
    channel.ask(ADD, 6, rest=bytes(28), source=0x12)
    channel.answer(6, opcode=ATOMIC_ANSWER, target=0x12)
    channel.ask(ONLY, 7, b"no receive")
    channel.answer(7, RNR)
    channel.ask(ONLY, 7, b"no receive")
    channel.answer(7)
    channel.ask(WRITE_FIRST, 8, FULL, reth(300))
    channel.answer(8, ACCESS)
    channel.answer(8, ACCESS)
    channel.ask(RESYNC, 9, ask=True)
    channel.answer(9)
    channel.ask(ONLY, 10, b"on")
    channel.answer(10)
    channel.ask(FIRST, 11, FULL, ask=True)
    channel.answer(11)
    channel.ask(RESYNC, 12, ask=True)  # what was begun is given up, though all of it was answered
    channel.answer(12)
    assert channel.broken() == set()


def test_both_directions_are_followed_apart(channel):
    channel.wire.connect_datagrams((1, 0x33), (2, 0x44), PSN, MTU)
    head = bytes(1) + bytes([0, 0, 0x33]) + b"qkey" + bytes(1) + bytes([0, 0, 0x22])
    back = packet(BACK, ONLY, QP, 7, head, b"x")
    channel.wire.sent(1, 2, 1, back, BACK, back)
    channel.ask(ONLY, 0, b"x")
    channel.answer(0)
    assert channel.broken() == set()


@pytest.mark.parametrize("step", [1, 2, 1 << 22])
def test_psns_without_gaps(channel, step):
    channel.ask(ONLY, step, b"x")
    assert channel.broken() == {GAPS}


@pytest.mark.parametrize("second", [ONLY, FIRST, READ, ADD])
def test_one_message_is_under_way(channel, second):
    channel.ask(ONLY, 0, b"x")
    rest = {READ: reth(100), ADD: bytes(28)}.get(second, b"")
    channel.ask(second, 1, FULL if second == FIRST else b"" if rest else b"y", rest)
    assert channel.broken() == {ONE_MESSAGE}


def test_a_message_ends_before_the_next_one_begins(channel):
    channel.ask(FIRST, 0, FULL, ask=True)
    channel.answer(0)
    channel.ask(ONLY, 1, b"x")
    assert channel.broken() == {ONE_MESSAGE}


def test_an_answer_that_did_not_arrive_begins_nothing(channel):
    channel.ask(ONLY, 0, b"x")
    channel.answer(0, arrives=False)
    channel.ask(ONLY, 1, b"x")
    assert channel.broken() == {ONE_MESSAGE}


def test_a_later_read_response_answers_nothing_before_it(channel):
    channel.ask(READ, 0, rest=reth(2 * MTU))
    channel.answer(1, opcode=READ_LAST)
    channel.ask(ONLY, 2, b"x")
    assert channel.broken() == {ONE_MESSAGE}


@pytest.mark.parametrize("fields", [{"source": 0x12}, {"target": 0x23}])
def test_a_message_is_of_one_queue_pair_for_one(channel, fields):
    channel.ask(FIRST, 0, FULL)
    channel.ask(LAST, 1, b"x", **fields)
    assert channel.broken() == {NAMES}


@pytest.mark.parametrize(("before", "code", "payload"), [
    (None, MIDDLE, FULL), (None, LAST, b"x"), (FIRST, WRITE_LAST, b"x"), (FIRST, MIDDLE, b"short"),
    (None, FIRST, b"x"),
])  # fmt: skip
def test_packets_are_as_they_should_be(channel, before, code, payload):
    if before is not None:
        channel.ask(before, 0, FULL)
    channel.ask(code, 0 if before is None else 1, payload)
    assert channel.broken() == {SHAPE}


def test_packets_go_again_as_they_were(channel):
    channel.ask(ONLY, 0, b"this")
    channel.ask(ONLY, 0, b"this", ask=True)
    assert channel.broken() == set()
    channel.ask(ONLY, 0, b"that")
    assert channel.broken() == {SAME}


def test_what_was_answered_does_not_go_again(channel):
    channel.ask(ONLY, 0, b"this")
    channel.answer(0)
    channel.ask(ONLY, 0, b"this")
    assert channel.broken() == {SAME}


def test_a_resync_is_behind_something_that_was_given_up(channel):
    channel.ask(ONLY, 0, b"x")
    channel.answer(0)
    channel.ask(RESYNC, 1)
    assert channel.broken() == {RESYNCS}


@pytest.mark.parametrize("syndrome", [ACK, RNR, ACCESS])
def test_answers_say_what_has_come(channel, syndrome):
    channel.ask(FIRST, 0, FULL)
    channel.ask(LAST, 1, b"x", arrives=False)
    channel.answer(1, syndrome)
    assert channel.broken() == {TRUTH}


@pytest.mark.parametrize("step", [0, 2])
def test_a_sequence_nak_names_what_is_expected(channel, step):
    channel.ask(FIRST, 0, FULL)
    channel.ask(MIDDLE, 1, FULL, arrives=False)
    channel.ask(LAST, 2, b"x")
    channel.answer(step, SEQUENCE)
    assert channel.broken() == {TRUTH}


def test_behind_an_rnr_nak_the_request_comes_again(channel):
    channel.ask(ONLY, 0, b"x")
    channel.answer(0, RNR)
    channel.answer(0)
    assert channel.broken() == {TRUTH}


@pytest.mark.parametrize("syndrome", [INVALID, ACCESS, OPERATIONAL, INVALID_RD])
def test_nothing_goes_on_behind_a_refusal(channel, syndrome):
    channel.ask(FIRST, 0, FULL)
    channel.ask(LAST, 1, b"x")
    channel.answer(0, syndrome)
    channel.answer(0)
    assert channel.broken() == {REFUSED}


def test_what_a_refusal_is_followed_by_has_not_come(channel):
    channel.ask(FIRST, 0, FULL)
    channel.answer(0, ACCESS)
    channel.ask(LAST, 1, b"x")
    channel.answer(1)
    assert channel.broken() == {TRUTH}


@pytest.mark.parametrize("fields", [{"ee": 0x34}, {"target": 0x12}, {"sender": 3}])
def test_answers_go_to_who_has_asked(channel, fields):
    channel.ask(ONLY, 0, b"x")
    channel.answer(0, **fields)
    assert channel.broken() == {NAMES}


def test_requests_go_to_ee_contexts_of_their_channel(channel):
    channel.ask(ONLY, 0, b"x", ee=0x45)
    assert channel.broken() == {NAMES}


def test_an_ee_context_that_was_reset_begins_anew(channel):
    channel.ask(ONLY, 0, b"x")
    channel.wire.connect_datagrams((1, 0x33), (2, 0x44), PSN - 5, MTU)
    channel.ask(ONLY, -5, b"x")
    channel.answer(-5)
    assert channel.broken() == set()
