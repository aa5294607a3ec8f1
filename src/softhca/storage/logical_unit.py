"""A logical unit: what SCSI commands do to a disk (SPC-4, SBC-3), as far as a disk needs it.

A command is first planned, from its CDB alone: which way data go and how many bytes, and refused if it
cannot be.  Only a transport that has moved them, or has room for them, then performs it.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from typing import NamedTuple

from softhca.storage import scsi
from softhca.storage.disk import Disk
from softhca.storage.scsi import CheckCondition

NOTHING, TO_HOST, TO_DISK = "nothing", "to host", "to disk"
"""Which way the data of a command go."""

VENDOR, PRODUCT, REVISION = b"SOFTHCA ", b"BLOCK STORAGE   ", b"1   "
VPD_PAGES = (0x00, 0x80, 0x83, 0xB0, 0xB1)
CACHING_PAGE, CONTROL_PAGE, ALL_PAGES = 0x08, 0x0A, 0x3F
NO_UNIT = 0x7F
"""Peripheral qualifier and type of INQUIRY where there is no logical unit of that number."""
MOST_BLOCKS_10 = 0xFFFF_FFFF

Perform = Callable[[memoryview], int]


class Plan(NamedTuple):
    """What a command does: ``length`` bytes go ``direction``.  ``perform(buffer)`` takes them from a buffer
    of that length, or puts them there and says how many there are; CheckCondition where that fails.
    """

    direction: str
    length: int
    perform: Perform


class LogicalUnit:
    """One disk by its ``number``; ``serial`` is its serial number and what tells it from all others."""

    def __init__(self, disk: Disk, number: int, serial: str, most_bytes: int) -> None:
        self.disk = disk
        self.number = number
        self.serial = serial.encode("ascii")[:20]
        self._most_blocks = most_bytes // disk.block_bytes

    def plan(self, cdb: bytes, luns: list[int]) -> Plan:
        """The plan of a command of 16 bytes or more; ``luns`` are all units of the target.  CheckCondition:
        it is refused, and nothing has changed.
        """
        found = _COMMANDS.get(cdb[0])
        if found is None:
            raise CheckCondition(scsi.INVALID_OPCODE)
        if cdb[scsi.CDB_BYTES[cdb[0] >> 5] - 1] & scsi.NACA:
            raise CheckCondition(scsi.INVALID_FIELD_IN_CDB)
        return found(self, cdb, luns)

    # what a unit is

    def _test_unit_ready(self, cdb: bytes, luns: list[int]) -> Plan:
        return Plan(NOTHING, 0, _nothing)

    def _request_sense(self, cdb: bytes, luns: list[int]) -> Plan:
        if cdb[1] & 1:  # descriptor format
            raise CheckCondition(scsi.INVALID_FIELD_IN_CDB)
        return _clipped(scsi.NO_SENSE.encode(), cdb[4])

    def _inquiry(self, cdb: bytes, luns: list[int]) -> Plan:
        room = struct.unpack_from(">H", cdb, 3)[0]
        if cdb[1] & 1:
            return _clipped(self._vital_page(cdb[2]), room)
        if cdb[2]:
            raise CheckCondition(scsi.INVALID_FIELD_IN_CDB)
        return _clipped(standard_inquiry(0), room)

    def _vital_page(self, page: int) -> bytes:
        if page not in VPD_PAGES:
            raise CheckCondition(scsi.INVALID_FIELD_IN_CDB)
        if page == 0x00:
            body = bytes(VPD_PAGES)
        elif page == 0x80:
            body = self.serial
        elif page == 0x83:  # a designator by vendor, in ASCII: T10 vendor ID and the serial number
            name = VENDOR + self.serial
            body = bytes([0x02, 0x01, 0, len(name)]) + name
        elif page == 0xB0:  # block limits: the most blocks of one transfer
            body = bytes(4) + struct.pack(">II", self._most_blocks, self._most_blocks) + bytes(48)
        else:  # block device characteristics: no rotating medium
            body = struct.pack(">H", 1) + bytes(58)
        return struct.pack(">BBH", 0, page, len(body)) + body

    def _report_luns(self, cdb: bytes, luns: list[int]) -> Plan:
        return report_luns(cdb, luns)

    def _read_capacity_10(self, cdb: bytes, luns: list[int]) -> Plan:
        last = min(self.disk.blocks - 1, MOST_BLOCKS_10)
        return _clipped(struct.pack(">II", last, self.disk.block_bytes), 8)

    def _service_action(self, cdb: bytes, luns: list[int]) -> Plan:
        if cdb[1] & 0x1F != scsi.READ_CAPACITY_16:
            raise CheckCondition(scsi.INVALID_FIELD_IN_CDB)
        data = struct.pack(">QI", self.disk.blocks - 1, self.disk.block_bytes) + bytes(20)
        return _clipped(data, struct.unpack_from(">I", cdb, 10)[0])

    def _mode_sense(self, cdb: bytes, luns: list[int]) -> Plan:
        is_short = cdb[0] == scsi.MODE_SENSE_6
        page, control, subpage = cdb[2] & 0x3F, cdb[2] >> 6, cdb[3]
        if subpage not in (0, 0xFF) or control == 3 or page not in (CACHING_PAGE, CONTROL_PAGE, ALL_PAGES):
            raise CheckCondition(scsi.INVALID_FIELD_IN_CDB)
        changeable = control == 1  # nothing is
        pages = b""
        if page in (CACHING_PAGE, ALL_PAGES):  # WCE: what was written is safe after SYNCHRONIZE CACHE
            pages += bytes([CACHING_PAGE, 18, 0 if changeable else 0x04]) + bytes(17)
        if page in (CONTROL_PAGE, ALL_PAGES):
            pages += bytes([CONTROL_PAGE, 10, 0, 0, 0, 0 if changeable else 0x40]) + bytes(6)  # TAS
        protection = (0x80 if self.disk.read_only else 0) | 0x10  # WP, DPOFUA
        if is_short:
            return _clipped(bytes([len(pages) + 3, 0, protection, 0]) + pages, cdb[4])
        head = struct.pack(">HBB", len(pages) + 6, 0, protection) + bytes(4)
        return _clipped(head + pages, struct.unpack_from(">H", cdb, 7)[0])

    # blocks

    def _read(self, cdb: bytes, luns: list[int]) -> Plan:
        offset, length = self._place(cdb)

        def perform(buffer: memoryview) -> int:
            try:
                if cdb[1] & scsi.FUA:
                    self.disk.flush()
                self.disk.read_into(offset, buffer)
            except OSError:
                raise CheckCondition(scsi.MEDIUM_READ_ERROR) from None
            return len(buffer)

        return Plan(TO_HOST, length, perform) if length else Plan(NOTHING, 0, _nothing)

    def _write(self, cdb: bytes, luns: list[int]) -> Plan:
        offset, length = self._place(cdb)
        if self.disk.read_only:
            raise CheckCondition(scsi.WRITE_PROTECTED)

        def perform(buffer: memoryview) -> int:
            try:
                self.disk.write_from(offset, buffer)
                if cdb[1] & scsi.FUA:
                    self.disk.flush()
            except OSError as error:
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                raise CheckCondition(scsi.NO_SPACE if full else scsi.MEDIUM_WRITE_ERROR) from None
            return len(buffer)

        return Plan(TO_DISK, length, perform) if length else Plan(NOTHING, 0, _nothing)

    def _synchronize(self, cdb: bytes, luns: list[int]) -> Plan:
        self._check(*_range(cdb))  # all is written anyhow, whatever the range

        def perform(buffer: memoryview) -> int:
            try:
                self.disk.flush()
            except OSError:
                raise CheckCondition(scsi.MEDIUM_WRITE_ERROR) from None
            return 0

        return Plan(NOTHING, 0, perform)

    def _place(self, cdb: bytes) -> tuple[int, int]:
        """Offset and length in bytes; CheckCondition for protection information, which there is not, a range
        beyond the disk, or more than one transfer may have.
        """
        if cdb[1] >> 5:
            raise CheckCondition(scsi.INVALID_FIELD_IN_CDB)
        lba, blocks = _range(cdb)
        self._check(lba, blocks)
        if blocks > self._most_blocks:
            raise CheckCondition(scsi.INVALID_FIELD_IN_CDB)
        return lba * self.disk.block_bytes, blocks * self.disk.block_bytes

    def _check(self, lba: int, blocks: int) -> None:
        if lba + blocks > self.disk.blocks or lba >= self.disk.blocks:
            raise CheckCondition(scsi.LBA_OUT_OF_RANGE)


_COMMANDS: dict[int, Callable[[LogicalUnit, bytes, list[int]], Plan]] = {
    scsi.TEST_UNIT_READY: LogicalUnit._test_unit_ready,
    scsi.REQUEST_SENSE: LogicalUnit._request_sense,
    scsi.INQUIRY: LogicalUnit._inquiry,
    scsi.MODE_SENSE_6: LogicalUnit._mode_sense,
    scsi.MODE_SENSE_10: LogicalUnit._mode_sense,
    scsi.READ_CAPACITY_10: LogicalUnit._read_capacity_10,
    scsi.SERVICE_ACTION_IN_16: LogicalUnit._service_action,
    scsi.REPORT_LUNS: LogicalUnit._report_luns,
    scsi.READ_10: LogicalUnit._read,
    scsi.READ_16: LogicalUnit._read,
    scsi.WRITE_10: LogicalUnit._write,
    scsi.WRITE_16: LogicalUnit._write,
    scsi.SYNCHRONIZE_CACHE_10: LogicalUnit._synchronize,
    scsi.SYNCHRONIZE_CACHE_16: LogicalUnit._synchronize,
}


def _range(cdb: bytes) -> tuple[int, int]:
    """First block and number of blocks of a command of 10 or 16 bytes."""
    if cdb[0] >> 5 == 4:
        lba, blocks = struct.unpack_from(">QI", cdb, 2)
    else:
        lba, blocks = struct.unpack_from(">I", cdb, 2)[0], struct.unpack_from(">H", cdb, 7)[0]
    return lba, blocks


def plan_without_unit(cdb: bytes, luns: list[int]) -> Plan:
    """The plan of a command for a number that no unit has: INQUIRY says so, REPORT LUNS who is there, and
    REQUEST SENSE what is wrong; all else is refused.
    """
    if cdb[0] == scsi.INQUIRY and not cdb[1] & 1 and not cdb[2]:
        return _clipped(standard_inquiry(NO_UNIT), struct.unpack_from(">H", cdb, 3)[0])
    if cdb[0] == scsi.REQUEST_SENSE:
        return _clipped(scsi.NO_LOGICAL_UNIT.encode(), cdb[4])
    if cdb[0] == scsi.REPORT_LUNS:
        return report_luns(cdb, luns)
    raise CheckCondition(scsi.NO_LOGICAL_UNIT)


def standard_inquiry(kind: int) -> bytes:
    """Standard INQUIRY data: a disk (0) or no unit, SPC-4, command queueing."""
    return bytes([kind, 0, 0x06, 0x12, 31, 0, 0, 0x02]) + VENDOR + PRODUCT + REVISION


def report_luns(cdb: bytes, luns: list[int]) -> Plan:
    """REPORT LUNS: all of them, or none where well-known units are asked for."""
    room = struct.unpack_from(">I", cdb, 6)[0]
    if cdb[2] > 2 or room < 16:
        raise CheckCondition(scsi.INVALID_FIELD_IN_CDB)
    named = [] if cdb[2] == 1 else luns
    data = struct.pack(">I4x", 8 * len(named)) + b"".join(bytes([0, each]) + bytes(6) for each in named)
    return _clipped(data, room)


def _clipped(data: bytes, room: int) -> Plan:
    """As much of ``data`` as the host has room for."""
    clipped = data[:room]
    if not clipped:
        return Plan(NOTHING, 0, _nothing)

    def perform(buffer: memoryview) -> int:
        buffer[:] = clipped
        return len(clipped)

    return Plan(TO_HOST, len(clipped), perform)


def _nothing(buffer: memoryview) -> int:
    return 0
