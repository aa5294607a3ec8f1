"""Attributes of queue pairs: capabilities, what a QP is made of, and what is modified and queried."""

from typing import TYPE_CHECKING, Any, ClassVar

from softhca.verbs.addr import AHAttr
from softhca.verbs.cq import CQ, CQEX
from softhca.verbs.pd import PD
from softhca.verbs.queue_enums import ibv_qp_attr_mask as mask
from softhca.verbs.queue_enums import ibv_qp_create_flags, ibv_qp_init_attr_mask, ibv_qp_state, ibv_qp_type
from softhca.verbs.rdd import RDDomain
from softhca.verbs.srq import SRQ
from softhca.verbs.structures import INT32, UINT8, UINT16, UINT32, UINT64, Fields, Member, Part, Structure
from softhca.verbs.utils import (
    access_flags_to_str,
    flags_text,
    lines,
    mig_state_to_str,
    mtu_to_str,
    qp_state_to_str,
    qp_type_to_str,
)
from softhca.verbs.xrcd import XRCD

if TYPE_CHECKING:
    from collections.abc import Mapping

_UD = int(ibv_qp_type.IBV_QPT_UD)
_INIT = int(ibv_qp_state.IBV_QPS_INIT)
_RESET = int(ibv_qp_state.IBV_QPS_RESET)
_MTU_1024 = 3

_WORDS = (
    "qp_state",
    "cur_qp_state",
    "path_mtu",
    "path_mig_state",
    "qkey",
    "rq_psn",
    "sq_psn",
    "dest_qp_num",
    "qp_access_flags",
    "rate_limit",
)
_BYTES = (
    "port_num",
    "en_sqd_async_notify",
    "sq_draining",
    "max_rd_atomic",
    "max_dest_rd_atomic",
    "min_rnr_timer",
    "timeout",
    "retry_cnt",
    "rnr_retry",
    "alt_port_num",
    "alt_timeout",
)
_CAPABILITIES = ("max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge", "max_inline_data")

_NUMBERS: "Mapping[int, tuple[str, ...]]" = {
    mask.IBV_QP_STATE: ("qp_state",),
    mask.IBV_QP_CUR_STATE: ("cur_qp_state",),
    mask.IBV_QP_EN_SQD_ASYNC_NOTIFY: ("en_sqd_async_notify",),
    mask.IBV_QP_ACCESS_FLAGS: ("qp_access_flags",),
    mask.IBV_QP_PKEY_INDEX: ("pkey_index",),
    mask.IBV_QP_PORT: ("port_num",),
    mask.IBV_QP_QKEY: ("qkey",),
    mask.IBV_QP_PATH_MTU: ("path_mtu",),
    mask.IBV_QP_TIMEOUT: ("timeout",),
    mask.IBV_QP_RETRY_CNT: ("retry_cnt",),
    mask.IBV_QP_RNR_RETRY: ("rnr_retry",),
    mask.IBV_QP_RQ_PSN: ("rq_psn",),
    mask.IBV_QP_MAX_QP_RD_ATOMIC: ("max_rd_atomic",),
    mask.IBV_QP_MIN_RNR_TIMER: ("min_rnr_timer",),
    mask.IBV_QP_SQ_PSN: ("sq_psn",),
    mask.IBV_QP_MAX_DEST_RD_ATOMIC: ("max_dest_rd_atomic",),
    mask.IBV_QP_PATH_MIG_STATE: ("path_mig_state",),
    mask.IBV_QP_DEST_QPN: ("dest_qp_num",),
    mask.IBV_QP_RATE_LIMIT: ("rate_limit",),
    mask.IBV_QP_ALT_PATH: ("alt_pkey_index", "alt_port_num", "alt_timeout"),
}
_PLAIN_NUMBERS = tuple((int(bit), names) for bit, names in _NUMBERS.items())
_VECTORS = {int(mask.IBV_QP_AV): "ah_attr", int(mask.IBV_QP_ALT_PATH): "alt_ah_attr"}
KNOWN_MASK = sum(int(each) for each in mask)
"""All bits of ``ibv_qp_attr_mask``."""


class QPCap(Structure):
    """Capabilities of a QP: outstanding requests, elements a request, inline bytes."""

    _FIELDS: ClassVar[Fields] = dict.fromkeys(_CAPABILITIES, UINT32)
    __slots__ = _CAPABILITIES

    def __init__(
        self,
        max_send_wr: int = 1,
        max_recv_wr: int = 10,
        max_send_sge: int = 1,
        max_recv_sge: int = 1,
        max_inline_data: int = 0,
    ) -> None:
        self.max_send_wr = max_send_wr
        self.max_recv_wr = max_recv_wr
        self.max_send_sge = max_send_sge
        self.max_recv_sge = max_recv_sge
        self.max_inline_data = max_inline_data

    def copy(self) -> "QPCap":
        """An independent copy."""
        return QPCap(**self.as_dict())

    def as_dict(self) -> dict[str, int]:
        """The capabilities by name."""
        return {name: getattr(self, name) for name in _CAPABILITIES}

    def __str__(self) -> str:
        return lines(
            {
                "max send wrs": self.max_send_wr,
                "max recv wrs": self.max_recv_wr,
                "max send sges": self.max_send_sge,
                "max recv sges": self.max_recv_sge,
                "max inline data": self.max_inline_data,
            },
            20,
        )


