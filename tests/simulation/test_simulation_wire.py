"""The oracle of the wire: each rule finds what breaks it, and says nothing of what keeps it."""

import pytest
from judged_wire import (
    ACCESS,
    ACK,
    ATOMIC_ACK,
    BACK,
    FETCH_ADD,
    FIRST_PSN,
    LEFT,
    NO_LIMIT,
    ONE,
    QKEY,
    READ,
    READ_FIRST,
    READ_LAST,
    READ_MIDDLE,
    READ_ONLY,
    RIGHT,
    RNR,
    SEND_FIRST,
    SEND_LAST,
    SEND_MIDDLE,
    SEND_ONLY,
    SEQUENCE,
    THERE,
    TWO,
    WRITE_FIRST,
    WRITE_LAST,
    WRITE_ONLY,
    Wire,
    packet,
    reth,
)

from softhca.machine.primitives import address_of
from softhca.simulation import world
from softhca.simulation.kinds import RC, UC, UD
from softhca.simulation.oracle_wire_packets import (
    CREDIT_COUNTS,
    RNR_TIMERS_US,
    Checksums,
    Terms,
    icrc_of,
    is_right_native,
)
from softhca.simulation.runner import run_world
from softhca.transport.credits import CREDITS
from softhca.transport.retry import RNR_TIMER_NS
from softhca.wire.icrc import compute, of_packet
from softhca.wire.route import NATIVE, ROCE_V4, ROCE_V6, Route

T_NS = 4_096 << 8


def test_traffic_that_keeps_the_rules_breaks_none():
    wire = Wire(quiet=True, posted=3)
    wire.request(SEND_FIRST, 0, payload=bytes(1024))
    wire.request(SEND_LAST, 1, payload=b"end", ask=True)
    wire.answer(1, syndrome=2, msn=1)
    wire.read(2, 3000)
    wire.answer(2, msn=2, opcode=READ_FIRST, payload=bytes(1024))
    wire.answer(3, opcode=READ_MIDDLE, payload=bytes(1024))
    wire.answer(4, msn=2, opcode=READ_LAST, payload=bytes(3000 - 2048))
    wire.request(FETCH_ADD, 5, bytes(28), ask=True)
    wire.answer(5, msn=3, opcode=ATOMIC_ACK, payload=bytes(8))
    wire.request(WRITE_FIRST, 6, reth(1025), payload=bytes(1024))
    wire.request(WRITE_LAST, 7, payload=b"x", ask=True)
    wire.answer(7, msn=4)
    wire.send(8, ask=True)
    wire.answer(8, syndrome=1, msn=5)
    assert wire.rules == []


# packets


@pytest.mark.parametrize("framing", [ROCE_V4, ROCE_V6])
def test_the_icrc_is_computed_apart_and_equal(framing):
    ends = (LEFT, RIGHT) if framing == ROCE_V4 else (bytes([0x20, *range(15)]), bytes([0x20] * 16))
    route = Route(framing, *ends, 0xC123, traffic_class=7, flow_label=5)
    data = bytearray(range(64))
    icrc = compute(route, address_of(data), len(data))
    assert icrc_of(*ends, 0xC123, bytes(data)) == icrc
    right = bytes(data) + icrc.to_bytes(4, "little")
    checksums = Checksums()
    assert checksums.is_right(right, route)
    assert not any(checksums.is_right(right[:at] + b"?" + right[at + 1 :], route) for at in (0, 5, 40, 66))


@pytest.mark.parametrize("with_grh", [False, True])
def test_the_icrc_of_native_packets(with_grh):
    front = bytes([0x75, 2 + with_grh, *range(6)]) + (bytes(range(0x60, 0x88)) if with_grh else b"")
    body = bytes(range(40))
    right = body + of_packet(NATIVE, front, body).to_bytes(4, "little")
    assert is_right_native(right, front)
    assert not is_right_native(right, front[:-1] + b"?")
    assert not is_right_native(b"?" + right[1:], front)


def test_the_tables_are_the_standards():
    assert CREDIT_COUNTS == CREDITS
    assert [us * 1_000 for us in RNR_TIMERS_US] == list(RNR_TIMER_NS)


@pytest.mark.parametrize("number", range(4))
def test_long_packets_have_their_icrc_whatever_their_psn(number):
    wire = Wire()
    for before in range(number):
        wire.send(before)
    data = packet(THERE, SEND_ONLY, 20, FIRST_PSN + number, b"", bytes(1024), True)
    broken = data[:-1] + bytes([data[-1] ^ 1])
    wire.oracle.sent(wire.now, 1, 2, broken, THERE, broken)
    assert wire.rules == ["every packet has its ICRC"]


