"""A target's session: what each message of an initiator leads to, and what hostile ones lead to."""

from __future__ import annotations

import random
import struct

import pytest
from storage_fakes import LIMIT, FakeHost, command, managing, place, reading, scene, writing

from softhca.storage import descriptors, scsi, session, srp
from softhca.storage.scsi import Sense


def sense_in(host: FakeHost) -> Sense | None:
    """The sense data of the last thing that was said."""
    return Sense.decode(host.said[-1][36:])


def only(host: FakeHost) -> srp.Response:
    (response,) = host.run()
    return response


# what is asked is done


def test_a_write_and_a_read() -> None:
    (disk,), (host,) = scene()
    host.memory[100 : 100 + 1024] = random.Random(1).randbytes(1024)
    host.session.receive(writing(3, 2, tag=5, at=100))
    response = only(host)
    assert (response.tag, response.status, response.request_limit_delta) == (5, scsi.GOOD, 1)
    assert (response.out_residual, response.in_residual, response.sense_valid) == (0, 0, 0)
    assert disk.data[1536:2560] == host.memory[100:1124]
    host.session.receive(reading(3, 2, tag=6, at=20_000))
    assert only(host).status == scsi.GOOD
    assert host.memory[20_000:21_024] == host.memory[100:1124]
    assert not host.session.tasks


def test_the_response_comes_behind_the_data() -> None:
    _, (host,) = scene()
    host.session.receive(reading(0, 4, at=0))
    host.collect()
    assert [each.kind for each in host.under_way] == [session.WRITE, session.SEND]


def test_data_in_many_ranges() -> None:
    (disk,), (host,) = scene()
    disk.data[:1536] = random.Random(2).randbytes(1536)
    ranges = [place(9000, 1000), place(100, 36), place(5000, 500)]
    table = place(60_000, 48)
    described = descriptors.encode_indirect(table, 1536, ranges)
    host.session.receive(command(scsi.read_10(0, 3), 1, described, in_format=2, in_count=3))
    host.run()
    found = host.memory[9000:10_000] + host.memory[100:136] + host.memory[5000:5500]
    assert found == disk.data[:1536]
    # the same, but the table is read from the host
    host.memory[60_000:60_048] = b"".join(each.encode() for each in ranges)
    host.memory[9000:10_000] = bytes(1000)
    described = descriptors.encode_indirect(table, 1536, ranges[:1])
    host.session.receive(command(scsi.read_10(0, 3), 2, described, in_format=2, in_count=1))
    host.collect()
    assert [each.kind for each in host.under_way] == [session.READ]
    assert only(host).status == scsi.GOOD
    assert host.memory[9000:10_000] == disk.data[:1000]
    # and the other way
    cdb = scsi.read_10(10, 3, scsi.WRITE_10)
    host.session.receive(command(cdb, 3, described, out_format=2, out_count=1))
    assert only(host).status == scsi.GOOD
    assert disk.data[5120:6656] == disk.data[:1536]


