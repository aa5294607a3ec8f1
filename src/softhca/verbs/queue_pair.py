"""The queue pair: making one, its states, posting work."""

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, cast

from softhca.driver.errors import DriverError
from softhca.driver.work_requests import SendRequest
from softhca.verbs.absent import refuse
from softhca.verbs.base import (
    Resource,
    close_deferred,
    creating,
    deferred,
    inc_rkey,
    rdma_error,
    read_only,
    require,
    translated,
)
from softhca.verbs.cq import CQ, CQEX
from softhca.verbs.device import Context
from softhca.verbs.device_enums import ibv_mw_type
from softhca.verbs.extensions import SOFTHCA_QP_CREATE_TELLS_LOSSES, SOFTHCA_QPT_RD
from softhca.verbs.mr import MW, MWBind
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp_attributes import KNOWN_MASK, QPAttr, QPCap, QPInitAttr, QPInitAttrEx
from softhca.verbs.qp_parts import ECE, QPAttachCompCntrAttr, QPRateLimitAttr
from softhca.verbs.queue_enums import ibv_qp_attr_mask as mask
from softhca.verbs.queue_enums import (
    ibv_qp_init_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
    ibv_send_flags,
    ibv_wr_opcode,
)
from softhca.verbs.rdd import RDDomain
from softhca.verbs.srq import SRQ
from softhca.verbs.structures import INT32
from softhca.verbs.utils import bits_text, lines, qp_state_to_str, qp_type_to_str
from softhca.verbs.wq import RwqIndTable, RxHashConf
from softhca.verbs.wr import MISFITS, RecvWR, SendWR
from softhca.verbs.xrcd import XRCD

if TYPE_CHECKING:
    from softhca.driver.device import QpHandle

_RC, _UC, _UD, _RAW, _XRC_SEND, _XRC_RECV = (
    int(each)
    for each in (
        ibv_qp_type.IBV_QPT_RC,
        ibv_qp_type.IBV_QPT_UC,
        ibv_qp_type.IBV_QPT_UD,
        ibv_qp_type.IBV_QPT_RAW_PACKET,
        ibv_qp_type.IBV_QPT_XRC_SEND,
        ibv_qp_type.IBV_QPT_XRC_RECV,
    )
)
_RD = SOFTHCA_QPT_RD
_RESET, _INIT, _RTR, _RTS = (
    int(each)
    for each in (
        ibv_qp_state.IBV_QPS_RESET,
        ibv_qp_state.IBV_QPS_INIT,
        ibv_qp_state.IBV_QPS_RTR,
        ibv_qp_state.IBV_QPS_RTS,
    )
)
_STATE = int(mask.IBV_QP_STATE)
_BIND_MW = int(ibv_wr_opcode.IBV_WR_BIND_MW)
_MW_TYPE_1 = int(ibv_mw_type.IBV_MW_TYPE_1)
INLINE = int(ibv_send_flags.IBV_SEND_INLINE)
_FENCE = int(ibv_send_flags.IBV_SEND_FENCE)
_SIGNALED = int(ibv_send_flags.IBV_SEND_SIGNALED)
_SOLICITED = int(ibv_send_flags.IBV_SEND_SOLICITED)
KNOWN_FLAGS = INLINE | _FENCE | _SIGNALED | _SOLICITED
_INIT_PD = int(ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_PD)
_INIT_XRCD = int(ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_XRCD)
_INIT_CREATE_FLAGS = int(ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_CREATE_FLAGS)
_INIT_SCALING = int(
    ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_RX_HASH | ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_IND_TABLE
)
_INIT_SEND_OPS = int(ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)

