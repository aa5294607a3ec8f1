"""A target's side of one SRP channel, without queue pair, thread or clock.

*Inputs*: `TargetSession.receive` (a message of the initiator), `TargetSession.done` (a piece of work has
ended), `TargetSession.end` (the channel is no more).  *Output*: `TargetSession.work`, in the order in which
it must be posted to the queue pair; each piece ends in that order too.  Nothing that an initiator sends
raises: a command that cannot be is answered with a status, a message that cannot be ends the channel
(``ending``).

Bounded: an initiator that has more requests under way than it was allowed ends its channel, and a response
counts as under way no longer once it is on its way.  So it may be that tasks whose responses the host has
acknowledged not yet stand beside as many new ones: ``has_room`` says when another message may be given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from softhca.storage import descriptors, scsi, srp
from softhca.storage import task_states as states
from softhca.storage.descriptors import Buffer, Range
from softhca.storage.errors import MessageError
from softhca.storage.logical_unit import NOTHING, TO_DISK, TO_HOST, Plan
from softhca.storage.scsi import CheckCondition, Sense
from softhca.wire.errors import WireError

READ, WRITE, SEND = "read", "write", "send"
"""Kinds of work: RDMA READ into a buffer, RDMA WRITE out of it, SEND of a message."""

NOWHERE = Range(0, 0, 0)

NO_ATTENTION = frozenset({scsi.INQUIRY, scsi.REPORT_LUNS, scsi.REQUEST_SENSE})
"""Commands that are performed while a unit attention waits (SAM)."""


class Units(Protocol):
    """The logical units that sessions share, and the other sessions."""

    def plan(self, lun: bytes, cdb: bytes) -> Plan:
        """The plan of a command; CheckCondition."""

    def has(self, lun: bytes) -> bool:
        """Whether there is such a unit."""

    def reset(self, session: TargetSession, lun: bytes, management: Management) -> None:
        """Abort all tasks of a unit in all sessions, each of which `Management.waits_for`."""


@dataclass(slots=True)
class Work:
    """Something for the queue pair: a range of the host's memory, or a ``message``, and the place in the
    buffer ``slot``.
    """

    kind: str
    task: Task | None = None
    slot: int = -1
    offset: int = 0
    range: Range = NOWHERE
    message: bytes = b""


@dataclass(eq=False, slots=True)
class Task:
    """One command under way, of the logical ``unit``; ``slot`` is its buffer's number, once it has one;
    ``pending`` counts its work.
    """

    command: srp.Command
    unit: int | None
    slot: int = -1
    plan: Plan | None = None
    sense: Sense | None = None
    out: Buffer = descriptors.EMPTY
    into: Buffer = descriptors.EMPTY
    state: str = states.DORMANT
    pending: int = 0
    answered: bool = False
    watchers: list[Management] = field(default_factory=list)

    @property
    def moves(self) -> bool:
        """Whether data go one way or the other."""
        return self.sense is None and self.plan is not None and self.plan.length > 0

    @property
    def buffer(self) -> Buffer:
        """The one that the command's data come from, or go to."""
        return self.out if self.plan is not None and self.plan.direction == TO_DISK else self.into


class Management:
    """A task management function that is answered when all that it aborts is gone."""

    def __init__(self, session: TargetSession, tag: int) -> None:
        self.session = session
        self.tag = tag
        self.remaining = 1

    def waits_for(self, task: Task) -> None:
        """One more."""
        self.remaining += 1
        task.watchers.append(self)

    def one_less(self) -> None:
        """A task is gone, or all have been found."""
        self.remaining -= 1
        if not self.remaining:
            self.session.managed(self.tag, srp.TASK_DONE)


