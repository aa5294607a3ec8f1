"""The adapter process's record of each application: sockets, memory, passed descriptors."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from softhca.machine.primitives import address_of, atomic_cas64, read_process
from softhca.memory.arenas import AddressMap
from softhca.memory.host import SharedHostMemory
from softhca.queues.handshake import HostFrames
from softhca.queues.layout import PROBE_BYTES
from softhca.runtime.event_channels import EventChannel
from softhca.runtime.wake_socket import WakeSocket

MAX_MEMORY_BYTES = 1 << 38
"""Most address space for the memory of one application: 256 applications take half of it."""


@dataclass
class Application:
    """An application: its control socket and, once attached, its memory and wake socket.

    ``pidfd`` is a process descriptor (−1: none), ``refusal`` says why it may not attach.
    """

    control: socket.socket
    pid: int
    pidfd: int = -1
    refusal: OSError | None = None
    memory: SharedHostMemory | None = None
    wake_socket: WakeSocket | None = None
    host: int = -1
    flag_address: int = 0
    passed: dict[int, int] = field(default_factory=dict)
    next_passed: int = 1
    channels: dict[int, EventChannel] = field(default_factory=dict)

    def take_descriptor(self, number: int) -> int:
        """See ``adapter.hosts.HostSide``."""
        if number not in self.passed:
            raise OSError(errno.EBADF, f"descriptor = {number}: none was passed by that number")
        return self.passed.pop(number)

    def event_channel(self, number: int) -> EventChannel:
        """See ``adapter.hosts.HostSide``."""
        if number not in self.channels:
            raise OSError(errno.EBADF, f"channel = {number}: there is no such event channel")
        return self.channels[number]

    def raise_flag(self) -> bool:
        """Announce that the adapter is about to sleep, a full barrier; False where that was said already."""
        return atomic_cas64(self.flag_address, 0, 1) == 0

    def lower_flag(self) -> None:
        """Announce that the adapter is awake."""
        atomic_cas64(self.flag_address, 1, 0)


@dataclass
class ApplicationSide:
    """A host as the adapter sees it (see ``adapter.hosts.HostSide``)."""

    frames: HostFrames
    address_map: AddressMap
    pid: int
    foreign: bool
    """Whether the application's memory outside ``address_map`` is reached by ``pid``."""
    take_descriptor: Callable[[int], int]
    event_channel: Callable[[int], EventChannel]


def check_memfd(descriptor: int) -> None:
    """EPROTO unless it is a memfd: no call on a memfd blocks on another process."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        raise OSError(errno.EPROTO, "what an application passes must be a memfd") from None


def map_memory(descriptor: int) -> SharedHostMemory:
    """Map the memory of an application; the descriptor stays the caller's.  OSError where it is no memfd."""
    check_memfd(descriptor)
    if os.fstat(descriptor).st_size > MAX_MEMORY_BYTES:
        raise OSError(errno.EFBIG, f"the memory of an application has at most {MAX_MEMORY_BYTES} bytes")
    return SharedHostMemory(descriptor)


def probe(pid: int, address: int, expected: bytes) -> int:
    """0 when the application's own memory can be reached from here, else the errno that says why not.

    ``expected`` are the PROBE_BYTES that stand at its ``address``.
    """
    if not 0 < address < 1 << 63:
        return errno.EPROTO
    seen = bytearray(PROBE_BYTES)
    moved = read_process(pid, address_of(seen), address, PROBE_BYTES)
    if moved != PROBE_BYTES:
        return -moved if moved < 0 else errno.EFAULT
    return 0 if seen == expected else errno.EPERM
