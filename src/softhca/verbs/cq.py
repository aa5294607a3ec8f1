"""Completion queues, plain and extended, and the channels that wait for them."""

import errno
import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from softhca.driver.errors import DriverError
from softhca.driver.polling import CompletionRound
from softhca.verbs.base import (
    Resource,
    close_deferred,
    creating,
    deferred,
    rdma_error,
    read_only,
    require,
    translated,
)
from softhca.verbs.device import Context
from softhca.verbs.libibverbs_enums import IBV_WC_STANDARD_FLAGS
from softhca.verbs.pd import ParentDomain
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.queue_enums import (
    ibv_cq_init_attr_mask,
    ibv_create_cq_attr_flags,
    ibv_create_cq_wc_flags,
    ibv_wc_flags,
)
from softhca.verbs.structures import INT32, UINT32, UINT64, Fields, Part, Structure
from softhca.verbs.utils import bits_text, htonl, lines
from softhca.verbs.wc import (
    WC,
    cqe_flags_to_str,
    cqe_opcode_to_str,
    cqe_status_to_str,
    create_wc_flags_to_str,
    flags_to_str,
)

if TYPE_CHECKING:
    from softhca.driver.device import CqHandle
    from softhca.driver.work_requests import Completion

__all__ = [
    "CQ",
    "CQEX",
    "WC",
    "CompChannel",
    "CqInitAttrEx",
    "PollCqAttr",
    "WcTmInfo",
    "cqe_flags_to_str",
    "cqe_opcode_to_str",
    "cqe_status_to_str",
    "create_wc_flags_to_str",
    "flags_to_str",
]

