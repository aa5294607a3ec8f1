"""The loopback executor: RDMA WRITE, READ and atomics between two queue pairs of one adapter.

Theory of operation (docs/same-host.md).  Programs that share an adapter, and a program that is connected to
itself, have both ends in one place: requester and responder would cut a message into packets only to put it
together again.  So the executor asks what the responder would ask, state and rights of the peer's queue pair
and the key, and moves the bytes in one go: from region to region where this process has both mapped, else
by way of a buffer, with one system call for each side that is another process's memory.

Nothing is shared here and nobody else moves: the engine does one thing at a time.  What is not plainly
allowed is left to the packets, which carry the same to the same end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import cython

from softhca.machine.primitives import address_of, store64
from softhca.memory.regions import REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE
from softhca.queues.layout import ATOMIC_CMP_AND_SWP, WC_LOC_PROT_ERR
from softhca.queues.operations import READ
from softhca.transport.executor import Executor
from softhca.transport.states import RC, RESET, RTR, RTS, SQD

if TYPE_CHECKING:
    from collections.abc import Container

    from softhca.memory.regions import Region
    from softhca.transport.connection import Connection
    from softhca.transport.context import QueuePair
    from softhca.transport.request import Request
    from softhca.transport.same_host_sharing import Sharing
    from softhca.wire.route import Route

BOUNCE_BYTES = 1 << 17

_READ = cython.declare(cython.int, READ)
_SWAP_OPCODE = cython.declare(cython.uint, ATOMIC_CMP_AND_SWP)
_REMOTE_ATOMIC = cython.declare(cython.uint, REMOTE_ATOMIC)
_REMOTE_WRITE = cython.declare(cython.uint, REMOTE_WRITE)
_REMOTE = cython.declare(cython.uint, REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC)
_PROTECTION_ERROR = cython.declare(cython.int, WC_LOC_PROT_ERR)
_RC = cython.declare(cython.int, RC)
_RTR = cython.declare(cython.int, RTR)
_RTS = cython.declare(cython.int, RTS)
_SQD = cython.declare(cython.int, SQD)
_BOUNCE = cython.declare(cython.ulonglong, BOUNCE_BYTES)


class LoopbackExecutor(Executor):
    """Carries out what the peer, a queue pair of the same adapter, allows."""

    _bounce: bytearray
    _peer: QueuePair | None

    def __init__(self, queue_pair: QueuePair) -> None:
        Executor.__init__(self, queue_pair)
        self._peer = None
        self._bounce = None
        self.bounce_address = 0

    def is_open(self) -> bool:
        environment = self.queue_pair.environment
        return not environment.regions.tpt.stopped and environment.port_usable(self.queue_pair.port_number)

    def grants(self, right: int) -> bool:
        """Whether the peer is there and gives ``right`` to this queue pair; it is ``_peer`` then."""
        own: QueuePair = self.queue_pair
        peer: QueuePair = own.environment.queue_pairs.get(own.dest_qp)
        granted: cython.uint
        if peer is None or peer.service != _RC or peer.dest_qp != own.number:
            return False
        if peer.state != _RTR and peer.state != _RTS and peer.state != _SQD:
            return False
        if own.migration or peer.migration or own.instance != peer.instance:
            return False
        granted = peer.access & _REMOTE if peer.max_dest_rd_atomic else peer.access & _REMOTE_WRITE
        if not granted & right:
            return False
        if (peer.pkey ^ own.pkey) & 0x7FFF or not (peer.pkey | own.pkey) & 0x8000:
            return False  # the P_Keys do not match (10.9.3)
        if not _face(own.flow.route, peer.flow.route):
            return False
        self._peer = peer
        return peer.environment.port_usable(peer.port_number)

    def region_for(self, request: Request, right: int) -> Region | None:
        """The peer's region that a request names, where it gives the right and is an ordinary one."""
        region: Region
        if not self.grants(right):
            return None
        region = self.queue_pair.environment.regions.find(
            request.work.rkey, self._peer.pd, request.work.remote_va, request.length_bytes, right,
            self._peer.number,
        )
        if region is None or region.tracked or region.window or region.paged:
            return None
        if not self._peer.established and self._peer.state == _RTR:
            self._peer.establish()
        return region

    def wake_peer(self) -> None:
        self.queue_pair.environment.wake_threads()

    def carry_out(self, request: Request, right: int) -> bool:
        region: Region = self.region_for(request, right)
        if region is None:
            return False
        if right == _REMOTE_ATOMIC:
            return self.atomic(request, region)
        if region.direct_address and region.direct_pid == 0:
            return self.move(request, region.direct_address + (request.work.remote_va - region.va)) == 0
        return self.move_through(request, region) == 0

    def move(self, request: Request, place: int) -> int:
        """Copy all of a WRITE or READ from or to the peer's bytes at an address of this process; 0 or
        −errno."""
        if request.kind == _READ:
            return request.scatter(0, request.length_bytes, place)
        return request.payload(0, request.length_bytes, place)

    def move_through(self, request: Request, region: Region) -> int:
        """The same by way of a buffer, piece by piece, where the peer's bytes are not mapped here."""
        done: cython.ulonglong = 0
        piece: cython.ulonglong
        result: cython.int
        self.have_buffer()
        while done < request.length_bytes:
            piece = request.length_bytes - done
            if piece > _BOUNCE:
                piece = _BOUNCE
            if request.kind == _READ:
                result = region.read(request.work.remote_va + done, self.bounce_address, piece)
                if result == 0:
                    result = request.scatter(done, piece, self.bounce_address)
            else:
                result = request.payload(done, piece, self.bounce_address)
                if result == 0:
                    result = region.write(request.work.remote_va + done, self.bounce_address, piece)
            if result:
                return result
            done += piece
        return 0

    def have_buffer(self) -> None:
        """Make the buffer, if there is none."""
        if self._bounce is None:
            self._bounce = bytearray(BOUNCE_BYTES)
            self.bounce_address = address_of(self._bounce)

    def atomic(self, request: Request, region: Region) -> bool:
        """One atomic operation on the peer's eight bytes; its result into the request's buffer (C9-150 ff.).

        The buffer is tried first, with the bytes that stand in it: once the operation is done it cannot be
        taken back.  Should it not take the result all the same, the request fails, as it does when an answer
        that has come finds no place.
        """
        old: cython.ulonglong
        if request.work.remote_va & 7:
            return False
        self.have_buffer()
        if request.gather(0, 8, self.bounce_address) or request.scatter(0, 8, self.bounce_address):
            return False
        if request.work.opcode == _SWAP_OPCODE:
            old = region.compare_swap(request.work.remote_va, request.work.compare_add, request.work.swap)
        else:
            old = region.fetch_add(request.work.remote_va, request.work.compare_add)
        if region.fault:
            return False
        store64(self.bounce_address, old)
        if request.scatter(0, 8, self.bounce_address):
            request.status = _PROTECTION_ERROR
            return False
        return True


