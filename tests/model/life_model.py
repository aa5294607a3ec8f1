"""What must come of a call, written down from the standard and without softhca's tables.

Keys are judged by their value on the side that gave them: live, of which domain, with which rights and
range.  A key that is not in `Keys` is wrong, whether it died or was guessed.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from softhca.machine.primitives import address_of
from softhca.verbs import enums as e

KEEPER_BYTES = 20_000
GUARD_BYTES = 64
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC = 1, 2, 4, 8
RESET, INIT, RTR, RTS, SQD, SQE, ERR = range(7)
RC, UC, UD = int(e.IBV_QPT_RC), int(e.IBV_QPT_UC), int(e.IBV_QPT_UD)
SEND, WRITE, WRITE_IMM, READ, SWAP, ADD = (
    int(each)
    for each in (
        e.IBV_WR_SEND,
        e.IBV_WR_RDMA_WRITE,
        e.IBV_WR_RDMA_WRITE_WITH_IMM,
        e.IBV_WR_RDMA_READ,
        e.IBV_WR_ATOMIC_CMP_AND_SWP,
        e.IBV_WR_ATOMIC_FETCH_AND_ADD,
    )
)
OPERATIONS = (SEND, WRITE, WRITE_IMM, READ, SWAP, ADD)
RIGHT = {WRITE: REMOTE_WRITE, WRITE_IMM: REMOTE_WRITE, READ: REMOTE_READ, SWAP: 8, ADD: 8}

OK, FLUSHED = int(e.IBV_WC_SUCCESS), int(e.IBV_WC_WR_FLUSH_ERR)
LOCAL_LENGTH, LOCAL_OPERATION = int(e.IBV_WC_LOC_LEN_ERR), int(e.IBV_WC_LOC_QP_OP_ERR)
LOCAL_PROTECTION = int(e.IBV_WC_LOC_PROT_ERR)
REMOTE_REQUEST, REMOTE_ACCESS = int(e.IBV_WC_REM_INV_REQ_ERR), int(e.IBV_WC_REM_ACCESS_ERR)
REMOTE_OPERATION, NOT_READY = int(e.IBV_WC_REM_OP_ERR), int(e.IBV_WC_RNR_RETRY_EXC_ERR)


def _bits(words: str) -> int:
    return sum(int(getattr(e, "IBV_QP_" + word)) for word in words.split())


_CONNECTED = _bits("PKEY_INDEX PORT ACCESS_FLAGS")
_DATAGRAM = _bits("PKEY_INDEX PORT QKEY")
_PATH = _bits("AV PATH_MTU DEST_QPN RQ_PSN")
_RUNNING = _bits("CUR_STATE ACCESS_FLAGS")
_NOTIFY = _bits("EN_SQD_ASYNC_NOTIFY")
_RC_RUNNING = _RUNNING | _bits("MIN_RNR_TIMER")
_RC_SQD = _bits(
    "PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC ACCESS_FLAGS PKEY_INDEX "
    "MIN_RNR_TIMER"
)

# (type, from, to) → attributes that must be there, that may be (ibv_modify_qp(3), IBTA 11.2.5.2)
TRANSITIONS: dict[tuple[int, int, int], tuple[int, int]] = {
    (RC, RESET, INIT): (_CONNECTED, 0),
    (UC, RESET, INIT): (_CONNECTED, 0),
    (UD, RESET, INIT): (_DATAGRAM, 0),
    (RC, INIT, INIT): (0, _CONNECTED),
    (UC, INIT, INIT): (0, _CONNECTED),
    (UD, INIT, INIT): (0, _DATAGRAM),
    (RC, INIT, RTR): (_PATH | _bits("MAX_DEST_RD_ATOMIC MIN_RNR_TIMER"), _bits("ACCESS_FLAGS PKEY_INDEX")),
    (UC, INIT, RTR): (_PATH, _bits("ACCESS_FLAGS PKEY_INDEX")),
    (UD, INIT, RTR): (0, _bits("PKEY_INDEX QKEY")),
    (RC, RTR, RTS): (_bits("SQ_PSN TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC"), _RC_RUNNING),
    (UC, RTR, RTS): (_bits("SQ_PSN"), _RUNNING),
    (UD, RTR, RTS): (_bits("SQ_PSN"), _bits("CUR_STATE QKEY")),
    (RC, RTS, RTS): (0, _RC_RUNNING),
    (UC, RTS, RTS): (0, _RUNNING),
    (UD, RTS, RTS): (0, _bits("CUR_STATE QKEY")),
    (RC, RTS, SQD): (0, _NOTIFY),
    (UC, RTS, SQD): (0, _NOTIFY),
    (UD, RTS, SQD): (0, _NOTIFY),
    (RC, SQD, SQD): (0, _RC_SQD),
    (UC, SQD, SQD): (0, _bits("AV ACCESS_FLAGS PKEY_INDEX")),
    (UD, SQD, SQD): (0, _bits("PKEY_INDEX QKEY")),
    (RC, SQD, RTS): (0, _RC_RUNNING),
    (UC, SQD, RTS): (0, _RUNNING),
    (UD, SQD, RTS): (0, _bits("CUR_STATE QKEY")),
}

ATTRIBUTES: dict[int, str] = {
    _bits("CUR_STATE"): "cur_qp_state",
    _bits("EN_SQD_ASYNC_NOTIFY"): "en_sqd_async_notify",
    _bits("ACCESS_FLAGS"): "qp_access_flags",
    _bits("PKEY_INDEX"): "pkey_index",
    _bits("PORT"): "port_num",
    _bits("QKEY"): "qkey",
    _bits("AV"): "ah_attr",
    _bits("PATH_MTU"): "path_mtu",
    _bits("TIMEOUT"): "timeout",
    _bits("RETRY_CNT"): "retry_cnt",
    _bits("RNR_RETRY"): "rnr_retry",
    _bits("RQ_PSN"): "rq_psn",
    _bits("MAX_QP_RD_ATOMIC"): "max_rd_atomic",
    _bits("MIN_RNR_TIMER"): "min_rnr_timer",
    _bits("SQ_PSN"): "sq_psn",
    _bits("MAX_DEST_RD_ATOMIC"): "max_dest_rd_atomic",
    _bits("DEST_QPN"): "dest_qp_num",
}
IMPOSSIBLE: dict[str, tuple[int, ...]] = {
    "pkey_index": (1, 1000),
    "port_num": (0, 2),
    "path_mtu": (0, 6),
    "timeout": (32,),
    "retry_cnt": (8,),
    "rnr_retry": (8,),
    "rq_psn": (1 << 24,),
    "sq_psn": (1 << 24,),
    "dest_qp_num": (1 << 24,),
    "min_rnr_timer": (32,),
    "max_rd_atomic": (129,),
    "max_dest_rd_atomic": (129,),
}
"""Values that no port of softhca has, by attribute."""


def allowed(kind: int, current: int, target: int, mask: int) -> bool:
    """Whether a modify with just the attributes of ``mask`` (the state apart) is allowed."""
    if target in (RESET, ERR):
        return mask == 0
    required, optional = TRANSITIONS.get((kind, current, target), (-1, 0))
    return required >= 0 and mask & required == required and not mask & ~(required | optional)


class Named:
    """Something of the model; a report of a failure shows its kind only, for it leads to all the others."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"<{type(self).__name__}>")


