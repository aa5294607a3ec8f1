"""The host's half of receive-side scaling: work queues, and queue pairs that have a table of them."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from softhca.driver.cq import CqHandle
from softhca.driver.errors import DriverError
from softhca.driver.lent_rings import WQ_RING, RingAllocator
from softhca.driver.qp import QpHandle
from softhca.queues import control_fields as control
from softhca.queues.states import ERR, RESET, RTR

if TYPE_CHECKING:
    from softhca.driver.device import DeviceDriver

_POSTING: Mapping[int, int] = {control.WQS_RESET: RESET, control.WQS_RDY: RTR, control.WQS_ERR: ERR}
"""The state of a queue pair in which the same may be posted."""


class WqHandle(QpHandle):
    """A work queue, in RESET: ``number`` is what its completions have as ``qp_num``.  Only receives are
    posted to it.  Any thread may call any method.
    """

    __slots__ = ()

    def __init__(
        self,
        driver: DeviceDriver,
        pd: int,
        cq: CqHandle,
        max_wr: int,
        max_sge: int,
        allocator: RingAllocator | None = None,
    ) -> None:
        wanted = {"max_wr": max_wr, "max_sge": max_sge}
        for name, value in wanted.items():
            if value < 1:
                raise DriverError(errno.EINVAL, f"{name} = {value}: a work queue has some")
        driver.check_limits({"max_wr": "max_qp_wr", "max_sge": "max_sge"}, wanted)
        self._begin(driver, {"max_recv_wr": max_wr, "max_recv_sge": max_sge}, {cq})
        session = driver.session
        self._receive_frames, ring = session.reserve_ring(*self._receive_size(), allocator, WQ_RING)
        try:
            reply = session.call(
                control.CREATE_WQ, pd=pd, cq=cq.number, max_wr=max_wr, max_sge=max_sge, **ring
            )
        except DriverError:
            self._end()
            raise
        self.number = reply["wq_num"]
        self._set_doorbell(session.channel.doorbells, reply["doorbell"], session.channel.kick)

    def modify_wq(self, attr_mask: int, state: int, current: int = 0) -> None:
        """Go to another state (``ibv_wq_state``), as `ibv_modify_wq` with these attributes.  EINVAL where
        there is no such transition, or the state is not the one that is claimed; EOPNOTSUPP for flags.  RESET
        takes the queue's completions out of its completion queue.
        """
        with self._session.lock:
            former = self.state
            resets = bool(attr_mask & control.WQ_STATE) and state == control.WQS_RESET
            if resets:  # the adapter drops what is posted: nothing may be posted behind that
                self._take_state(RESET)
            try:
                self._session.call(
                    control.MODIFY_WQ,
                    wq_num=self.number,
                    attr_mask=attr_mask,
                    wq_state=state,
                    curr_wq_state=current,
                )
            except DriverError:
                self._take_state(former)
                raise
            if attr_mask & control.WQ_STATE:
                self._take_state(_POSTING[state])
            if resets:
                self._drop_completions()

    def destroy(self) -> None:
        """Destroy it.  EBUSY while a table has it.  No completion of it is polled afterwards."""
        with self._session.lock:
            self._session.call(control.DESTROY_WQ, wq_num=self.number)
            self._drop_completions()
        self._end()
        self._driver.forget_queue_pair(self)
        self._driver.events.dispatch()
        self._driver.events.forget(control.WQ_EVENTS, self.number)


class RssQpHandle(QpHandle):
    """A raw packet queue pair with a table of work queues and no queue of its own: nothing can be posted."""

    __slots__ = ()

    def __init__(
        self, driver: DeviceDriver, pd: int, table: int, function: int, fields: int, key: bytes
    ) -> None:
        self._begin(driver, {}, set())
        reply = driver.session.call(
            control.CREATE_RSS_QP,
            pd=pd,
            rwq_ind_tbl=table,
            rx_hash_function=function,
            rx_hash_fields_mask=fields,
            rx_hash_key=key,
        )
        self.number = reply["qp_num"]
        channel = driver.session.channel
        self._set_doorbell(channel.doorbells, reply["doorbell"], channel.kick)


def create_table(driver: DeviceDriver, log_size: int, queues: Sequence[WqHandle]) -> int:
    """The number of a new table of 2^``log_size`` entries.  EINVAL for another number of queues."""
    if not 0 <= log_size <= 0xFF or len(queues) != 1 << log_size:
        raise DriverError(
            errno.EINVAL, f"log_ind_tbl_size = {log_size}: {len(queues)} work queues are not 2 to this power"
        )
    runs: list[tuple[int, int]] = []
    for queue in queues:
        if runs and runs[-1][0] == queue.number:
            runs[-1] = queue.number, runs[-1][1] + 1
        else:
            runs.append((queue.number, 1))
    reply = driver.session.call(control.CREATE_RWQ_IND_TABLE, log_ind_tbl_size=log_size, wqs=runs)
    number: int = reply["rwq_ind_tbl"]
    return number