def test_what_is_left_of_a_buffer_is_said() -> None:
    _, (host,) = scene()
    inquiry = bytes([scsi.INQUIRY, 0, 0, 0, 36, 0])
    host.session.receive(command(inquiry, 1, place(0, 100).encode(), in_format=1))
    host.slots[:] = b"somebody's data " * (len(host.slots) // 16)
    response = only(host)
    assert (response.in_under, response.in_residual, response.out_under) == (1, 64, 0)
    assert host.memory[36:100] == bytes(64)  # nothing is put there that is not the command's
    both = place(0, 512).encode() * 2
    host.session.receive(command(scsi.read_10(0, 1), 2, both, in_format=1, out_format=1))
    response = only(host)
    assert (response.in_under, response.out_under, response.out_residual) == (0, 1, 512)


@pytest.mark.parametrize("way", ["in", "out"])
def test_a_buffer_that_is_too_short_moves_nothing(way: str) -> None:
    (disk,), (host,) = scene()
    host.memory[:512] = b"x" * 512
    cdb = scsi.read_10(0, 2, scsi.READ_10 if way == "in" else scsi.WRITE_10)
    host.session.receive(command(cdb, 1, place(0, 512).encode(), **{f"{way}_format": 1}))
    while host.step():
        pass
    assert sense_in(host) == scsi.INVALID_INFORMATION_UNIT
    response = only(host)
    assert response.status == scsi.CHECK_CONDITION
    assert (getattr(response, f"{way}_over"), getattr(response, f"{way}_residual")) == (1, 512)
    assert not any(disk.data)
    assert host.memory[:512] == b"x" * 512


def test_a_refusal_has_sense_data() -> None:
    _, (host,) = scene()
    host.session.receive(reading(64, 1))
    while host.step():
        pass
    assert sense_in(host) == scsi.LBA_OUT_OF_RANGE
    response = only(host)
    assert (response.sense_valid, response.sense_bytes, response.in_under) == (1, 18, 1)


def test_units_by_number() -> None:
    disks, (host,) = scene(disks=2)
    disks[1].data[:512] = b"y" * 512
    host.session.receive(reading(0, 1, lun=srp.lun_of(1)))
    assert only(host).status == scsi.GOOD
    assert host.memory[:512] == b"y" * 512
    host.session.receive(reading(0, 1, tag=2, lun=srp.lun_of(2)))
    while host.step():
        pass
    assert sense_in(host) == scsi.NO_LOGICAL_UNIT


def test_an_additional_cdb_is_passed_over() -> None:
    _, (host,) = scene()
    described = bytes(8) + place(0, 512).encode()
    host.session.receive(command(scsi.read_10(0, 1), 1, described, in_format=1, additional_cdb_words=2))
    assert only(host).status == scsi.GOOD


def test_an_additional_cdb_that_is_cut_short_is_refused() -> None:
    _, (host,) = scene()
    host.session.receive(command(bytes([scsi.TEST_UNIT_READY]), 1, bytes(4), additional_cdb_words=2))
    while host.step():
        pass
    assert host.said[-1][36:] == bytes([0, 0, 0, srp.FIELDS_INVALID])
    assert only(host).response_valid == 1


# order


def test_an_ordered_command_waits_and_is_waited_for() -> None:
    (disk,), (host,) = scene()
    host.memory[:1536] = b"a" * 512 + b"b" * 512 + b"c" * 512
    host.session.receive(writing(0, 1, 1, at=0))
    host.session.receive(reading(0, 1, 2, at=8192, task_attribute=srp.ORDERED))
    host.session.receive(writing(0, 1, 3, at=512))
    host.collect()
    assert len(host.under_way) == 1  # only the first write reads its data
    host.session.receive(reading(0, 1, 4, at=16_384, task_attribute=srp.HEAD_OF_QUEUE))
    host.run()
    assert host.memory[8192:8704] == b"a" * 512
    assert host.memory[16_384:16_896] == bytes(512)  # it came before all others
    assert disk.data[:512] == b"b" * 512


def test_simple_commands_wait_for_nobody() -> None:
    _, (host,) = scene()
    host.session.receive(writing(0, 1, 1))
    host.session.receive(reading(0, 1, 2, at=8192))
    host.collect()
    assert [each.kind for each in host.under_way] == [session.READ, session.WRITE, session.SEND]


def test_order_is_a_units_own() -> None:
    _, (host,) = scene(disks=2)
    host.session.receive(writing(0, 1, 1))
    host.session.receive(reading(0, 1, 2, at=8192, task_attribute=srp.ORDERED, lun=srp.lun_of(1)))
    host.collect()
    assert len(host.under_way) == 3


# task management


def test_an_aborted_write_has_no_effect_and_no_response() -> None:
    (disk,), (host,) = scene()
    host.memory[:512] = b"x" * 512
    host.session.receive(writing(0, 1, 1))
    host.collect()
    host.session.receive(managing(srp.ABORT_TASK, 2, 1))
    response = only(host)
    assert (response.tag, response.response_valid, response.request_limit_delta) == (2, 1, 2)
    assert not any(disk.data)


def test_what_was_not_begun_for_an_aborted_command_is_not() -> None:
    _, (host,) = scene()
    ranges = [place(number * 1024, 512) for number in range(4)]
    described = descriptors.encode_indirect(place(60_000, 64), 2048, ranges)
    cdb = scsi.read_10(0, 4, scsi.WRITE_10)
    host.session.receive(command(cdb, 1, described, out_format=2, out_count=4))
    host.under_way.append(host.session.work())  # the first is, three are not
    host.session.receive(managing(srp.ABORT_TASK, 2, 1))
    host.collect()
    assert [each.kind for each in host.under_way] == [session.READ]
    assert only(host).tag == 2


def test_an_abort_is_answered_when_nothing_is_under_way_any_more() -> None:
    _, (host,) = scene()
    host.session.receive(writing(0, 1, 1))
    host.collect()
    host.session.receive(managing(srp.ABORT_TASK_SET, 2))
    host.collect()
    assert [each.kind for each in host.under_way] == [session.READ]
    assert host.step()
    assert host.run()[0].tag == 2


def test_an_abort_that_comes_too_late_or_names_nobody_is_done() -> None:
    _, (host,) = scene()
    host.session.receive(reading(0, 1, 1))
    host.session.receive(managing(srp.ABORT_TASK, 2, 1))
    assert [(each.tag, each.status) for each in host.run()] == [(1, scsi.GOOD), (2, 0)]
    host.session.receive(managing(srp.ABORT_TASK, 3, 77))
    assert only(host).tag == 3


def test_what_waited_for_an_aborted_command_begins_at_once() -> None:
    _, (host,) = scene()
    host.session.receive(writing(0, 1, 1))
    host.session.receive(writing(1, 1, 2, at=512, task_attribute=srp.ORDERED))
    host.session.receive(writing(2, 1, 3, at=1024))
    host.session.receive(managing(srp.ABORT_TASK, 4, 2))
    host.collect()
    assert sorted(each.task.command.tag for each in host.under_way if each.kind == session.READ) == [1, 3]


@pytest.mark.parametrize("function", [srp.ABORT_TASK, srp.ABORT_TASK_SET])
def test_an_abort_is_for_the_tasks_of_the_unit_that_it_names(function: int) -> None:
    disks, (host,) = scene(disks=2)
    host.memory[:512] = b"x" * 512
    host.session.receive(writing(0, 1, 1))
    host.session.receive(writing(0, 1, 2, lun=srp.lun_of(1)))
    host.collect()
    host.session.receive(managing(function, 3, 1, lun=1))
    assert sorted(each.tag for each in host.run()) == ([1, 2, 3] if function == srp.ABORT_TASK else [1, 3])
    assert disks[0].data[:512] == b"x" * 512
    assert any(disks[1].data) is (function == srp.ABORT_TASK)


def test_an_abort_of_the_first_units_tasks_leaves_those_of_the_second() -> None:
    disks, (host,) = scene(disks=2)
    host.memory[:512] = b"x" * 512
    host.session.receive(writing(0, 1, 1))
    host.session.receive(writing(0, 1, 2, lun=srp.lun_of(1)))
    host.collect()
    host.session.receive(managing(srp.ABORT_TASK_SET, 3))
    assert sorted(each.tag for each in host.run()) == [2, 3]
    assert disks[1].data[:512] == b"x" * 512
    assert not any(disks[0].data)


def test_a_tag_is_not_used_again_before_its_task_management_is_answered() -> None:
    _, (host,) = scene()
    host.session.receive(writing(0, 1, 1))
    host.collect()
    host.session.receive(managing(srp.ABORT_TASK, 2, 1))
    assert not host.session.ending
    host.session.receive(reading(0, 1, 2))
    assert logout_of(host) == srp.LOGOUT_NO_REASON


@pytest.mark.parametrize(
    ("function", "lun", "code"),
    [
        (srp.ABORT_TASK, 0, srp.TASK_DONE),
        (srp.LUN_RESET, 0, srp.TASK_DONE),
        (srp.LUN_RESET, 1, srp.FIELDS_INVALID),
        (srp.CLEAR_TASK_SET, 0, srp.FUNCTION_UNSUPPORTED),
        (srp.CLEAR_ACA, 0, srp.FUNCTION_UNSUPPORTED),
        (0, 0, srp.FUNCTION_UNSUPPORTED),
    ],
)
def test_task_management_is_answered_with_a_code(function: int, lun: int, code: int) -> None:
    _, (host,) = scene()
    host.session.receive(managing(function, 1, lun=lun))
    while host.step():
        pass
    assert host.said[-1][36:] == bytes([0, 0, 0, code])
    assert only(host).response_bytes == 4


def test_a_reset_aborts_the_tasks_of_all_and_tells_the_others() -> None:
    (disk, _), (one, other) = scene(disks=2, hosts=2)
    one.memory[:512] = other.memory[:512] = b"x" * 512
    one.session.receive(writing(0, 1, 1))
    one.session.receive(writing(0, 1, 2, lun=srp.lun_of(1)))
    other.session.receive(writing(1, 1, 1))
    other.collect()
    one.collect()
    one.session.receive(managing(srp.LUN_RESET, 3))
    one.run()
    assert not one.said
    assert other.run()[0].status == scsi.TASK_ABORTED
    assert [each.tag for each in one.run()] == [3]
    assert not any(disk.data)
    other.session.receive(reading(0, 1, 2, lun=srp.lun_of(1)))
    assert only(other).status == scsi.GOOD  # another unit
    other.session.receive(command(bytes([scsi.INQUIRY, 0, 0, 0, 0, 0]), 3))
    assert only(other).status == scsi.GOOD
    for tag, sense in ((4, scsi.UNIT_RESET), (5, None)):
        other.session.receive(reading(0, 1, tag))
        while other.step():
            pass
        assert (sense_in(other) if len(other.said[-1]) > 36 else None) == sense
        other.run()
    one.session.receive(reading(0, 1, 9))
    assert only(one).status == scsi.GOOD  # who asked is not told


def test_credit_is_never_lost() -> None:
    """Whatever is aborted or refused, in the end the initiator may send as many as in the beginning."""
    dice = random.Random(7)
    for _ in range(40):
        _, (host, other) = scene(hosts=2)
        credit, tag = LIMIT, 0
        for _ in range(60):
            if credit and dice.random() < 0.6:
                tag, credit = tag + 1, credit - 1
                host.session.receive(dice.choice((
                    writing(dice.randrange(64), 1, tag), reading(dice.randrange(70), 1, tag),
                    managing(srp.ABORT_TASK_SET, tag), managing(srp.ABORT_TASK, tag, tag - 1),
                    managing(srp.LUN_RESET, tag), command(bytes(6), tag, out_format=5),
                )))  # fmt: skip
            elif dice.random() < 0.1 and not other.session._managing:
                other.session.receive(managing(srp.LUN_RESET, tag + 1000))
                other.run()
            else:
                host.step()
            said, host.said = host.said, []
            credit += sum(srp.signed(srp.Response.decode(each).request_limit_delta) for each in said)
            assert credit <= LIMIT
        credit += sum(each.request_limit_delta for each in host.run())
        assert credit == LIMIT
        assert not host.session.ending


# what cannot be


def logout_of(host: FakeHost) -> int:
    while host.step():
        pass
    assert host.session.ending
    assert host.said[-1][0] == srp.T_LOGOUT
    return srp.TargetLogout.decode(host.said[-1]).reason


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", srp.LOGOUT_INVALID_TYPE),
        (b"\x02", srp.LOGOUT_INVALID_TYPE),
        (reading(0, 1)[:47], srp.LOGOUT_INVALID_TYPE),
        (managing(srp.LUN_RESET, 1)[:-1], srp.LOGOUT_INVALID_TYPE),
        (b"\x00" * 64, srp.LOGOUT_INVALID_TYPE),
        (b"\xc1" * 64, srp.LOGOUT_INVALID_TYPE),
        (b"\x41" + bytes(15), srp.LOGOUT_SPURIOUS_RESPONSE),
        (b"\x42" + bytes(15), srp.LOGOUT_SPURIOUS_RESPONSE),
    ],
)
def test_a_message_that_cannot_be_ends_the_channel(message: bytes, reason: int) -> None:
    _, (host,) = scene()
    host.session.receive(message)
    assert logout_of(host) == reason


