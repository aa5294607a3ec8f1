"""Who carries requests of a queue pair out at once, without packets: what all of these have in common.

An executor stands beside the requester and takes the same work requests from the same ring, one at a time,
each only when nothing before it is under way.  It has no errors: what it does not find plainly allowed it
leaves to the packets, so that who must say no, and how, is the responder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from softhca.memory.regions import REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE
from softhca.queues.layout import MAX_MESSAGE_BYTES, RDMA_WRITE, SOLICITED
from softhca.queues.operations import ATOMIC, READ

if TYPE_CHECKING:
    from softhca.transport.context import QueuePair
    from softhca.transport.request import Request

TURN_BYTES = 4 << 20
"""After this much a queue pair gives the others a turn."""

WORTH_WAITING_BYTES = 16 << 10
"""A request of this length behind others waits for them, rather than being cut into packets."""

_WRITE_OPCODE = cython.declare(cython.uint, RDMA_WRITE)
_SOLICITED = cython.declare(cython.uint, SOLICITED)
_READ = cython.declare(cython.int, READ)
_ATOMIC = cython.declare(cython.int, ATOMIC)
_REMOTE_WRITE = cython.declare(cython.uint, REMOTE_WRITE)
_REMOTE_READ = cython.declare(cython.uint, REMOTE_READ)
_REMOTE_ATOMIC = cython.declare(cython.uint, REMOTE_ATOMIC)
_TURN = cython.declare(cython.ulonglong, TURN_BYTES)
_WORTH = cython.declare(cython.ulonglong, WORTH_WAITING_BYTES)
_MAX_MESSAGE = cython.declare(cython.ulonglong, MAX_MESSAGE_BYTES)


class Executor:
    """Carries requests of ``queue_pair`` out.  ``operations`` and ``moved_bytes`` count what it has done; no
    packet counter does.  ``succeeded``: so did the last one that it tried."""

    def __init__(self, queue_pair: QueuePair) -> None:
        self.queue_pair = queue_pair
        self.operations = 0
        self.moved_bytes = 0
        self.turn_bytes = 0
        self.succeeded = True

    def figures(self) -> dict[str, int]:
        """What has been done without packets, as counters by name."""
        return {"same_host_operations": self.operations, "same_host_bytes": self.moved_bytes}

    def is_open(self) -> bool:
        """Whether there is a way to the peer at all."""
        return False

    def carry_out(self, request: Request, right: int) -> bool:
        """Do a request that needs ``right`` of the peer; False: it is to go by packets.  Where its ``status``
        is set then, it has failed."""
        return False

    def leave(self) -> None:
        """Something else comes than another request: let go what is held for the next one."""

    def wake_peer(self) -> None:
        """Have a thread of the peer's program that sleeps look at its memory."""

    def execute(self, request: Request) -> bool:
        """Do a request whose turn it is; False: not possible here, nothing is known of it, send packets.

        A WRITE makes no event, and here not even a packet: with the solicited flag it wakes who sleeps.
        """
        right: cython.uint = self.right_for(request)
        if right == 0:
            return False
        self.succeeded = self.carry_out(request, right)
        if not self.succeeded:
            return False
        self.operations += 1
        self.moved_bytes += request.length_bytes
        self.turn_bytes += request.length_bytes
        if right == _REMOTE_WRITE and request.work.flags & _SOLICITED:
            self.wake_peer()
        return True

    def right_for(self, request: Request) -> int:
        """The right that a request needs of the peer; 0: it is none for an executor, or there is no way."""
        if self.queue_pair.flow.pacing is not None:
            return 0  # what is copied in one go keeps to no rate
        if not self.is_open() or request.length_bytes == 0 or request.length_bytes > _MAX_MESSAGE:
            return 0
        if request.work.opcode == _WRITE_OPCODE:
            return _REMOTE_WRITE
        if self.queue_pair.max_rd_atomic == 0:
            return 0
        if request.kind == _READ:
            return _REMOTE_READ
        return _REMOTE_ATOMIC if request.kind == _ATOMIC else 0

    def waits_for_earlier(self, request: Request) -> bool:
        """Whether a request behind others that go by packets had better wait for them: the first one, so that
        a queue that never runs empty changes over, and long ones; not where the last one went by packets all
        the same."""
        if not self.succeeded or self.right_for(request) == 0:
            return False
        return self.operations == 0 or request.length_bytes >= _WORTH

    def turn_over(self) -> bool:
        """Whether so much has been moved that others have their turn now."""
        if self.turn_bytes < _TURN:
            return False
        self.turn_bytes = 0
        return True