@dataclass(eq=False)
class Domain(Named):
    """A protection domain on one side (0 or 1)."""

    side: int
    thing: object


class Region(Named):
    """A region, and what its memory must hold: ``content`` is the whole keeper, guards included."""

    def __init__(self, domain: Domain, access: int, start: int, length: int, seed: int, host: bool) -> None:
        self.domain = domain
        self.access = access
        self.start = 0 if host else start
        self.length = length
        self.host = host
        self.thing: object = None
        self.keeper = bytearray(b"" if host else random.Random(seed).randbytes(KEEPER_BYTES))
        self.content = bytearray(length) if host else bytearray(self.keeper)
        self.va = 0
        self.key = 0

    @property
    def address(self) -> int:
        """Where its first byte is."""
        return self.thing.buf if self.host else address_of(self.keeper) + self.start

    def actual(self) -> bytes:
        """What is there: the keeper with its guards, or the host memory."""
        return self.thing.read(self.length, 0) if self.host else bytes(self.keeper)

    def load(self, va: int, n: int) -> bytes:
        """What ``n`` bytes at ``va`` must be."""
        at = self.start + va - self.va
        return bytes(self.content[at : at + n])

    def store(self, va: int, data: bytes) -> None:
        """``data`` must be at ``va`` from now on."""
        at = self.start + va - self.va
        self.content[at : at + len(data)] = data

    def accept(self, va: int, n: int) -> None:
        """Whatever stands in these bytes now may stand there: the standard leaves them open."""
        at = self.start + va - self.va
        self.content[at : at + n] = self.actual()[at : at + n]


