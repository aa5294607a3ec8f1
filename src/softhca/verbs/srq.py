"""Shared receive queues."""

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from softhca.driver.errors import DriverError
from softhca.verbs.absent import refuse
from softhca.verbs.base import PyverbsCM, Resource, creating, rdma_error, read_only, require, translated
from softhca.verbs.cq import CQ, CQEX
from softhca.verbs.device import Context
from softhca.verbs.extension_enums import ibv_ops_flags, ibv_ops_wr_opcode
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.queue_enums import ibv_srq_attr_mask, ibv_srq_init_attr_mask, ibv_srq_type
from softhca.verbs.structures import INT32, UINT32, Fields, Member, Part, ReadOnly, Structure
from softhca.verbs.wr import MISFITS, SGE, RecvWR
from softhca.verbs.xrcd import XRCD

if TYPE_CHECKING:
    from softhca.driver.device import SrqHandle

_MAX_WR = int(ibv_srq_attr_mask.IBV_SRQ_MAX_WR)
_LIMIT = int(ibv_srq_attr_mask.IBV_SRQ_LIMIT)
_INIT_PD = int(ibv_srq_init_attr_mask.IBV_SRQ_INIT_ATTR_PD)
_INIT_TYPE = int(ibv_srq_init_attr_mask.IBV_SRQ_INIT_ATTR_TYPE)
_INIT_XRCD = int(ibv_srq_init_attr_mask.IBV_SRQ_INIT_ATTR_XRCD)
_INIT_CQ = int(ibv_srq_init_attr_mask.IBV_SRQ_INIT_ATTR_CQ)
_BASIC, _XRC = int(ibv_srq_type.IBV_SRQT_BASIC), int(ibv_srq_type.IBV_SRQT_XRC)
_NEEDS = {_BASIC: _INIT_PD, _XRC: _INIT_PD | _INIT_TYPE | _INIT_XRCD | _INIT_CQ}


class SrqAttr(Structure):
    """Sizes of an SRQ: requests, elements a request, and the limit below which it raises its event (0:
    never).
    """

    _FIELDS: ClassVar[Fields] = {"max_wr": UINT32, "max_sge": UINT32, "srq_limit": UINT32}
    __slots__ = tuple(_FIELDS)

    def __init__(self, max_wr: int = 100, max_sge: int = 1, srq_limit: int = 0) -> None:
        self.max_wr = max_wr
        self.max_sge = max_sge
        self.srq_limit = srq_limit


class SrqInitAttr(ReadOnly):
    """What an SRQ is made of, with a PD as creator."""

    __slots__ = ("_attr",)
    _attr: SrqAttr
    max_wr = Member("Requests that fit.", "_attr")
    max_sge = Member("Elements a request.", "_attr")
    srq_limit = Member("Ignored at creation, as in libibverbs; arm it with `SRQ.modify`.", "_attr")

    def __init__(self, attr: SrqAttr | None = None) -> None:
        if attr is not None:
            require(attr, SrqAttr, "attr")
        sizes = SrqAttr(0, 0) if attr is None else SrqAttr(attr.max_wr, attr.max_sge, attr.srq_limit)
        self._make({"_attr": sizes})



class SrqInitAttrEx(Structure):
    """What an SRQ is made of, with a Context as creator; ``pd`` and ``comp_mask`` must be set.

    An SRQ of type ``IBV_SRQT_XRC`` needs besides the domain ``xrcd`` and ``cq``, where its receives complete.
    """

    _FIELDS: ClassVar[Fields] = {
        "comp_mask": UINT32,
        "srq_type": UINT32,
        "max_num_tags": UINT32,
        "max_ops": UINT32,
    }
    __slots__ = ("_attr", "_cq", "_pd", "_xrcd", *_FIELDS)
    max_wr = Member("Requests that fit.", "_attr")
    max_sge = Member("Elements a request.", "_attr")
    srq_limit = Member("Ignored at creation, as in libibverbs; arm it with `SRQ.modify`.", "_attr")
    pd = Part[PD | None]("The domain; it counts where ``comp_mask`` says so.", PD)
    xrcd = Part[XRCD | None]("The XRC domain of a queue of that type.", XRCD)
    cq = Part[CQ | CQEX | None]("Where the receives of such a queue complete.", CQ, CQEX)

    def __init__(self, max_wr: int = 100, max_sge: int = 1, srq_limit: int = 0) -> None:
        self._attr = SrqAttr(max_wr, max_sge, srq_limit)
        self.comp_mask = 0
        self.srq_type = int(ibv_srq_type.IBV_SRQT_BASIC)
        self.pd = self.xrcd = self.cq = None
        self.max_num_tags = 0
        self.max_ops = 0


class OpsWr(PyverbsCM):
    """An operation on a tag-matching SRQ, for `SRQ.post_srq_ops`; ``opcode`` is an ``ibv_ops_wr_opcode``."""

    __slots__ = (
        "flags",
        "handle",
        "mask",
        "next_wr",
        "num_sge",
        "opcode",
        "recv_wr_id",
        "sg_list",
        "tag",
        "unexpected_cnt",
        "wr_id",
    )

    def __init__(
        self,
        wr_id: int = 0,
        opcode: int = int(ibv_ops_wr_opcode.IBV_WR_TAG_ADD),
        flags: int = int(ibv_ops_flags.IBV_OPS_SIGNALED),
        next_wr: "OpsWr | None" = None,
        unexpected_cnt: int = 0,
        recv_wr_id: int = 0,
        num_sge: int = 0,
        tag: int = 0,
        mask: int = 0,
        sg_list: Sequence[SGE] | None = None,
    ) -> None:
        self.wr_id = wr_id
        self.opcode = int(opcode)
        self.flags = int(flags)
        self.next_wr = next_wr
        self.unexpected_cnt = unexpected_cnt
        self.recv_wr_id = recv_wr_id
        self.num_sge = num_sge
        self.tag = tag
        self.mask = mask
        self.handle = 0
        self.sg_list = tuple(sg_list or ())