class TargetSession:
    """One channel of the port ``initiator``; ``limit`` requests at a time, whose buffers of ``most_bytes``
    ``buffer(slot)`` gives.

    ``ending``: the channel is to be closed, once all `work` has ended.
    """

    def __init__(
        self,
        units: Units,
        initiator: bytes,
        limit: int,
        most_bytes: int,
        buffer: Callable[[int], memoryview],
    ) -> None:
        self.initiator = initiator
        self.limit = limit
        self.ending = False
        self.attentions: dict[int | None, Sense] = {}
        self.tasks: dict[Task, None] = {}
        self.commands = 0
        self._units = units
        self._most_bytes = most_bytes
        self._buffer = buffer
        self._free = list(range(limit))
        self._unanswered: dict[int, Task] = {}
        self._managing: set[int] = set()
        self._owed = 0
        self._output: deque[Work] = deque()

    # messages

    def receive(self, message: bytes) -> None:
        """A message has come."""
        if self.ending:
            return
        kind = message[0] if message else -1
        try:
            if kind == srp.CMD:
                self._command(message)
            elif kind == srp.TSK_MGMT:
                self._manage(srp.TaskManagement.decode(message))
            elif kind == srp.I_LOGOUT:
                self._stop()
            elif kind in (srp.CRED_RSP, srp.AER_RSP):
                self._log_out(srp.LOGOUT_SPURIOUS_RESPONSE)
            else:
                self._log_out(srp.LOGOUT_INVALID_TYPE)
        except WireError:  # cut short
            self._log_out(srp.LOGOUT_INVALID_TYPE)

    @property
    def has_room(self) -> bool:
        """Whether a message may be given to `receive` now; else after work has ended."""
        return len(self.tasks) < 2 * self.limit

    def _admits(self, tag: int) -> bool:
        """Whether a request may begin: no more than allowed, with a tag of its own."""
        under_way = len(self._unanswered) + len(self._managing)
        if under_way >= self.limit or tag in self._unanswered or tag in self._managing:
            self._log_out(srp.LOGOUT_NO_REASON)
            return False
        return True

    def _command(self, message: bytes) -> None:
        command = srp.Command.decode(message)
        if not self._admits(command.tag):
            return
        task = Task(command, srp.number_of(command.lun))
        self.tasks[task] = None
        self._unanswered[command.tag] = task
        self.commands += 1
        try:
            task.out, task.into = _buffers(command, memoryview(message))
        except MessageError:
            self._step(task, states.REFUSE)
            return
        if command.task_attribute not in (srp.SIMPLE, srp.HEAD_OF_QUEUE, srp.ORDERED):
            task.sense = scsi.INVALID_INFORMATION_UNIT
        else:
            task.sense = self._attention(task)
        if task.sense is None:
            self._plan(task)
        self._enable()

    def _attention(self, task: Task) -> Sense | None:
        """A unit attention that waits for the initiator."""
        if task.command.cdb[0] in NO_ATTENTION:
            return None
        return self.attentions.pop(task.unit, None)

    def _plan(self, task: Task) -> None:
        try:
            task.plan = self._units.plan(task.command.lun, task.command.cdb)
        except CheckCondition as refused:
            task.sense = refused.sense
            return
        if task.plan.length > min(task.buffer.length, self._most_bytes):
            task.sense = scsi.INVALID_INFORMATION_UNIT  # no room for it: `_residuals` says how much

    # tasks

    def _enable(self) -> None:
        """Begin what may begin, in the order in which it has come."""
        for task in list(self.tasks):
            if task.state != states.DORMANT or self._waits(task):
                continue
            if task.moves and task.slot < 0:
                if not self._free:
                    return
                task.slot = self._free.pop()
            self._proceed(task)

    def _waits(self, task: Task) -> bool:
        """Whether a task must wait for one that came before it (SAM, 8.9)."""
        attribute = task.command.task_attribute
        if attribute == srp.HEAD_OF_QUEUE:
            return False
        for other in self.tasks:
            if other is task:
                return False
            is_ordered = srp.ORDERED in (attribute, other.command.task_attribute)
            if is_ordered and other.unit == task.unit and other.state not in states.PERFORMED:
                return True
        return False

    def _proceed(self, task: Task) -> None:
        """Do what a task needs next."""
        given = states.READY
        if task.moves:
            assert task.plan is not None
            if task.buffer.table is not None:
                given = states.NEEDS_TABLE
            elif task.plan.direction == TO_DISK and task.state != states.FETCHING:
                given = states.NEEDS_DATA
        self._step(task, given)

    def _step(self, task: Task, given: str) -> None:
        """Change a task's state, and do what the table says."""
        task.state, action = states.step(task.state, given)
        if action == states.READ_TABLE:
            assert task.buffer.table is not None
            self._put(Work(READ, task, task.slot, 0, task.buffer.table))
        elif action == states.READ_DATA:
            assert task.plan is not None
            for piece, offset in descriptors.pieces(task.buffer.ranges, task.plan.length):
                self._put(Work(READ, task, task.slot, offset, piece))
        elif action == states.PERFORM:
            self._perform(task)
        elif action == states.ANSWER_INVALID:
            self._respond(task, response_code=srp.FIELDS_INVALID)
        elif action == states.ANSWER_ABORTED:
            self._respond(task, status=scsi.TASK_ABORTED)
        elif action == states.DROP:
            self._drop_work(task)
        if task.state == states.GONE:
            self._remove(task)

    def _perform(self, task: Task) -> None:
        plan, moved = task.plan, 0
        if task.sense is None and plan is not None:
            view = self._buffer(task.slot)[: plan.length] if plan.length else memoryview(b"")
            try:
                moved = plan.perform(view)
            except CheckCondition as refused:
                task.sense = refused.sense
            else:
                if plan.direction == TO_HOST:
                    for piece, offset in descriptors.pieces(task.buffer.ranges, moved):
                        self._put(Work(WRITE, task, task.slot, offset, piece))
        self._respond(task, moved=moved)

    def _respond(self, task: Task, moved: int = 0, response_code: int = -1, status: int = -1) -> None:
        """Send the response of a task."""
        task.answered = True
        self._unanswered.pop(task.command.tag, None)
        data = b""
        if response_code >= 0:
            data = bytes([0, 0, 0, response_code])
        elif task.sense is not None and status < 0:
            data = task.sense.encode()
        if status < 0:
            status = scsi.CHECK_CONDITION if task.sense is not None and response_code < 0 else scsi.GOOD
        response = srp.Response(
            request_limit_delta=self._credit(),
            tag=task.command.tag,
            response_valid=int(response_code >= 0),
            response_bytes=len(data) if response_code >= 0 else 0,
            sense_valid=int(status == scsi.CHECK_CONDITION),
            sense_bytes=len(data) if status == scsi.CHECK_CONDITION else 0,
            status=status,
        )
        response = _residuals(response, task, moved)
        self._put(Work(SEND, task, message=response.encode() + data))

    def _credit(self) -> int:
        """How many requests more the initiator may send: the one that is answered, and those that ended
        without an answer."""
        owed, self._owed = self._owed, 0
        return 1 + owed

    # work

    def _put(self, work: Work) -> None:
        if work.task is not None:
            work.task.pending += 1
        self._output.append(work)

    def work(self) -> Work | None:
        """The next piece of work, if there is any."""
        return self._output.popleft() if self._output else None

    @property
    def has_work(self) -> bool:
        """Whether `work` would give any."""
        return bool(self._output)

    def done(self, work: Work) -> None:
        """A piece of work has ended well; a queue pair that fails is the end of the session."""
        task = work.task
        if task is None:
            return
        task.pending -= 1
        if task.pending or self.ending:
            return
        if task.state == states.TABLE:
            self._table_read(task, work)
        elif task.state == states.FETCHING:
            self._proceed(task)
        else:
            self._step(task, states.MOVED)
        self._enable()

    def _table_read(self, task: Task, work: Work) -> None:
        table = work.range
        try:
            found = descriptors.read_ranges(self._buffer(task.slot)[: table.length])
            ranges = descriptors.checked(found, task.buffer.length)
        except MessageError:
            self._step(task, states.REFUSE)
            return
        complete = Buffer(task.buffer.length, ranges)
        if task.buffer is task.out:
            task.out = complete
        else:
            task.into = complete
        self._proceed(task)

    def _remove(self, task: Task) -> None:
        """A task is gone."""
        del self.tasks[task]
        if task.slot >= 0:
            self._free.append(task.slot)
        if not task.answered:
            self._unanswered.pop(task.command.tag, None)
            self._owed += 1
        watchers, task.watchers = task.watchers, []
        for each in watchers:
            each.one_less()

    # task management

    def _manage(self, request: srp.TaskManagement) -> None:
        if not self._admits(request.tag):
            return
        self._managing.add(request.tag)
        self.commands += 1
        function = request.function
        if function not in (srp.ABORT_TASK, srp.ABORT_TASK_SET, srp.LUN_RESET):
            self.managed(request.tag, srp.FUNCTION_UNSUPPORTED)
            return
        if not self._units.has(request.lun):
            self.managed(request.tag, srp.FIELDS_INVALID)
            return
        management = Management(self, request.tag)
        if function == srp.LUN_RESET:
            self._units.reset(self, request.lun, management)
        else:
            for task in list(self.tasks):
                fits = function == srp.ABORT_TASK_SET or task.command.tag == request.task_tag
                if fits and task.unit == srp.number_of(request.lun):
                    self.abort(task, management)
        management.one_less()
        self._enable()

    def abort(self, task: Task, management: Management, given: str = states.ABORT) -> None:
        """A task does nothing more, unless it was performed already.  With `task_states.CANCEL` it is
        answered, because its own initiator has not asked for this.
        """
        management.waits_for(task)
        self._step(task, given)
        if task.state in (states.ABORTED, states.CANCELLED) and not task.pending:
            self._step(task, states.MOVED)

    def _drop_work(self, task: Task) -> None:
        """What was not posted yet is not."""
        kept = [work for work in self._output if work.task is not task]
        task.pending -= len(self._output) - len(kept)
        self._output = deque(kept)

    def managed(self, tag: int, code: int) -> None:
        """Answer a task management function."""
        self._managing.discard(tag)
        if self.ending:
            return
        response = srp.Response(
            request_limit_delta=self._credit(),
            tag=tag,
            response_valid=1,
            response_bytes=srp.RESPONSE_DATA_BYTES,
        )
        self._put(Work(SEND, message=response.encode() + bytes([0, 0, 0, code])))

    # the end

    def _log_out(self, reason: int) -> None:
        """The initiator has broken the protocol: say so, and end."""
        self._stop()
        self._put(Work(SEND, message=srp.TargetLogout(reason=reason).encode()))

    def _stop(self) -> None:
        """Begin nothing more."""
        self.ending = True
        self._output.clear()

    def end(self) -> None:
        """The queue pair is gone, and with it all that was under way: no task has an effect any more."""
        self.ending = True
        self._output.clear()
        for task in list(self.tasks):
            task.state = states.GONE
            self._remove(task)


