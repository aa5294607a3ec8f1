"""The host's half of a completion queue."""

from __future__ import annotations

import errno
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from softhca.driver.errors import DriverError
from softhca.driver.lent_rings import CQ_RING, RingAllocator
from softhca.driver.polling import CompletionPoller
from softhca.driver.work_requests import Completion
from softhca.queues import control_fields as control
from softhca.queues.cqe import CQE_BYTES
from softhca.queues.ring import RingLayout

if TYPE_CHECKING:
    from softhca.driver.device import DeviceDriver

__all__ = ["Completion", "CqHandle"]


class CqHandle:
    """A completion queue: ``number``, ``entries``; ``on_event``, when set, is called at each of its events.

    ``channel`` is the token of its completion channel, or None.  ``poll`` and ``advance`` are
    `CompletionPoller`'s; ``waiting``, `CompletionPoller.waiting`, how many it would find now, without driving
    the engine.  Any thread may call any method.
    """

    def __init__(
        self,
        driver: DeviceDriver,
        entries: int,
        channel: Hashable | None,
        allocator: RingAllocator | None = None,
    ) -> None:
        self._driver = driver
        self._allocator = allocator
        self._session = driver.session
        self.channel = channel
        self.on_event: Callable[[], object] | None = None
        self._frames, layout, ring = self._make_ring(entries)
        try:
            reply = self._session.call(control.CREATE_CQ, **ring)
        except DriverError:
            self._session.free(self._frames)
            raise
        self.number: int = reply["cq"]
        self.entries: int = reply["cqe"]
        self._poller = CompletionPoller(
            layout, self._session, self._session.channel.progress, driver.queue_pair_failed
        )
        self.poll = self._poller.poll
        self.advance = self._poller.advance
        self.waiting = self._poller.waiting

    @property
    def poller(self) -> CompletionPoller:
        """What polls, for compiled code that does without a Python call."""
        return self._poller

    def _make_ring(self, entries: int) -> tuple[Sequence[int], RingLayout, dict[str, Any]]:
        if entries < 1:
            raise DriverError(errno.EINVAL, f"cqe = {entries}: a completion queue has entries")
        return self._session.make_ring(entries, entries * CQE_BYTES, self._allocator, CQ_RING)

    def drop(self, qp_num: int) -> None:
        """A queue pair was reset or destroyed: what it has completed so far is not polled any more."""
        self._poller.drop(qp_num)

    def arm(self, solicited: bool = False) -> None:
        """Ask for one event at the next completion, or only at a solicited or failed one."""
        self._session.check()
        self._poller.arm(solicited)

    def resize(self, entries: int) -> None:
        """Resize the queue to ``entries`` completions; EINVAL when more are waiting to be polled."""
        with self._session.lock:
            frames, layout, ring = self._make_ring(entries)
            adopted = None
            self._poller.leave()
            try:
                reply = self._session.call(control.RESIZE_CQ, cq=self.number, **ring)
                adopted = layout
                self._frames, frames = frames, self._frames
                self.entries = reply["cqe"]
            except DriverError:
                self._session.free(frames)
                raise
            finally:
                self._poller.move_to(adopted)
        self._session.free(frames)

    def destroy(self) -> None:
        """EBUSY while queue pairs use it."""
        with self._session.lock:
            self._session.call(control.DESTROY_CQ, cq=self.number)
            frames, self._frames = self._frames, ()
        unused = self._poller.end()
        self._driver.events.dispatch()
        self._driver.events.remove(self)
        self._driver.events.forget(frozenset({control.EVENT_CQ_ERR}), self.number)
        if unused:
            self._session.free(frames)