class QPInitAttr(Structure):
    """What a QP is made of, with a PD as creator; without ``cap`` all capabilities are 0."""

    _FIELDS: ClassVar[Fields] = {"qp_type": UINT32, "sq_sig_all": INT32}
    __slots__ = ("_cap", "_rdd", "_recv_cq", "_send_cq", "_srq", "qp_context", *_FIELDS)
    send_cq = Part[CQ | CQEX | None]("Where sends complete.", CQ, CQEX)
    recv_cq = Part[CQ | CQEX | None]("Where receives complete.", CQ, CQEX)
    rdd = Part[RDDomain | None]("The reliable datagram domain; of RD queue pairs alone.", RDDomain)
    srq = Part[SRQ | None]("Where receives are taken from, if not from a queue of its own.", SRQ)
    cap = Part[QPCap](
        "A copy of the capabilities; assign one to change them.", QPCap, optional=False, copied=True
    )
    max_send_wr = Member("Outstanding send requests.", "_cap", writable=True)
    max_recv_wr = Member("Outstanding receive requests.", "_cap", writable=True)
    max_send_sge = Member("Elements a send request.", "_cap", writable=True)
    max_recv_sge = Member("Elements a receive request.", "_cap", writable=True)
    max_inline_data = Member("Bytes that a request may carry inline.", "_cap", writable=True)

    def __init__(
        self,
        qp_type: int = _UD,
        qp_context: object = None,
        scq: CQ | CQEX | None = None,
        rcq: CQ | CQEX | None = None,
        srq: SRQ | None = None,
        cap: QPCap | None = None,
        sq_sig_all: int = 1,
    ) -> None:
        self.qp_type = qp_type
        self.qp_context = qp_context
        self.send_cq = scq
        self.recv_cq = rcq
        self.srq = srq
        self.rdd = None
        self.cap = QPCap(0, 0, 0, 0, 0) if cap is None else cap
        self.sq_sig_all = sq_sig_all

    def __str__(self) -> str:
        return (
            lines({"QP type": qp_type_to_str(self.qp_type), "SQ sig. all": self.sq_sig_all}, 20)
            + "QP caps:\n"
            + lines(
                {name.replace("_", " "): value for name, value in self.cap.as_dict().items()}, 20, "    "
            )
        )


class QPInitAttrEx(QPInitAttr):
    """What a QP is made of, with a Context as creator.

    ``comp_mask`` names the fields that count; ``pd`` always does.  ``send_ops_flags`` are the operations that
    a `QPEx` may post.  ``xrcd`` is the domain that an XRC target is for.  ``ind_table``
    (`RwqIndTable`) and ``hash_conf`` (`RxHashConf`) make a raw packet QP one that receives by work queues.
    """

    _OWN: ClassVar[Fields] = {
        "comp_mask": UINT32,
        "create_flags": UINT32,
        "max_tso_header": UINT16,
        "source_qpn": UINT32,
        "send_ops_flags": UINT64,
    }
    _FIELDS: ClassVar[Fields] = {**QPInitAttr._FIELDS, **_OWN}
    __slots__ = ("_pd", "_xrcd", "hash_conf", "ind_table", *_OWN)
    pd = Part[PD | None]("The domain; it counts where ``comp_mask`` says so.", PD)
    xrcd = Part[XRCD | None]("The XRC domain of a target.", XRCD)

    def __init__(
        self,
        qp_type: int = _UD,
        qp_context: object = None,
        scq: CQ | CQEX | None = None,
        rcq: CQ | CQEX | None = None,
        srq: SRQ | None = None,
        cap: QPCap | None = None,
        sq_sig_all: int = 0,
        comp_mask: int = 0,
        pd: PD | None = None,
        xrcd: XRCD | None = None,
        create_flags: int = 0,
        max_tso_header: int = 0,
        source_qpn: int = 0,
        hash_conf: object = None,
        ind_table: object = None,
        send_ops_flags: int = 0,
    ) -> None:
        super().__init__(qp_type, qp_context, scq, rcq, srq, cap, sq_sig_all)
        self.comp_mask = comp_mask
        self.pd = pd
        self.xrcd = xrcd
        self.hash_conf = hash_conf
        self.ind_table = ind_table
        self.create_flags = create_flags
        self.max_tso_header = max_tso_header
        self.source_qpn = source_qpn
        self.send_ops_flags = send_ops_flags

    def mask_to_str(self, mask: int) -> str:
        """Names of ``ibv_qp_init_attr_mask``."""
        return flags_text(mask, {int(each): str(each.name) for each in ibv_qp_init_attr_mask})

    def flags_to_str(self, flags: int) -> str:
        """Names of ``ibv_qp_create_flags``."""
        return flags_text(flags, {int(each): str(each.name) for each in ibv_qp_create_flags})

    def __str__(self) -> str:
        return super().__str__() + lines(
            {
                "comp mask": self.mask_to_str(self.comp_mask),
                "create flags": self.flags_to_str(self.create_flags),
                "max TSO header": self.max_tso_header,
                "Source QPN": self.source_qpn,
            },
            20,
        )


