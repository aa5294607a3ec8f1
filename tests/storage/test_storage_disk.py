"""Disks on files and in memory, and what SCSI commands do to them."""

from __future__ import annotations

import errno
import os
import struct

import pytest

from softhca.storage import scsi
from softhca.storage.controller import Controller
from softhca.storage.disk import Disk, FileDisk, MemoryDisk
from softhca.storage.logical_unit import LogicalUnit, Plan, plan_without_unit
from softhca.storage.scsi import CheckCondition, Sense

GUID = 0x1234
MOST = 16 << 10


def unit_of(disk: Disk, most: int = MOST) -> LogicalUnit:
    return Controller(GUID, [disk], most).units[0]


def planned(unit: LogicalUnit, cdb: bytes) -> Plan:
    return unit.plan(cdb.ljust(16, b"\0"), [0])


def told(unit: LogicalUnit, cdb: bytes) -> bytes:
    plan = planned(unit, cdb)
    assert plan.direction == "to host"
    data = bytearray(plan.length)
    assert plan.perform(memoryview(data)) == plan.length
    return bytes(data)


def refused(unit: LogicalUnit, cdb: bytes) -> Sense:
    with pytest.raises(CheckCondition) as caught:
        planned(unit, cdb)
    return caught.value.sense


def performed_in_vain(plan: Plan) -> Sense:
    with pytest.raises(CheckCondition) as caught:
        plan.perform(memoryview(bytearray(plan.length)))
    return caught.value.sense


# files


def test_a_file_is_a_disk_of_its_whole_blocks(tmp_path) -> None:
    path = tmp_path / "disk"
    path.write_bytes(b"a" * 512 + b"b" * 512 + b"rest")
    disk = FileDisk(path)
    assert (disk.blocks, disk.block_bytes) == (2, 512)
    disk.write_from(512, memoryview(b"c" * 512))
    disk.flush()
    found = bytearray(1024)
    disk.read_into(0, memoryview(found))
    assert found == b"a" * 512 + b"c" * 512
    disk.close()
    disk.close()
    assert path.read_bytes() == b"a" * 512 + b"c" * 512 + b"rest"


def test_a_disk_is_made_sparse_and_once(tmp_path) -> None:
    path = tmp_path / "new"
    disk = FileDisk.create(path, 1 << 30, 4096)
    assert disk.blocks == 1 << 18
    assert path.stat().st_blocks == 0
    disk.close()
    with pytest.raises(FileExistsError):
        FileDisk.create(path, 4096)


def test_what_is_no_disk_is_refused(tmp_path) -> None:
    opened = os.listdir("/proc/self/fd")
    (tmp_path / "short").write_bytes(b"x" * 511)
    with pytest.raises(ValueError, match="at least one block"):
        FileDisk(tmp_path / "short")
    with pytest.raises(ValueError, match="neither"):
        FileDisk(tmp_path, read_only=True)  # a directory
    with pytest.raises(ValueError, match="blocks of 100"):
        MemoryDisk(4, 100)
    with pytest.raises(FileNotFoundError):
        FileDisk(tmp_path / "none")
    assert opened == os.listdir("/proc/self/fd")


