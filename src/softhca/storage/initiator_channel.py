"""A host's end of one channel to a controller: queue pair, memory, and operations that are under way on it.

The channel is made with all that it takes (domain, completion queue, queue pair, memory, connection), on one
adapter and port, and ends for good when anything of it fails: ``failed`` says why.  What was not finished
then is the caller's to repeat elsewhere.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from softhca.driver import services
from softhca.driver.connections import (
    CM_REJECTED,
    CM_REPLIED,
    CmChannel,
    CmEvent,
    CmPath,
    CmQueuePair,
)
from softhca.driver.device import Completion, CqHandle, DeviceDriver, QpHandle
from softhca.driver.errors import DriverError
from softhca.management import ip_service
from softhca.queues.control_fields import QPT_RC
from softhca.storage import initiator, scsi, srp
from softhca.storage.descriptors import MOST_RANGES, RANGE_BYTES, TABLE_HEAD_BYTES, Range
from softhca.storage.discovery import UnitAddress
from softhca.storage.errors import MessageError
from softhca.storage.initiator import FROM_TARGET, NOTHING, TO_TARGET, Finished, InitiatorSession
from softhca.storage.registered import LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, RegisteredMemory

SEND_OPCODE, SIGNALED = 2, 2
SUCCESS, RECEIVED = 0, 1 << 7
READS_AT_ONCE = 16
SOURCE_PORT = 0xC000
"""The host's port number in what RDMA CM tells a unit; nobody connects to it."""
SPARE_MESSAGES = 4
"""Receives, and sends, beside one for each command: credit requests, their answers."""


@dataclass(frozen=True)
class HostConfig:
    """What a host's end has; ValueError for what cannot be.

    ``depth`` commands at once, whose data are in ``segments`` of ``segment_bytes``; ``message_bytes``: the
    longest command, which decides how long a table it can have.  ``ack_timeout`` and ``retry_cnt`` decide
    how soon a path is given up; ``connect_exponent`` and ``connect_retries``, how long a unit may take to
    answer the communication manager; ``command_timeout_s``, how long it may take to finish a command.
    """

    depth: int = 16
    segments: int = 32
    segment_bytes: int = 64 << 10
    message_bytes: int = 324
    ack_timeout: int = 14
    retry_cnt: int = 5
    connect_exponent: int = 16
    connect_retries: int = 4
    command_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        for name, least, most in (
            ("depth", 1, 1024),
            ("segments", 1, 1 << 16),
            ("segment_bytes", 4096, 1 << 30),
            ("message_bytes", srp.Command.LENGTH_BYTES + TABLE_HEAD_BYTES, initiator.MOST_MESSAGE_BYTES),
            ("ack_timeout", 1, 31),
            ("retry_cnt", 0, 7),
            ("connect_exponent", 1, 24),
            ("connect_retries", 0, 15),
        ):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} {getattr(self, name)}: expected {least}…{most}")
        if self.command_timeout_s <= 0:
            raise ValueError("command_timeout_s is more than 0")

    @property
    def most_bytes(self) -> int:
        """The most data of one command."""
        return min(self.segments, MOST_RANGES) * self.segment_bytes


@dataclass(eq=False)
class Operation:
    """One SCSI command: ``data`` go to the disk, or ``length`` bytes come from it into ``data``.

    ``finished`` is what the target said; ``attempts`` counts how often it was sent.
    """

    cdb: bytes
    length: int = 0
    writes: bool = False
    data: bytes = b""
    attempts: int = 0
    finished: Finished | None = None
    done: bool = False
    error: OSError | None = None
    segments: list[int] = field(default_factory=list)
    table: int = -1


class ChannelFailed(Exception):
    """The channel cannot be made, or has ended; why."""