def test_who_asks_too_much_is_logged_out() -> None:
    (disk,), (host,) = scene()
    host.memory[:512] = b"x" * 512
    for tag in range(LIMIT + 1):
        host.session.receive(writing(0, 1, tag))
    assert logout_of(host) == srp.LOGOUT_NO_REASON
    assert not any(disk.data)


def test_a_tag_is_used_once_at_a_time() -> None:
    _, (host,) = scene()
    for _ in range(3):
        host.session.receive(writing(0, 1, 8))
        host.run()
    assert not host.session.ending
    host.session.receive(writing(0, 1, 8))
    host.session.receive(managing(srp.ABORT_TASK, 8, 1))
    assert logout_of(host) == srp.LOGOUT_NO_REASON


def test_a_tag_may_be_used_again_when_its_response_has_been_sent() -> None:
    _, (host,) = scene()
    for number in range(2 * LIMIT):  # none of the responses is known to have arrived
        assert host.session.has_room
        host.session.receive(reading(0, 1, 8 if number < LIMIT else number))
        host.collect()
    assert not host.session.has_room
    assert not host.session.ending
    assert len(host.run()) == 2 * LIMIT
    assert host.session.has_room


def test_more_tasks_than_buffers_wait_for_one() -> None:
    (disk,), (host,) = scene()
    host.memory[:512] = b"x" * 512
    for tag in range(LIMIT):
        host.session.receive(reading(0, 1, tag, at=8192))
    host.session.receive(writing(0, 1, 50))
    host.collect()
    assert [each.kind for each in host.under_way] == [session.WRITE, session.SEND] * LIMIT
    host.run()
    assert disk.data[:512] == b"x" * 512


