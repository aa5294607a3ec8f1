"""The channel driver: a disk of an I/O controller as a block device of this host.

It wraps reads and writes of blocks into SCSI commands, carries them over a channel, and keeps the channel
standing: when an adapter, a port, the path or the unit's end fails, it logs in along the next route and
repeats what was not acknowledged.  A login ends the initiator's former channel at the target, and is answered
only when nothing of that has an effect any more; so what is repeated comes after whatever the former channel
still did, and each write has its effect once, in its place among the others.
"""

from __future__ import annotations

import errno
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from softhca.driver.adapters import AdapterEvent, HostAdapters
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError
from softhca.machine import deferred_signals
from softhca.machine.condition import Condition
from softhca.queues.control_fields import EVENT_PORT_ERR, QP_ERROR_EVENTS
from softhca.storage import scsi
from softhca.storage.discovery import UnitAddress, find_controllers
from softhca.storage.errors import StorageError, unreachable
from softhca.storage.initiator_channel import ChannelFailed, HostConfig, InitiatorChannel, Operation
from softhca.storage.scsi import Capacity

MOST_ATTEMPTS = 8
"""So often a command is sent that the target does not perform (busy, a unit attention, aborted by others), or
with which channels end."""
ROUNDS = 3
"""So often all routes are tried, one after the other, before the device is given up."""
MOST_WAITING = 4096
IDENTITY_PAGE, LIMITS_PAGE = 0x83, 0xB0
_AGAIN = frozenset({scsi.BUSY, scsi.TASK_SET_FULL, scsi.TASK_ABORTED})


@dataclass(frozen=True)
class Route:
    """A way to a controller: from port ``port`` of the host's adapter ``adapter`` to a unit's port."""

    adapter: str
    port: int
    unit: UnitAddress