class InitiatorChannel:
    """A channel to the target port ``target`` of the unit at ``unit``, from ``port`` of ``device``.

    ``ready``: the unit has granted it, which `turn` finds out.  ChannelFailed: it cannot be asked for.
    """

    def __init__(
        self,
        device: DeviceDriver,
        port: int,
        unit: UnitAddress,
        target: tuple[bytes, int],
        own_port: bytes,
        lun: int,
        config: HostConfig,
        psn: int,
    ) -> None:
        self.device = device
        self.port = port
        self.failed = ""
        self.ready = False
        self.under_way: dict[int, Operation] = {}
        self._lun = srp.lun_of(lun)
        self._config = config
        self._sends = 0
        self._replies: deque[bytes] = deque()
        self._undo: list[Callable[[], object]] = []
        try:
            self._make()
            self._ask(unit, target, own_port, psn)
        except DriverError as error:
            self.close()
            raise ChannelFailed(str(error)) from None

    def _make(self) -> None:
        """Allocate what the channel takes."""
        device, config = self.device, self._config
        pd = device.alloc_pd()
        self._undo.append(lambda: device.dealloc_pd(pd))
        self._receives = config.depth + SPARE_MESSAGES
        self._room = config.depth + SPARE_MESSAGES
        self._cq: CqHandle = device.create_cq(self._receives + self._room)
        self._undo.append(self._cq.destroy)
        self._table_bytes = min(config.segments, MOST_RANGES) * RANGE_BYTES
        self._tables_at = config.segments * config.segment_bytes
        remote = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ
        self._memory = RegisteredMemory(
            device, pd, self._tables_at + config.depth * self._table_bytes, remote
        )
        self._undo.append(self._memory.close)
        self._messages = RegisteredMemory(
            device, pd, self._receives * initiator.MOST_MESSAGE_BYTES, LOCAL_WRITE
        )
        self._undo.append(self._messages.close)
        self._free = list(range(config.segments))
        self._free_tables = list(range(config.depth))
        self.qp: QpHandle = device.create_qp(
            pd, QPT_RC, self._cq, self._cq, None, self._room, self._receives, 1, 1,
            max(config.message_bytes, srp.LoginRequest.LENGTH_BYTES), True,
        )  # fmt: skip
        self._undo.append(self.qp.destroy)

    def _ask(self, unit: UnitAddress, target: tuple[bytes, int], own_port: bytes, psn: int) -> None:
        """Ask for the connection, with a login."""
        device, config = self.device, self._config
        self._cm: CmChannel = device.open_connections(self.port, 16)
        self._undo.append(self._cm.close)
        self._path = CmPath(
            unit.gid,
            unit.lid,
            path_mtu=device.query_port(self.port)["active_mtu"],
            ack_timeout=config.ack_timeout,
            cm_response_timeout=config.connect_exponent,
            max_cm_retries=config.connect_retries,
        )
        self._end = CmQueuePair(
            self.qp.number, psn, responder_resources=READS_AT_ONCE, initiator_depth=0,
            retry_cnt=config.retry_cnt,
        )  # fmt: skip
        port_id, service_id = target
        login = initiator.login(own_port, port_id, config.message_bytes)
        private_data = login.encode()
        if unit.port:
            service_id = ip_service.service_id(ip_service.TCP, unit.port)
            own_gid = device.query_gid(self.port, 0)
            header = ip_service.IpHeader.between(own_gid, SOURCE_PORT, unit.gid)
            private_data = header.encode() + srp.ShortLoginRequest.of(login).encode()
        self._connection = self._cm.connect(service_id, self._path, self._end, private_data)

    @property
    def connecting_s(self) -> float:
        """So long, and a good deal more, the communication manager tries to connect."""
        config = self._config
        return 4.096e-6 * (1 << config.connect_exponent) * 2 * (config.connect_retries + 2) + 5

    def _on_cm_event(self, event: CmEvent) -> None:
        """Something has become of the connection."""
        if self.ready:
            self.fail(f"the target has ended the connection (event {event.kind})")
        elif event.kind == CM_REPLIED:
            self._accepted(event)
        elif event.kind == CM_REJECTED:
            why = initiator.refusal(event.private_data) or f"reason {event.status}"
            self.fail(f"the login is rejected: {why}")
        else:
            self.fail("nobody answers")

    def _accepted(self, event: CmEvent) -> None:
        """The unit grants the channel: take the queue pair to RTS.  DriverError, MessageError."""
        self.session = InitiatorSession(initiator.accepted(event.private_data))
        rights = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ
        services.complete(self.device, self._cm, event, self._path, self.qp, self._end, rights)
        for index in range(self._receives):
            self._post_receive(index)
        self._cm.ready(self._connection)
        self.ready = True

    def _post_receive(self, index: int) -> None:
        length = initiator.MOST_MESSAGE_BYTES
        self.qp.post_recv(index, [self._messages.element(index * length, length)])

    # operations

    def start(self, operation: Operation) -> bool:
        """Begin an operation, if there is room for it now."""
        needed = -(-operation.length // self._config.segment_bytes)
        busy = len(self.under_way) >= self._config.depth or self._sends >= self._room - 1
        if self.failed or busy or not self.ready:
            return False
        if not self.session.may_send or needed > len(self._free):
            return False
        operation.segments = [self._free.pop() for _ in range(needed)]
        operation.table = self._free_tables.pop()
        operation.attempts += 1
        ranges = self._place(operation)
        direction = NOTHING
        if ranges:
            direction = TO_TARGET if operation.writes else FROM_TARGET
        tag, message = self.session.command(
            self._lun, operation.cdb, direction, ranges, self._write_table(operation, ranges)
        )
        self.under_way[tag] = operation
        self._send(message)
        return True

    def _place(self, operation: Operation) -> list[Range]:
        """The ranges of an operation's data, which are put there if they are to be written."""
        size, ranges = self._config.segment_bytes, []
        for number, segment in enumerate(operation.segments):
            start = number * size
            length = min(size, operation.length - start)
            place = segment * size
            if operation.writes:
                self._memory.view[place : place + length] = operation.data[start : start + length]
            ranges.append(Range(self._memory.va(place), self._memory.rkey, length))
        return ranges

    def _write_table(self, operation: Operation, ranges: list[Range]) -> Range:
        """Put the table of an operation's ranges where the target can read it."""
        place = self._tables_at + operation.table * self._table_bytes
        data = b"".join(each.encode() for each in ranges)
        self._memory.view[place : place + len(data)] = data
        return Range(self._memory.va(place), self._memory.rkey, len(data))

    def _send(self, message: bytes) -> None:
        try:
            self.qp.post_send(SEND_OPCODE, SIGNALED, 0, 0, 0, 0, 0, 0, 0, 0, 0, [], message)
            self.qp.ring()
        except DriverError as error:
            self.fail(str(error))
            return
        self._sends += 1

    # what happens

    @property
    def idle(self) -> bool:
        """Whether nothing has come, and the channel stands."""
        if self.failed or self.device.events.asynchronous_waiting:
            return False
        return not self._cq.waiting() and self._cm.idle

    def wait(self, timeout_s: float) -> bool:
        """Wait until something has come, or somebody wakes the device's waiters; False: nothing within
        ``timeout_s``.  DriverError EIO: the adapter is gone.
        """
        self._cq.arm()
        self.device.wait_for(lambda: not self.idle, timeout_s)
        return not self.idle

    def turn(self) -> list[Operation]:
        """Take what has come; the operations that have finished."""
        ended: list[Operation] = []
        try:
            for completion in self._cq.poll(self._receives + self._room):
                self._completed(completion, ended)
            while self._replies and self._sends < self._room and not self.failed:
                self._send(self._replies.popleft())
            while not self.failed and not self._cm.idle and (event := self._cm.receive(0)) is not None:
                self._on_cm_event(event)
        except (DriverError, MessageError) as error:
            self.fail(str(error))
        return ended

    def _completed(self, completion: Completion, ended: list[Operation]) -> None:
        if completion.status != SUCCESS:
            self.fail(f"a completion has status {completion.status}")
            return
        if not completion.opcode & RECEIVED:
            self._sends -= 1
            return
        index, longest = completion.wr_id, initiator.MOST_MESSAGE_BYTES
        start = index * longest
        message = bytes(self._messages.view[start : start + min(completion.byte_len, longest)])
        self._post_receive(index)
        finished, answer = self.session.receive(message)
        if answer:
            if len(self._replies) >= SPARE_MESSAGES:
                raise MessageError("the target asks more than it lets be answered")
            self._replies.append(answer)
        if finished is not None:
            ended.append(self._finish(finished))

    def _finish(self, finished: Finished) -> Operation:
        """A command has ended: take its data out, and free its place."""
        operation = self.under_way.pop(finished.tag)
        operation.finished = finished
        if not operation.writes and operation.length:
            length = max(operation.length - finished.residual, 0) if finished.status == scsi.GOOD else 0
            operation.data = self._gather(operation.segments)[:length]
        self._free += operation.segments
        self._free_tables.append(operation.table)
        operation.segments, operation.table = [], -1
        return operation

    def _gather(self, segments: list[int]) -> bytes:
        size = self._config.segment_bytes
        return b"".join(self._memory.view[each * size : (each + 1) * size] for each in segments)

    def fail(self, why: str) -> None:
        """The channel is over."""
        self.failed = self.failed or why

    def close(self) -> None:
        """Give everything back; the target is told that the connection is over.  From then on it reaches no
        memory of this host.
        """
        self.fail("the channel is closed")
        if self.device.alive:
            for undo in reversed(self._undo):
                with contextlib.suppress(DriverError):
                    undo()
        self._undo.clear()
