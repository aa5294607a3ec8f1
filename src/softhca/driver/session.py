"""The session of one attachment: commands and their replies, and whether the adapter is alive."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from softhca.driver.channels import HostChannel, Ready
from softhca.driver.errors import DriverError, refusal
from softhca.driver.lent_rings import LentRings, RingAllocator
from softhca.driver.liveness import Liveness
from softhca.machine import deferred_signals
from softhca.memory.runs import runs_of
from softhca.queues.control_fields import COMMANDS
from softhca.queues.ring import RingLayout, plan

REPLY_LIMIT_S = 30.0
"""A command that is not answered for so long is the last."""

CLOSING_LIMIT_S = 5.0
"""The same while the device is being closed: leaving the adapter frees everything anyway."""

_SLICE_S = 1.0

PATIENCE_S = 0.05
"""So long a signal waits for the reply to a command that makes or ends something; most come sooner."""


class Session(Liveness):
    """Commands over a channel, one at a time.  ``dead`` is the reason why no command is possible any more,
    ``gone``: the adapter has died; ``lost``: it has, or it does not answer any more.

    ``lock`` is held during a command, and across several commands that must not be interleaved with others.
    It is re-entrant: a signal handler may close the device in the middle of a command.

    A session belongs to the process that made it.  After a fork the child's calls are refused (EIO), because
    the rings would have two writers.
    """

    def __init__(self, channel: HostChannel) -> None:
        Liveness.__init__(self)
        self.channel = channel
        channel.liveness = self
        self.memory = channel.memory
        self.lent = LentRings(channel)
        self.pid = os.getpid()
        self.gone = self.lost = False
        self.limit_s = REPLY_LIMIT_S
        self.lock = threading.RLock()
        self._tags = itertools.count(1)
        self._awaited: dict[int, Any] = {}

    def check(self) -> None:
        """As `Liveness.check`; first checks that this process owns the session and that the adapter lives."""
        if not self.dead and os.getpid() != self.pid:
            self.inherited()
        self._check_alive()

    def _check_alive(self) -> None:
        """As `check`, within a call."""
        if not self.dead and self.channel.alive:
            return
        if not self.dead:
            self.dead = "the adapter is gone"
            self.gone = self.lost = True
        Liveness.check(self)

    def inherited(self) -> None:
        """This is a forked child: refuse every call."""
        self.dead = "the device was inherited over fork(); it belongs to the parent, open it anew"

    def call(self, command: int, **fields: Any) -> dict[str, Any]:
        """The reply's fields; DriverError with the errno of the refusal, EIO when the adapter does not
        answer.
        """
        self.check()  # before the lock: a forked child may have inherited it locked for ever
        channel = self.channel
        with self.lock:
            self._check_alive()
            tag = next(self._tags) & 0xFFFFFFFF
            self._awaited[tag] = None
            try:
                channel.commands.send(command, tag, fields)
                channel.kick()
                reply = channel.replies.take()  # of an adapter in this process it is there already
                if reply is None or reply.tag != tag:
                    reply = self._reply(tag, reply)
            except OSError as error:
                raise refusal(error, COMMANDS[command][0]) from None
            finally:
                del self._awaited[tag]
        if reply.errno:
            name = COMMANDS[command][0]
            if not reply.reason:
                raise DriverError(reply.errno, f"{name} was refused: {os.strerror(reply.errno)}")
            raise DriverError(reply.errno, f"{name}: {_printable(reply.reason)}")
        answered: dict[str, Any] = reply.fields
        return answered

    def closing(self) -> None:
        """The device is being closed: wait less long for an adapter that does not answer."""
        self.limit_s = CLOSING_LIMIT_S

    def _reply(self, tag: int, other: Any) -> Any:
        """Wait for the reply to ``tag``; ``other`` is one to another command, or None."""
        replies = self.channel.replies
        waited_s = 0.0
        self._keep(other)

        def ready() -> bool:
            return replies.count() > 0 or self._awaited[tag] is not None or bool(self.dead)

        while self._awaited[tag] is None:
            if not ready() and not self._wait(ready):
                waited_s += _SLICE_S
                if self.channel.alive and waited_s < self.limit_s:
                    continue
            if self._awaited[tag] is not None:  # a nested command has taken this reply
                break
            reply = replies.take()
            if reply is None:
                self._no_reply()
            self._keep(reply)
        return self._awaited[tag]

    def _wait(self, ready: Ready) -> bool:
        """`HostChannel.wait`, for a second; who waits for long can be interrupted."""
        if deferred_signals.within() and self.channel.wait(ready, PATIENCE_S):
            return True
        with deferred_signals.waiting():
            return self.channel.wait(ready, _SLICE_S)

    def _keep(self, reply: Any) -> None:
        """Keep a reply for the call that waits for it, unless its command was given up."""
        if reply is not None and reply.tag in self._awaited:
            self._awaited[reply.tag] = reply

    def _no_reply(self) -> None:
        """No reply has come in time: OSError EIO, and no further command is possible."""
        if not self.dead:
            self.gone = not self.channel.alive
            self.dead = "the adapter is gone" if self.gone else "the adapter does not answer"
            self.lost = True
            self.channel.wake_waiters()
        raise OSError(errno.EIO, self.dead)

    # rings that the host makes

    def reserve_ring(
        self, entries: int, body_bytes: int, allocator: RingAllocator | None = None, kind: int = 0
    ) -> tuple[Sequence[int], dict[str, Any]]:
        """Frames and command fields of a new, empty ring, in memory of ``allocator`` where it gives some
        (`LentRings`).  DriverError ENOMEM, EINVAL."""
        pages = plan(entries, body_bytes)
        frames = None if allocator is None else self.lent.reserve(allocator, pages, kind)
        if frames is None:
            try:
                frames = self.memory.allocate(pages)
            except OSError as error:
                raise refusal(error, "making a ring") from None
        runs = runs_of(frames)
        if len(runs) == 1:
            frames = range(frames[0], frames[0] + len(frames))
        return frames, {"entries": entries, "body_bytes": body_bytes, "frames": runs}

    def layout_over(self, frames: Sequence[int], entries: int, body_bytes: int) -> RingLayout:
        """The layout of a ring whose frames were reserved."""
        layout: RingLayout = RingLayout.over(frames, self.memory.address_map, entries, body_bytes)
        return layout

    def make_ring(
        self, entries: int, body_bytes: int, allocator: RingAllocator | None = None, kind: int = 0
    ) -> tuple[Sequence[int], RingLayout, dict[str, Any]]:
        """Frames, layout and command fields of a new, empty ring; as `reserve_ring`."""
        frames, fields = self.reserve_ring(entries, body_bytes, allocator, kind)
        return frames, self.layout_over(frames, entries, body_bytes), fields

    def free(self, frames: Sequence[int]) -> None:
        """Free a ring's frames."""
        if frames and not self.dead and not self.lent.give_back(frames):
            self.memory.free(frames)


def _printable(text: str) -> str:
    """Text of an adapter, on one line."""
    return "".join(each if each.isprintable() else "?" for each in text)


def prefixed(prefix: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields by longer names."""
    return {prefix + name: value for name, value in fields.items()}
