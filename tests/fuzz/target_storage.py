"""Hostile peers of storage: initiators at a target's sessions, targets at an initiator's, hosts and units at
device management.

Input: which of them, then messages, each made from a sound one, and work that ends in between.  Nothing
raises but what is promised; work stays inside the buffers and on the disk; everything is bounded; the credit
of a channel that was not ended is whole again in the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from fuzz_choices import Choices

from softhca.management import device_attributes as dm
from softhca.management.constants import CLASS_DEV_MGT, MAD_BYTES, METHOD_GET, METHOD_SET
from softhca.management.device_agent import DeviceManagementAgent, ManagedController
from softhca.management.device_attributes import IoControllerProfile, IoUnitInfo
from softhca.management.mad import Address, Mad, MadHeader
from softhca.storage import descriptors, initiator, scsi, session, srp
from softhca.storage.controller import Controller, ManagedDisks
from softhca.storage.descriptors import Range
from softhca.storage.discovery import Controller as Found
from softhca.storage.disk import MemoryDisk
from softhca.storage.errors import MessageError
from softhca.storage.initiator import InitiatorSession
from softhca.storage.io_unit import UnitConfig
from softhca.storage.session import TargetSession, Work

LIMIT, MOST_BYTES, BLOCKS = 3, 4096, 16
MOST_WORK = 2 * LIMIT * (descriptors.MOST_RANGES + 2) + 2 * LIMIT
CONFIG = UnitConfig(0x1234, 5)
OPCODES = (
    scsi.READ_10, scsi.WRITE_10, scsi.READ_16, scsi.WRITE_16, scsi.INQUIRY, scsi.TEST_UNIT_READY,
    scsi.REQUEST_SENSE, scsi.MODE_SENSE_6, scsi.MODE_SENSE_10, scsi.READ_CAPACITY_10,
    scsi.SERVICE_ACTION_IN_16, scsi.REPORT_LUNS, scsi.SYNCHRONIZE_CACHE_10, scsi.SYNCHRONIZE_CACHE_16, 0xFF,
)  # fmt: skip


class GuardedDisk(MemoryDisk):
    """A disk that nothing beside it may be read or written of."""

    def read_into(self, offset: int, buffer: memoryview) -> None:
        assert 0 <= offset <= len(self.data) - len(buffer)
        super().read_into(offset, buffer)

    def write_from(self, offset: int, buffer: memoryview) -> None:
        assert 0 <= offset <= len(self.data) - len(buffer)
        size = len(self.data)
        super().write_from(offset, buffer)
        assert len(self.data) == size


class Channel:
    """One initiator's channel, whose work ends when the input says so; what is read is of its choice too."""

    def __init__(self, controller: Controller, choices: Choices) -> None:
        self.choices = choices
        self.buffers = [bytearray(MOST_BYTES) for _ in range(LIMIT)]
        self.session = TargetSession(
            controller, b"i" * 16, LIMIT, MOST_BYTES, lambda slot: memoryview(self.buffers[slot])
        )
        self.under_way: deque[Work] = deque()
        self.credit = LIMIT
        self.kept_to_credit = True
        controller.add(self.session)

    def collect(self) -> None:
        while (work := self.session.work()) is not None:
            self.under_way.append(work)
        assert len(self.under_way) <= MOST_WORK
        assert len(self.session.tasks) <= 2 * LIMIT

    def step(self) -> None:
        """The oldest work ends."""
        self.collect()
        if not self.under_way:
            return
        work = self.under_way.popleft()
        if work.kind == session.SEND:
            self._said(work.message)
        else:
            assert 0 <= work.slot < LIMIT
            assert 0 < work.range.length <= MOST_BYTES - work.offset
            if work.kind == session.READ:
                data = self.choices.block(min(work.range.length, 64)).ljust(work.range.length, b"\1")
                self.buffers[work.slot][work.offset : work.offset + work.range.length] = data
        self.session.done(work)
        assert all(len(each) == MOST_BYTES for each in self.buffers)

    def _said(self, message: bytes) -> None:
        assert len(message) <= 64
        if message[0] == srp.RSP:
            found = srp.Response.decode(message)
            assert len(message) == 36 + found.sense_bytes + found.response_bytes
            self.credit += found.request_limit_delta
            assert self.credit <= LIMIT or not self.kept_to_credit
        else:
            assert message[0] == srp.T_LOGOUT
            assert self.session.ending

    def send(self, message: bytes) -> None:
        if self.session.has_room:
            if message and message[0] in (srp.CMD, srp.TSK_MGMT):
                self.kept_to_credit &= self.credit > 0
                self.credit -= 1
            self.session.receive(message)
            self.collect()