class SRQ(Resource):
    """A shared receive queue: receives for all QPs that were made with it."""

    __slots__ = ("_handle", "_pd")
    pd: PD = read_only("_pd", "The protection domain.")

    def __init__(self, creator: PD | Context, attr: SrqInitAttr | SrqInitAttrEx) -> None:
        if creator is None:
            raise TypeError("Argument 'creator' must not be None")
        if not isinstance(creator, (PD, Context)):
            raise PyverbsRDMAError("Srq needs either Context or PD for creation")
        if isinstance(creator, Context):
            require(attr, SrqInitAttrEx, "attr")
            pd, xrcd, cq = _parts_of(creator, cast(SrqInitAttrEx, attr))
        else:
            require(attr, SrqInitAttr, "attr")
            pd, xrcd, cq = creator, None, None
        number = pd.number
        self._driver = pd._driver
        with creating("Failed to create SRQ"):
            self._handle: SrqHandle = self._driver.create_srq(
                number,
                attr.max_wr,
                attr.max_sge,
                0,
                cq.handle if cq is not None else None,
                xrcd.number if xrcd is not None else 0,
                **pd.lending,
            )
            self._pd = pd
            self._opened(pd, xrcd, cq)

    def _destroy(self) -> None:
        self._handle.destroy()

    @property
    def srq(self) -> "SRQ":
        """The object itself, where C has its structure."""
        self._require_open()
        return self

    @property
    def handle(self) -> "SrqHandle":
        """The driver's half; raises `PyverbsUserError` when the SRQ is closed."""
        self._require_open()
        return self._handle

    def get_srq_num(self) -> int:
        """The SRQ's number."""
        return self.handle.number

    def modify(self, attr: SrqAttr, comp_mask: int) -> None:
        """Set the size (``IBV_SRQ_MAX_WR``), or arm the limit event (``IBV_SRQ_LIMIT``), which fires once."""
        require(attr, SrqAttr, "attr")
        comp_mask = INT32(comp_mask)
        if not comp_mask or comp_mask & ~(_MAX_WR | _LIMIT):
            raise PyverbsRDMAError(
                f"Failed to modify SRQ: attr_mask = {int(comp_mask):#x}: it has bits that are not known",
                errno.EINVAL,
            )
        with translated("Failed to modify SRQ"):
            self.handle.modify(
                attr.max_wr if comp_mask & _MAX_WR else None, attr.srq_limit if comp_mask & _LIMIT else None
            )

    def query(self) -> SrqAttr:
        """Sizes in force and the limit, 0 when it has fired or was never armed."""
        with translated("Failed to query SRQ"):
            values = self.handle.query()
        return SrqAttr(values["max_wr"], values["max_sge"], values["srq_limit"])

    def post_srq_ops(self, wr: OpsWr, bad_wr: OpsWr | None = None) -> None:
        """Operations on tags, which a basic SRQ has not: ``EOPNOTSUPP``."""
        require(wr, OpsWr, "wr")
        refuse("Failed to post an operation to the SRQ")

    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        """Post a chain of receives; at the first refusal ``bad_wr`` becomes it, and the ones before it stay
        posted.
        """
        require(wr, RecvWR, "wr")
        post = self.handle.post
        current: RecvWR | None = wr
        try:
            while current is not None:
                post(current.wr_id, current.sges)
                current = current.following
        except DriverError as error:
            if bad_wr is not None and current is not None:
                bad_wr.become(current)
            raise rdma_error("Failed to post receive to SRQ", error) from error
        except MISFITS as error:
            raise PyverbsUserError(f"Failed to post receive to SRQ: {error}") from error


def _parts_of(context: Context, attr: SrqInitAttrEx) -> tuple[PD, XRCD | None, CQ | CQEX | None]:
    """The domain, the XRC domain and the completion queue that extended attributes name, after refusing what
    there is not.
    """
    kind = attr.srq_type if attr.comp_mask & _INIT_TYPE else _BASIC
    if kind not in _NEEDS:
        raise PyverbsRDMAError(
            "Failed to create SRQ: srq_type: there are basic ones and XRC's", errno.EOPNOTSUPP
        )
    if attr.comp_mask & ~(_NEEDS[kind] | _INIT_TYPE):
        raise PyverbsRDMAError("Failed to create SRQ: comp_mask has more than its type", errno.EOPNOTSUPP)
    xrc = kind == _XRC
    if attr.comp_mask & _NEEDS[kind] != _NEEDS[kind] or attr.pd is None:
        raise PyverbsRDMAError("Failed to create SRQ: comp_mask and pd are needed", errno.EINVAL)
    if xrc and (attr.xrcd is None or attr.cq is None):
        raise PyverbsRDMAError("Failed to create SRQ: xrcd and cq are needed", errno.EINVAL)
    xrcd, cq = (attr.xrcd, attr.cq) if xrc else (None, None)
    if (
        attr.pd.ctx is not context
        or (xrcd is not None and xrcd.ctx is not context)
        or (cq is not None and cq.context is not context)
    ):
        raise PyverbsUserError("The PD, the XRC domain or the CQ belongs to another context")
    return attr.pd, xrcd, cq
