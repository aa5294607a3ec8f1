"""Disks in a world: hosts read and write blocks of an I/O unit, whose channels break now and then.

A `DiskHost` is the program of one host: its channel, its commands, and what each of its blocks must hold.
It has blocks of its own on the disk that all share.  When its channel fails it logs in anew, after a while,
and repeats what was not acknowledged, as the channel driver does.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from softhca.simulation.conditions import RETRIES, TIMEOUT
from softhca.simulation.node import Node
from softhca.storage import scsi
from softhca.storage.discovery import UnitAddress
from softhca.storage.disk import DEFAULT_BLOCK_BYTES as BLOCK
from softhca.storage.disk import MemoryDisk
from softhca.storage.initiator_channel import ChannelFailed, HostConfig, InitiatorChannel, Operation

BLOCKS_A_HOST = 24
MOST_BLOCKS = 20
CONFIG = HostConfig(
    depth=4, segments=10, segment_bytes=4096, ack_timeout=TIMEOUT, retry_cnt=RETRIES, connect_exponent=8,
    connect_retries=15,
)  # fmt: skip
LONGEST_REST_NS = 2_000_000
RESTS = 0.2
MOST_LOGINS = 20
READ, WRITE, FLUSH = "read", "write", "flush"

SAYS = "a read gives what was written last"
HOLDS = "a disk holds what was written last"
PERFORMED = "a disk performs every command"
ENDS = "every command ends"


@dataclass(eq=False)
class Request:
    """One command: which, from block ``lba`` of the host's own on, and its bytes or what must be read."""

    kind: str
    lba: int
    blocks: int
    data: bytes
    operation: Operation

    def meets(self, other: Request) -> bool:
        """Whether both touch one block, so that they must not be under way at the same time."""
        return self.lba < other.lba + other.blocks and other.lba < self.lba + self.blocks