@pytest.mark.parametrize("length", [0, 4, 8, 15])
def test_packets_too_short_for_their_headers_are_told_and_go_nowhere(length):
    wire = Wire()
    short = packet(THERE, SEND_ONLY, 20, FIRST_PSN)[:length]
    wire.oracle.sent(wire.now, 1, 2, short, THERE, short)
    wire.oracle.received(wire.now, 2, short)
    wire.oracle.damaged(wire.now, 2, short, THERE)
    wire.oracle.forged(2, short)
    wire.oracle.malformed(2, short)
    assert wire.rules == ["packets as long as they should be"]


def test_a_wrong_icrc_is_found_and_damage_is_a_loss():
    wire = Wire()
    data = packet(THERE, SEND_ONLY, 20, FIRST_PSN, b"", b"data", True)
    broken = data[:-1] + bytes([data[-1] ^ 1])
    wire.oracle.sent(wire.now, 1, 2, broken, THERE, broken)
    assert wire.rules == ["every packet has its ICRC"]
    wire.oracle.damaged(wire.now, 2, broken, THERE)  # asks for an answer that nobody owes
    assert wire.rules == ["every packet has its ICRC"]
    wire.oracle.damaged(wire.now, 2, data, THERE)
    assert wire.rules[1:] == ["what asks for an answer gets one"]


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"flags": 0x41}, "fields of the BTH"),
        ({"flags": 0x00}, "fields of the BTH"),
        ({"pkey": b"\xff\xfe"}, "fields of the BTH"),
        ({"reserved": 1}, "fields of the BTH"),
    ],
)
def test_fields_of_the_bth(wrong, rule):
    wire = Wire()
    wire.request(SEND_ONLY, 0, payload=b"data", **wrong)
    assert wire.rules == [rule]


def test_only_ends_of_messages_are_solicited():
    wire = Wire()
    wire.request(SEND_FIRST, 0, payload=bytes(1024), flags=0xC0)
    wire.request(SEND_LAST, 1, payload=b"data", flags=0xC0)
    assert wire.rules == ["only ends of messages are solicited"]


def test_packets_go_to_the_peer():
    wire = Wire()
    route = Route(ROCE_V4, LEFT, LEFT, 1)
    data = packet(route, SEND_ONLY, 10, FIRST_PSN)
    wire.oracle.sent(wire.now, 1, 1, data, route, data)
    assert wire.rules == ["packets go to the peer"]


def test_packets_go_to_somebody():
    wire = Wire()
    data = packet(THERE, SEND_ONLY, 21, FIRST_PSN)
    wire.oracle.sent(wire.now, 1, 2, data, THERE, data)
    assert wire.rules == ["packets go to the peer"]


@pytest.mark.parametrize(
    ("opcode", "rest", "count"),
    [
        (SEND_FIRST, b"", 1020), (SEND_ONLY, b"", 1025), (WRITE_ONLY, reth(5), 4), (WRITE_ONLY, reth(3), 4),
        (WRITE_FIRST, reth(1024), 1024), (READ, reth(8), 4), (FETCH_ADD, bytes(28), 4),
    ],
)  # fmt: skip
def test_lengths_of_requests(opcode, rest, count):
    wire = Wire()
    wire.request(opcode, 0, rest, bytes(count))
    assert wire.rules[0] == "packets as long as they should be"


def test_a_last_packet_is_not_empty_and_ends_its_write():
    wire = Wire()
    wire.request(SEND_FIRST, 0, payload=bytes(1024))
    wire.request(SEND_LAST, 1)
    wire.request(WRITE_FIRST, 2, reth(1030), payload=bytes(1024))
    wire.request(WRITE_LAST, 3, payload=bytes(5))
    assert wire.rules == ["packets as long as they should be"] * 2


@pytest.mark.parametrize(
    "opcodes", [(SEND_FIRST, SEND_ONLY), (SEND_FIRST, WRITE_LAST), (SEND_LAST,), (SEND_MIDDLE,)]
)
def test_opcodes_in_sequence(opcodes):
    wire = Wire()
    for number, opcode in enumerate(opcodes):
        wire.request(opcode, number, payload=bytes(1024))
    assert "opcodes in sequence" in wire.rules