def _buffers(command: srp.Command, message: memoryview) -> tuple[Buffer, Buffer]:
    """The buffers that a command's message describes: to the disk, and to the host.  MessageError."""
    rest = message[srp.Command.LENGTH_BYTES + 4 * command.additional_cdb_words :]
    if command.additional_cdb_words * 4 + srp.Command.LENGTH_BYTES > len(message):
        raise MessageError("the additional CDB is cut short")
    out, used = descriptors.decode(command.out_format, command.out_count, rest)
    into, _ = descriptors.decode(command.in_format, command.in_count, rest[used:])
    return out, into


def _residuals(response: srp.Response, task: Task, moved: int) -> srp.Response:
    """Say how much less than its buffers a command has moved, or how much more it would have."""
    direction, wanted = (task.plan.direction, task.plan.length) if task.plan is not None else (NOTHING, 0)
    values: dict[str, int] = {}
    for name, buffer, way in (("out", task.out, TO_DISK), ("in", task.into, TO_HOST)):
        used = moved if direction == way else 0
        if direction == way and wanted > buffer.length:
            values.update({f"{name}_over": 1, f"{name}_residual": min(wanted - buffer.length, 0xFFFFFFFF)})
        elif buffer.length > used:
            values.update({f"{name}_under": 1, f"{name}_residual": buffer.length - used})
    return replace(response, **values)

