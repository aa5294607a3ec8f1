"""Records of subnet administration, and answers of many segments."""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random

import pytest

from softhca.management import administration_attributes as a
from softhca.management import constants as c
from softhca.management import rmpp
from softhca.management.mad import MadHeader
from softhca.management.rmpp import Receiver, Sender
from softhca.wire.layout import Header

RECORDS = {
    a.AdministrationHeader: 32, a.NodeRecord: 108, a.PortInfoRecord: 68, a.SwitchInfoRecord: 24,
    a.SMInfoRecord: 25, a.LinkRecord: 8, a.ServiceRecord: 176, a.PathRecord: 64, a.MCMemberRecord: 52,
    a.InformInfo: 36,
}  # fmt: skip
HEADER = MadHeader(management_class=3, class_version=2, method=0x92, transaction_id=7, attribute_id=0x11)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_a_record_has_its_length_and_comes_back(record: type[Header]) -> None:
    assert RECORDS[record] == record.LENGTH_BYTES
    assert sum(field.bits for field in record.LAYOUT) == 8 * record.LENGTH_BYTES
    assert [field.name for field in record.LAYOUT] == [field.name for field in fields(record)]
    data = Random(1).randbytes(record.LENGTH_BYTES)
    assert record.decode(data).encode() == data


@pytest.mark.parametrize(
    ("record", "name", "component", "place"),
    [
        (a.NodeRecord, "node_description", 14, 44),
        (a.PathRecord, "dgid", 2, 8),
        (a.PathRecord, "sgid", 3, 24),
        (a.PathRecord, "dlid", 4, 40),
        (a.PathRecord, "pkey", 13, 50),
        (a.PathRecord, "sl", 15, 53),
        (a.PathRecord, "packet_lifetime", 21, 56),
        (a.MCMemberRecord, "mlid", 3, 36),
        (a.MCMemberRecord, "join_state", 16, 48),
        (a.ServiceRecord, "name", 6, 48),
        (a.LinkRecord, "to_lid", 3, 4),
    ],
)
def test_components_stand_where_the_standard_has_them(
    record: type[Header], name: str, component: int, place: int
) -> None:
    assert record.LAYOUT[component].name == name
    assert sum(field.bits for field in record.LAYOUT[:component]) // 8 == place


def test_only_components_of_the_mask_are_compared() -> None:
    record = a.LinkRecord(1, 2, 3, 4)
    assert a.matches(record, a.LinkRecord(9, 9, 9, 9), 0)
    assert a.matches(record, a.LinkRecord(1, 9, 3, 9), 0b101)
    assert not a.matches(record, a.LinkRecord(1, 9, 3, 9), 0b111)
    assert a.matches(record, record, (1 << 64) - 1)


def transfer(data: bytes, lost: float, seed: int) -> tuple[Sender, Receiver, int]:
    """Both ends and a network that loses; the number of datagrams."""
    dice = Random(seed)
    sender, receiver = Sender(HEADER, a.AdministrationHeader(attribute_offset=14), data), Receiver()
    now, count = 0, 0
    waiting = sender.start(now)
    while True:
        arrived = [mad for mad in waiting if dice.random() >= lost]
        count += len(waiting)
        answers = [answer for mad in arrived if (answer := receiver.receive(mad)) is not None]
        waiting = [mad for ack in answers if dice.random() >= lost for mad in sender.receive(ack, now)]
        if not waiting:
            if sender.done:
                return sender, receiver, count
            now = sender.deadline_ns
            waiting = sender.expire(now)