def test_tasks_that_need_a_buffer_begin_in_their_order_and_hold_those_behind_them() -> None:
    """Also one that needs none, and is not ordered."""
    _, (host,) = scene()
    for tag in range(LIMIT):
        host.session.receive(reading(0, 1, tag, at=8192))
    host.session.receive(reading(1, 1, 50, at=16_384))
    host.session.receive(command(bytes(6), 51))
    host.collect()
    assert [each.kind for each in host.under_way] == [session.WRITE, session.SEND] * LIMIT
    assert [each.tag for each in host.run()] == [*range(LIMIT), 50, 51]


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_no_more_is_moved_than_a_buffer_of_the_target_holds(blocks: int) -> None:
    (disk,), (host, _) = scene(hosts=2, most_bytes=1024)
    host.memory[: 512 * blocks] = b"x" * 512 * blocks
    host.session.receive(writing(0, blocks, 1))
    host.run()
    assert disk.data.count(b"x") == (512 * blocks if blocks < 3 else 0)


@pytest.mark.parametrize(
    "message",
    [
        command(scsi.read_10(0, 1), 1, b"", in_format=1),
        command(bytes(6), 1, b"", additional_cdb_words=63),
        command(scsi.read_10(0, 1), 1, bytes(20), in_format=2),
        command(scsi.read_10(0, 1), 1, bytes(64), in_format=3),
        command(scsi.read_10(0, 1), 1, place(0, 512).encode(), in_format=1, additional_cdb_words=63),
        command(scsi.read_10(0, 1), 1, descriptors.encode_indirect(place(0, 32), 512, [place(0, 16)] * 2),
                in_format=2, in_count=2),
    ],
)  # fmt: skip
def test_descriptors_that_cannot_be_are_answered(message: bytes) -> None:
    _, (host,) = scene()
    host.session.receive(message)
    while host.step():
        pass
    assert host.said[-1][36:] == bytes([0, 0, 0, srp.FIELDS_INVALID])
    assert (only(host).response_valid, host.session.ending) == (1, False)


