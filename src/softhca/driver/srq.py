"""The host's half of a shared receive queue."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from softhca.driver.errors import DriverError
from softhca.driver.lent_rings import SRQ_RING, RingAllocator
from softhca.driver.misfits import described_receive
from softhca.driver.posting import ReceivePoster
from softhca.queues import control_fields as control
from softhca.queues.wqe import receive_bytes

if TYPE_CHECKING:
    from softhca.driver.cq import CqHandle
    from softhca.driver.device import DeviceDriver

Element = tuple[int, int, int]
"""A scatter/gather element: virtual address, length in bytes, L_Key."""


class SrqHandle:
    """A shared receive queue: ``number``, ``max_wr``, ``max_sge``; with ``cq`` one of the XRC domain
    ``xrcd``, whose completions go there.  Any thread may call any method.
    """

    def __init__(
        self,
        driver: DeviceDriver,
        pd: int,
        max_wr: int,
        max_sge: int,
        limit: int,
        cq: CqHandle | None = None,
        xrcd: int = 0,
        allocator: RingAllocator | None = None,
    ) -> None:
        wanted = {"max_wr": max_wr, "max_sge": max_sge}
        for name, value in wanted.items():
            if value < 1:
                raise DriverError(errno.EINVAL, f"{name} = {value}: a shared receive queue has some")
        driver.check_limits({"max_wr": "max_srq_wr", "max_sge": "max_srq_sge"}, wanted)
        driver.check_limits({"srq_limit": "max_srq_wr"}, {"srq_limit": limit})
        self._driver = driver
        self._session = driver.session
        self._lock = threading.RLock()  # a signal handler may close the queue while this is held
        self._inside = 0
        self._frames, layout, ring = self._session.make_ring(
            max_wr, max_wr * receive_bytes(max_sge), allocator, SRQ_RING
        )
        try:
            reply = self._session.call(
                control.CREATE_SRQ,
                srq_type=control.SRQT_BASIC if cq is None else control.SRQT_XRC,
                pd=pd,
                max_wr=max_wr,
                max_sge=max_sge,
                srq_limit=limit,
                cq=0 if cq is None else cq.number,
                xrcd=xrcd,
                **ring,
            )
        except DriverError:
            self._session.free(self._frames)
            raise
        self.number: int = reply["srq"]
        self.max_wr: int = reply["max_wr"]
        self.max_sge: int = reply["max_sge"]
        self._poster = ReceivePoster(layout, max_wr, max_sge)

    def post(self, wr_id: int, sges: Sequence[Element]) -> None:
        """Post a receive.  ENOMEM when the queue is full, EINVAL for too many elements or a value out of
        range.
        """
        if self._session.dead:
            self._session.check()
        try:
            with self._lock:
                if not self._frames:
                    raise DriverError(errno.EINVAL, f"srq = {self.number}: the queue is destroyed")
                outer = self._inside
                try:
                    self._inside = outer + 1
                    code = self._poster.post(wr_id, sges)
                finally:
                    self._inside = outer
        except (OverflowError, TypeError, ValueError) as error:
            raise DriverError(errno.EINVAL, described_receive(wr_id, sges, error)) from None
        if code:
            raise DriverError(code, self._poster.refused)

    def modify(self, max_wr: int | None = None, limit: int | None = None) -> None:
        """Arm the limit event (0: disarm).  The size cannot be changed (EINVAL)."""
        mask = (control.SRQ_MAX_WR if max_wr is not None else 0) | (
            control.SRQ_LIMIT if limit is not None else 0
        )
        self._session.call(
            control.MODIFY_SRQ, srq=self.number, attr_mask=mask, max_wr=max_wr or 0, srq_limit=limit or 0
        )

    def query(self) -> dict[str, int]:
        """``max_wr``, ``max_sge`` and ``srq_limit`` (0 when it fired or was never armed)."""
        return self._session.call(control.QUERY_SRQ, srq=self.number)

    def destroy(self) -> None:
        """EBUSY while queue pairs use it."""
        self._session.call(control.DESTROY_SRQ, srq=self.number)
        with self._lock:
            frames, self._frames = self._frames, ()
            unused = not self._inside  # else this thread is in the middle of a post, further up in its calls
        self._driver.events.dispatch()
        self._driver.events.forget(control.SRQ_EVENTS, self.number)
        if unused:
            self._session.free(frames)