@pytest.mark.parametrize("length", [0, 1, 199, 200, 201, 400, 5_000, 20_001])
def test_answers_of_any_length_come_whole(length: int) -> None:
    data = Random(length).randbytes(length)
    sender, receiver, count = transfer(data, 0.0, 1)
    assert (receiver.data, receiver.done, receiver.failed) == (data, True, False)
    assert count == sender.segments == max(1, (length + 199) // 200)
    assert receiver.administration.attribute_offset == 14


def test_lost_segments_and_acknowledgements_are_sent_again() -> None:
    data = Random(5).randbytes(9_000)
    for seed in range(20):
        _, receiver, count = transfer(data, 0.15, seed)
        assert count > 45
        assert receiver.done is (receiver.data == data)
    assert receiver.done


def test_segments_say_what_the_standard_wants() -> None:
    sender = Sender(HEADER, a.AdministrationHeader(), bytes(450))
    said = [a.AdministrationHeader.decode(mad, rmpp.HEADER_AT) for mad in sender.start(0)]
    assert [(s.rmpp_flags, s.segment_number, s.payload_length) for s in said] == [(3, 1, 510)]
    acknowledged = a.AdministrationHeader(1, rmpp.ACK, 0, 1, 0, 1, 3)
    rest = sender.receive((HEADER.encode() + acknowledged.encode()).ljust(256, b"\0"), 0)
    said = [a.AdministrationHeader.decode(mad, rmpp.HEADER_AT) for mad in rest]
    assert [(s.rmpp_flags, s.segment_number, s.payload_length) for s in said] == [(1, 2, 0), (5, 3, 70)]
    assert all(mad[:24] == HEADER.encode() and len(mad) == 256 and rmpp.is_rmpp(mad) for mad in rest)


def test_a_receiver_that_says_nothing_is_given_up() -> None:
    sender = Sender(HEADER, a.AdministrationHeader(), bytes(450), timeout_ns=10, retries=2)
    assert sender.start(0)
    assert not sender.expire(9)
    sent = [sender.expire(now) for now in (10, 20, 30)]
    kinds = [[mad[rmpp.HEADER_AT + 1] for mad in mads] for mads in sent]
    assert kinds == [[rmpp.DATA], [rmpp.DATA], [rmpp.ABORT]]
    assert sender.done
    assert not sender.expire(99)


@pytest.mark.parametrize(
    ("kind", "segment", "window", "version"),
    [(rmpp.ACK, 2, 9, 1), (rmpp.ACK, 1, 0, 1), (rmpp.ACK, 1, 9, 2), (rmpp.DATA, 1, 9, 1)],
)
def test_acknowledgements_that_cannot_be_change_nothing(
    kind: int, segment: int, window: int, version: int
) -> None:
    sender = Sender(HEADER, a.AdministrationHeader(), bytes(900))
    sender.start(0)
    said = a.AdministrationHeader(version, kind, 0, 1, 0, segment, window)
    assert sender.receive((HEADER.encode() + said.encode()).ljust(256, b"\0"), 0) == []
    assert sender.receive(b"short", 0) == []
    right = replace(said, rmpp_version=1, rmpp_type=rmpp.ACK, segment_number=1, payload_length=2)
    assert len(sender.receive((HEADER.encode() + right.encode()).ljust(256, b"\0"), 0)) == 1
    stop = replace(right, rmpp_type=rmpp.STOP)
    assert sender.receive((HEADER.encode() + stop.encode()).ljust(256, b"\0"), 0) == []
    assert sender.done


def test_an_answer_has_arrived_at_both_ends_though_the_last_ack_was_lost() -> None:
    sender, receiver = Sender(HEADER, a.AdministrationHeader(), bytes(450)), Receiver()
    ack = receiver.receive(sender.start(0)[0])
    assert ack is not None
    rest = [receiver.receive(mad) for mad in sender.receive(ack, 0)]
    assert receiver.done
    assert rest[-1] is not None  # and is lost
    again = [receiver.receive(mad) for mad in sender.expire(sender.deadline_ns)]
    assert again == [rest[-1]] * len(again) != []
    assert sender.receive(again[0] or b"", 1) == []
    assert (sender.complete, receiver.failed, len(receiver.data)) == (True, False, 450)


def test_what_is_no_segment_of_a_whole_answer_gets_no_ack() -> None:
    sender, receiver = Sender(HEADER, a.AdministrationHeader(), bytes(400)), Receiver()
    first = sender.start(0)[0]
    ack = receiver.receive(first)
    assert ack is not None
    [last] = sender.receive(ack, 0)
    assert receiver.receive(last) is not None
    kind, number = rmpp.HEADER_AT + 1, rmpp.HEADER_AT + 7
    for at, value in ((kind, rmpp.ACK), (kind, rmpp.ABORT), (number, 0), (number, 3)):
        other = bytearray(last)
        other[at] = value
        assert receiver.receive(bytes(other)) is None
    assert (receiver.done, receiver.failed) == (True, False)
    single = Receiver()
    alone = Sender(HEADER, a.AdministrationHeader(), b"short").start(0)[0]
    assert single.receive(alone) is single.receive(alone) is None


def test_a_receiver_bounds_what_it_takes_and_refuses_what_cannot_be() -> None:
    receiver = Receiver(most=300)
    sender = Sender(HEADER, a.AdministrationHeader(), bytes(900))
    ack = receiver.receive(sender.start(0)[0])
    assert ack is not None
    answers = [receiver.receive(mad) for mad in sender.receive(ack, 0)]
    assert receiver.failed
    assert [mad[rmpp.HEADER_AT + 1] for mad in answers if mad is not None] == [rmpp.ABORT]
    other = Receiver()
    answer = other.receive(bytes(256))
    assert answer is not None
    assert (answer[rmpp.HEADER_AT + 1], other.failed) == (rmpp.ABORT, True)
    assert Receiver().receive(b"short") is None
    dice = Random(3)
    for _ in range(500):
        Receiver().receive(dice.randbytes(256))
        sender.receive(dice.randbytes(256), 0)
    assert not rmpp.is_rmpp(bytes(256))
    assert c.CLASS_SUBN_ADM == 3


@pytest.mark.parametrize(
    ("management_class", "flags", "length", "is_one"),
    [(3, 1, 256, True), (3, 7, 256, True), (3, 0, 256, False), (3, 6, 256, False), (4, 1, 256, False),
     (3, 1, 255, False), (3, 1, 300, False), (4, 0, 10, False)],
)  # fmt: skip
def test_a_segment_is_one_by_its_class_flag_and_length(
    management_class: int, flags: int, length: int, is_one: bool
) -> None:
    front = a.AdministrationHeader(rmpp_version=1, rmpp_type=1, rmpp_flags=flags)
    header = replace(HEADER, management_class=management_class)
    mad = (header.encode() + front.encode()).ljust(length, b"\0")[:length]
    assert rmpp.is_rmpp(mad) is is_one


def test_a_receiver_that_acknowledges_the_same_again_and_again_is_given_up() -> None:
    sender = Sender(HEADER, a.AdministrationHeader(), bytes(900), timeout_ns=10, retries=2)
    said = a.AdministrationHeader(1, rmpp.ACK, 0, 1, 0, 1, 9)
    ack = (HEADER.encode() + said.encode()).ljust(256, b"\0")
    sender.start(0)
    sender.receive(ack, 0)
    kinds = []
    for _ in range(4):
        kinds += [mad[rmpp.HEADER_AT + 1] for mad in sender.expire(sender.deadline_ns)[:1]]
        sender.receive(ack, sender.deadline_ns)
        if sender.done:
            break
    assert kinds == [rmpp.DATA, rmpp.DATA, rmpp.ABORT]


def test_acknowledgements_of_nothing_new_keep_no_sender_from_its_end() -> None:
    sender = Sender(HEADER, a.AdministrationHeader(), bytes(20_000), timeout_ns=10, retries=1)
    said = a.AdministrationHeader(1, rmpp.ACK, 0, 1, 0, 1, 9)
    ack = (HEADER.encode() + said.encode()).ljust(256, b"\0")
    sender.start(0)
    assert len(sender.receive(ack, 0)) == 8
    for now in range(1, 21):
        sender.receive(ack, now)
        sender.expire(now)
    assert (sender.done, sender.complete) == (True, False)
    wider = Sender(HEADER, a.AdministrationHeader(), bytes(20_000), timeout_ns=10, retries=1)
    wider.start(0)
    for now in range(1, 1000):
        said = a.AdministrationHeader(1, rmpp.ACK, 0, 1, 0, 0, now)
        wider.receive((HEADER.encode() + said.encode()).ljust(256, b"\0"), now)
        wider.expire(now)
    assert wider.done


def test_a_sender_whose_data_have_come_waits_for_nothing() -> None:
    sender, _, _ = transfer(bytes(900), 0.0, 1)
    assert (sender.done, sender.deadline_ns) == (True, rmpp.NEVER_NS)


def test_a_receiver_takes_as_much_as_it_allows() -> None:
    sender, receiver = Sender(HEADER, a.AdministrationHeader(), bytes(400)), Receiver(most=400)
    ack = receiver.receive(sender.start(0)[0])
    assert ack is not None
    for mad in sender.receive(ack, 0):
        receiver.receive(mad)
    assert (len(receiver.data), receiver.done, receiver.failed) == (400, True, False)


@pytest.mark.parametrize("version", [0, 2])
def test_a_segment_of_another_version_is_refused(version: int) -> None:
    receiver = Receiver()
    front = a.AdministrationHeader(rmpp_version=version, rmpp_type=rmpp.DATA, rmpp_flags=3, segment_number=1)
    answer = receiver.receive((HEADER.encode() + front.encode()).ljust(256, b"\0"))
    assert answer is not None
    said = a.AdministrationHeader.decode(answer, rmpp.HEADER_AT)
    assert (said.rmpp_type, said.rmpp_version) == (rmpp.ABORT, 1)
    assert (receiver.failed, receiver.data) == (True, b"")


def test_a_receiver_answers_by_the_method_of_the_request() -> None:
    sender, receiver = Sender(HEADER, a.AdministrationHeader(), bytes(450)), Receiver()
    ack = receiver.receive(sender.start(0)[0])
    assert ack is not None
    assert MadHeader.decode(ack) == replace(HEADER, method=0x12)
    failed = Sender(replace(HEADER, status=0x0700), a.AdministrationHeader(), bytes(450)).start(0)[0]
    for answer in (Receiver().receive(failed), rmpp.stop(failed)):
        assert answer is not None
        assert MadHeader.decode(answer) == replace(HEADER, method=0x12)  # a request has no status


def test_no_window_is_wider_than_the_sender_allows() -> None:
    sender = Sender(HEADER, a.AdministrationHeader(), bytes(200 * 1000))
    sender.start(0)

    def acknowledge(segment: int, window: int) -> int:
        said = a.AdministrationHeader(1, rmpp.ACK, 0, 1, 0, segment, window)
        return len(sender.receive((HEADER.encode() + said.encode()).ljust(256, b"\0"), 0))

    assert acknowledge(1, 0xFFFF_FFFF) == rmpp.MOST_AHEAD
    assert acknowledge(5, 0xFFFF_FFFF) == 4
    assert acknowledge(6, 60) == 0  # narrower than before: not taken
    assert not sender.complete


def test_a_transfer_that_is_stopped_is_not_complete() -> None:
    sender = Sender(HEADER, a.AdministrationHeader(), bytes(900))
    first = sender.start(0)[0]
    stop = rmpp.stop(first)
    said = a.AdministrationHeader.decode(stop, rmpp.HEADER_AT)
    assert (said.rmpp_type, said.rmpp_status, MadHeader.decode(stop).method) == (rmpp.STOP, 1, 0x12)
    assert sender.receive(stop, 0) == []
    assert (sender.done, sender.complete) == (True, False)
    whole, receiver, _ = transfer(bytes(900), 0.0, 1)
    assert (whole.complete, receiver.done) == (True, True)


def test_a_narrower_window_acknowledges_nothing() -> None:
    sender = Sender(HEADER, a.AdministrationHeader(), bytes(2000), timeout_ns=10)
    sender.start(0)
    for segment, window in ((1, 6), (4, 5)):
        said = a.AdministrationHeader(1, rmpp.ACK, 0, 1, 0, segment, window)
        sender.receive((HEADER.encode() + said.encode()).ljust(256, b"\0"), 0)
    first = a.AdministrationHeader.decode(sender.expire(100)[0], rmpp.HEADER_AT)
    assert first.segment_number == 2


def test_what_is_too_long_is_not_whole_with_its_last_segment_either() -> None:
    sender, receiver = Sender(HEADER, a.AdministrationHeader(), bytes(200)), Receiver(most=199)
    answer = receiver.receive(sender.start(0)[0])
    assert answer is not None
    assert (answer[rmpp.HEADER_AT + 1], receiver.failed, receiver.done) == (rmpp.ABORT, True, False)


def test_a_wider_window_alone_begins_no_tries_anew() -> None:
    sender = Sender(HEADER, a.AdministrationHeader(), bytes(900), timeout_ns=10, retries=1)
    sender.start(0)
    assert len(sender.expire(10)) == 1
    wider = a.AdministrationHeader(1, rmpp.ACK, 0, 1, 0, 0, 2)
    assert len(sender.receive((HEADER.encode() + wider.encode()).ljust(256, b"\0"), 11)) == 1
    assert [mad[rmpp.HEADER_AT + 1] for mad in sender.expire(21)] == [rmpp.ABORT]


def acknowledge(sender: Sender, segment: int, window: int, now: int) -> list[bytes]:
    """What a sender sends upon an ACK of segments up to ``segment`` that lets it send up to ``window``."""
    said = a.AdministrationHeader(1, rmpp.ACK, 0, 1, 0, segment, window)
    return sender.receive((HEADER.encode() + said.encode()).ljust(256, b"\0"), now)


def test_a_window_that_stays_acknowledges() -> None:
    sender = Sender(HEADER, a.AdministrationHeader(), bytes(900), timeout_ns=10)
    sender.start(0)
    assert len(acknowledge(sender, 1, 5, 1)) == 4
    assert acknowledge(sender, 3, 5, 2) == []
    assert sender.deadline_ns == 12
    again = [a.AdministrationHeader.decode(mad, rmpp.HEADER_AT) for mad in sender.expire(12)]
    assert [each.segment_number for each in again] == [4, 5]
    assert acknowledge(sender, 5, 5, 13) == []
    assert (sender.done, sender.complete, sender.deadline_ns) == (True, True, rmpp.NEVER_NS)


@pytest.mark.parametrize("length", [0, 1, 200])
def test_an_answer_of_one_segment_is_complete_when_it_is_sent(length: int) -> None:
    sender = Sender(HEADER, a.AdministrationHeader(), bytes(length))
    assert not sender.complete
    assert len(sender.start(0)) == 1
    assert (sender.done, sender.complete, sender.deadline_ns) == (True, True, rmpp.NEVER_NS)


def test_data_that_are_no_part_of_a_transfer_are_refused() -> None:
    segment = bytearray(Sender(HEADER, a.AdministrationHeader(), bytes(400)).start(0)[0])
    segment[rmpp.HEADER_AT + 2] &= ~rmpp.ACTIVE
    receiver = Receiver()
    said = receiver.receive(bytes(segment))
    assert said is not None
    assert (said[rmpp.HEADER_AT + 1], said[rmpp.HEADER_AT + 3]) == (rmpp.ABORT, rmpp.STATUS_BAD_TYPE)
    assert receiver.failed