_CONNECTED_INIT = int(mask.IBV_QP_PKEY_INDEX | mask.IBV_QP_PORT | mask.IBV_QP_ACCESS_FLAGS)
_CONNECTED_RTR = int(mask.IBV_QP_AV | mask.IBV_QP_PATH_MTU | mask.IBV_QP_DEST_QPN | mask.IBV_QP_RQ_PSN)
_SQ_PSN = int(mask.IBV_QP_SQ_PSN)
_ANSWERS = int(mask.IBV_QP_MAX_DEST_RD_ATOMIC | mask.IBV_QP_MIN_RNR_TIMER)
_ASKS = int(
    mask.IBV_QP_TIMEOUT | mask.IBV_QP_RETRY_CNT | mask.IBV_QP_RNR_RETRY | mask.IBV_QP_MAX_QP_RD_ATOMIC
)

# what to_init, to_rtr and to_rts set: exactly what the standard requires for the service (IBTA 11.2.5.2)
_REQUIRED = {
    _RC: {
        _INIT: _CONNECTED_INIT,
        _RTR: _CONNECTED_RTR | _ANSWERS,
        _RTS: _SQ_PSN | _ASKS,
    },
    _XRC_SEND: {_INIT: _CONNECTED_INIT, _RTR: _CONNECTED_RTR, _RTS: _SQ_PSN | _ASKS},
    _XRC_RECV: {
        _INIT: _CONNECTED_INIT,
        _RTR: _CONNECTED_RTR | _ANSWERS,
        _RTS: _SQ_PSN | int(mask.IBV_QP_TIMEOUT),
    },
    _UC: {_INIT: _CONNECTED_INIT, _RTR: _CONNECTED_RTR, _RTS: _SQ_PSN},
    _UD: {_INIT: int(mask.IBV_QP_PKEY_INDEX | mask.IBV_QP_PORT | mask.IBV_QP_QKEY), _RTR: 0, _RTS: _SQ_PSN},
    _RAW: {_INIT: int(mask.IBV_QP_PORT), _RTR: 0, _RTS: 0},
    _RD: {
        _INIT: int(mask.IBV_QP_QKEY | mask.IBV_QP_ACCESS_FLAGS),
        _RTR: int(mask.IBV_QP_MIN_RNR_TIMER),
        _RTS: 0,
    },
}


def _closed(*arguments: object) -> NoReturn:
    raise PyverbsUserError("This QP is closed")


_PACING = ("rate_limit", "max_burst_sz", "typical_pkt_sz")