def cdb(choices: Choices) -> bytes:
    """A command of any kind, whose numbers are near what can be."""
    opcode = choices.pick(OPCODES)
    if opcode >> 5 == 4 and opcode != scsi.SERVICE_ACTION_IN_16:
        data = scsi.read_16(choices.below(BLOCKS + 2), choices.below(10), opcode, choices.byte() & 8)
    elif opcode in (scsi.READ_10, scsi.WRITE_10, scsi.SYNCHRONIZE_CACHE_10):
        data = scsi.read_10(choices.below(BLOCKS + 2), choices.below(10), opcode, choices.byte() & 8)
    else:
        data = bytes([opcode]) + choices.block(15)
    return data


def described(choices: Choices) -> tuple[dict[str, int], bytes]:
    """A buffer's format and count, and its descriptors."""
    form = choices.below(4)
    ranges = [
        Range(choices.number(2), choices.byte(), choices.number(2) & 0x1FFF) for _ in range(choices.below(4))
    ]
    if form == descriptors.NO_DATA:
        return {"format": 0}, b""
    if form == descriptors.DIRECT:
        length = choices.below(9) * 512
        return {"format": 1}, Range(choices.number(2), 1, length).encode()
    count = choices.below(4)
    table = Range(choices.number(2), 2, 16 * choices.below(6))
    length = sum(each.length for each in ranges) if choices.below(2) else choices.number(2)
    form = descriptors.INDIRECT + choices.below(2)
    return {"format": form, "count": count}, descriptors.encode_indirect(table, length, ranges)


def message(choices: Choices) -> bytes:
    """A message of an initiator; some of its bytes may be changed, or its end missing."""
    kind = choices.below(8)
    if kind == 0:
        data = choices.run()
    elif kind == 1:
        data = srp.TaskManagement(
            tag=choices.below(4), function=choices.pick((1, 2, 4, 8, 0x40)), task_tag=choices.below(4),
            lun=srp.lun_of(choices.below(3)),
        ).encode()  # fmt: skip
    elif kind == 2:
        data = srp.Short(type=choices.pick((0x41, 0x42, 0x03)), tag=choices.byte()).encode()
    else:
        (out, first), (into, second) = described(choices), described(choices)
        data = srp.Command(
            **{f"out_{name}": value for name, value in out.items()},
            **{f"in_{name}": value for name, value in into.items()},
            tag=choices.below(4), lun=srp.lun_of(choices.below(3)), task_attribute=choices.below(8),
            additional_cdb_words=choices.below(2), cdb=cdb(choices),
        ).encode() + first + second  # fmt: skip
    return altered(choices, data)


