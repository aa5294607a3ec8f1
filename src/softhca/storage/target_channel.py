"""A target's end of one channel: the queue pair, buffers and messages of a `TargetSession`."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable

from softhca.driver.connections import CmQueuePair
from softhca.driver.device import Completion, CqHandle, DeviceDriver
from softhca.driver.errors import DriverError
from softhca.queues.control_fields import QPT_RC
from softhca.storage.registered import LOCAL_WRITE, RegisteredMemory
from softhca.storage.session import READ, SEND, WRITE, TargetSession, Work

WRITE_OPCODE, SEND_OPCODE, READ_OPCODE = 0, 2, 4
SIGNALED = 2
SEND_DEPTH = 64
LONGEST_SENT_BYTES = 64
"""Of what a target says: a response with sense data."""
SUCCESS = 0
RECEIVED = 1 << 7
READS_AT_ONCE = 16
_ATTEMPTS = {READ: READ_OPCODE, WRITE: WRITE_OPCODE, SEND: SEND_OPCODE}


class TargetChannel:
    """``qp`` is in RESET until the caller connects it, and then calls `begin`.  ``failed``: it is to be let
    go; DriverError ENOMEM where there is no room for it.
    """

    def __init__(
        self,
        device: DeviceDriver,
        pd: int,
        cq: CqHandle,
        limit: int,
        most_bytes: int,
        message_bytes: int,
        psn: int,
        session: Callable[[Callable[[int], memoryview]], TargetSession],
    ) -> None:
        self.failed = False
        self._device = device
        self._most_bytes = most_bytes
        self._message_bytes = message_bytes
        self._psn = psn
        self._receives = limit + 2
        self._first_message = limit * most_bytes
        self._posted: deque[Work] = deque()
        self._held: deque[tuple[int, int]] = deque()
        self._memory = RegisteredMemory(
            device, pd, self._first_message + self._receives * message_bytes, LOCAL_WRITE
        )
        try:
            self.qp = device.create_qp(
                pd, QPT_RC, cq, cq, None, SEND_DEPTH, self._receives, 1, 1, LONGEST_SENT_BYTES, True
            )
        except DriverError:
            self._memory.close()
            raise
        self.session = session(self._buffer)

    @property
    def end(self) -> CmQueuePair:
        """This end, as the communication manager tells it: it reads from its peer, and is read by nobody."""
        return CmQueuePair(self.qp.number, self._psn, responder_resources=0, initiator_depth=READS_AT_ONCE)

    def _buffer(self, slot: int) -> memoryview:
        return self._memory.view[slot * self._most_bytes : (slot + 1) * self._most_bytes]

    def begin(self) -> None:
        """The queue pair is in RTR or RTS: let messages come."""
        for index in range(self._receives):
            self._post_receive(index)

    def _post_receive(self, index: int) -> None:
        place = self._first_message + index * self._message_bytes
        self.qp.post_recv(index, [self._memory.element(place, self._message_bytes)])

    # completions

    def completed(self, completion: Completion) -> None:
        """One of the queue pair's has been polled."""
        if completion.status != SUCCESS:
            self.failed = True
        elif completion.opcode & RECEIVED:
            self._held.append((completion.wr_id, completion.byte_len))
        elif self._posted:
            self.session.done(self._posted.popleft())

    def turn(self) -> None:
        """Take messages, and post what follows."""
        try:
            while not self.failed:
                self._take()
                if not self._post():
                    break
        except DriverError:
            self.failed = True
        if self.session.ending and not self._posted and not self.session.has_work:
            self.failed = True

    def _take(self) -> None:
        while self._held and self.session.has_room:
            index, length = self._held.popleft()
            place = self._first_message + index * self._message_bytes
            message = bytes(self._memory.view[place : place + length])
            self._post_receive(index)
            self.session.receive(message)

    def _post(self) -> bool:
        """Post work while there is room; whether any was."""
        worked = False
        while len(self._posted) < SEND_DEPTH and (work := self.session.work()) is not None:
            self._post_one(work)
            self._posted.append(work)
            worked = True
        if worked:
            self.qp.ring()
        return worked

    def _post_one(self, work: Work) -> None:
        inline = work.message if work.kind == SEND else None
        sges = []
        if inline is None and work.range.length:
            sges = [self._memory.element(work.slot * self._most_bytes + work.offset, work.range.length)]
        self.qp.post_send(
            _ATTEMPTS[work.kind], SIGNALED, 0, 0, work.range.va, work.range.rkey, 0, 0, 0, 0, 0, sges, inline
        )  # fmt: skip

    def probe(self) -> None:
        """Find out whether the peer is still there, by a write of nothing."""
        if not self._posted and not self.failed:
            work = Work(WRITE)
            try:
                self._post_one(work)
                self._posted.append(work)
                self.qp.ring()
            except DriverError:
                self.failed = True

    def close(self) -> None:
        """Destroy the queue pair; then no task has an effect any more, here or on the host."""
        if self._device.alive:
            with contextlib.suppress(DriverError):
                self.qp.destroy()
        self.session.end()
        self._memory.close()
