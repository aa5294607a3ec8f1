"""The same-host executor: RDMA WRITE, READ and atomics of one queue pair, done by the initiator itself.

Theory of operation (docs/same-host.md).  Where the peer's adapter is on this host and both allow it, its
registered memory and its grants are mapped here (`SharedPath`).  Then the initiator checks what the
responder would check (state and rights of the queue pair, key, domain, rights and range), and does the one
copy, or the one atomic instruction, in place.  No packet goes, so no PSN is used.

The path is entered once for many requests: what was looked up holds until it is left, which is before
anything else than copying is done that could wait (a completion, for it may end the queue pair and so
withdraw its grant; the peer may be waiting for the same here), and after `CHUNK_BYTES` at the latest.

Everything that is not plainly allowed is left to the packets: whoever must say no, and how, is the
responder, as over any wire.  So this file has no errors.  A request is done here only when nothing before it
is under way; that keeps the order of a queue pair, and the switch between both ways never falls into the
middle of anything.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cython

from softhca.machine.primitives import (
    address_of,
    atomic_add64,
    atomic_cas64,
    read_process,
    store64,
    write_process_at,
)
from softhca.memory.regions import REMOTE_ATOMIC
from softhca.queues.layout import ATOMIC_CMP_AND_SWP, WC_RETRY_EXC_ERR
from softhca.queues.operations import READ
from softhca.transport.executor import Executor

if TYPE_CHECKING:
    from softhca.memory.shared_path import SharedPath
    from softhca.transport.context import QueuePair
    from softhca.transport.request import Request

CHUNK_BYTES = 1 << 20
"""At most this much is copied inside a path at a time: whoever withdraws memory waits for one such copy."""

LEAST_BYTES = 4096
"""So much does a request count at least, that the number of short ones inside a path is bounded too."""

BOUNCE_BYTES = 1 << 16
TRIES = 4
"""So often is a request tried whose peer withdraws something meanwhile, before it goes by packets."""

_SWAP_OPCODE = cython.declare(cython.uint, ATOMIC_CMP_AND_SWP)
_READ = cython.declare(cython.int, READ)
_REMOTE_ATOMIC = cython.declare(cython.uint, REMOTE_ATOMIC)
_CHUNK = cython.declare(cython.ulonglong, CHUNK_BYTES)
_BOUNCE = cython.declare(cython.ulonglong, BOUNCE_BYTES)
_TRIES = cython.declare(cython.int, TRIES)
_RETRY_EXCEEDED = cython.declare(cython.int, WC_RETRY_EXC_ERR)
_LEAST = cython.declare(cython.ulonglong, LEAST_BYTES)


class SameHostExecutor(Executor):
    """Carries out what ``path`` allows."""

    _bounce: bytearray

    def __init__(self, queue_pair: QueuePair, path: SharedPath) -> None:
        Executor.__init__(self, queue_pair)
        self.path = path
        self.inside = False
        self.allowed = 0
        self.inside_bytes = 0
        self._result = array("Q", [0])
        self.result_address = address_of(self._result)
        self._bounce = None
        self.bounce_address = 0

    def is_open(self) -> bool:
        return self.path.alive

    def wake_peer(self) -> None:
        self.path.wake_peer()

    def carry_out(self, request: Request, right: int) -> bool:
        """The path may stay entered for the next one: call `leave` before anything that may wait."""
        if right == _REMOTE_ATOMIC:
            return self.atomic(request)
        return self.move(request, request.length_bytes, right)

    def leave(self) -> None:
        """Leave the path if it is entered."""
        if self.inside:
            self.inside = False
            self.path.leave()

    def begin(self, n: int) -> bool:
        """Be inside the path, with room for ``n`` more bytes or for a chunk; False where nobody may be there.

        What the peer's queue pair takes is looked up once for all requests until the path is left.
        """
        theirs: cython.uint
        if self.inside and self.inside_bytes + n > _CHUNK:
            self.leave()
        if self.inside:
            return True
        if not self.path.enter():
            return False
        self.inside = True
        self.inside_bytes = 0
        self.allowed = self.path.queue_pair(self.queue_pair.dest_qp, self.queue_pair.number)
        theirs = (self.allowed >> 16) & 0xFFFF
        if (theirs ^ self.queue_pair.pkey) & 0x7FFF or not (theirs | self.queue_pair.pkey) & 0x8000:
            self.allowed = 0  # the P_Keys do not match (10.9.3)
        return True

    def find(self, request: Request, n: int, right: int) -> int:
        """Inside the path: where the peer's ``n`` bytes are; 0 when they may not be touched."""
        if not self.allowed & right:
            return 0
        return self.path.place(request.work.rkey, self.allowed >> 32, request.work.remote_va, n, right)

    def move(self, request: Request, n: int, right: int) -> bool:
        """Copy the bytes of a WRITE or READ, no more than a chunk without leaving the path."""
        done: cython.ulonglong = 0
        piece: cython.ulonglong
        moved: cython.longlong
        tries: cython.int = 0
        while done < n:
            piece = n - done
            if piece > _CHUNK:
                piece = _CHUNK
            if not self.begin(piece):
                return False
            moved = self.move_piece(request, n, right, done, piece)
            if moved < 0:
                return False
            if moved:
                done += moved
                continue
            self.leave()
            tries += 1
            if tries == _TRIES:
                return False
        return True

    def move_piece(self, request: Request, n: int, right: int, done: int, piece: int) -> int:
        """Copy some of ``piece`` bytes inside the path: their number, −1 where that cannot be, 0 where the
        peer has withdrawn something, so that nothing is known of them and all is to be looked up again."""
        result: cython.int
        place: cython.ulonglong = self.find(request, n, right)
        foreign: cython.bint = self.path.foreign
        if place == 0:
            return -1 if self.path.unchanged() else 0
        place += done
        if foreign:
            if piece > _BOUNCE:
                piece = _BOUNCE
            result = self.move_foreign(request, done, place, piece)
        elif request.kind == _READ:
            result = request.scatter(done, piece, place)
        elif self.path.claim(place, piece):
            result = request.payload(done, piece, place)
        else:
            return 0
        if not self.path.unchanged_for(right):
            return 0
        if foreign:
            self.leave()
        self.inside_bytes += piece if piece > _LEAST else _LEAST
        return -1 if result else piece

    def move_foreign(self, request: Request, done: int, place: int, n: int) -> int:
        """Copy between the peer process's own memory and the request's; 0 or −1.

        The kernel gives the number of a process that has ended to another one, so the peer is looked at
        first, and behind a READ: what came may have been another's.  What is written may be revoked up to
        the call, which reads the description of its target in the reader's file.
        """
        result: cython.longlong
        target: cython.ulonglong
        if not self.path.is_there():
            return -1
        if self._bounce is None:
            self._bounce = bytearray(BOUNCE_BYTES)
            self.bounce_address = address_of(self._bounce)
        if request.kind == _READ:
            result = read_process(self.path.pid, self.bounce_address, place, n)
            if result != cython.cast(cython.longlong, n) or not self.path.is_there():
                return -1
            return request.scatter(done, n, self.bounce_address)
        if request.payload(done, n, self.bounce_address):
            return -1
        target = self.path.aim(place, n)
        if not self.path.claim(place, n):
            return -1
        result = write_process_at(self.path.pid, target, self.bounce_address, n)
        return 0 if result == cython.cast(cython.longlong, n) else -1

    def atomic(self, request: Request) -> bool:
        """One atomic instruction on the peer's memory; its result into the request's buffer (C9-150 ff.).

        The buffer is tried first, with the bytes that stand in it: once the instruction is done it cannot be
        taken back.  Where the peer has revoked the claim meanwhile nobody knows whether it counts: as
        where the answer is lost on a wire, the request fails.
        """
        place: cython.ulonglong
        old: cython.ulonglong = 0
        tries: cython.int = 1
        if request.gather(0, 8, self.result_address) or request.scatter(
            0, 8, self.result_address
        ):
            return False
        while True:
            if not self.begin(8):
                return False
            place = self.find(request, 8, _REMOTE_ATOMIC)
            if place and (place & 7 or request.work.remote_va & 7 or self.path.foreign):
                return False
            if place and self.path.claim(place, 8):
                break
            if self.path.unchanged() or tries == _TRIES:
                return False
            self.leave()
            tries += 1
        if request.work.opcode == _SWAP_OPCODE:
            old = atomic_cas64(place, request.work.compare_add, request.work.swap)
        else:
            old = atomic_add64(place, request.work.compare_add)
        if not self.path.unchanged_for(_REMOTE_ATOMIC):
            request.status = _RETRY_EXCEEDED
            return False
        self.inside_bytes += _LEAST
        store64(self.result_address, old)
        request.scatter(0, 8, self.result_address)
        return True