def test_a_disk_goes_on_where_the_system_has_stopped(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "disk"
    path.write_bytes(bytes(2048))
    disk = FileDisk(path)
    whole_read, whole_write = os.preadv, os.pwritev
    monkeypatch.setattr(os, "preadv", lambda fd, parts, at: whole_read(fd, [parts[0][:300]], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: whole_write(fd, [parts[0][:300]], at))
    wanted = bytes(range(256)) * 4
    disk.write_from(512, memoryview(wanted))
    assert path.read_bytes() == bytes(512) + wanted + bytes(512)
    found = bytearray(1024)
    disk.read_into(512, memoryview(found))
    assert found == wanted
    disk.close()


def test_a_file_that_has_become_shorter_is_a_medium_error(tmp_path) -> None:
    path = tmp_path / "disk"
    path.write_bytes(bytes(2048))
    disk = FileDisk(path)
    path.write_bytes(bytes(512))
    sense = performed_in_vain(planned(unit_of(disk), scsi.read_10(1, 1)))
    assert sense == scsi.MEDIUM_READ_ERROR
    disk.close()


# units


def test_who_is_there_is_told_where_there_is_room_for_one_at_least() -> None:
    unit = unit_of(MemoryDisk(4))
    asked = bytes([scsi.REPORT_LUNS, 0, 0, 0, 0, 0])
    assert told(unit, asked + struct.pack(">I", 16)) == struct.pack(">I", 8) + bytes(12)
    assert refused(unit, asked + struct.pack(">I", 15)) == scsi.INVALID_FIELD_IN_CDB


def test_a_page_of_a_unit_that_is_not_there_is_refused() -> None:
    for asked in (b"\1\0", b"\0\x80"):
        with pytest.raises(CheckCondition, match="not supported"):
            plan_without_unit((bytes([scsi.INQUIRY]) + asked + b"\0\x24").ljust(16, b"\0"), [0])


# blocks


@pytest.mark.parametrize("sixteen", [False, True])
def test_blocks_are_written_and_read(sixteen: bool) -> None:
    disk = MemoryDisk(64)
    unit = unit_of(disk)
    make = scsi.read_16 if sixteen else scsi.read_10
    write, read = (scsi.WRITE_16, scsi.READ_16) if sixteen else (scsi.WRITE_10, scsi.READ_10)
    plan = planned(unit, make(7, 2, write))
    assert (plan.direction, plan.length) == ("to disk", 1024)
    assert plan.perform(memoryview(b"x" * 1024)) == 1024
    assert disk.data[7 * 512 : 9 * 512] == b"x" * 1024
    assert disk.data.count(b"x") == 1024
    assert told(unit, make(8, 2, read)) == b"x" * 512 + bytes(512)


@pytest.mark.parametrize(
    ("lba", "blocks", "sense"),
    [
        (64, 0, scsi.LBA_OUT_OF_RANGE),
        (64, 1, scsi.LBA_OUT_OF_RANGE),
        (63, 2, scsi.LBA_OUT_OF_RANGE),
        ((1 << 64) - 1, 1, scsi.LBA_OUT_OF_RANGE),
        (0, 33, scsi.INVALID_FIELD_IN_CDB),  # more than one transfer may have
        (0, 65, scsi.LBA_OUT_OF_RANGE),
    ],
)
def test_ranges_that_cannot_be_are_refused_before_anything_moves(lba: int, blocks: int, sense: Sense) -> None:
    unit = unit_of(MemoryDisk(64))
    assert refused(unit, scsi.read_16(lba, blocks)) == sense
    assert refused(unit, scsi.read_16(lba, blocks, scsi.WRITE_16)) == sense
    if lba < 1 << 32:
        assert refused(unit, scsi.read_10(lba, blocks)) == sense


def test_the_longest_transfer_and_the_last_block() -> None:
    unit = unit_of(MemoryDisk(64))
    assert planned(unit, scsi.read_10(32, 32)).length == MOST
    assert planned(unit, scsi.read_10(63, 1)).length == 512
    assert planned(unit, scsi.read_10(5, 0)).length == 0


@pytest.mark.parametrize("at", [5, 6, 7])
def test_protection_information_and_aca_are_refused(at: int) -> None:
    unit = unit_of(MemoryDisk(64))
    assert refused(unit, scsi.read_10(0, 1, flags=1 << at)) == scsi.INVALID_FIELD_IN_CDB
    naca = bytearray(scsi.read_10(0, 1))
    naca[9] = scsi.NACA
    assert refused(unit, bytes(naca)) == scsi.INVALID_FIELD_IN_CDB


class Failing(MemoryDisk):
    """Fails with ``code``; counts flushes."""

    code = errno.EIO
    flushes = 0

    def read_into(self, offset: int, buffer: memoryview) -> None:
        raise OSError(self.code, "no")

    def write_from(self, offset: int, buffer: memoryview) -> None:
        raise OSError(self.code, "no")

    def flush(self) -> None:
        self.flushes += 1
        if self.flushes > 1:
            raise OSError(self.code, "no")


def test_what_a_disk_cannot_do_is_said_in_sense_data() -> None:
    disk = Failing(64)
    unit = unit_of(disk)
    write = planned(unit, scsi.read_10(0, 1, scsi.WRITE_10))
    assert performed_in_vain(write) == scsi.MEDIUM_WRITE_ERROR
    assert performed_in_vain(planned(unit, scsi.read_10(0, 1))) == scsi.MEDIUM_READ_ERROR
    disk.code = errno.ENOSPC
    assert performed_in_vain(write) == scsi.NO_SPACE
    flush = planned(unit, scsi.read_10(0, 0, scsi.SYNCHRONIZE_CACHE_10))
    assert flush.perform(memoryview(b"")) == 0
    assert performed_in_vain(flush) == scsi.MEDIUM_WRITE_ERROR
    assert refused(unit, scsi.read_16(64, 0, scsi.SYNCHRONIZE_CACHE_16)) == scsi.LBA_OUT_OF_RANGE
    read_only = unit_of(MemoryDisk(64, read_only=True))
    assert refused(read_only, scsi.read_10(0, 1, scsi.WRITE_10)) == scsi.WRITE_PROTECTED


class Counting(MemoryDisk):
    """Writes down what is done, in order."""

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        self.done: list[str] = []

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self.done.append("read")

    def write_from(self, offset: int, buffer: memoryview) -> None:
        self.done.append("write")

    def flush(self) -> None:
        self.done.append("flush")


def test_forced_access_goes_to_what_outlives_a_crash() -> None:
    disk = Counting(64)
    unit = unit_of(disk)
    planned(unit, scsi.read_10(0, 1, scsi.WRITE_10, scsi.FUA)).perform(memoryview(bytearray(512)))
    planned(unit, scsi.read_16(0, 1, scsi.READ_16, scsi.FUA)).perform(memoryview(bytearray(512)))
    planned(unit, scsi.read_10(0, 1, scsi.WRITE_10)).perform(memoryview(bytearray(512)))
    assert disk.done == ["write", "flush", "flush", "read", "write"]


# what a unit says of itself


def test_what_a_unit_says_of_itself() -> None:
    unit = unit_of(MemoryDisk(100, 4096))
    assert planned(unit, bytes(6))[:2] == ("nothing", 0)
    inquiry = told(unit, bytes([scsi.INQUIRY, 0, 0, 1, 0, 0]))
    assert (len(inquiry), inquiry[0], inquiry[2], inquiry[4], inquiry[8:16]) == (36, 0, 6, 31, b"SOFTHCA ")
    assert len(told(unit, bytes([scsi.INQUIRY, 0, 0, 0, 5, 0]))) == 5
    assert told(unit, bytes([scsi.READ_CAPACITY_10])) == struct.pack(">II", 99, 4096)
    assert told(unit, scsi.read_capacity_16()) == struct.pack(">QI", 99, 4096) + bytes(20)
    assert told(unit, scsi.read_capacity_16(12)) == struct.pack(">QI", 99, 4096)
    assert scsi.Sense.decode(told(unit, bytes([scsi.REQUEST_SENSE, 0, 0, 0, 18, 0]))) == scsi.NO_SENSE
    assert told(unit, struct.pack(">BBBBBBIBB", scsi.REPORT_LUNS, 0, 0, 0, 0, 0, 64, 0, 0)) == (
        struct.pack(">I", 8) + bytes(12)
    )


def test_vital_product_data() -> None:
    unit = unit_of(MemoryDisk(100))

    def page(number: int) -> bytes:
        data = told(unit, bytes([scsi.INQUIRY, 1, number, 1, 0, 0]))
        assert data[1] == number
        assert struct.unpack_from(">H", data, 2)[0] == len(data) - 4
        return data[4:]

    assert page(0x00) == bytes([0x00, 0x80, 0x83, 0xB0, 0xB1])
    assert page(0x80) == b"00000000000012340000"
    assert page(0x83)[4:] == b"SOFTHCA 00000000000012340000"
    assert struct.unpack_from(">I", page(0xB0), 4)[0] == MOST // 512
    assert page(0xB1)[:2] == b"\0\1"
    assert refused(unit, bytes([scsi.INQUIRY, 1, 0x81, 1, 0, 0])) == scsi.INVALID_FIELD_IN_CDB
    assert refused(unit, bytes([scsi.INQUIRY, 0, 0x80, 1, 0, 0])) == scsi.INVALID_FIELD_IN_CDB


@pytest.mark.parametrize(
    ("blocks", "last"), [(1 << 32, 0xFFFF_FFFF), ((1 << 32) + 6, 0xFFFF_FFFF), ((1 << 32) - 1, 0xFFFF_FFFE)]
)
def test_a_disk_that_is_too_long_for_ten_bytes_says_so(blocks: int, last: int) -> None:
    unit = LogicalUnit(Disk(512, blocks), 0, "s", 1 << 20)
    assert told(unit, bytes([scsi.READ_CAPACITY_10]).ljust(16, b"\0")) == struct.pack(">II", last, 512)
    assert scsi.capacity_of(told(unit, scsi.read_capacity_16())).blocks == blocks


def test_a_serial_number_has_20_bytes_at_most() -> None:
    unit = LogicalUnit(MemoryDisk(1), 0, "0123456789" * 3, 1 << 20)
    page = told(unit, bytes([scsi.INQUIRY, 1, 0x80, 0, 252, 0]))
    assert page == bytes([0, 0x80, 0, 20]) + b"0123456789" * 2


@pytest.mark.parametrize(("select", "named"), [(0, 1), (1, 0), (2, 1)])
def test_of_well_known_units_there_is_none(select: int, named: int) -> None:
    cdb = struct.pack(">BBBBBBIBB", scsi.REPORT_LUNS, 0, select, 0, 0, 0, 64, 0, 0)
    answer = told(unit_of(MemoryDisk(1)), cdb)
    assert (answer[:4], len(answer)) == (struct.pack(">I", 8 * named), 8 + 8 * named)


def test_mode_pages_say_cache_and_protection() -> None:
    for read_only in (False, True):
        unit = unit_of(MemoryDisk(100, read_only=read_only))
        short = told(unit, bytes([scsi.MODE_SENSE_6, 0, 0x3F, 0, 255, 0]))
        assert (short[0], short[2], short[3]) == (len(short) - 1, 0x80 * read_only | 0x10, 0)
        assert told(unit, bytes([scsi.MODE_SENSE_6, 0, 0x3F, 0xFF, 255, 0])) == short  # and all subpages
        assert (short[4:7], short[24:26], short[29]) == (b"\x08\x12\x04", b"\x0a\x0a", 0x40)
        long = told(unit, bytes([scsi.MODE_SENSE_10, 0, 0x08, 0, 0, 0, 0, 0, 255, 0]))
        assert struct.unpack_from(">H", long)[0] == len(long) - 2
        assert long[8:] == short[4:24]
        changeable = told(unit, bytes([scsi.MODE_SENSE_6, 0, 0x7F, 0, 255, 0]))
        assert not any(changeable[6:24] + changeable[26:])
    for page, subpage in ((0x1C, 0), (0x08, 1), (0xC8, 0)):
        assert refused(unit, bytes([scsi.MODE_SENSE_6, 0, page, subpage, 255, 0])) == (
            scsi.INVALID_FIELD_IN_CDB
        )


@pytest.mark.parametrize("opcode", [0x01, 0x08, 0x0A, 0x1B, 0x7F, 0x83, 0xC0, 0xFF])
def test_other_commands_are_unknown(opcode: int) -> None:
    assert refused(unit_of(MemoryDisk(64)), bytes([opcode])) == scsi.INVALID_OPCODE


def test_other_service_actions_and_formats_are_refused() -> None:
    unit = unit_of(MemoryDisk(64))
    assert refused(unit, bytes([scsi.SERVICE_ACTION_IN_16, 0x12])) == scsi.INVALID_FIELD_IN_CDB
    assert refused(unit, bytes([scsi.REQUEST_SENSE, 1, 0, 0, 18, 0])) == scsi.INVALID_FIELD_IN_CDB
    assert refused(unit, struct.pack(">B5xI", scsi.REPORT_LUNS, 15)) == scsi.INVALID_FIELD_IN_CDB
    assert refused(unit, struct.pack(">BBB3xI", scsi.REPORT_LUNS, 0, 3, 64)) == scsi.INVALID_FIELD_IN_CDB


def test_without_a_unit_only_questions_are_answered() -> None:
    def data_of(cdb: bytes) -> bytes:
        plan = plan_without_unit(cdb.ljust(16, b"\0"), [0, 1])
        data = bytearray(plan.length)
        plan.perform(memoryview(data))
        return bytes(data)

    assert data_of(bytes([scsi.INQUIRY, 0, 0, 0, 36, 0]))[0] == 0x7F
    assert scsi.Sense.decode(data_of(bytes([scsi.REQUEST_SENSE, 0, 0, 0, 18]))) == scsi.NO_LOGICAL_UNIT
    luns = data_of(struct.pack(">B5xI", scsi.REPORT_LUNS, 64))
    assert luns == struct.pack(">I4x", 16) + bytes(8) + bytes([0, 1]) + bytes(6)
    for cdb in (bytes(6), scsi.read_10(0, 1), bytes([scsi.INQUIRY, 1, 0, 0, 36, 0])):
        with pytest.raises(CheckCondition) as caught:
            plan_without_unit(cdb.ljust(16, b"\0"), [0])
        assert caught.value.sense == scsi.NO_LOGICAL_UNIT
