"""The host's half of a queue pair."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from softhca.driver.cq import CqHandle
from softhca.driver.errors import DriverError, refusal
from softhca.driver.lent_rings import QP_RING, RingAllocator
from softhca.driver.misfits import described_receive
from softhca.driver.posting import QueuePairPoster, ReceivePoster, SendPoster
from softhca.driver.session import prefixed
from softhca.driver.srq import Element, SrqHandle
from softhca.queues import control_fields as control
from softhca.queues import qp_attributes
from softhca.queues.states import ERR, RESET
from softhca.queues.wqe import receive_bytes, send_bytes

if TYPE_CHECKING:
    from softhca.driver.device import DeviceDriver

CAPABILITIES = ("max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge", "max_inline_data")
_LIMITS = {
    "max_send_wr": "max_qp_wr",
    "max_recv_wr": "max_qp_wr",
    "max_send_sge": "max_sge",
    "max_recv_sge": "max_sge",
    "max_inline_data": "max_inline_data",
}
"""The attribute of the device that bounds each of them."""
_UNUSED: Mapping[int, Sequence[str]] = {
    control.QPT_XRC_SEND: ("max_recv_wr", "max_recv_sge"),
    control.QPT_XRC_RECV: CAPABILITIES,
}
"""Capabilities of queues that a type of queue pair has not got: whatever was asked for, they are 0."""


class QpHandle(QueuePairPoster):
    """A queue pair: ``number``, ``qp_type``, ``caps`` (``ibv_qp_cap`` names) and ``state``, as far as this
    side knows it.

    The state becomes ERR here when a completion in error is polled, an event that reports the error is taken
    or the queue pair is queried.  Until then work is accepted and completes flushed, as the standard demands.
    Any thread may call any method.

    The posters (``_send``, ``_receive``) are made at the first post: an idle queue pair needs none.
    """

    __slots__ = (
        "__weakref__",
        "_capabilities",
        "_completion_queues",
        "_destroyed",
        "_driver",
        "_receive_frames",
        "_send_frames",
        "number",
        "qp_type",
    )

    _capabilities: tuple[int, ...]
    _receive_frames: Sequence[int]
    _send_frames: Sequence[int]

    def __init__(
        self,
        driver: DeviceDriver,
        pd: int,
        qp_type: int,
        send_cq: CqHandle | None,
        recv_cq: CqHandle | None,
        srq: SrqHandle | None,
        caps: Mapping[str, int],
        signal_all: bool,
        create_flags: int = 0,
        xrcd: int = 0,
        rdd: int = 0,
        allocator: RingAllocator | None = None,
    ) -> None:
        unused = _UNUSED.get(qp_type, ())
        caps = {name: 0 if name in unused else caps[name] for name in CAPABILITIES}
        driver.check_limits(_LIMITS, caps)
        self._begin(driver, caps, {cq for cq in (send_cq, recv_cq) if cq is not None})
        self.qp_type = qp_type
        session = driver.session
        rings: dict[str, Any] = {}
        try:
            if "max_send_wr" not in unused:
                self._send_frames, ring = session.reserve_ring(*self._send_size(), allocator, QP_RING)
                rings.update(prefixed("send_", ring))
            if "max_recv_wr" not in unused and srq is None:
                self._receive_frames, ring = session.reserve_ring(*self._receive_size(), allocator, QP_RING)
                rings.update(prefixed("recv_", ring))
            reply = session.call(
                control.CREATE_QP,
                qp_type=qp_type,
                sq_sig_all=int(signal_all),
                create_flags=create_flags,
                pd=pd,
                send_cq=send_cq.number if send_cq is not None else 0,
                recv_cq=recv_cq.number if recv_cq is not None else 0,
                srq=srq.number if srq is not None else 0,
                xrcd=xrcd,
                rdd=rdd,
                **caps,
                **rings,
            )
        except DriverError:
            self._end()
            raise
        self.number: int = reply["qp_num"]
        self._set_doorbell(session.channel.doorbells, reply["doorbell"], session.channel.kick)

    def _begin(
        self, driver: DeviceDriver, caps: Mapping[str, int], completion_queues: set[CqHandle]
    ) -> None:
        """Begin, in RESET, as a raw packet queue pair without rings."""
        self._driver = driver
        self._completion_queues = completion_queues
        self.qp_type = control.QPT_RAW_PACKET
        self._open(driver.session, RESET)
        self._capabilities = tuple(caps.get(name, 0) for name in CAPABILITIES)
        self._destroyed = False
        self._send_frames = self._receive_frames = ()

    def _end(self) -> None:
        """Free the rings as soon as no thread writes to them.

        A thread that is itself in the middle of a post, further up in its calls, does not free them.
        """
        outermost = self.acquire()
        rings = self._send_frames, self._receive_frames
        self._send = self._receive = None
        self._send_frames = self._receive_frames = ()
        self._destroyed = True
        self.release()
        for frames in rings if outermost else ():
            self._session.free(frames)

    @property
    def caps(self) -> dict[str, int]:
        """The capabilities by their ``ibv_qp_cap`` names: what was asked for, which the adapter grants."""
        return dict(zip(CAPABILITIES, self._capabilities, strict=True))

    @property
    def device(self) -> DeviceDriver:
        """The open device that it is of."""
        return self._driver

    def _send_size(self) -> tuple[int, int]:
        """Entries of the send ring, and bytes of their bodies."""
        max_wr, _, max_sge, _, max_inline_bytes = self._capabilities
        entries = max(max_wr, 1)
        return entries, entries * send_bytes(max_sge, max_inline_bytes)

    def _receive_size(self) -> tuple[int, int]:
        """Entries of the receive ring, and bytes of their bodies."""
        _, max_wr, _, max_sge, _ = self._capabilities
        entries = max(max_wr, 1)
        return entries, entries * receive_bytes(max_sge)

    def _begin_sending(self) -> None:
        """Make ``_send``; with the lock held."""
        if not self._send_frames:
            reason = "is destroyed" if self._destroyed else "has no send queue"
            raise DriverError(errno.EINVAL, f"qp_num = {self.number}: the queue pair {reason}")
        layout = self._session.layout_over(self._send_frames, *self._send_size())
        max_wr, _, max_sge, _, max_inline_bytes = self._capabilities
        self._send = SendPoster(layout, max_wr, max_sge, max_inline_bytes)

    def _begin_receiving(self) -> None:
        """Make ``_receive``; with the lock held."""
        if not self._receive_frames:
            reason = "is destroyed" if self._destroyed else "has no receive queue of its own"
            raise DriverError(errno.EINVAL, f"qp_num = {self.number}: the queue pair {reason}")
        layout = self._session.layout_over(self._receive_frames, *self._receive_size())
        _, max_wr, _, max_sge, _ = self._capabilities
        self._receive = ReceivePoster(layout, max_wr, max_sge)

    def modify(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes (``ibv_qp_attr`` names; an address vector is a dict), all or none.  EINVAL when
        refused.  RESET takes the queue pair's completions out of the completion queues.
        """
        try:
            mask, fields = qp_attributes.pack(attributes)
        except OSError as error:
            raise refusal(error) from None
        with self._session.lock:
            former, state = self.state, attributes.get("qp_state", self.state)
            if state == RESET:  # the adapter drops what is posted: nothing may be posted behind that
                self._take_state(RESET)
            try:
                self._session.call(control.MODIFY_QP, qp_num=self.number, attr_mask=mask, **fields)
            except DriverError:
                self.state = former
                raise
            self._take_state(state)
            if state == RESET:
                self._drop_completions()

    def _drop_completions(self) -> None:
        """Take what was completed so far out of the completion queues; with the session's lock held, so that
        no other queue pair has got the number yet.
        """
        for queue in self._completion_queues:
            queue.drop(self.number)

    def _take_state(self, state: int) -> None:
        """Change the state between two posts."""
        self.acquire()
        self.state = state
        self.release()

    def query(self) -> dict[str, Any]:
        """All attributes by their ``ibv_qp_attr`` names, address vectors as dicts."""
        with self._session.lock:
            attributes = qp_attributes.unflatten(self._session.call(control.QUERY_QP, qp_num=self.number))
            self.state = attributes["qp_state"]
        return attributes

    def failed(self) -> None:
        """The adapter has reported an error: from now on work is accepted and completes flushed.

        A failed request of reliable datagrams may be its EE context's fault: the adapter knows the state.
        """
        if self.qp_type != control.QPT_RD:
            self.state = ERR

    def post_recv(self, wr_id: int, sges: Sequence[Element]) -> None:
        """Post a receive.  EINVAL in RESET, with a shared receive queue, or for too many elements; ENOMEM
        when full.
        """
        if self._session.dead:
            self._session.check()
        self.acquire()
        try:
            poster = self._receiver()
            code = poster.post(wr_id, sges)
        except (OverflowError, TypeError, ValueError) as error:
            raise DriverError(errno.EINVAL, described_receive(wr_id, sges, error)) from None
        finally:
            self.release()
        if code:
            raise DriverError(code, poster.refused)
        self._notify_receives()

    def ring(self) -> None:
        """Ring the doorbell: the adapter may take what `post_send` wrote."""
        if self._session.dead:
            self._session.check()
        self._notify()

    def destroy(self) -> None:
        """Destroy it.  No completion of it is written or polled afterwards."""
        with self._session.lock:
            self._session.call(control.DESTROY_QP, qp_num=self.number)
            self._drop_completions()
        self._end()
        self._driver.forget_queue_pair(self)
        self._driver.events.dispatch()
        self._driver.events.forget(control.QP_EVENTS, self.number)