def altered(choices: Choices, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(choices.below(3) if choices.once_in(4) else 0):
        if found:
            found[choices.number(2) % len(found)] = choices.byte()
    return bytes(found[: choices.byte()] if choices.once_in(16) else found)


def target(choices: Choices) -> None:
    disks = [GuardedDisk(BLOCKS), GuardedDisk(BLOCKS, read_only=True)]
    controller = Controller(1, disks, MOST_BYTES)
    channels = [Channel(controller, choices) for _ in range(2)]
    while choices.more:
        channel = choices.pick(channels)
        what = choices.below(4)
        if what < 2:
            channel.send(message(choices))
        elif what == 2:
            channel.step()
        elif choices.once_in(16):
            controller.remove(channel.session)
            channel.session.end()
            assert not channel.session.tasks
            channels[channels.index(channel)] = Channel(controller, choices)
    for _ in range(MOST_WORK):
        for channel in channels:
            channel.step()
            if channel.session.ending and not channel.under_way:
                channel.session.end()
    for channel in channels:
        assert not channel.under_way
        if not channel.session.ending:
            assert channel.credit == LIMIT
            assert not channel.session.tasks
    assert not any(disks[1].data)


def host(choices: Choices) -> None:
    """What a target says to an initiator."""
    response = srp.LoginResponse(
        request_limit_delta=choices.below(6), max_it_bytes=60 + choices.byte(), max_ti_bytes=64
    )
    try:
        found = InitiatorSession(initiator.accepted(altered(choices, response.encode())))
    except MessageError:
        return
    tags: list[int] = []
    while choices.more:
        if choices.below(2) and found.may_send:
            ranges = [Range(number * 4096, 1, 512) for number in range(choices.below(20))]
            tag, sent = found.command(
                srp.lun_of(0), scsi.read_10(0, 1), 1 if ranges else 0, ranges, Range(0, 1, 16 * len(ranges))
            )
            assert len(sent) <= max(found.message_bytes, 68)
            tags.append(tag)
            continue
        answer = srp.Response(
            type=choices.pick((srp.RSP, srp.RSP, srp.CRED_REQ, srp.AER_REQ, srp.T_LOGOUT)),
            tag=choices.pick([*tags, 77]), request_limit_delta=choices.below(3),
            status=choices.pick((scsi.GOOD, scsi.CHECK_CONDITION, scsi.BUSY)),
            sense_valid=choices.below(2), sense_bytes=choices.below(24), in_under=choices.below(2),
            response_valid=choices.below(2), response_bytes=4 * choices.below(2), in_residual=choices.byte(),
        ).encode()  # fmt: skip
        try:
            finished, back = found.receive(altered(choices, answer + choices.block(choices.below(32))))
        except MessageError:
            return
        assert len(back) in (0, 16)
        if finished is not None:
            tags.remove(finished.tag)  # each ends once


class Unit:
    """One controller, in the second of three slots."""

    def unit_info(self) -> IoUnitInfo:
        return IoUnitInfo.of(1, [False, True, False])

    def controller(self, slot: int) -> ManagedController | None:
        assert 1 <= slot <= 3
        return ManagedDisks(CONFIG) if slot == 2 else None


def management(choices: Choices) -> None:
    """What a host asks a unit's agent, and what it makes of any answer."""
    header = MadHeader(
        management_class=CLASS_DEV_MGT, method=choices.pick((METHOD_GET, METHOD_SET)),
        attribute_id=choices.pick((1, 2, 0x10, 0x11, 0x12, 0x20)),
        attribute_modifier=choices.pick((0, 1, 2, dm.service_modifier(2, 0, 0), choices.number(4))),
    )  # fmt: skip
    answer = DeviceManagementAgent(Unit()).answer(Mad.make(header, choices.block(64)), Address(1))
    assert answer is not None
    assert len(answer.encode()) == MAD_BYTES
    data = choices.rest()[:192].ljust(192, b"\0")
    info = IoUnitInfo.decode(data)
    assert all(0 <= info.slot(number) <= 0xF for number in range(260))
    entries = tuple(dm.service_entries(data, choices.below(9)))
    target_of = Found(1, IoControllerProfile.decode(data), entries).target
    assert target_of is None or len(target_of[0]) == 16
    assert IoControllerProfile.decode(data).name.isprintable()
    assert "\n" not in initiator.refusal(data)


KINDS: tuple[Callable[[Choices], None], ...] = (target, host, management)


def one_input(data: bytes) -> None:
    choices = Choices(data)
    choices.pick(KINDS)(choices)


def seeds() -> Iterator[bytes]:
    """Commands of every kind with buffers of every form, resets in between; answers; questions."""
    for number in range(len(OPCODES)):
        for form in range(4):
            buffer = bytes([form]) + bytes(12) + bytes([8] * 6)
            one = bytes([0, 0, 3]) + buffer * 2 + bytes([1, 0, 0, 0, number, 0, 1, 0, 0, 2])
            yield bytes([0]) + one * 3
    yield bytes([0]) + bytes([0, 0, 1, 1, 3, 2, 0, 1, 1, 1, 3, 2, 0]) * 6
    yield bytes([1, 5, 200]) + bytes([1, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]) * 8
    for attribute in range(6):
        yield bytes([2, 0, attribute, 3]) + bytes(64)
