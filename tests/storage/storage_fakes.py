"""A host's memory and queue pair for a target's session without any adapter."""

from __future__ import annotations

from collections import deque

from softhca.storage import scsi, session, srp
from softhca.storage.controller import Controller
from softhca.storage.descriptors import Range
from softhca.storage.disk import MemoryDisk
from softhca.storage.session import TargetSession, Work

MOST_BYTES = 8192
LIMIT = 4
RKEY = 77
VA = 1 << 40


class FakeHost:
    """What is at the other end of a session: ``memory`` that its work reads and writes, and ``said``, what
    it has sent.  Work is carried out by `step`, in order.
    """

    def __init__(self, controller: Controller, limit: int = LIMIT, most_bytes: int = MOST_BYTES) -> None:
        self.memory = bytearray(1 << 16)
        self.slots = bytearray(limit * most_bytes)
        self.said: list[bytes] = []
        self.under_way: deque[Work] = deque()
        self.session = TargetSession(
            controller, b"i" * 16, limit, most_bytes,
            lambda slot: memoryview(self.slots)[slot * most_bytes : (slot + 1) * most_bytes],
        )  # fmt: skip
        self._most_bytes = most_bytes
        self._limit = limit
        controller.add(self.session)

    def collect(self) -> None:
        """Post what the session wants."""
        while (work := self.session.work()) is not None:
            self.under_way.append(work)

    def step(self) -> bool:
        """Carry out the oldest work; whether there was any."""
        self.collect()
        if not self.under_way:
            return False
        work = self.under_way.popleft()
        self._carry_out(work)
        self.session.done(work)
        return True

    def run(self) -> list[srp.Response]:
        """Carry out everything; what was said since the last call, decoded as responses."""
        while self.step():
            pass
        said, self.said = self.said, []
        return [srp.Response.decode(each) for each in said]

    def _carry_out(self, work: Work) -> None:
        if work.kind == session.SEND:
            assert len(work.message) <= 64
            self.said.append(work.message)
            return
        where, start = work.range, work.slot * self._most_bytes + work.offset
        assert 0 <= work.slot < self._limit
        assert 0 < where.length <= self._most_bytes - work.offset
        offset = where.va - VA
        assert where.rkey == RKEY
        assert 0 <= offset <= len(self.memory) - where.length
        if work.kind == session.READ:
            self.slots[start : start + where.length] = self.memory[offset : offset + where.length]
        else:
            self.memory[offset : offset + where.length] = self.slots[start : start + where.length]


def place(offset: int, length: int) -> Range:
    """A range of the host's memory."""
    return Range(VA + offset, RKEY, length)


def command(cdb: bytes, tag: int = 1, described: bytes = b"", **fields) -> bytes:
    """A message with a command."""
    return srp.Command(tag=tag, cdb=cdb.ljust(16, b"\0"), **fields).encode() + described


def reading(lba: int, blocks: int, tag: int = 1, at: int = 0, **fields) -> bytes:
    """READ into the host's memory at ``at``."""
    return command(scsi.read_10(lba, blocks), tag, place(at, blocks * 512).encode(), in_format=1, **fields)


def writing(lba: int, blocks: int, tag: int = 1, at: int = 0, **fields) -> bytes:
    """WRITE out of the host's memory at ``at``."""
    cdb = scsi.read_10(lba, blocks, scsi.WRITE_10)
    return command(cdb, tag, place(at, blocks * 512).encode(), out_format=1, **fields)


def managing(function: int, tag: int, task_tag: int = 0, lun: int = 0) -> bytes:
    """Task management."""
    return srp.TaskManagement(tag=tag, function=function, task_tag=task_tag, lun=srp.lun_of(lun)).encode()


def scene(disks: int = 1, hosts: int = 1, **options) -> tuple[list[MemoryDisk], list[FakeHost]]:
    """Disks of 64 blocks of one controller, and hosts."""
    made = [MemoryDisk(64) for _ in range(disks)]
    controller = Controller(0x1234, made, options.get("most_bytes", MOST_BYTES))
    return made, [FakeHost(controller, **options) for _ in range(hosts)]