def test_a_table_that_cannot_be_is_answered_when_it_has_been_read() -> None:
    (disk,), (host,) = scene()
    host.memory[8192:8224] = place(0, 512).encode() + place(4096, 100).encode()
    cdb = scsi.read_10(0, 2, scsi.WRITE_10)
    described = descriptors.encode_indirect(place(8192, 32), 1024, [])
    host.session.receive(command(cdb, 1, described, out_format=2))
    while host.step():
        pass
    assert host.said[-1][36:] == bytes([0, 0, 0, srp.FIELDS_INVALID])
    assert not any(disk.data)


def test_another_task_attribute_is_refused() -> None:
    _, (host,) = scene()
    for tag, attribute in enumerate((srp.ACA, 3, 5, 6, 7)):
        host.session.receive(reading(0, 1, tag, task_attribute=attribute))
        while host.step():
            pass
        assert sense_in(host) == scsi.INVALID_INFORMATION_UNIT
        host.run()


def test_a_logout_begins_nothing_more() -> None:
    (disk,), (host,) = scene()
    host.memory[:512] = b"x" * 512
    host.session.receive(writing(0, 1, 1))
    host.collect()
    host.session.receive(srp.Short(tag=2).encode())
    assert host.session.ending
    host.session.receive(writing(0, 1, 3))
    assert not host.session.has_work
    assert host.run() == []
    assert not any(disk.data)


def test_the_end_of_a_channel_takes_all_its_tasks() -> None:
    (disk,), (one, other) = scene(hosts=2)
    one.memory[:512] = b"x" * 512
    one.session.receive(writing(0, 1, 1))
    one.collect()
    other.session.receive(managing(srp.LUN_RESET, 5))
    assert other.run() == []  # the other's write is under way
    one.session.end()
    assert [each.tag for each in other.run()] == [5]
    one.step()
    assert not any(disk.data)
    assert one.run() == []


def test_long_tables_are_bounded_by_the_buffer_they_are_read_into() -> None:
    ranges = [place(index * 16, 8) for index in range(descriptors.MOST_RANGES)]
    assert len(ranges) * 16 <= 4096
    (disk,), (host,) = scene()
    host.memory[50_000 : 50_000 + 4080] = b"".join(each.encode() for each in ranges)
    host.memory[:4080] = bytes(range(1, 256)) * 16
    described = descriptors.encode_indirect(place(50_000, 4080), 8 * 255, [])
    host.session.receive(command(scsi.read_10(0, 3, scsi.WRITE_10), 1, described, out_format=2))
    assert only(host).status == scsi.GOOD
    expected = b"".join(bytes(host.memory[index * 16 : index * 16 + 8]) for index in range(192))
    assert disk.data[:1536] == expected
    assert struct.unpack(">I", described[16:20]) == (2040,)