class QP(Resource):
    """A queue pair (RC, UC, UD, RD, XRC, or RAW_PACKET on native links).

    Made by a `PD` with `QPInitAttr`, or by a `Context` with `QPInitAttrEx`.  With ``qp_attr`` the QP is taken
    as far as can be: to INIT, a UD, RD or raw QP to RTS.
    """

    __slots__ = (
        "_handle",
        "_ind_table",
        "_number",
        "_pd",
        "_post_chain",
        "_post_receives",
        "_post_send",
        "_queues",
        "_ring",
        "_sq_sig_all",
        "_state",
        "_type",
    )
    _handle: "QpHandle"
    pd: PD | None = read_only("_pd", "The protection domain.")

    def __init__(self, creator: PD | Context, init_attr: QPInitAttr, qp_attr: QPAttr | None = None) -> None:
        require(creator, (PD, Context), "creator")
        if qp_attr is not None:
            require(qp_attr, QPAttr, "qp_attr")
        if isinstance(creator, Context):
            require(init_attr, QPInitAttrEx, "init_attr")
            pd, xrcd = _domains_of(creator, cast(QPInitAttrEx, init_attr))
            context = creator
        else:
            require(init_attr, QPInitAttr, "init_attr")
            pd, xrcd, context = creator, None, creator.ctx
            if init_attr.qp_type == _XRC_RECV:
                raise PyverbsRDMAError("Failed to create QP: xrcd is needed", errno.EINVAL)
        scaling = _scaling_of(init_attr, context)
        scq, rcq, srq = _queues_of(init_attr, context) if scaling is None else (None, None, None)
        rdd = init_attr.rdd if init_attr.qp_type == _RD else None
        if rdd is not None and rdd.ctx is not context:
            raise PyverbsUserError("The RD domain belongs to another context")
        owner = pd if pd is not None else context
        owner._require_open()
        self._driver = owner._driver
        with creating("Failed to create QP"):
            if scaling is None:
                self._handle = self._made(init_attr, pd, xrcd, rdd, (scq, rcq, srq))
            else:
                self._handle = self._driver.create_rss_qp(
                    pd.number if pd is not None else 0, scaling[0].number, *scaling[1]
                )
            self._pd = pd
            self._post_send: Callable[..., object] = self._handle.post_send
            self._post_chain: Callable[[SendRequest], bool] = self._handle.post_chain
            self._post_receives: Callable[[RecvWR], object] = self._handle.post_receives
            self._ring: Callable[[], object] = self._handle.ring
            self._queues = (scq, rcq, srq)
            self._sq_sig_all = init_attr.sq_sig_all
            self._type = init_attr.qp_type
            self._state = _RESET
            self._number = self._handle.number
            self._ind_table = scaling[0] if scaling is not None else None
            self._opened(pd, xrcd, rdd, scq, rcq, srq, self._ind_table)
        for name, value in self._capabilities().items():
            setattr(init_attr, name, value)
        if qp_attr is not None:
            (self.to_rts if self._type in (_UD, _RD, _RAW) else self.to_init)(qp_attr)

    def _made(
        self,
        init_attr: QPInitAttr,
        pd: PD | None,
        xrcd: XRCD | None,
        rdd: RDDomain | None,
        queues: tuple[CQ | CQEX | None, CQ | CQEX | None, SRQ | None],
    ) -> "QpHandle":
        """The driver's half of one with queues."""
        cap, (scq, rcq, srq) = init_attr.cap, queues
        return self._driver.create_qp(
            pd.number if pd is not None else 0,
            init_attr.qp_type,
            scq.handle if scq is not None else None,
            rcq.handle if rcq is not None else None,
            srq.handle if srq is not None else None,
            cap.max_send_wr,
            cap.max_recv_wr,
            cap.max_send_sge,
            cap.max_recv_sge,
            cap.max_inline_data,
            bool(init_attr.sq_sig_all),
            _create_flags(init_attr),
            xrcd.number if xrcd is not None else 0,
            rdd.number if rdd is not None else 0,
            **(pd.lending if pd is not None else {}),
        )

    def _capabilities(self) -> dict[str, int]:
        caps = self._handle.caps
        return {name: int(caps[name]) for name in QPCap().as_dict()}

    def _destroy(self) -> None:
        self._handle.destroy()

    def _released(self) -> None:
        self._post_send = self._post_chain = self._post_receives = self._ring = _closed

    @property
    def qp(self) -> "QP":
        """The object itself, where C has its structure."""
        self._require_open()
        return self

    @property
    def handle(self) -> "QpHandle":
        """The driver's half; raises `PyverbsUserError` when the QP is closed."""
        self._require_open()
        return self._handle

    @property
    def qp_num(self) -> int:
        """The QP's number."""
        return self._number

    @property
    def qp_type(self) -> int:
        """The transport service."""
        return self._type

    @property
    def qp_state(self) -> int:
        """The state after the last `modify`, or `query` that asked for it; an error in between shows then."""
        return self._state

    def to_init(self, qp_attr: QPAttr) -> None:
        """From RESET to INIT, with the attributes that this takes from ``qp_attr``."""
        self._step(qp_attr, _INIT)

    def to_rtr(self, qp_attr: QPAttr) -> None:
        """To RTR, by way of INIT when the QP is not there yet."""
        if self._state != _INIT:
            self.to_init(qp_attr)
        self._step(qp_attr, _RTR)

    def to_rts(self, qp_attr: QPAttr) -> None:
        """To RTS, by way of INIT and RTR when the QP is not there yet."""
        if self._state != _RTR:
            self.to_rtr(qp_attr)
        self._step(qp_attr, _RTS)

    def _step(self, qp_attr: QPAttr, state: int) -> None:
        require(qp_attr, QPAttr, "qp_attr")
        qp_attr.qp_state = state
        self.modify(qp_attr, _REQUIRED[self._type][state] | _STATE)

    def modify(self, qp_attr: QPAttr, comp_mask: int) -> None:
        """Set the attributes that ``comp_mask`` names (``ibv_qp_attr_mask``), all of them or none.

        Attributes that the transition needs and does not get, or gets and does not take, are refused with
        ``EINVAL``.
        """
        require(qp_attr, QPAttr, "qp_attr")
        comp_mask = INT32(comp_mask)
        if comp_mask & ~KNOWN_MASK:
            raise PyverbsRDMAError(
                f"Failed to modify QP: attr_mask = {int(comp_mask):#x}: it has bits that are not known",
                errno.EINVAL,
            )
        with translated("Failed to modify QP"):
            self.handle.modify(qp_attr.selected(comp_mask))
        if comp_mask & _STATE:
            self._state = int(qp_attr.qp_state)

    def query(self, attr_mask: int) -> tuple[QPAttr, QPInitAttr]:
        """All attributes of the QP and what it was made of; ``attr_mask`` is the least that is asked for."""
        INT32(attr_mask)
        with translated("Failed to query QP"):
            attr = QPAttr.of(self.handle.query())
        if attr_mask & _STATE:
            self._state = attr.qp_state
        cap = QPCap(**self._capabilities())
        attr.cap = cap
        scq, rcq, srq = self._queues
        return attr, QPInitAttr(self._type, None, scq, rcq, srq, cap, self._sq_sig_all)

    def post_send(self, wr: SendWR, bad_wr: SendWR | None = None) -> None:
        """Post a chain of sends and ring the doorbell once.

        At the first refusal `PyverbsRDMAError` is raised and ``bad_wr`` becomes that request; the ones before
        it are posted, it and the ones after it are not.  ``IBV_SEND_INLINE`` data is taken here, its memory
        may be reused at once.  A window that a request binds has its new ``rkey`` then (as from release 65
        on).
        """
        if not isinstance(wr, SendWR):
            require(wr, SendWR, "wr")
        try:
            binds = self._post_chain(wr)
        except DriverError as error:
            refused = getattr(error, "request", wr)
            _give_keys(wr, refused)
            if bad_wr is not None:
                bad_wr.become(refused)
            raise rdma_error("Failed to post send", error) from error
        except MISFITS as error:
            raise PyverbsUserError(f"Failed to post send: {error}") from error
        if binds:
            _give_keys(wr, None)
        if deferred:
            close_deferred()

    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        """Post a chain of receives; at the first refusal ``bad_wr`` becomes it, and the ones before it stay
        posted.
        """
        if not isinstance(wr, RecvWR):
            require(wr, RecvWR, "wr")
        try:
            self._post_receives(wr)
        except DriverError as error:
            if bad_wr is not None:
                bad_wr.become(getattr(error, "request", wr))
            raise rdma_error("Failed to post recv", error) from error
        except MISFITS as error:
            raise PyverbsUserError(f"Failed to post recv: {error}") from error

    def bind_mw(self, mw: MW, mw_bind: MWBind) -> None:
        """Post a bind of a window of type 1; ``mw.rkey`` is its new key at once, to be used when the bind has
        completed.  A bind to another place moves the window, one of length 0 unbinds it.

        A window of type 2 is refused with ``EINVAL``: it is bound by a work request.
        """
        require(mw, MW, "mw")
        require(mw_bind, MWBind, "mw_bind")
        if mw.type != _MW_TYPE_1:
            raise PyverbsRDMAError(
                "Failed to bind MW: mw_type: only windows of type 1 are bound so", errno.EINVAL
            )
        if mw_bind.send_flags & ~KNOWN_FLAGS or mw_bind.send_flags & INLINE:
            raise PyverbsRDMAError(
                f"Failed to bind MW: send_flags = {mw_bind.send_flags:#x}: there are no such flags",
                errno.EINVAL,
            )
        info, rkey = mw_bind.info, inc_rkey(mw.rkey)
        try:
            self._post_send(
                _BIND_MW, mw_bind.send_flags, rkey, mw_bind.wr_id, info.addr, mw.handle,
                info.length, info.rights_and_lkey, 0, 0, 0, (), None,
            )  # fmt: skip
        except DriverError as error:
            raise rdma_error("Failed to bind MW", error) from error
        except MISFITS as error:
            raise PyverbsUserError(f"Failed to bind MW: {error}") from error
        mw._bound(info, rkey)
        self._ring()

    def query_ece(self) -> ECE:
        """Options of enhanced connection establishment: none, the vendor is 0."""
        self._require_open()
        return ECE()

    def set_ece(self, ece: ECE) -> None:
        """Only the absence of options (vendor 0) can be set; others are ``EOPNOTSUPP``."""
        require(ece, ECE, "ece")
        self._require_open()
        if ece.vendor_id:
            refuse("Failed to set ECE")

    def query_data_in_order(self, op: int, flags: int = 0) -> int:
        """Whether the bytes of an operation are written in order: never promised, 0."""
        self._require_open()
        return 0

    def modify_rate_limit(self, rate_limit_attr: QPRateLimitAttr) -> None:
        """Limit what the QP sends to ``rate_limit`` kbit/s, in bursts of at most ``max_burst_sz`` bytes (0:
        as the device likes); 0: no limit.  ``typical_pkt_sz`` is a hint, which this device has no use for.

        ``EINVAL`` in another state than RTS, for a rate outside of the device's `PacketPacingCaps`, for sizes
        without a rate, for a service without pacing, and for any ``comp_mask``.
        """
        require(rate_limit_attr, QPRateLimitAttr, "rate_limit_attr")
        if rate_limit_attr.comp_mask:
            raise PyverbsRDMAError("Failed to modify the rate limit of QP: comp_mask is 0", errno.EINVAL)
        with translated("Failed to modify the rate limit of QP"):
            self.handle.modify({name: getattr(rate_limit_attr, name) for name in _PACING})

    def attach_comp_cntr(self, comp_cntr: object, attr: QPAttachCompCntrAttr) -> None:
        """Count completions: ``EOPNOTSUPP``."""
        refuse("Failed to attach a completion counter to QP")

    def attach_raw(self, service: int) -> None:
        """Let a raw QP receive the datagrams of a raw service: an EtherType, `SOFTHCA_RAW_IPV6` (which is
        the same as IPv6's EtherType: both encodings), or `SOFTHCA_RAW_ALL`, all that no other QP receives.

        A QP may have several services, a service has one QP: ``EBUSY`` when it has another.
        """
        with translated("Failed to attach QP to a raw service"):
            self._driver.attach_raw(self.handle.number, service)

    def detach_raw(self, service: int) -> None:
        """Let it receive that service no more; ``EINVAL`` when it did not."""
        with translated("Failed to detach QP from a raw service"):
            self._driver.detach_raw(self.handle.number, service)

    def __str__(self) -> str:
        return lines(
            {
                "QP type": qp_type_to_str(self._type),
                "  number": self._number,
                "  state": qp_state_to_str(self._state),
            }
        )