@pytest.mark.parametrize("numbers", [(1,), (0, 2), (-1,)])
@pytest.mark.parametrize("service", [RC, UC])
def test_psns_without_gaps(service, numbers):
    wire = Wire(service)
    for number in numbers:
        wire.send(number)
    assert wire.rules[0] == "PSNs without gaps"


# requests


def test_nothing_is_sent_again_where_nothing_is_lost():
    wire = Wire(quiet=True)
    wire.send(0)
    wire.now += 3 * T_NS
    wire.send(0)
    assert wire.rules == ["nothing is sent again without cause", "nothing is sent again without cause"]


def test_a_time_out_needs_a_loss_and_time():
    wire = Wire()
    wire.send(0, arrives=False)
    wire.now += 2 * T_NS
    wire.send(0, ask=True)
    wire.answer(0, msn=1)
    assert wire.rules == []
    wire.now += 10 * T_NS
    wire.send(1)
    wire.now += 2 * T_NS
    wire.send(1)
    assert wire.rules == ["nothing is sent again without cause"]


@pytest.mark.parametrize(
    ("after", "rules"),
    [
        (T_NS // 2, ["no time-out before its time"]), (T_NS, []), (4 * T_NS, []),
        (9 * T_NS, ["time-outs come"]),
    ],
)  # fmt: skip
def test_a_time_out_comes_in_time(after, rules):
    wire = Wire()
    wire.send(0, arrives=False)
    wire.now += after
    wire.send(0)
    assert wire.rules == rules


def test_disorder_excuses_a_time_out():
    wire = Wire(quiet=True)
    wire.oracle.disorder()
    wire.send(0)
    wire.now += 2 * T_NS
    wire.send(0)
    assert wire.rules == []


def test_a_nak_or_a_missing_response_is_a_cause():
    wire = Wire()
    wire.send(0, arrives=False)
    wire.send(1)
    wire.answer(0, syndrome=SEQUENCE)
    wire.send(0)
    wire.send(1, ask=True)
    wire.answer(1, msn=2)
    wire.read(2)
    wire.send(3, ask=True)
    wire.answer(2, msn=3, opcode=READ_ONLY, payload=bytes(4), arrives=False)
    wire.answer(3, msn=4)
    wire.read(2)
    assert wire.rules == []


def test_what_is_asked_for_may_be_what_comes_next():
    wire = Wire(retries=1)
    for number in range(3):
        wire.send(number, arrives=number == 1)
    wire.answer(0, syndrome=SEQUENCE)
    wire.send(0, ask=True)
    wire.answer(0, msn=1, arrives=False)
    wire.send(1)
    wire.oracle.received(wire.now, 1, packet(BACK, ACK, 10, FIRST_PSN + 1, bytes([NO_LIMIT, 0, 0, 2])))
    wire.oracle.received(wire.now, 1, packet(BACK, ACK, 10, FIRST_PSN + 2, bytes([SEQUENCE, 0, 0, 2])))
    wire.send(2)
    assert wire.rules == []


@pytest.mark.parametrize("implied", [False, True])
def test_what_is_asked_for_goes_again(implied):
    wire = Wire()
    if implied:
        wire.read(0)
        wire.send(1, ask=True)
        wire.answer(0, msn=1, opcode=READ_ONLY, payload=bytes(4), arrives=False)
        wire.answer(1, msn=2)
    else:
        wire.send(0, arrives=False)
        wire.send(1)
        wire.answer(0, syndrome=SEQUENCE)
    assert wire.rules == []
    wire.send(2, arrives=False)
    assert wire.rules == ["what is asked for goes again"]


def test_no_more_retries_than_asked_for():
    wire = Wire(retries=2)
    for _ in range(3):
        wire.send(0, arrives=False)
        wire.now += 2 * T_NS
    assert wire.rules == []
    wire.send(0, arrives=False)
    assert wire.rules == ["no more retries than asked for"]


@pytest.mark.parametrize(
    ("shared", "rules"),
    [(False, ["no time-out before its time", "no more retries than asked for"]), (True, [])],
)
def test_what_a_time_out_asked_for_before_there_was_progress_is_no_retry(shared, rules):
    """Where others share the window it may have to wait for room, until an answer comes."""
    wire = Wire(retries=2)
    if shared:
        wire.share()
    assert wire.oracle.sharers(ONE) == 1 + shared
    wire.send(0)
    wire.send(1, arrives=False)
    wire.now += 2 * T_NS
    wire.answer(0, msn=1)
    wire.send(1, arrives=False)
    for _ in range(2):
        wire.now += 2 * T_NS
        wire.send(1, arrives=False)
    assert wire.rules == rules
    wire.now += 2 * T_NS
    wire.send(1, arrives=False)
    assert wire.rules == [*rules, "no more retries than asked for"]


@pytest.mark.parametrize(("times", "rules"), [(2, ["all retries are used"]), (3, [])])
def test_who_gives_up_has_used_all_retries(times, rules):
    wire = Wire(retries=2)
    for _ in range(times):
        wire.send(0, arrives=False)
        wire.now += 2 * T_NS
    wire.oracle.failed(ONE, 12)
    assert wire.rules == rules
    wire.send(0)
    assert wire.rules == [*rules, "nothing is sent after the end"]


def test_what_is_sent_again_is_as_it_was():
    wire = Wire()
    wire.send(0, arrives=False)
    wire.send(1)
    wire.answer(0, syndrome=SEQUENCE)
    wire.send(0, ask=True)
    wire.answer(0, msn=1)
    assert wire.rules == []
    wire.send(1, payload=b"date")
    assert wire.rules == ["packets are repeated as they were"]


@pytest.mark.parametrize(
    ("va", "length", "rules"),
    [(0x1400, 1976, []), (0x1000, 1976, ["packets are repeated as they were"]), (0x1400, 1975, None)],
)
def test_a_read_goes_on_where_it_was_lost(va, length, rules):
    wire = Wire()
    wire.read(0, 3000)
    wire.answer(0, msn=1, opcode=READ_FIRST, payload=bytes(1024))
    wire.answer(1, opcode=READ_MIDDLE, payload=bytes(1024), arrives=False)
    wire.answer(2, msn=1, opcode=READ_LAST, payload=bytes(952))
    wire.read(1, length, va=va)
    wire.answer(1, msn=1, opcode=READ_FIRST, payload=bytes(1024))
    wire.answer(2, msn=1, opcode=READ_LAST, payload=bytes(length - 1024))
    assert wire.rules == (["packets are repeated as they were"] if rules is None else rules)


def test_no_more_reads_than_agreed():
    wire = Wire()
    wire.read(0)
    wire.request(FETCH_ADD, 1, bytes(28), ask=True)
    wire.answer(0, msn=1, opcode=READ_ONLY, payload=bytes(4))
    wire.read(2)
    wire.read(3, arrives=False)
    wire.answer(1, msn=2, opcode=ATOMIC_ACK, payload=bytes(8))
    wire.answer(2, msn=3, opcode=READ_ONLY, payload=bytes(4))
    assert wire.rules == ["no more reads than agreed"]


@pytest.mark.parametrize(
    ("after", "rules"),
    [(9_900, ["an RNR NAK is waited for"]), (10_000, []), (3_000_000, ["after an RNR NAK it goes on"])],
)
def test_an_rnr_nak_asks_for_a_delay(after, rules):
    wire = Wire(posted=0)
    wire.send(0)
    wire.answer(0, syndrome=RNR)
    wire.now += after
    wire.oracle.posted(TWO, 1)
    wire.send(0)
    assert wire.rules == rules


def test_rnr_retries_are_counted():
    wire = Wire(posted=0, rnr_retry=1)
    for _ in range(2):
        wire.send(0)
        wire.answer(0, syndrome=RNR)
        wire.now += 10_000
    assert wire.rules == []
    wire.send(0)
    wire.answer(0, syndrome=RNR)
    assert wire.rules == ["no more RNR retries than asked for"]


def test_who_gives_up_for_want_of_receives_has_tried():
    wire = Wire(posted=0, rnr_retry=1)
    wire.send(0)
    wire.answer(0, syndrome=RNR)
    wire.oracle.failed(ONE, 13)
    assert wire.rules == ["all RNR retries are used"]


def test_sends_wait_for_credits():
    wire = Wire(posted=2)
    wire.send(0, ask=True)
    wire.answer(0, syndrome=1, msn=1)
    wire.send(1)
    wire.request(WRITE_ONLY, 2, reth(4), b"free")
    assert wire.rules == []
    wire.send(3, arrives=False)
    assert wire.rules == ["sends wait for credits"]


def test_one_packet_may_go_beyond_the_credits_and_the_rest_after_its_acknowledgement():
    wire = Wire(posted=1)
    wire.send(0, ask=True)
    wire.answer(0, syndrome=0, msn=1)
    wire.oracle.posted(TWO, 1)
    wire.request(SEND_FIRST, 1, payload=bytes(1024), ask=True)
    wire.answer(1, syndrome=0, msn=1)
    wire.request(SEND_LAST, 2, payload=b"rest")
    assert wire.rules == []


def test_the_rest_waits_for_that_acknowledgement():
    wire = Wire(posted=1)
    wire.send(0, ask=True)
    wire.answer(0, syndrome=0, msn=1)
    wire.oracle.posted(TWO, 1)
    wire.request(SEND_FIRST, 1, payload=bytes(1024))
    wire.request(SEND_LAST, 2, payload=b"rest")
    assert wire.rules == ["sends wait for credits"]


# answers


@pytest.mark.parametrize("msn", [0, 2])
def test_the_msn_counts_messages(msn):
    wire = Wire()
    wire.request(SEND_FIRST, 0, payload=bytes(1024))
    wire.request(SEND_LAST, 1, payload=b"end", ask=True)
    wire.answer(1, msn=msn)
    assert wire.rules == ["the MSN counts messages"]


@pytest.mark.parametrize(("opcode", "payload"), [(ACK, b""), (READ_ONLY, b"data"), (ATOMIC_ACK, bytes(8))])
def test_answers_only_to_what_came(opcode, payload):
    wire = Wire()
    wire.send(0, arrives=False)
    wire.answer(0, opcode=opcode, payload=payload)
    assert wire.rules == ["answers only to what came"]


def test_what_asks_gets_an_answer():
    wire = Wire()
    wire.send(0, ask=True)
    wire.now += 1
    wire.send(1)
    assert wire.rules == ["what asks for an answer gets one"]


def test_duplicates_are_acknowledged_again():
    wire = Wire()
    wire.send(0, ask=True)
    wire.answer(0, msn=1, arrives=False)
    wire.now += 2 * T_NS
    wire.send(0, ask=True)
    assert wire.rules == ["what asks for an answer gets one"]


def test_a_gap_is_told_once_and_as_it_is():
    wire = Wire()
    wire.send(0)
    wire.send(1, arrives=False)
    wire.send(2)
    wire.answer(1, syndrome=SEQUENCE, msn=1, arrives=False)
    wire.now += 1
    wire.send(3)
    assert wire.rules == []
    wire.answer(1, syndrome=SEQUENCE, msn=1)
    assert wire.rules == ["a gap is reported once"]


def test_a_gap_is_told():
    wire = Wire()
    wire.send(0, arrives=False)
    wire.send(1)
    wire.now += 1
    assert wire.rules == ["a gap is reported"]


@pytest.mark.parametrize("number", [0, 1])
def test_there_is_a_gap_that_is_told(number):
    wire = Wire()
    wire.send(0)
    wire.answer(number, syndrome=SEQUENCE, msn=1)
    assert wire.rules[0] == "a gap is reported as it is"


def test_rnr_naks_have_a_cause_and_the_right_delay():
    wire = Wire(posted=1)
    wire.send(0)
    wire.answer(0, syndrome=RNR)
    assert wire.rules == ["who has receives does not refuse"]
    wire = Wire(posted=0)
    wire.send(0)
    wire.answer(0, syndrome=RNR + 1)
    assert wire.rules == ["an RNR NAK asks for the delay that was set"]


def test_a_message_without_a_receive_is_refused():
    wire = Wire(posted=1)
    wire.send(0)
    wire.send(1, ask=True)
    wire.answer(1, syndrome=0, msn=2)
    assert wire.rules == ["a message without a receive is refused"]


@pytest.mark.parametrize(("code", "rules"), [(4, []), (5, ["no more credits than receives"])])
def test_no_more_credits_than_receives(code, rules):
    wire = Wire(posted=6)
    wire.send(0, ask=True)
    wire.answer(0, syndrome=code, msn=1)
    assert wire.rules == rules


@pytest.mark.parametrize(
    "answers",
    [
        [(0, READ_ONLY, 1024)], [(0, READ_FIRST, 1024), (2, READ_LAST, 952)], [(0, READ_FIRST, 1000)],
        [(0, READ_FIRST, 1024), (1, READ_LAST, 1024)], [(0, READ_MIDDLE, 1024)],
        [(0, READ_FIRST, 1024), (1, READ_MIDDLE, 1024), (2, READ_LAST, 956)],
    ],
)  # fmt: skip
def test_read_responses_in_order(answers):
    wire = Wire(strict=False)
    wire.read(0, 3000)
    for number, opcode, count in answers:
        wire.answer(number, msn=1, opcode=opcode, payload=bytes(count))
    assert wire.rules == ["READ responses in order"]


def test_an_atomic_is_executed_once():
    wire = Wire()
    wire.request(FETCH_ADD, 0, bytes(28), ask=True)
    wire.answer(0, msn=1, opcode=ATOMIC_ACK, payload=bytes(8), arrives=False)
    wire.now += 2 * T_NS
    wire.request(FETCH_ADD, 0, bytes(28), ask=True)
    wire.answer(0, msn=1, opcode=ATOMIC_ACK, payload=bytes(8), arrives=False)
    assert wire.rules == []
    wire.answer(0, msn=1, opcode=ATOMIC_ACK, payload=bytes(7) + b"1")
    assert wire.rules == ["an atomic is executed once"]


@pytest.mark.parametrize("who", ["the refused", "the refusing"])
def test_nothing_is_sent_after_the_end(who):
    wire = Wire()
    wire.send(0)
    wire.answer(0, syndrome=ACCESS)
    if who == "the refused":
        wire.send(1, arrives=False)
    else:
        wire.answer(0, msn=0)
    assert wire.rules == ["nothing is sent after the end"]


def test_a_gap_before_a_forged_packet_may_be_told():
    for forged, rules in ((False, ["a gap is reported as it is"]), (True, [])):
        wire = Wire()
        wire.send(0)
        if forged:
            wire.oracle.forged(2, packet(THERE, SEND_ONLY, 20, FIRST_PSN + 70_000, b"", b"data"))
        wire.answer(1, syndrome=SEQUENCE, msn=1)
        assert wire.rules == rules


# unreliable services


def test_unreliable_messages_break_none_and_their_lengths_are_checked():
    wire = Wire(UC)
    wire.request(WRITE_FIRST, 0, reth(1030), bytes(1024))
    wire.request(WRITE_LAST, 1, payload=bytes(6))
    wire.send(2, arrives=True)
    assert wire.rules == []
    wire.request(WRITE_ONLY, 3, reth(7), bytes(8))
    assert wire.rules == ["packets as long as they should be"]


@pytest.mark.parametrize("service", [UC, UD])
def test_nothing_unreliable_is_acknowledged(service):
    wire = Wire(service)
    data = packet(BACK, 0x11, 10, FIRST_PSN, bytes(4))
    wire.oracle.sent(wire.now, 2, 1, data, BACK, data)
    assert wire.rules == ["opcodes of the service"] if service == UC else ["packets go to the peer"]


@pytest.mark.parametrize(
    ("qkey", "source", "payload", "rules"),
    [
        (QKEY, 10, 1024, []), (QKEY, 10, 1025, ["packets as long as they should be"]),
        (1, 10, 8, ["datagrams with their Q_Key"]), (QKEY, 11, 8, ["packets go to the peer"]),
    ],
)  # fmt: skip
def test_datagrams(qkey, source, payload, rules):
    wire = Wire(UD)
    wire.request(SEND_ONLY, 0, qkey.to_bytes(4, "big") + source.to_bytes(4, "big"), bytes(payload))
    assert wire.rules == rules


def test_a_datagram_to_a_group_is_one():
    wire = Wire(UD)
    wire.oracle.connect((3, 20), ONE, UD, Terms("third", 0, 0, 1024), QKEY)
    deth = QKEY.to_bytes(4, "big") + (10).to_bytes(4, "big")
    data = packet(THERE, 0x64, 20, FIRST_PSN, deth, b"data")
    for destination in (2, 3):
        wire.oracle.sent(wire.now, 1, destination, data, THERE, data)
    assert wire.rules == []
    wire.oracle.sent(wire.now, 1, 2, data, THERE, data)
    assert wire.rules == ["PSNs without gaps"]


# worlds


def test_worlds_tell_the_oracle(monkeypatch):
    told = []

    class Listener:
        def __init__(self, *_):
            pass

        def __getattr__(self, name):
            return lambda *_: told.append(name)

    monkeypatch.setattr(world, "WireOracle", Listener)
    run_world("rc-mix", 1)
    assert set(told) == {"connect", "posted", "sent", "received", "finish"}
    assert told.count("sent") == told.count("received") > 100