class DiskHost:
    """The program of ``node``, whose blocks begin at ``first`` of ``disk``; ``requests`` so many.

    ``logins`` counts channels; ``performed`` what has ended.  ``on_begin`` is called when a command begins.
    """

    def __init__(
        self, node: Node, unit: UnitAddress, target: tuple[bytes, int], disk: MemoryDisk, first: int,
        requests: int, dice: random.Random,
    ) -> None:  # fmt: skip
        self.node = node
        self.first = first
        self.stopped = False
        self.crashes = node.crashes
        self.logins = self.performed = 0
        self._unit = unit
        self._target = target
        self._disk = disk
        self._dice = dice
        self._own_port = dice.randbytes(16)
        self._to_draw = requests
        self._content = bytearray(BLOCKS_A_HOST * BLOCK)
        self._waiting: deque[Request] = deque()
        self._under_way: dict[Operation, Request] = {}
        self._is_resting = False
        self.channel: InitiatorChannel | None = None
        self.on_begin: Callable[[], None] = lambda: None

    @property
    def alive(self) -> bool:
        """Whether the adapter that all this belongs to still lives."""
        return self.crashes == self.node.crashes

    def _fail(self, rule: str, text: str) -> None:
        self.node.world.report.fail(rule, f"host {self.node.number}: {text}")

    # channels

    def log_in(self, _: object = None) -> None:
        """Ask for a channel, the first or another one."""
        if self.stopped or not self.alive or self.logins >= MOST_LOGINS:
            return
        self.logins += 1
        try:
            self.channel = InitiatorChannel(
                self.node.device, 1, self._unit, self._target, self._own_port, 0, CONFIG,
                self._dice.getrandbits(24),
            )  # fmt: skip
        except ChannelFailed as error:
            self._fail(ENDS, f"no channel can be asked for: {error}")
        self.node.turn()

    def turn(self) -> bool:
        """Take what has come; whether there was anything."""
        channel = self.channel
        if self.stopped or channel is None:
            return False
        self.node.device.events.dispatch()
        was_ready, ended = channel.ready, channel.turn()
        for operation in ended:
            self._judge(self._under_way.pop(operation))
        if channel.failed:
            self._again(channel)
            return True
        return self._begin() or bool(ended) or channel.ready != was_ready

    def _again(self, channel: InitiatorChannel) -> None:
        """The channel is over: what was not acknowledged is to be repeated, first of all and in order."""
        channel.close()
        self.channel = None
        self._waiting.extendleft(reversed(self._under_way.values()))
        self._under_way.clear()
        self.node.world.at(self.node.world.now + self._dice.randrange(1, LONGEST_REST_NS), self.log_in)

    # commands

    def _draw(self) -> Request:
        dice = self._dice
        kind = dice.choice((WRITE, WRITE, READ, READ, READ, FLUSH))
        blocks = dice.randint(1, dice.choice((2, MOST_BLOCKS)))
        lba = dice.randrange(BLOCKS_A_HOST - blocks + 1)
        place = self.first + lba
        if kind == WRITE:
            data = dice.randbytes(blocks * BLOCK)
            cdb = scsi.transfer(place, blocks, scsi.WRITE_10, scsi.WRITE_16)
            return Request(kind, lba, blocks, data, Operation(cdb, len(data), True, data))
        if kind == READ:
            cdb = scsi.transfer(place, blocks, scsi.READ_10, scsi.READ_16)
            return Request(kind, lba, blocks, b"", Operation(cdb, blocks * BLOCK))
        return Request(kind, 0, 0, b"", Operation(scsi.read_16(0, 0, scsi.SYNCHRONIZE_CACHE_16)))

    def _begin(self) -> bool:
        """Begin what may begin, in order; whether anything was."""
        worked = False
        while self.channel is not None and not self._is_resting:
            if not self._waiting:
                if not self._to_draw:
                    break
                self._to_draw -= 1
                self._waiting.append(self._draw())
            request = self._waiting[0]
            if any(request.meets(other) for other in self._under_way.values()):
                break
            if request.kind == READ:
                start = request.lba * BLOCK
                request.data = bytes(self._content[start : start + request.blocks * BLOCK])
            if not self.channel.start(request.operation):
                break
            self._under_way[self._waiting.popleft().operation] = request
            self.on_begin()
            worked = True
        return worked

    def _judge(self, request: Request) -> None:
        """A command has ended."""
        finished = request.operation.finished
        assert finished is not None
        self.performed += 1
        if self._dice.random() < RESTS:
            self._is_resting = True
            self.node.world.at(self.node.world.now + self._dice.randrange(1, LONGEST_REST_NS), self._go_on)
        if finished.status != scsi.GOOD or finished.residual or finished.over:
            self._fail(PERFORMED, f"{request.kind} of {request.blocks} at {request.lba}: {finished}")
        elif request.kind == WRITE:
            start = request.lba * BLOCK
            self._content[start : start + len(request.data)] = request.data
        elif request.kind == READ and request.operation.data != request.data:
            self._fail(SAYS, f"{request.blocks} blocks at {request.lba}")

    def _go_on(self, _: object) -> None:
        self._is_resting = False
        self.node.turn()

    # the end

    def finish(self, cut: bool) -> None:
        """The world is at rest: every block holds what was written last, or, where a write has not ended,
        either that or what it would have written.
        """
        open_writes = [each for each in (*self._under_way.values(), *self._waiting) if each.kind == WRITE]
        if not cut and not self.stopped and (self._under_way or self._waiting or self._to_draw):
            left = len(self._under_way) + len(self._waiting) + self._to_draw
            self._fail(ENDS, f"{left} have not after {self.logins} logins")
        for block in range(BLOCKS_A_HOST):
            start = (self.first + block) * BLOCK
            found = self._disk.data[start : start + BLOCK]
            legal = [self._content[block * BLOCK : (block + 1) * BLOCK]]
            for each in open_writes:
                if each.lba <= block < each.lba + each.blocks:
                    at = (block - each.lba) * BLOCK
                    legal.append(bytearray(each.data[at : at + BLOCK]))
            if found not in legal:
                self._fail(HOLDS, f"block {block} does not")

    def close(self) -> None:
        """Give everything back."""
        self.stopped = True
        if self.channel is not None:
            self.channel.close()