def _create_flags(attr: QPInitAttr) -> int:
    """The creation flags that ``comp_mask`` says are meant."""
    if isinstance(attr, QPInitAttrEx) and attr.comp_mask & _INIT_CREATE_FLAGS:
        return attr.create_flags
    return 0


def _queues_of(
    attr: QPInitAttr, context: Context
) -> tuple[CQ | CQEX | None, CQ | CQEX | None, SRQ | None]:
    """Send CQ, receive CQ and SRQ, as far as the type of QP has them; others count for nothing."""
    if attr.qp_type not in _REQUIRED:
        kind = qp_type_to_str(attr.qp_type)
        raise PyverbsRDMAError(
            f"Failed to create QP: qp_type = {kind}: there are no such QPs", errno.EOPNOTSUPP
        )
    scq = rcq = srq = None
    if attr.qp_type != _XRC_RECV:
        scq = attr.send_cq
    if attr.qp_type not in (_XRC_SEND, _XRC_RECV):
        rcq, srq = attr.recv_cq, attr.srq
        if scq is None or rcq is None:
            raise PyverbsRDMAError("Failed to create QP: send_cq and recv_cq are needed", errno.EINVAL)
    elif attr.qp_type == _XRC_SEND and scq is None:
        raise PyverbsRDMAError("Failed to create QP: send_cq is needed", errno.EINVAL)
    if any(each is not None and each.context is not context for each in (scq, rcq)) or (
        srq is not None and srq.pd.ctx is not context
    ):
        raise PyverbsUserError("The queues and the PD belong to different contexts")
    return scq, rcq, srq