class QPAttr(Structure):
    """Attributes to modify, or as queried (``ibv_qp_attr``).  MTU, timers and states are the standard's
    codes.

    ``cap``, ``ah_attr`` and ``alt_ah_attr`` are copied when they are assigned and when they are read, as
    parts of a C structure are.
    """

    _FIELDS: ClassVar[Fields] = {
        **dict.fromkeys(_WORDS, UINT32),
        **dict.fromkeys(("pkey_index", "alt_pkey_index"), UINT16),
        **dict.fromkeys(_BYTES, UINT8),
    }
    __slots__ = ("_ah_attr", "_alt_ah_attr", "_cap", *_FIELDS)
    cap = Part[QPCap]("A copy of the capabilities.", QPCap, optional=False, copied=True)
    ah_attr = Part[AHAttr]("A copy of the address vector.", AHAttr, optional=False, copied=True)
    alt_ah_attr = Part[AHAttr](
        "A copy of the alternate path's address vector.", AHAttr, optional=False, copied=True
    )

    def __init__(
        self, qp_state: int = _INIT, cur_qp_state: int = _RESET, port_num: int = 1, path_mtu: int = _MTU_1024
    ) -> None:
        self.qp_state = qp_state
        self.cur_qp_state = cur_qp_state
        self.port_num = port_num
        self.path_mtu = path_mtu
        self.path_mig_state = 0
        self.qkey = self.rq_psn = self.sq_psn = self.dest_qp_num = self.qp_access_flags = 0
        self.pkey_index = self.alt_pkey_index = self.en_sqd_async_notify = self.sq_draining = 0
        self.max_rd_atomic = self.max_dest_rd_atomic = self.min_rnr_timer = self.timeout = 0
        self.retry_cnt = self.rnr_retry = self.alt_port_num = self.alt_timeout = self.rate_limit = 0
        self._cap = QPCap(0, 0, 0, 0, 0)
        self._ah_attr = AHAttr(port_num=0)
        self._alt_ah_attr = AHAttr(port_num=0)

    def selected(self, comp_mask: int) -> dict[str, Any]:
        """The attributes that ``comp_mask`` names, as the driver takes them."""
        chosen: dict[str, Any] = {}
        comp_mask = int(comp_mask)  # flags of the enumeration are slow to combine
        for bit, names in _PLAIN_NUMBERS:
            if comp_mask & bit:
                chosen.update({name: getattr(self, name) for name in names})
        for bit, name in _VECTORS.items():
            if comp_mask & int(bit):
                chosen[name] = getattr(self, "_" + name).as_dict()
        if comp_mask & int(mask.IBV_QP_CAP):
            chosen["cap"] = self._cap.as_dict()
        return chosen

    @classmethod
    def of(cls, values: "Mapping[str, Any]") -> "QPAttr":
        """Attributes from the driver's answer to a query."""
        attr = cls(0, 0, 0, 0)
        for names in (*_NUMBERS.values(), ("sq_draining",)):
            for name in names:
                setattr(attr, name, int(values.get(name) or 0))
        for name in _VECTORS.values():
            if values.get(name):
                setattr(attr, name, AHAttr.from_dict(values[name]))
        return attr

    def __str__(self) -> str:
        return lines(
            {
                "QP state": qp_state_to_str(self.qp_state),
                "QP current state": qp_state_to_str(self.cur_qp_state),
                "Path MTU": mtu_to_str(self.path_mtu),
                "Path mig. state": mig_state_to_str(self.path_mig_state),
                "QKey": self.qkey,
                "RQ PSN": self.rq_psn,
                "SQ PSN": self.sq_psn,
                "Dest QP number": self.dest_qp_num,
                "QP access flags": access_flags_to_str(self.qp_access_flags),
                "QP caps": f"\n{self.cap}",
                "AH Attr": f"\n{self.ah_attr}",
                "PKey index": self.pkey_index,
                "SQ draining": self.sq_draining,
                "Max RD atomic": self.max_rd_atomic,
                "Max dest. RD atomic": self.max_dest_rd_atomic,
                "Min RNR timer": self.min_rnr_timer,
                "Port number": self.port_num,
                "Timeout": self.timeout,
                "Retry counter": self.retry_cnt,
                "RNR retry": self.rnr_retry,
                "Rate limit": self.rate_limit,
            }
        )
