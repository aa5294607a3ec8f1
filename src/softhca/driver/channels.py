"""The channel from a driver to its adapter: rings in host memory, one kick, one wait.

The driver is the same whether the adapter is embedded or has a process of its own; only the channel differs.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import NoReturn

from softhca.driver.liveness import Liveness
from softhca.memory.host import HostMemory
from softhca.queues.control import ControlRings
from softhca.queues.doorbells import DoorbellFifo
from softhca.queues.handshake import HostFrames
from softhca.queues.layout import DOORBELL_SLOTS

Ready = Callable[[], bool]


class HostChannel:
    """The host's side of one attachment: rings and doorbells in ``memory``, which belongs to the channel.

    ``frames``, ``address_map`` and ``pid`` are what an adapter in this process is attached with; one in
    another process is given ``frames`` and the descriptor of ``memory``.  Subclasses say how to `kick`,
    `progress`, `wait` and `detach`.  ``kick_receives``: posted receives need a kick too, because nobody may
    be polling for the adapter.  ``foreign_errno``: 0, or the reason why the adapter cannot reach memory of
    this process outside ``memory``; ``foreign``: it can.
    """

    pid = 0
    foreign_errno = 0
    wakes = False
    """Whether a thread in `wait` is woken by what arrives; in virtual time nothing arrives by itself."""

    shares_addresses = False
    """Whether the adapter reads and writes this process's memory by its addresses."""

    liveness: Liveness | None = None
    """The liveness of the attachment, once there is one; ``active``: its host has taken completions."""

    on_closed: Callable[[HostChannel], object] | None = None
    """Called once, at the end of `close`: the maker of the channel may forget it."""

    def __init__(self, memory: HostMemory) -> None:
        self.memory = memory
        memory.lock = threading.RLock()  # from here on several threads may allocate
        self.address_map = memory.address_map
        self.frames = HostFrames(
            memory.allocate(HostFrames.CONTROL_PAGES), memory.allocate(HostFrames.DOORBELL_PAGES)
        )
        rings = ControlRings(self.frames.control, self.address_map)
        self.commands = rings.commands
        self.replies = rings.replies
        self.events = rings.events
        self.doorbells = DoorbellFifo.over(list(self.frames.doorbells), self.address_map, DOORBELL_SLOTS)

    @property
    def alive(self) -> bool:
        """Whether the adapter is still there."""
        return True

    @property
    def meeting_place(self) -> str:
        """The name of the socket at which other processes reach the adapter; empty: nobody does."""
        return ""

    def pass_descriptor(self, descriptor: int) -> int:
        """Pass ``descriptor`` to the adapter; a number that the next command can name it by, once.  OSError
        where it cannot be passed.
        """
        return descriptor

    def take_memory(self, dm: int) -> tuple[int, int]:
        """Device memory of an imported context: a descriptor, which is the caller's, and its bytes.  OSError:
        ENOENT; EOPNOTSUPP where the adapter lives in this process, and so does its owner.
        """
        raise OSError(errno.EOPNOTSUPP, f"dm = {dm}: the device memory is this process's own")

    def take_descriptor(self, number: int) -> int:
        """For an adapter in this process: a duplicate of the passed descriptor."""
        try:
            return os.dup(number)
        except (OSError, OverflowError) as error:  # EBADF, EMFILE
            code = getattr(error, "errno", errno.EBADF)
            raise OSError(code, f"descriptor = {number}: {os.strerror(code)}") from None

    def event_channel(self, number: int) -> NoReturn:
        """For an adapter in this process: events are told in the ring alone.  OSError EBADF."""
        raise OSError(errno.EBADF, f"channel = {number}: there is no such event channel")

    @property
    def foreign(self) -> bool:
        """Whether the adapter reaches memory of this process outside ``memory``."""
        return not self.foreign_errno

    @property
    def kick_receives(self) -> bool:
        """Whether posted receives need a kick, because the thread that serves the adapter may sleep."""
        return False

    def kick(self) -> None:
        """Commands were written or doorbells rung: have the adapter serve them."""

    def progress(self) -> bool:
        """Drive the engine when it lives here; whether there was something to do.  Where there was not, the
        thread may have given its processor to others, or slept for up to 0.5 ms beside programs that want it.
        """
        return False

    def look(self) -> bool:
        """`progress` for a thread that sleeps by itself after some polls, or has other work to do: it does
        not nap here."""
        return self.progress()

    def wait(self, ready: Ready, timeout_s: float | None) -> bool:
        """Block until ``ready()`` is true, driving the engine when it lives here; False after ``timeout_s``
        (None: no limit) or when the adapter is gone.  ``ready`` is evaluated first, and after every event for
        this host.
        """
        return ready()

    def wake_waiters(self) -> None:
        """Wake every thread in `wait`; each evaluates ``ready`` again."""

    def detach(self) -> None:
        """Leave the adapter, which frees everything that this host owned."""

    def close(self) -> None:
        """Detach and free the memory; may be called again, and must be if an exception interrupted it."""
        self.detach()
        self.memory.close()
        self.notify_closed()

    def notify_closed(self) -> None:
        """Call ``on_closed``, once."""
        on_closed, self.on_closed = self.on_closed, None
        if on_closed is not None:
            on_closed(self)

    def abandon(self) -> None:
        """In a forked child, called by the maker of the channel: the attachment belongs to the parent, so
        touch nothing that is shared.
        """


class EmbeddedChannel(HostChannel):
    """A channel to an adapter in this process, by plain calls that the runtime hands in.

    ``kick`` serves the host's rings and transmits; ``progress`` gives the engine a turn; ``wait`` is
    `HostChannel.wait`; ``look`` is `HostChannel.look`, where it is not ``progress``; ``detach`` is called
    once at the end, after `attached` has set the host's number if the caller wants it.
    """

    shares_addresses = True

    def __init__(
        self,
        memory: HostMemory,
        kick: Callable[[], object],
        progress: Callable[[], bool],
        wait: Callable[[Ready, float | None], bool],
        detach: Callable[[], object],
        is_alive: Callable[[], bool] = lambda: True,
        look: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(memory)
        self.kick = kick  # type: ignore[method-assign, assignment]
        self.progress = progress  # type: ignore[method-assign]
        self.look = progress if look is None else look  # type: ignore[method-assign]
        self.wait = wait  # type: ignore[method-assign, assignment]
        self._detach = detach
        self._is_alive = is_alive

    @property
    def alive(self) -> bool:
        """Whether the runtime still drives the adapter."""
        return self._is_alive()

    def detach(self) -> None:
        """Leave the adapter; once."""
        detach, self._detach = self._detach, _nothing
        detach()


def _nothing() -> None:
    """Do nothing."""
