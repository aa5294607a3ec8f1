"""An initiator's session: credits, tags, and what it makes of a target's messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from softhca.storage import initiator, scsi, srp
from softhca.storage.block_device import BlockDevice
from softhca.storage.descriptors import Range
from softhca.storage.errors import MessageError
from softhca.storage.initiator import FROM_TARGET, MOST_CREDIT, TO_TARGET, InitiatorSession

GRANTED = srp.LoginResponse(request_limit_delta=3, max_it_bytes=116, max_ti_bytes=64)
CDB = scsi.read_10(0, 1)
LUN = srp.lun_of(0)
RANGES = [Range(number << 12, 7, 512) for number in range(4)]
TABLE = Range(1 << 30, 7, 64)


@pytest.fixture
def session() -> InitiatorSession:
    return InitiatorSession(GRANTED)


def response(tag: int, data: bytes = b"", **fields) -> bytes:
    return srp.Response(tag=tag, request_limit_delta=1, **fields).encode() + data


def refused(session: InitiatorSession, message: bytes) -> str:
    with pytest.raises(MessageError) as caught:
        session.receive(message)
    return str(caught.value)


def test_one_request_is_held_back_for_task_management(session: InitiatorSession) -> None:
    tags = []
    while session.may_send:
        tags.append(session.command(LUN, CDB)[0])
    assert (tags, session.credit) == ([1, 2], 1)
    session.receive(response(2))
    assert session.may_send
    alone = InitiatorSession(replace(GRANTED, request_limit_delta=1))
    assert alone.may_send
    alone.command(LUN, CDB)
    assert not alone.may_send


def test_a_command_has_as_much_of_its_table_as_its_message_has_room_for(session: InitiatorSession) -> None:
    _, message = session.command(LUN, CDB, FROM_TARGET, RANGES[:1])
    command = srp.Command.decode(message)
    assert (command.in_format, command.out_format, message[48:]) == (1, 0, RANGES[0].encode())
    _, message = session.command(LUN, CDB, TO_TARGET, RANGES, TABLE)
    command = srp.Command.decode(message)
    assert (command.out_format, command.out_count, command.in_format, command.in_count) == (2, 3, 0, 0)
    assert len(message) == 116
    assert message[48:64] == TABLE.encode()


def test_a_message_that_has_no_room_for_ranges_has_none_of_them() -> None:
    shortest = initiator.accepted(replace(GRANTED, max_it_bytes=64).encode())
    _, message = InitiatorSession(shortest).command(LUN, CDB, FROM_TARGET, RANGES, TABLE)
    assert (srp.Command.decode(message).in_count, message[48:64]) == (0, TABLE.encode())
    assert len(message) == 68


def test_a_response_that_is_shorter_than_both_its_parts_is_cut_short(session: InitiatorSession) -> None:
    tag, _ = session.command(LUN, CDB)
    data = bytes(4) + scsi.LBA_OUT_OF_RANGE.encode()[:-1]
    lengths = {"response_valid": 1, "response_bytes": 4, "sense_valid": 1, "sense_bytes": 18}
    assert "cut short" in refused(session, response(tag, data, status=2, **lengths))


def test_each_command_ends_once(session: InitiatorSession) -> None:
    tag, _ = session.command(LUN, CDB)
    finished, answer = session.receive(response(tag, in_under=1, in_residual=100))
    assert (finished.tag, finished.status, finished.residual, finished.good) == (tag, scsi.GOOD, 100, True)
    assert answer == b""
    assert "no command" in refused(session, response(tag))


def test_sense_data_stand_behind_response_data(session: InitiatorSession) -> None:
    tag, _ = session.command(LUN, CDB)
    sense = scsi.LBA_OUT_OF_RANGE
    data = bytes(4) + sense.encode()
    finished, _ = session.receive(
        response(tag, data, response_valid=1, response_bytes=4, sense_valid=1, sense_bytes=18, status=2)
    )
    assert (finished.sense, finished.good) == (sense, False)
    tag, _ = session.command(LUN, CDB)
    finished, _ = session.receive(response(tag, out_over=1, out_residual=5))
    assert (finished.over, finished.good, finished.residual) == (True, False, 0)
    tag, _ = session.command(LUN, CDB)
    finished, _ = session.receive(response(tag, in_over=1, in_residual=5))
    assert (finished.over, finished.good, finished.residual) == (True, False, 0)


@pytest.mark.parametrize(("lba", "write", "read"), [(5, 0x2A, 0x28), (1 << 33, 0x8A, 0x88)])
def test_blocks_are_asked_for_by_commands_that_their_numbers_fit(lba: int, write: int, read: int) -> None:
    device = object.__new__(BlockDevice)
    device.capacity = scsi.Capacity(1 << 40, 512)
    writing, reading = device._writing(lba, bytes(1024)), device._reading(lba, 3)
    assert (writing.cdb[0], reading.cdb[0]) == (write, read)
    assert (writing.length, reading.length) == (1024, 1536)


@pytest.mark.parametrize(
    ("fields", "data", "says"),
    [
        ({"sense_valid": 1, "sense_bytes": 19}, bytes(18), "cut short"),
        ({"sense_valid": 1, "sense_bytes": 0xFFFFFFFF}, bytes(18), "cut short"),
        ({"response_valid": 1, "response_bytes": 4}, bytes(3), "cut short"),
        ({"response_valid": 1, "response_bytes": 4}, bytes([0, 0, 0, 2]), "response code 2"),
    ],
)
def test_responses_that_cannot_be_end_the_channel(
    session: InitiatorSession, fields: dict, data: bytes, says: str
) -> None:
    tag, _ = session.command(LUN, CDB)
    assert says in refused(session, response(tag, data, **fields))


def test_lengths_that_are_not_valid_are_not_read(session: InitiatorSession) -> None:
    tag, _ = session.command(LUN, CDB)
    finished, _ = session.receive(response(tag, sense_bytes=1000, response_bytes=1000))
    assert (finished.sense, finished.good) == (None, True)


@pytest.mark.parametrize(("kind", "answer"), [(srp.CRED_REQ, srp.CRED_RSP), (srp.AER_REQ, srp.AER_RSP)])
def test_a_targets_requests_change_the_credit_and_are_answered(
    session: InitiatorSession, kind: int, answer: int
) -> None:
    for delta, credit in ((4, 7), (0xFFFFFFFE, 5)):
        finished, sent = session.receive(
            srp.TargetRequest(type=kind, request_limit_delta=delta, tag=0xABC).encode() + bytes(20)
        )
        assert finished is None
        assert srp.Short.decode(sent) == srp.Short(type=answer, tag=0xABC)
        assert session.credit == credit


def test_credit_has_bounds(session: InitiatorSession) -> None:
    more = srp.TargetRequest(request_limit_delta=MOST_CREDIT - 3)
    session.receive(more.encode())
    assert "request limit" in refused(session, replace(more, request_limit_delta=1).encode())
    less = srp.TargetRequest(request_limit_delta=(1 << 32) - 2 * MOST_CREDIT - 2)
    assert "request limit" in refused(session, less.encode())


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b"", "no message of type"),
        (bytes([srp.CMD]) + bytes(50), "no message of type"),
        (bytes([srp.RSP]) + bytes(34), "Response needs"),
        (bytes([srp.CRED_REQ]) + bytes(14), "TargetRequest needs"),
        (srp.TargetLogout(reason=3).encode(), "reason 3"),
    ],
)
def test_messages_that_cannot_be_end_the_channel(
    session: InitiatorSession, message: bytes, says: str
) -> None:
    assert says in refused(session, message)


def test_a_rejection_says_why() -> None:
    assert initiator.refusal(srp.LoginReject(reason=srp.REJ_CHANNEL_LIMIT).encode()) == (
        "there are too many channels"
    )
    assert initiator.refusal(srp.LoginReject(reason=9).encode()) == "reason 0x9"
    for strange in (b"", srp.LoginReject().encode()[:31], bytes(148)):
        assert initiator.refusal(strange) == ""


def test_a_login_asks_to_be_the_only_channel() -> None:
    found = initiator.login(b"i" * 16, b"t" * 16, 324)
    assert (found.multi_channel_action, found.required_formats, found.max_it_bytes) == (0, 6, 324)
    assert srp.ShortLoginRequest.of(found).long == found


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("request_limit_delta", 1, MOST_CREDIT), ("max_ti_bytes", 32, initiator.MOST_MESSAGE_BYTES)],
)
def test_what_a_target_grants_is_within_its_ends(name: str, least: int, most: int) -> None:
    for value in (least, most):
        granted = replace(GRANTED, **{name: value})
        assert initiator.accepted(granted.encode()) == granted
    for value in (least - 1, most + 1):
        with pytest.raises(MessageError, match="cannot be"):
            initiator.accepted(replace(GRANTED, **{name: value}).encode())


def test_what_was_not_written_is_left(session: InitiatorSession) -> None:
    tag, _ = session.command(LUN, CDB, TO_TARGET, RANGES[:1])
    finished, _ = session.receive(response(tag, out_under=1, out_residual=100))
    assert finished is not None
    assert (finished.residual, finished.good) == (100, True)
