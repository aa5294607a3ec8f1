"""Work queues, tables of them, and how a hash picks one: receive-side scaling of Ethernet frames.

A `RwqIndTable` and an `RxHashConf` go into `QPInitAttrEx` (``ind_table``, ``hash_conf``); what such a QP is
to receive comes to the work queues of the table.
"""

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from softhca.driver.errors import DriverError
from softhca.verbs.base import PyverbsObject, Resource, creating, rdma_error, read_only, require, translated
from softhca.verbs.device import Context
from softhca.verbs.extension_enums import ibv_wq_attr_mask, ibv_wq_init_attr_mask, ibv_wq_type
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.wr import MISFITS, RecvWR

if TYPE_CHECKING:
    from softhca.driver.work_queues import WqHandle

_RQ = int(ibv_wq_type.IBV_WQT_RQ)
_INIT_FLAGS = int(ibv_wq_init_attr_mask.IBV_WQ_INIT_ATTR_FLAGS)
_KNOWN_MASK = sum(int(each) for each in ibv_wq_attr_mask)


class WQInitAttr(PyverbsObject):
    """What a work queue is made of."""

    __slots__ = ("comp_mask", "cq", "create_flags", "max_sge", "max_wr", "pd", "wq_context", "wq_type")

    def __init__(
        self,
        wq_context: object = None,
        wq_pd: Any = None,
        wq_cq: Any = None,
        wq_type: int = int(ibv_wq_type.IBV_WQT_RQ),
        max_wr: int = 100,
        max_sge: int = 1,
        comp_mask: int = 0,
        create_flags: int = 0,
    ) -> None:
        self.wq_context = wq_context
        self.pd = wq_pd
        self.cq = wq_cq
        self.wq_type = int(wq_type)
        self.max_wr = max_wr
        self.max_sge = max_sge
        self.comp_mask = int(comp_mask)
        self.create_flags = int(create_flags)


class WQAttr(PyverbsObject):
    """What of a work queue is changed; ``attr_mask`` (``ibv_wq_attr_mask``) says which fields count."""

    __slots__ = ("attr_mask", "curr_wq_state", "flags", "flags_mask", "wq_state")

    def __init__(
        self,
        attr_mask: int = 0,
        wq_state: int = 0,
        curr_wq_state: int = 0,
        flags: int = 0,
        flags_mask: int = 0,
    ) -> None:
        self.attr_mask = int(attr_mask)
        self.wq_state = int(wq_state)
        self.curr_wq_state = int(curr_wq_state)
        self.flags = int(flags)
        self.flags_mask = int(flags_mask)


class WQ(Resource):
    """A receive queue with a completion queue, in RESET: QPs of a table with it receive by it in RDY.

    The queue's number stands in completions as ``qp_num``.  ``EOPNOTSUPP`` for flags, and where the device
    has no Ethernet frames; ``EINVAL`` for another type, without PD or CQ, and for sizes that it has not.
    """

    __slots__ = ("_handle",)

    def __init__(self, context: Context, attr: WQInitAttr) -> None:
        require(context, Context, "context")
        require(attr, WQInitAttr, "attr")
        if attr.wq_type != _RQ or attr.comp_mask & ~_INIT_FLAGS or attr.pd is None or attr.cq is None:
            raise PyverbsRDMAError(
                "Failed to create WQ: pd, cq, type RQ and a comp_mask that is known are needed", errno.EINVAL
            )
        if attr.comp_mask & _INIT_FLAGS and attr.create_flags:
            raise PyverbsRDMAError("Failed to create WQ: create_flags: there are none", errno.EOPNOTSUPP)
        pd, cq = attr.pd, attr.cq
        if pd.ctx is not context or cq.context is not context:
            raise PyverbsUserError("The PD or the CQ belongs to another context")
        pd._require_open()
        self._driver = context._driver
        with creating("Failed to create WQ"):
            self._handle: WqHandle = self._driver.create_wq(
                pd.number, cq.handle, attr.max_wr, attr.max_sge, **pd.lending
            )
            self._opened(pd, cq)

    def _destroy(self) -> None:
        self._handle.destroy()

    @property
    def handle(self) -> "WqHandle":
        """The driver's half; raises `PyverbsUserError` when the WQ is closed."""
        self._require_open()
        return self._handle

    @property
    def wqn(self) -> int:
        """The WQ's number."""
        return self._handle.number

    def modify(self, wq_attr: WQAttr) -> None:
        """Set what ``wq_attr.attr_mask`` names: the state, from RESET to RDY, from RDY to ERR or back, from
        ERR to RESET.  ``EINVAL`` for other transitions, and where the state is not ``curr_wq_state``;
        ``EOPNOTSUPP`` for flags.
        """
        require(wq_attr, WQAttr, "wq_attr")
        mask = wq_attr.attr_mask
        if not mask or mask & ~_KNOWN_MASK:
            raise PyverbsRDMAError(
                f"Failed to modify WQ: attr_mask = {mask:#x}: it names nothing, or what is not known",
                errno.EINVAL,
            )
        with translated("Failed to modify WQ"):
            self.handle.modify_wq(mask, wq_attr.wq_state, wq_attr.curr_wq_state)

    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        """Post a chain of receives; at the first refusal ``bad_wr`` becomes it, and the ones before it stay
        posted.  ``EINVAL`` in RESET.
        """
        require(wr, RecvWR, "wr")
        try:
            self.handle.post_receives(wr)
        except DriverError as error:
            if bad_wr is not None:
                bad_wr.become(getattr(error, "request", wr))
            raise rdma_error("Failed to post recv", error) from error
        except MISFITS as error:
            raise PyverbsUserError(f"Failed to post recv: {error}") from error

    def add_ref(self, obj: Resource) -> None:
        """``obj`` stands on this object, and is closed before it."""
        self._adopt(obj)