def _scaling_of(
    attr: QPInitAttr, context: Context
) -> tuple[RwqIndTable, tuple[int, int, bytes]] | None:
    """The table that ``comp_mask`` says is meant, and function, fields and key of the hash."""
    if not isinstance(attr, QPInitAttrEx) or not attr.comp_mask & _INIT_SCALING:
        return None
    if attr.qp_type != _RAW:
        raise PyverbsRDMAError("Failed to create QP: only raw packet QPs have ind_table", errno.EOPNOTSUPP)
    table: Any = attr.ind_table
    how: Any = attr.hash_conf
    if attr.comp_mask & _INIT_SCALING != _INIT_SCALING or table is None or how is None:
        raise PyverbsRDMAError("Failed to create QP: ind_table and hash_conf are needed", errno.EINVAL)
    require(table, RwqIndTable, "ind_table")
    require(how, RxHashConf, "hash_conf")
    if attr.srq is not None or attr.max_send_wr or attr.max_recv_wr or attr.max_recv_sge:
        raise PyverbsRDMAError("Failed to create QP: cap, srq: with ind_table it has no queue", errno.EINVAL)
    if how.rx_hash_key_len != len(how.rx_hash_key):
        raise PyverbsRDMAError("Failed to create QP: rx_hash_key_len is not the key's", errno.EINVAL)
    if table._driver is not context._driver:
        raise PyverbsUserError("The table belongs to another context")
    return table, (how.rx_hash_function, how.rx_hash_fields_mask, how.rx_hash_key)