@dataclass(frozen=True)
class Element:
    """``length`` bytes at ``va`` of the region with ``key``, on the side where it is used."""

    va: int
    length: int
    key: int


@dataclass
class Queue:
    """Receives that wait, of a queue pair or shared."""

    capacity: int
    waiting: deque[tuple[int, Element]] = field(default_factory=deque)


@dataclass(eq=False)
class SharedQueue(Named):
    """A shared receive queue."""

    domain: Domain
    thing: object
    max_sge: int
    receives: Queue
    limit: int = 0


@dataclass(eq=False)
class CompletionQueue(Named):
    """A completion queue."""

    side: int
    thing: object


@dataclass(eq=False)
class Pair(Named):
    """A queue pair; ``peer`` is the one at the other end of a whole connection, ``former`` the last one."""

    domain: Domain
    kind: int
    thing: object
    send_cq: CompletionQueue
    recv_cq: CompletionQueue
    shared: SharedQueue | None
    max_send_wr: int
    receives: Queue
    blank: dict[str, object]
    state: int = RESET
    access: int = 0
    reads: int = 0
    answers: int = 0
    peer: Pair | None = None
    former: Pair | None = None
    closed: bool = False

    @property
    def side(self) -> int:
        """The side of its device."""
        return self.domain.side

    def part(self) -> None:
        """The connection is whole no more."""
        if self.peer is not None:
            self.peer.peer = None
            self.peer = None


@dataclass
class Operation:
    """A send work request."""

    opcode: int
    local: Element
    remote: Element
    operands: tuple[int, int] = (0, 0)
    inline: Region | None = None  # its bytes go along; the key of ``local`` is not looked at


@dataclass
class Outcome:
    """What an operation gives: ``status`` at its requester; the receive it took and how that ended; whether
    the responder is in error; the bytes of the receiver that may hold anything."""

    status: int = OK
    received: tuple[int, int] | None = None
    responder_fails: bool = False
    unknown: tuple[Region, int, int] | None = None