class RwqIndTableInitAttr(PyverbsObject):
    """What a table of receive queues is made of: the logarithm of its size, the queues."""

    __slots__ = ("comp_mask", "log_ind_tbl_size", "wqs_list")

    def __init__(
        self, log_ind_tbl_size: int = 5, wqs_list: Sequence[WQ] | None = None, comp_mask: int = 0
    ) -> None:
        self.log_ind_tbl_size = log_ind_tbl_size
        self.wqs_list = list(wqs_list or ())
        self.comp_mask = int(comp_mask)


class RwqIndTable(Resource):
    """A table of receive queues, two to the power of ``log_ind_tbl_size``; each may stand in it many times.

    ``EINVAL`` for another number of queues, or more than the device's ``max_rwq_indirection_table_size``.
    """

    __slots__ = ("_number", "_wqs")
    wqs: tuple[WQ, ...] = read_only("_wqs", "The queues, in order.")

    def __init__(self, context: Context, attr: RwqIndTableInitAttr) -> None:
        require(context, Context, "context")
        require(attr, RwqIndTableInitAttr, "attr")
        if attr.comp_mask:
            raise PyverbsRDMAError("Failed to create RwqIndTable: comp_mask is 0", errno.EINVAL)
        wqs = tuple(attr.wqs_list)
        for wq in wqs:
            require(wq, WQ, "wqs_list")
            if wq._driver is not context._driver:
                raise PyverbsUserError("A WQ belongs to another context")
        self._driver = context._driver
        with creating("Failed to create RwqIndTable"):
            self._number = self._driver.create_rwq_ind_table(
                attr.log_ind_tbl_size, [wq.handle for wq in wqs]
            )
            self._wqs = wqs
            self._opened(context, *dict.fromkeys(wqs))

    def _destroy(self) -> None:
        self._driver.destroy_rwq_ind_table(self._number)

    @property
    def number(self) -> int:
        """Its number; raises `PyverbsUserError` when it is closed."""
        self._require_open()
        return self._number

    def add_ref(self, obj: Resource) -> None:
        """``obj`` stands on this object, and is closed before it."""
        self._adopt(obj)


class RxHashConf(PyverbsObject):
    """How a receive hash is made: function, key, and which fields it takes."""

    __slots__ = ("rx_hash_fields_mask", "rx_hash_function", "rx_hash_key", "rx_hash_key_len")

    def __init__(
        self,
        rx_hash_function: int = 0,
        rx_hash_key_len: int = 0,
        rx_hash_key: Sequence[int] | bytes | None = None,
        rx_hash_fields_mask: int = 0,
    ) -> None:
        self.rx_hash_function = int(rx_hash_function)
        self.rx_hash_key_len = rx_hash_key_len
        self.rx_hash_key = bytes(rx_hash_key or ())
        self.rx_hash_fields_mask = int(rx_hash_fields_mask)
