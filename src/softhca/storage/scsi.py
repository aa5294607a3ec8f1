"""SCSI by its numbers, as far as a disk needs it: operation codes, statuses, sense data (SPC, SBC)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

# operation codes
TEST_UNIT_READY = 0x00
REQUEST_SENSE = 0x03
INQUIRY = 0x12
MODE_SENSE_6 = 0x1A
READ_CAPACITY_10 = 0x25
READ_10 = 0x28
WRITE_10 = 0x2A
SYNCHRONIZE_CACHE_10 = 0x35
MODE_SENSE_10 = 0x5A
READ_16 = 0x88
WRITE_16 = 0x8A
SYNCHRONIZE_CACHE_16 = 0x91
SERVICE_ACTION_IN_16 = 0x9E
REPORT_LUNS = 0xA0
READ_CAPACITY_16 = 0x10
"""A service action of `SERVICE_ACTION_IN_16`."""

# statuses (SAM)
GOOD = 0x00
CHECK_CONDITION = 0x02
BUSY = 0x08
TASK_SET_FULL = 0x28
TASK_ABORTED = 0x40

CDB_BYTES = {0: 6, 1: 10, 2: 10, 4: 16, 5: 12}
"""The length of a command by the top three bits of its operation code."""

FUA = 0x08
"""Byte 1 of a READ or WRITE: from, or to, what outlives a crash."""
NACA = 0x04
"""The last byte: ACA is asked for, which there is not."""


class Sense(NamedTuple):
    """Why a command was refused: sense key, additional sense code and its qualifier."""

    key: int
    code: int
    qualifier: int = 0

    def encode(self) -> bytes:
        """Sense data in fixed format, 18 bytes."""
        return bytes([0x70, 0, self.key, 0, 0, 0, 0, 10, 0, 0, 0, 0, self.code, self.qualifier, 0, 0, 0, 0])

    @classmethod
    def decode(cls, data: bytes) -> Sense | None:
        """Of sense data in fixed or descriptor format; None: they are neither."""
        kind = data[0] & 0x7F if data else 0
        if kind in (0x70, 0x71) and len(data) >= 14:
            return cls(data[2] & 0xF, data[12], data[13])
        if kind in (0x72, 0x73) and len(data) >= 4:
            return cls(data[1] & 0xF, data[2], data[3])
        return None

    def __str__(self) -> str:
        name = SENSE_NAMES.get(self, SENSE_KEYS.get(self.key, "an unknown sense key"))
        return f"{name} ({self.key:x}/{self.code:02x}/{self.qualifier:02x})"


NO_SENSE = Sense(0x0, 0x00)
MEDIUM_READ_ERROR = Sense(0x3, 0x11)
MEDIUM_WRITE_ERROR = Sense(0x3, 0x0C)
INVALID_OPCODE = Sense(0x5, 0x20)
LBA_OUT_OF_RANGE = Sense(0x5, 0x21)
INVALID_FIELD_IN_CDB = Sense(0x5, 0x24)
NO_LOGICAL_UNIT = Sense(0x5, 0x25)
INVALID_INFORMATION_UNIT = Sense(0x5, 0x0E, 0x03)
WRITE_PROTECTED = Sense(0x7, 0x27)
NO_SPACE = Sense(0x7, 0x27, 0x07)
UNIT_RESET = Sense(0x6, 0x29, 0x03)
TRANSFER_FAILED = Sense(0xB, 0x4B)

SENSE_KEYS = {
    0x0: "no sense",
    0x1: "recovered error",
    0x2: "not ready",
    0x3: "medium error",
    0x4: "hardware error",
    0x5: "illegal request",
    0x6: "unit attention",
    0x7: "data protect",
    0xB: "aborted command",
}
SENSE_NAMES = {
    MEDIUM_READ_ERROR: "unrecovered read error",
    MEDIUM_WRITE_ERROR: "write error",
    INVALID_OPCODE: "invalid command operation code",
    LBA_OUT_OF_RANGE: "logical block address out of range",
    INVALID_FIELD_IN_CDB: "invalid field in CDB",
    NO_LOGICAL_UNIT: "logical unit not supported",
    INVALID_INFORMATION_UNIT: "invalid field in the information unit",
    WRITE_PROTECTED: "write protected",
    NO_SPACE: "no space left",
    UNIT_RESET: "the logical unit was reset",
    TRANSFER_FAILED: "data phase error",
}
RESET_CODE = 0x29
UNIT_ATTENTION = 0x6


class CheckCondition(Exception):
    """A command is refused with sense data."""

    def __init__(self, sense: Sense) -> None:
        super().__init__(str(sense))
        self.sense = sense


@dataclass(frozen=True)
class Capacity:
    """Of a disk: how many blocks, and their size."""

    blocks: int
    block_bytes: int

    @property
    def length_bytes(self) -> int:
        """All of it."""
        return self.blocks * self.block_bytes


def read_10(lba: int, blocks: int, opcode: int = READ_10, flags: int = 0) -> bytes:
    """READ(10), WRITE(10) or SYNCHRONIZE CACHE(10), padded to 16 bytes; struct.error: they do not fit."""
    return struct.pack(">BBIBHB6x", opcode, flags, lba, 0, blocks, 0)


def read_16(lba: int, blocks: int, opcode: int = READ_16, flags: int = 0) -> bytes:
    """READ(16), WRITE(16) or SYNCHRONIZE CACHE(16)."""
    return struct.pack(">BBQIBB", opcode, flags, lba, blocks, 0, 0)


def transfer(lba: int, blocks: int, short: int, long: int) -> bytes:
    """The 10-byte command ``short`` where the numbers fit it, else the 16-byte command ``long``."""
    if lba + blocks <= 1 << 32 and blocks < 1 << 16:
        return read_10(lba, blocks, short)
    return read_16(lba, blocks, long)


def read_capacity_16(room: int = 32) -> bytes:
    """READ CAPACITY(16) with room for ``room`` bytes."""
    return struct.pack(">BBQIBB", SERVICE_ACTION_IN_16, READ_CAPACITY_16, 0, room, 0, 0)


def capacity_of(data: bytes) -> Capacity:
    """What READ CAPACITY(16) has returned; ValueError for what cannot be."""
    if len(data) < 12:
        raise ValueError("the capacity is cut short")
    last, block_bytes = struct.unpack_from(">QI", data)
    if not 0 < block_bytes <= 1 << 16 or block_bytes & 3 or last >= 1 << 62:
        raise ValueError(f"a disk of {last} + 1 blocks of {block_bytes} bytes cannot be")
    return Capacity(last + 1, block_bytes)