class Keys:
    """Live and dead keys of both sides, and what an operation does with them."""

    def __init__(self) -> None:
        self.live: dict[tuple[int, int], Region] = {}
        self.dead: list[tuple[int, int]] = []

    def enter(self, region: Region, key: int) -> None:
        """``region`` has ``key`` now."""
        region.key = key
        self.live[region.domain.side, key] = region

    def kill(self, region: Region) -> None:
        """The key of ``region`` is dead."""
        del self.live[region.domain.side, region.key]
        self.dead.append((region.domain.side, region.key))

    def reach(self, domain: Domain, element: Element, right: int) -> Region | None:
        """The region that gives ``domain`` this right to all these bytes."""
        region = self.live.get((domain.side, element.key))
        if region is None or region.domain is not domain or region.access & right != right:
            return None
        inside = region.va <= element.va and element.va + element.length <= region.va + region.length
        return region if inside else None

    def carry_out(self, pair: Pair, operation: Operation) -> Outcome:
        """One operation of ``pair`` towards its peer, alone in the queue; memory is changed as it must be."""
        peer = pair.peer
        assert peer is not None
        op, local = operation.opcode, operation.local
        source: Region | None = None
        if local.length and operation.inline is None:
            source = self.reach(pair.domain, local, LOCAL_WRITE if op in (READ, SWAP, ADD) else 0)
            if source is None:
                return Outcome(LOCAL_PROTECTION)
        if op in (SWAP, ADD) and local.length < 8:
            return Outcome(LOCAL_LENGTH)
        if op in (READ, SWAP, ADD) and pair.reads == 0:
            return Outcome(LOCAL_OPERATION)
        if op == SEND:
            return self._send(peer, operation, source)
        if not peer.access & RIGHT[op] or (op in (SWAP, ADD) and operation.remote.va & 7):
            return Outcome(REMOTE_REQUEST, responder_fails=True)
        remote = operation.remote
        target = self.reach(peer.domain, remote, RIGHT[op]) if remote.length else None
        if remote.length and target is None:
            return Outcome(REMOTE_ACCESS, responder_fails=True)
        if op in (READ, SWAP, ADD) and peer.answers == 0:
            return Outcome(REMOTE_REQUEST, responder_fails=True)
        if op == READ:
            if source is not None and target is not None:
                source.store(local.va, target.load(remote.va, remote.length))
            return Outcome()
        if op in (SWAP, ADD):
            return self._atomic(operation, source, target)
        return self._write(peer, operation, source, target)

    def data(self, operation: Operation, source: Region | None) -> bytes:
        """The bytes that travel."""
        if operation.inline is not None:
            return operation.inline.load(operation.local.va, operation.local.length)
        return source.load(operation.local.va, operation.local.length) if source is not None else b""

    def _write(
        self, peer: Pair, operation: Operation, source: Region | None, target: Region | None
    ) -> Outcome:
        outcome = Outcome()
        if operation.opcode == WRITE_IMM:
            waiting = (peer.shared or peer).receives.waiting
            if not waiting:
                outcome.status = NOT_READY
                if target is not None:
                    outcome.unknown = (target, operation.remote.va, operation.remote.length)
                return outcome
            outcome.received = (waiting.popleft()[0], OK)
        if target is not None:
            target.store(operation.remote.va, self.data(operation, source))
        return outcome

    def _atomic(self, operation: Operation, source: Region | None, target: Region | None) -> Outcome:
        assert source is not None
        assert target is not None
        old = int.from_bytes(target.load(operation.remote.va, 8), "little")
        compare_add, swap = operation.operands
        new = (old + compare_add) % (1 << 64)
        if operation.opcode == SWAP:
            new = swap if old == compare_add else old
        target.store(operation.remote.va, new.to_bytes(8, "little"))
        source.store(operation.local.va, old.to_bytes(8, "little"))
        return Outcome()

    def _send(self, peer: Pair, operation: Operation, source: Region | None) -> Outcome:
        waiting = (peer.shared or peer).receives.waiting
        if not waiting:
            return Outcome(NOT_READY)
        wr_id, element = waiting.popleft()
        domain = (peer.shared or peer).domain
        place: Region | None = None
        if element.length:
            place = self.reach(domain, element, LOCAL_WRITE)
            if place is None:
                return Outcome(REMOTE_OPERATION, (wr_id, LOCAL_PROTECTION), True)
        data = self.data(operation, source)
        if len(data) > element.length:
            unknown = (place, element.va, element.length) if place is not None else None
            return Outcome(REMOTE_REQUEST, (wr_id, LOCAL_LENGTH), True, unknown)
        if place is not None:
            place.store(element.va, data)
        return Outcome(received=(wr_id, OK))
