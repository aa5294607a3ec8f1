"""The host's half of a completion queue."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from softhca.driver.errors import DriverError, refusal
from softhca.queues import control_fields as control
from softhca.queues.completion import CompletionReader
from softhca.queues.cqe import CQE_BYTES
from softhca.queues.ring import RingLayout

if TYPE_CHECKING:
    from softhca.driver.device import DeviceDriver


class Completion(NamedTuple):
    """A work completion: the fields of ``ibv_wc`` under its names, as they stand in the entry.

    ``imm_data`` is the immediate in host byte order, or the invalidated key; ``timestamp_ns`` the adapter's
    clock.
    """

    wr_id: int
    status: int
    opcode: int
    wc_flags: int
    qp_num: int
    byte_len: int
    imm_data: int
    src_qp: int
    vendor_err: int
    timestamp_ns: int
    pkey_index: int
    sl: int
    dlid_path_bits: int
    slid: int


_FIRST_STATUS = 1


class CqHandle:
    """A completion queue: ``number``, ``entries``; ``on_event``, when set, is called as its event is taken.

    ``channel`` is the completion channel's token that the creator gave, or None.  Any thread may call any
    method.
    """

    def __init__(self, driver: DeviceDriver, entries: int, channel: Hashable | None) -> None:
        self._driver = driver
        self._session = driver.session
        self._lock = threading.Lock()
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
        self._reader = CompletionReader(layout)
        self._progress = self._session.channel.progress

    def _make_ring(self, entries: int) -> tuple[Sequence[int], RingLayout, dict[str, Any]]:
        if entries < 1:
            raise DriverError(errno.EINVAL, f"a completion queue of {entries} entries cannot be")
        return self._session.make_ring(entries, entries * CQE_BYTES)

    def poll(self, limit: int) -> list[Completion]:
        """Up to ``limit`` completions, oldest first; drives the engine once when there are none.

        DriverError EIO when the adapter is gone or wrote what cannot be.
        """
        if self._session.dead:
            self._session.check()
        try:
            with self._lock:
                found = self._reader.poll(limit)
            if not found:
                self._progress()
                with self._lock:
                    found = self._reader.poll(limit)
        except OSError as error:
            raise refusal(error, "polling") from None
        completions = list(map(Completion._make, found))
        for completion in completions:
            if completion.status >= _FIRST_STATUS:
                self._driver.queue_pair_failed(completion.qp_num)
        return completions

    def waiting(self) -> int:
        """How many completions `poll` would find now, without driving the engine."""
        return int(self._reader.pending())

    def arm(self, solicited: bool = False) -> None:
        """Ask for one event at the next completion, or only at a solicited or failed one."""
        self._session.check()
        self._reader.arm(solicited)

    def resize(self, entries: int) -> None:
        """Make room for ``entries`` completions; EINVAL when more are waiting to be polled."""
        with self._lock:
            frames, layout, ring = self._make_ring(entries)
            try:
                reply = self._session.call(control.RESIZE_CQ, cq=self.number, **ring)
            except DriverError:
                self._session.free(frames)
                raise
            self._reader.move_to(layout)
            self._frames, frames = frames, self._frames
            self.entries = reply["cqe"]
        self._session.free(frames)

    def destroy(self) -> None:
        """EBUSY while queue pairs use it."""
        self._session.call(control.DESTROY_CQ, cq=self.number)
        self._driver.events.sort()
        self._driver.events.remove(self)
        self._driver.events.forget(frozenset({control.EVENT_CQ_ERR}), self.number)
        self._session.free(self._frames)
        self._frames = ()