def _face(own: Route | None, peer: Route | None) -> bool:
    """Whether two routes lead to each other's begin."""
    if own is None or peer is None:
        return False
    return own.destination == peer.source and peer.destination == own.source


class Loopback:
    """Gives queue pairs of an adapter that has ``gids`` the executor to peers of the same adapter.
    ``further``: what publishes the others to adapters on this host, None where nothing does."""

    def __init__(self, gids: Container[bytes], further: Sharing | None = None) -> None:
        self.gids = gids
        self.further = further

    def gids_changed(self, gids: Container[bytes]) -> None:
        """The adapter has other ``gids``; `publish` the queue pairs whose routes begin or end at one that has
        come or gone."""
        self.gids = gids

    def _joins(self, route: Route) -> bool:
        """Whether both ends of a route are the adapter's own."""
        return route.destination in self.gids and route.source in self.gids

    def allow(self, allowed: bool) -> None:
        """Registered memory may be touched, or not; executors here ask themselves."""
        if self.further is not None:
            self.further.allow(allowed)

    def publish(self, connection: Connection) -> None:
        """A queue pair has changed: give it its executor where its peer may be a queue pair here."""
        if connection.service != RC:
            return
        queue_pair = cast("Any", connection)
        route = queue_pair.flow.route
        if queue_pair.state != RESET and route is not None and self._joins(route):
            if not isinstance(queue_pair.executor, LoopbackExecutor):
                queue_pair.executor = LoopbackExecutor(queue_pair)
                if self.further is not None:
                    self.further.directory.withdraw_queue_pair(queue_pair.number)
            return
        if self.further is None or isinstance(queue_pair.executor, LoopbackExecutor):
            queue_pair.executor = None
        if self.further is not None:
            self.further.publish(connection)