def _domains_of(context: Context, attr: QPInitAttrEx) -> tuple[PD | None, XRCD | None]:
    """The PD of extended attributes, or of an XRC target its XRC domain, after refusing what there is not."""
    known = _INIT_PD | _INIT_CREATE_FLAGS
    known |= _INIT_SCALING if attr.comp_mask & _INIT_SCALING else _INIT_SEND_OPS
    if attr.qp_type == _XRC_RECV:
        known |= _INIT_XRCD
    if attr.comp_mask & ~known:
        raise PyverbsRDMAError(
            "Failed to create QP: comp_mask has " + bits_text(attr.comp_mask & ~known, attr.mask_to_str),
            errno.EOPNOTSUPP,
        )
    if _create_flags(attr) & ~SOFTHCA_QP_CREATE_TELLS_LOSSES:
        raise PyverbsRDMAError(
            f"Failed to create QP: create_flags {attr.create_flags:#x} is not supported", errno.EOPNOTSUPP
        )
    if attr.qp_type == _XRC_RECV:
        if not attr.comp_mask & _INIT_XRCD or attr.xrcd is None:
            raise PyverbsRDMAError("Failed to create QP: xrcd is needed", errno.EINVAL)
        if attr.xrcd.ctx is not context:
            raise PyverbsUserError("The XRC domain belongs to another context")
        return None, attr.xrcd
    if not attr.comp_mask & _INIT_PD or attr.pd is None:
        raise PyverbsRDMAError("Failed to create QP: pd is needed", errno.EINVAL)
    if attr.pd.ctx is not context:
        raise PyverbsUserError("The PD belongs to another context")
    return attr.pd, None


def _give_keys(first: SendWR, end: SendWR | None) -> None:
    """The binds of a chain before ``end`` are posted: their windows have the new keys."""
    each: SendWR | None = first
    while each is not None and each is not end:  # attributes alone: no call for a request that binds nothing
        if each._window is not None:
            each._give_key()
        each = each.following