_WITH_IMM = int(ibv_wc_flags.IBV_WC_WITH_IMM)
_TIMESTAMPS = int(ibv_create_cq_wc_flags.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
_WALLCLOCK = int(ibv_create_cq_wc_flags.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
_BYTE_LEN, _IMM, _QP_NUM, _SRC_QP, _SLID, _SL, _DLID_PATH_BITS, _CVLAN, _FLOW_TAG, _TM_INFO = (
    int(each)
    for each in (
        ibv_create_cq_wc_flags.IBV_WC_EX_WITH_BYTE_LEN,
        ibv_create_cq_wc_flags.IBV_WC_EX_WITH_IMM,
        ibv_create_cq_wc_flags.IBV_WC_EX_WITH_QP_NUM,
        ibv_create_cq_wc_flags.IBV_WC_EX_WITH_SRC_QP,
        ibv_create_cq_wc_flags.IBV_WC_EX_WITH_SLID,
        ibv_create_cq_wc_flags.IBV_WC_EX_WITH_SL,
        ibv_create_cq_wc_flags.IBV_WC_EX_WITH_DLID_PATH_BITS,
        ibv_create_cq_wc_flags.IBV_WC_EX_WITH_CVLAN,
        ibv_create_cq_wc_flags.IBV_WC_EX_WITH_FLOW_TAG,
        ibv_create_cq_wc_flags.IBV_WC_EX_WITH_TM_INFO,
    )
)
_FIELDS = int(IBV_WC_STANDARD_FLAGS) | _TIMESTAMPS | _WALLCLOCK
_ENOENT = errno.ENOENT
_FLAGS = int(
    ibv_create_cq_attr_flags.IBV_CREATE_CQ_ATTR_SINGLE_THREADED
    | ibv_create_cq_attr_flags.IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN
)
_MASK_FLAGS = int(ibv_cq_init_attr_mask.IBV_CQ_INIT_ATTR_MASK_FLAGS)
_MASK_PD = int(ibv_cq_init_attr_mask.IBV_CQ_INIT_ATTR_MASK_PD)
_MASKS = _MASK_FLAGS | _MASK_PD


class CompChannel(Resource):
    """A completion channel: a place to wait for the events of the CQs that were made with it."""

    __slots__ = ("_context", "_token")
    context: Context = read_only("_context", "The device.")
    token: object = read_only("_token", "What the driver knows the channel by.")

    def __init__(self, context: Context) -> None:
        require(context, Context, "context")
        self._driver = context.driver
        self._context = context
        self._token = object()  # the driver knows the channel by this
        self._opened(context)

    def get_cq_event(self, expected_cq: "CQ | CQEX", timeout_s: float | None = None) -> None:
        """Wait until an armed CQ of this channel has an event; it must be ``expected_cq``'s.

        The event disarms the CQ: poll it, arm it again with `CQ.req_notify`, and poll once more before
        waiting. Without ``timeout_s`` the call waits for ever; with it, `PyverbsRDMAError` (``ETIMEDOUT``)
        ends the wait, and (``EAGAIN``) where `fd` is non-blocking and there is none.  It ends too when
        another thread closes the channel (``EBADF``) or the context (``EIO``).
        """
        self._require_open()
        require(expected_cq, _CompletionQueue, "expected_cq")
        blocking = self._driver.would_block(self.token)
        if not blocking:
            timeout_s = 0
        with translated("Failed to get CQ event"):
            fired = self._driver.wait_completion(self.token, timeout_s, lambda: not self._open)
        if fired is None:
            if not self._open:
                raise PyverbsRDMAError("The completion channel was closed", errno.EBADF)
            raise PyverbsRDMAError("No completion event", errno.ETIMEDOUT if blocking else errno.EAGAIN)
        if fired is not expected_cq._handle:
            raise PyverbsRDMAError("Received event on an unexpected CQ", errno.EINVAL)
        expected_cq._count_events(1)

    @property
    def fd(self) -> int:
        """A descriptor that is readable while events wait for `get_cq_event`, for select, epoll or asyncio.

        It is the channel's, and closed with it; nothing is to be read from it.  While it is non-blocking
        (``os.set_blocking``) `get_cq_event` does not wait either.
        """
        self._require_open()
        with translated("Failed to make a descriptor"):
            return self._driver.completion_descriptor(self.token).fileno()

    def _destroy(self) -> None:
        """What the driver keeps for a channel goes also where the device is gone."""

    def _released(self) -> None:
        self._driver.close_channel(self.token)


class _CompletionQueue(Resource):
    """What plain and extended CQs share."""

    __slots__ = ("_channel", "_context", "_handle", "_num_events", "_parent", "_poll")
    context: Context = read_only("_context", "The device.")
    num_events: int = read_only("_num_events", "Events that wait to be acknowledged.")

    _handle: "CqHandle"
    _polls_by = "poll"  # the handle's method that is `_poll`

    def _create(
        self,
        context: Context,
        cqe: int,
        channel: CompChannel | None,
        comp_vector: int,
        parent: ParentDomain | None = None,
    ) -> None:
        require(context, Context, "context")
        if channel is not None:
            require(channel, CompChannel, "channel")
            channel._require_open()
            if channel.context is not context:
                raise PyverbsUserError("The completion channel belongs to another context")
        cqe, comp_vector = INT32(cqe), INT32(comp_vector)
        if not 0 <= comp_vector < context.num_comp_vectors:
            raise PyverbsRDMAError(
                f"Failed to create CQ: comp_vector = {comp_vector}: the device has one vector, 0",
                errno.EINVAL,
            )
        self._driver = context.driver
        with creating("Failed to create a CQ"):
            self._handle = self._driver.create_cq(
                cqe,
                channel.token if channel is not None else None,
                **(parent.lending if parent is not None else {}),
            )
            self._poll: Callable[..., Any] = getattr(self._handle, self._polls_by)
            self._context = context
            self._channel = channel
            self._num_events = 0
            self._parent = parent
            self._opened(context, channel, parent)

    def _destroy(self) -> None:
        self._handle.destroy()

    def _released(self) -> None:
        self._poll = _closed_poll
        self._channel = None

    @property
    def cq(self) -> "_CompletionQueue":
        """The object itself, where C has its structure."""
        self._require_open()
        return self

    @property
    def handle(self) -> "CqHandle":
        """The driver's half; raises `PyverbsUserError` when the CQ is closed."""
        self._require_open()
        return self._handle

    @property
    def number(self) -> int:
        """The CQ's number, as asynchronous events carry it."""
        return self.handle.number

    @property
    def comp_channel(self) -> CompChannel | None:
        """The channel of this CQ's events, if it has one."""
        return self._channel

    @property
    def cqe(self) -> int:
        """Completions that fit; at least as many as were asked for."""
        return self.handle.entries

    def resize(self, cqe: int) -> None:
        """Make room for at least ``cqe`` completions; refused when more than that are waiting."""
        cqe = INT32(cqe)
        with translated("Failed to resize CQ"):
            self.handle.resize(cqe)

    def req_notify(self, solicited_only: bool = False) -> None:
        """Arm the CQ: its next (solicited or failed) completion becomes an event of its channel."""
        with translated("Request notify CQ failed"):
            self.handle.arm(bool(solicited_only))

    def ack_events(self, num_events: int) -> None:
        """Acknowledge ``num_events`` events that `CompChannel.get_cq_event` returned."""
        num_events = INT32(num_events)
        if num_events < 0:
            raise PyverbsUserError(f"{num_events} events cannot be acknowledged")
        self._count_events(-num_events)

    def _count_events(self, change: int) -> None:
        """Events have come, or are acknowledged; no more than there are."""
        with _counting:
            if self.num_events + change < 0:
                raise PyverbsUserError(f"{-change} events acknowledged, {self.num_events} outstanding")
            self._num_events += change


_counting = threading.RLock()


def _closed_poll(*arguments: object) -> NoReturn:
    raise PyverbsUserError("This CQ is closed")


class CQ(_CompletionQueue):
    """A completion queue with room for at least ``cqe`` completions.

    More completions than fit are an error of the program: the CQ is lost, which an asynchronous event says
    (``IBV_EVENT_CQ_ERR``).
    """

    __slots__ = ("cq_context",)

    def __init__(
        self,
        context: Context,
        cqe: int,
        cq_context: object = None,
        channel: CompChannel | None = None,
        comp_vector: int = 0,
    ) -> None:
        self.cq_context = cq_context
        self._create(context, cqe, channel, comp_vector)

    def poll(self, num_entries: int = 1) -> tuple[int, list[WC]]:
        """Take up to ``num_entries`` completions, oldest first: their count and they.  It waits for none;
        called again and again in vain beside programs that want the processor it sleeps for up to 0.5 ms."""
        if deferred:
            close_deferred()
        if type(num_entries) is not int:
            num_entries = math.ceil(num_entries)  # a number of them that is none is refused
        try:
            taken: list[WC] = self._poll(num_entries, WC, True)
        except DriverError as error:
            raise rdma_error("Failed to poll CQ", error) from error
        return len(taken), taken

    def __str__(self) -> str:
        return "CQ\n" + lines({"Handle": self.number, "CQEs": self.cqe})


class CqInitAttrEx(Structure):
    """What an extended CQ is made of; ``wc_flags`` chooses the fields that its completions deliver."""

    _FIELDS: ClassVar[Fields] = {
        "cqe": UINT32,
        "comp_vector": UINT32,
        "wc_flags": UINT64,
        "comp_mask": UINT32,
        "flags": UINT32,
    }
    __slots__ = ("_comp_channel", "cq_context", "parent_domain", *_FIELDS)
    comp_channel = Part[CompChannel | None]("The channel of the CQ's events.", CompChannel)

    def __init__(
        self,
        cqe: int = 100,
        channel: CompChannel | None = None,
        comp_vector: int = 0,
        wc_flags: int = 0,
        comp_mask: int = 0,
        flags: int = 0,
        parent_domain: ParentDomain | None = None,
    ) -> None:
        self.cqe = cqe
        self.comp_channel = channel
        self.comp_vector = comp_vector
        self.wc_flags = wc_flags
        self.comp_mask = comp_mask
        self.flags = flags
        self.parent_domain = parent_domain
        self.cq_context: object = None

    def __str__(self) -> str:
        return lines(
            {
                "Number of CQEs": self.cqe,
                "WC flags": create_wc_flags_to_str(self.wc_flags),
                "comp mask": self.comp_mask,
                "flags": self.flags,
            }
        )


class PollCqAttr(Structure):
    """Extensible argument of `CQEX.start_poll`; ``comp_mask`` must be 0."""

    _FIELDS: ClassVar[Fields] = {"comp_mask": UINT32}
    __slots__ = ("comp_mask",)

    def __init__(self) -> None:
        self.comp_mask = 0


class WcTmInfo(Structure):
    """What a tag-matching SRQ reports of a message."""

    _FIELDS: ClassVar[Fields] = {"tag": UINT64, "priv": UINT32}
    __slots__ = tuple(_FIELDS)

    def __init__(self, tag: int = 0, priv: int = 0) -> None:
        self.tag = tag
        self.priv = priv


class CQEX(_CompletionQueue):
    """An extended completion queue: completions are looked at one after the other, field by field.

    `start_poll`, then the ``read_*`` methods, `status` and `wr_id` for the current completion, `poll_next`
    for the next one, `end_poll`.  Reading without a current completion, or a field that was not asked for at
    creation, raises `PyverbsUserError`.

    A round of polling is one thread's: another one that begins meanwhile waits for its end.
    """

    __slots__ = ("_round", "_wc_flags")
    _polls_by = "advance"

    def __init__(self, context: Context, init_attr: CqInitAttrEx | None = None) -> None:
        attr = init_attr if init_attr is not None else CqInitAttrEx()
        require(attr, CqInitAttrEx, "init_attr")
        if attr.wc_flags & ~_FIELDS:
            raise PyverbsRDMAError(
                "Failed to create extended CQ: wc_flags: no such completion fields: "
                + bits_text(attr.wc_flags & ~_FIELDS, create_wc_flags_to_str),
                errno.EOPNOTSUPP,
            )
        for name, bits in (
            ("comp_mask", attr.comp_mask & ~_MASKS),
            ("flags", attr.flags & ~_FLAGS if attr.comp_mask & _MASK_FLAGS else 0),
        ):
            if bits:
                raise PyverbsRDMAError(
                    f"Failed to create extended CQ: {name} {bits:#x} is not supported", errno.EOPNOTSUPP
                )
        parent = attr.parent_domain if attr.comp_mask & _MASK_PD else None
        if attr.comp_mask & _MASK_PD and not isinstance(parent, ParentDomain):
            raise PyverbsRDMAError(
                "Failed to create extended CQ: parent_domain: comp_mask says that there is one", errno.EINVAL
            )
        self._wc_flags = int(attr.wc_flags)
        self._round = CompletionRound(self._wc_flags)
        self._create(context, attr.cqe, attr.comp_channel, attr.comp_vector, parent)

    def start_poll(self, attr: PollCqAttr | None = None) -> int:
        """Begin a round of polling: 0 when there is a completion, ``ENOENT`` when not (the round has not
        begun).
        """
        if attr is not None:
            require(attr, PollCqAttr, "attr")
        if self._round.mine():
            raise PyverbsUserError("start_poll inside a round of polling: end_poll is missing")
        if attr is not None and attr.comp_mask:
            return errno.EINVAL
        self._round.begin()
        result = errno.ENOENT
        try:
            result = self._advance()
        finally:
            if result:
                self._round.finish()
        return result

    def poll_next(self) -> int:
        """The next completion: 0, or ``ENOENT`` when there is none (the last one stays current)."""
        if not self._round.mine():
            raise PyverbsUserError("poll_next outside a round of polling")
        return self._advance()

    def end_poll(self) -> None:
        """End the round; without one this does nothing."""
        self._round.finish()

    def _released(self) -> None:
        super()._released()
        self._round.call_off()

    def _advance(self) -> int:
        if deferred:
            close_deferred()
        try:
            return 0 if self._round.next(self._poll) else _ENOENT
        except DriverError as error:
            raise rdma_error("Failed to poll CQ", error) from error

    def _read(self, field: int = 0) -> "Completion":
        return self._round.look(field) or self._refuse(field)

    def _refuse(self, field: int) -> NoReturn:
        if self._round.look(0) is None:
            raise PyverbsUserError("There is no current completion")
        raise PyverbsUserError(f"The CQ was made without {create_wc_flags_to_str(field).strip()}")

    @property
    def status(self) -> int:
        """Status of the current completion."""
        return (self._round.look(0) or self._refuse(0)).status

    @property
    def wr_id(self) -> int:
        """The work request of the current completion."""
        return (self._round.look(0) or self._refuse(0)).wr_id

    def read_opcode(self) -> int:
        """The operation that completed."""
        return self._read().opcode

    def read_vendor_err(self) -> int:
        """The device's own error code."""
        return self._read().vendor_err

    def read_wc_flags(self) -> int:
        """Which parts are valid (``ibv_wc_flags``)."""
        return self._read().wc_flags

    def read_byte_len(self) -> int:
        """Bytes transferred."""
        return self._read(_BYTE_LEN).byte_len

    def read_imm_data(self) -> int:
        """Immediate in network byte order, or the invalidated key."""
        current = self._read(_IMM)
        return htonl(current.imm_data) if current.wc_flags & _WITH_IMM else current.imm_data

    def read_qp_num(self) -> int:
        """The local QP."""
        return self._read(_QP_NUM).qp_num

    def read_src_qp(self) -> int:
        """The sender's QP, of a datagram."""
        return self._read(_SRC_QP).src_qp

    def read_slid(self) -> int:
        """The sender's LID, of a datagram."""
        return self._read(_SLID).slid

    def read_sl(self) -> int:
        """Service level, of a datagram."""
        return self._read(_SL).sl

    def read_dlid_path_bits(self) -> int:
        """Path bits of the destination LID, of a datagram."""
        return self._read(_DLID_PATH_BITS).dlid_path_bits

    def read_timestamp(self) -> int:
        """When the work completed, by the device's clock, in nanoseconds."""
        return self._read(_TIMESTAMPS).timestamp_ns

    def read_completion_wallclock_ns(self) -> int:
        """When the work completed, by the system's clock, in nanoseconds since 1970."""
        completed = self._read(_WALLCLOCK).timestamp_ns
        return completed + time.time_ns() - time.monotonic_ns()

    def read_cvlan(self) -> int:
        """The VLAN tag that was taken off; no CQ can be made with it."""
        self._read(_CVLAN)
        return 0

    def read_flow_tag(self) -> int:
        """The tag of the steering rule; no CQ can be made with it."""
        self._read(_FLOW_TAG)
        return 0

    def read_tm_info(self) -> WcTmInfo:
        """The matched tag; no CQ can be made with it."""
        self._read(_TM_INFO)
        return WcTmInfo()

    def __str__(self) -> str:
        return "Extended CQ:\n" + lines({"Handle": self.number, "CQEs": self.cqe})