class BlockDevice:
    """Logical unit ``lun`` of the controller ``guid`` (0: the first SRP target of the unit) at the end of
    ``routes``, the best first.  Where these go by RDMA CM the GUID must be given, and ``extension``, the
    other half of the target port's identifier.

    ``capacity`` of the disk; ``route`` in use, ``failovers`` so far.  Any thread may call any method; what
    threads write to one block at the same time comes in any order.  StorageError EHOSTUNREACH: no route leads
    there, ENODEV: there is no such controller.
    """

    def __init__(
        self,
        adapters: HostAdapters,
        routes: Sequence[Route],
        guid: int = 0,
        lun: int = 0,
        config: HostConfig | None = None,
        seed: int | None = None,
        extension: int = 0,
    ) -> None:
        if not routes:
            raise ValueError("there is no route")
        if not guid and any(each.unit.port for each in routes):
            raise ValueError("by RDMA CM a controller is named by its GUID")
        self.config = config or HostConfig()
        self.routes = tuple(routes)
        self.failovers = 0
        self.capacity = Capacity(1, 512)
        self._adapters = adapters
        self._guid = guid
        self._extension = extension
        self._lun = lun
        self._dice = random.SystemRandom() if seed is None else random.Random(seed)
        self._port_id = b""
        self._identity = b""
        self._most_bytes = 0
        self._target: tuple[bytes, int] | None = None
        self._at = 0
        self._devices: dict[str, DeviceDriver] = {}
        self._channel: InitiatorChannel | None = None
        self._waiting: deque[Operation] = deque()
        self._changed_lock = threading.RLock()
        self._changed = Condition(self._changed_lock)
        self._driving = False
        self._end: StorageError | None = None
        adapters.subscribe(self._on_adapter_event)
        try:
            with self._changed_lock:
                self._restore("the device is opened")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def route(self) -> Route:
        """The one in use, or tried last."""
        return self.routes[self._at]

    # blocks

    def read(self, lba: int, blocks: int) -> bytes:
        """The ``blocks`` blocks from ``lba`` on.  StorageError EINVAL for a range that is not on the disk;
        EIO: the disk cannot be read; EHOSTUNREACH.
        """
        started = [self._submit(self._reading(*part)) for part in self._parts(lba, blocks)]
        return b"".join(self._result(each) for each in started)

    def write(self, lba: int, data: bytes) -> None:
        """Write whole blocks from ``lba`` on; they are on the disk, and outlive the unit after `flush`.
        Errors as `read`; EROFS, ENOSPC.
        """
        size = self.capacity.block_bytes
        if len(data) % size:
            raise StorageError(errno.EINVAL, f"{len(data)} bytes are no whole blocks of {size}")
        started = []
        for first, count in self._parts(lba, len(data) // size):
            start = (first - lba) * size
            started.append(self._submit(self._writing(first, bytes(data[start : start + count * size]))))
        for each in started:
            self._result(each)

    def flush(self) -> None:
        """Return when all that was written outlives a crash of the unit."""
        self._result(self._submit(Operation(scsi.read_16(0, 0, scsi.SYNCHRONIZE_CACHE_16))))

    def start_read(self, lba: int, blocks: int) -> Callable[[], bytes]:
        """Begin to read, no more than one command can; what waits for the end and gives the data."""
        (part,) = self._single(lba, blocks)
        operation = self._submit(self._reading(*part))
        return lambda: self._result(operation)

    def start_write(self, lba: int, data: bytes) -> Callable[[], bytes]:
        """Begin to write, no more than one command can; what waits for the end."""
        ((first, _),) = self._single(lba, len(data) // self.capacity.block_bytes)
        operation = self._submit(self._writing(first, bytes(data)))
        return lambda: self._result(operation)

    def _single(self, lba: int, blocks: int) -> list[tuple[int, int]]:
        parts = self._parts(lba, blocks)
        if len(parts) != 1:
            raise StorageError(errno.EINVAL, f"one command moves 1…{self._most_bytes} bytes")
        return parts

    def _parts(self, lba: int, blocks: int) -> list[tuple[int, int]]:
        """A range as parts that one command can move each."""
        if lba < 0 or blocks < 0 or lba + blocks > self.capacity.blocks:
            raise StorageError(errno.EINVAL, f"blocks {lba}…{lba + blocks - 1} are not on the disk")
        most = self._most_bytes // self.capacity.block_bytes
        return [(first, min(most, lba + blocks - first)) for first in range(lba, lba + blocks, most)]

    def _reading(self, lba: int, blocks: int) -> Operation:
        cdb = scsi.transfer(lba, blocks, scsi.READ_10, scsi.READ_16)
        return Operation(cdb, blocks * self.capacity.block_bytes)

    def _writing(self, lba: int, data: bytes) -> Operation:
        cdb = scsi.transfer(lba, len(data) // self.capacity.block_bytes, scsi.WRITE_10, scsi.WRITE_16)
        return Operation(cdb, len(data), True, data)

    # operations

    def _submit(self, operation: Operation) -> Operation:
        with self._changed_lock:
            self._check()
            while len(self._waiting) >= MOST_WAITING:
                self._drive(lambda: len(self._waiting) < MOST_WAITING)
                self._check()
            self._waiting.append(operation)
            self._start()
        return operation

    def _check(self) -> None:
        if self._end is not None:
            raise self._end

    def _result(self, operation: Operation) -> bytes:
        """Wait for an operation; its data, or what it ended with."""
        with self._changed_lock:
            self._drive(lambda: operation.done)
        if operation.error is not None:
            raise operation.error
        return operation.data

    def _start(self) -> None:
        """With the lock held: begin what there is room for, in order."""
        channel = self._channel
        while self._waiting and channel is not None and channel.start(self._waiting[0]):
            self._waiting.popleft()

    def _drive(self, ended: Callable[[], bool]) -> None:
        """With the lock held: until ``ended()``, do what is to be done.  One thread does, the others wait."""
        while not ended():
            if self._driving:
                self._changed.wait()
                continue
            self._driving = True
            try:
                if not self._turn() and not ended():
                    self._wait()
            finally:
                with deferred_signals.section():  # the others wait without a limit
                    self._driving = False
                    self._changed.notify_all()

    def _wait(self) -> None:
        """With the lock held, which is given away meanwhile: wait until something has come."""
        channel = self._channel
        if channel is None:
            return
        with deferred_signals.section():  # but for the wait: the lock is held again, whatever comes out
            self._changed_lock.release()
            try:
                with deferred_signals.waiting():
                    came = channel.wait(self.config.command_timeout_s)
                why = "the target is silent"
            except DriverError as error:
                came, why = False, str(error)
            finally:
                self._changed_lock.acquire()
        if not came and self._channel is channel and self._end is None:
            channel.fail(why)

    def _turn(self) -> bool:
        """With the lock held: take what has come; whether anything changed."""
        self._adapters.dispatch()
        channel = self._channel
        if channel is None:
            return False
        ended = channel.turn()
        for operation in ended:
            self._ended(operation)
        if channel.failed:
            self._restore(channel.failed)
            return True
        self._start()
        return bool(ended)

    def _ended(self, operation: Operation) -> None:
        """A command has come back: it is done, or must be sent again."""
        finished = operation.finished
        assert finished is not None
        again = finished.status in _AGAIN or (
            finished.sense is not None and finished.sense.key == scsi.UNIT_ATTENTION
        )
        if again and operation.attempts < MOST_ATTEMPTS:
            self._waiting.appendleft(operation)
            return
        operation.error = _error_of(operation)
        operation.done = True

    # routes

    def _on_adapter_event(self, event: AdapterEvent) -> None:
        """An adapter tells of something: is it the end of the channel?  Of an adapter that has died every
        call says so.
        """
        channel = self._channel
        if channel is None or channel.failed or self._devices.get(event.adapter) is not channel.device:
            return
        if event.kind == EVENT_PORT_ERR and event.element == channel.port:
            channel.fail(f"port {channel.port} of {event.adapter} is down")
        elif event.kind in QP_ERROR_EVENTS and event.element == channel.qp.number:
            channel.fail("the queue pair has failed")
        if channel.failed and channel.device.alive:
            channel.device.wake_waiters()  # this may be another one's thread

    def _restore(self, why: str) -> None:
        """With the lock held: have a channel again, along the next route that leads to the disk, and repeat
        what was not acknowledged.  StorageError where none does: that is the end.
        """
        former, self._channel = self._channel, None
        repeated: list[Operation] = []
        if former is not None:
            former.close()
            repeated = list(former.under_way.values())
            for operation in [each for each in repeated if each.attempts >= MOST_ATTEMPTS]:
                repeated.remove(operation)
                text = f"{MOST_ATTEMPTS} channels have ended with it: {why}"
                operation.error, operation.done = StorageError(errno.EIO, text), True
            self.failovers += 1
        start = self._at + 1 if former is not None else self._at
        for number in range(ROUNDS * len(self.routes)):
            self._at = (start + number) % len(self.routes)
            try:
                channel = self._open(self.route)
            except (DriverError, StorageError, ChannelFailed) as error:
                why = str(error)
                if isinstance(error, StorageError) and error.errno in (errno.ENODEV, errno.ESTALE):
                    break
                continue
            self._channel = channel
            self._waiting.extendleft(reversed(repeated))
            self._start()
            return
        end = unreachable(f"no route leads to the disk: {why}")
        self._finish(end, repeated)
        if former is None:
            raise end

    def _finish(self, error: StorageError, further: Sequence[Operation] = ()) -> None:
        """With the lock held: it is over, and all that waits with it."""
        with deferred_signals.section():  # the others wait without a limit
            self._end = error
            for operation in [*further, *self._waiting]:
                operation.error, operation.done = error, True
            self._waiting.clear()
            self._changed.notify_all()

    def _device(self, name: str) -> DeviceDriver:
        """The open adapter; one that has died is given back first."""
        found = self._devices.get(name)
        if found is not None and not found.alive:
            self._adapters.release(self._devices.pop(name))
            found = None
        if found is None:
            found = self._devices[name] = self._adapters.acquire(name)
        return found

    def _open(self, route: Route) -> InitiatorChannel:
        """A channel along a route, to the same disk as before."""
        device = self._device(route.adapter)
        if not self._adapters.is_active(route.adapter, route.port):
            raise ChannelFailed(f"port {route.port} of {route.adapter} is down")
        if not self._port_id:
            extension = self._dice.getrandbits(64).to_bytes(8, "big")
            self._port_id = extension + device.guid.to_bytes(8, "big")
        if self._target is None or not (self._target[1] or route.unit.port):
            self._target = self._find(device, route)
        channel = InitiatorChannel(
            device, route.port, route.unit, self._target, self._port_id, self._lun, self.config,
            self._dice.getrandbits(24),
        )  # fmt: skip
        try:
            while not channel.ready:
                self._await(channel, channel.connecting_s)
            self._look(channel)
        except BaseException:
            channel.close()
            raise
        return channel

    def _find(self, device: DeviceDriver, route: Route) -> tuple[bytes, int]:
        """The target port and the service ID of the controller."""
        if route.unit.port:
            return self._extension.to_bytes(8, "big") + self._guid.to_bytes(8, "big"), 0
        for controller in find_controllers(device, route.port, route.unit):
            target = controller.target
            if target is not None and self._guid in (0, controller.profile.guid):
                return target
        raise StorageError(errno.ENODEV, "the I/O unit has no such controller")

    def _look(self, channel: InitiatorChannel) -> None:
        """Ask a new channel what disk it leads to; ESTALE: another one than before."""
        self._ask(channel, bytes(6), 0)
        page = self._ask(channel, bytes([scsi.INQUIRY, 1, IDENTITY_PAGE, 0, 252, 0]), 252)
        if self._identity and page != self._identity:
            raise StorageError(errno.ESTALE, "there is another disk at the end of the route")
        limits = self._ask(channel, bytes([scsi.INQUIRY, 1, LIMITS_PAGE, 0, 64, 0]), 64)
        try:
            capacity = scsi.capacity_of(self._ask(channel, scsi.read_capacity_16(), 32))
        except ValueError as error:
            raise StorageError(errno.EPROTO, str(error)) from None
        most = int.from_bytes(limits[8:12], "big") * capacity.block_bytes or self.config.most_bytes
        if self._identity and (capacity != self.capacity or most < self._most_bytes):
            raise StorageError(errno.ESTALE, "the disk at the end of the route is not what it was")
        if not self._identity:
            most = min(most, self.config.most_bytes)
            self._most_bytes = most // capacity.block_bytes * capacity.block_bytes
        if not self._most_bytes:
            raise StorageError(errno.EPROTO, f"blocks of {capacity.block_bytes} bytes are too long")
        self._identity, self.capacity = page, capacity

    def _ask(self, channel: InitiatorChannel, cdb: bytes, length: int) -> bytes:
        """One command on a channel that nobody else uses yet; its data."""
        for _ in range(MOST_ATTEMPTS):
            operation = Operation(cdb, length)
            if not channel.start(operation):
                raise ChannelFailed(channel.failed or "the target takes no command")
            while operation.finished is None:
                self._await(channel, self.config.command_timeout_s)
            sense = operation.finished.sense
            if sense is None or sense.key != scsi.UNIT_ATTENTION:
                break
        error = _error_of(operation, short=True)
        if error is not None:
            raise error
        return operation.data

    def _await(self, channel: InitiatorChannel, timeout_s: float) -> None:
        """Do what has come on a channel that nobody else uses yet, or wait for it."""
        self._adapters.dispatch()
        before = channel.ready, len(channel.under_way)
        channel.turn()
        if channel.failed:
            raise ChannelFailed(channel.failed)
        if before == (channel.ready, len(channel.under_way)) and not channel.wait(timeout_s):
            raise ChannelFailed("the target is silent")

    def close(self) -> None:
        """Let go of the disk, and of the adapters; what is under way ends with ESHUTDOWN.  May be called
        again."""
        with self._changed_lock:
            channel, self._channel = self._channel, None
            further = list(channel.under_way.values()) if channel is not None else []
            if channel is not None:
                channel.close()
            self._finish(StorageError(errno.ESHUTDOWN, "the block device is closed"), further)
            devices, self._devices = list(self._devices.values()), {}
        self._adapters.unsubscribe(self._on_adapter_event)
        for device in devices:
            if device.alive:
                device.wake_waiters()
            self._adapters.release(device)


def _error_of(operation: Operation, short: bool = False) -> StorageError | None:
    """What an ended command failed with; ``short``: it may have moved less than there was room for."""
    finished = operation.finished
    assert finished is not None
    if finished.good and (short or not finished.residual):
        return None
    sense = finished.sense
    if finished.status == scsi.CHECK_CONDITION and sense is not None:
        code = _ERRORS.get(sense.key, errno.EIO)
        if sense == scsi.NO_SPACE:
            code = errno.ENOSPC
        return StorageError(code, f"the disk refuses: {sense}", (sense.key, sense.code, sense.qualifier))
    if finished.status == scsi.GOOD:
        return StorageError(errno.EIO, f"{finished.residual} bytes were not moved")
    return StorageError(errno.EIO, f"the disk answers with status {finished.status:#x}")


_ERRORS = {0x5: errno.EINVAL, 0x7: errno.EROFS}
