"""End-to-end contexts: the reliable channels that RD queue pairs send by."""

from softhca.driver.ee import EeHandle
from softhca.verbs.base import Resource, creating, read_only, require, translated
from softhca.verbs.pyverbs_error import PyverbsUserError
from softhca.verbs.qp_attributes import QPAttr
from softhca.verbs.queue_enums import ibv_qp_attr_mask as mask
from softhca.verbs.queue_enums import ibv_qp_state
from softhca.verbs.rdd import RDDomain
from softhca.verbs.structures import INT32

_STATE = int(mask.IBV_QP_STATE)
_INIT, _RTR, _RTS = (
    int(each) for each in (ibv_qp_state.IBV_QPS_INIT, ibv_qp_state.IBV_QPS_RTR, ibv_qp_state.IBV_QPS_RTS)
)
_REQUIRED = {
    _INIT: int(mask.IBV_QP_PKEY_INDEX | mask.IBV_QP_PORT),
    _RTR: int(
        mask.IBV_QP_AV | mask.IBV_QP_PATH_MTU | mask.IBV_QP_DEST_QPN | mask.IBV_QP_RQ_PSN
        | mask.IBV_QP_MAX_DEST_RD_ATOMIC
    ),
    _RTS: int(
        mask.IBV_QP_SQ_PSN | mask.IBV_QP_TIMEOUT | mask.IBV_QP_RETRY_CNT | mask.IBV_QP_RNR_RETRY
        | mask.IBV_QP_MAX_QP_RD_ATOMIC
    ),
}  # fmt: skip


class EEC(Resource):
    """An end-to-end context of the domain ``rdd`` (IBTA vol. 1, 10.2.6), in RESET.

    Its attributes are a queue pair's (`QPAttr`), where ``dest_qp_num`` is the number of the peer's EE
    context; its states too, without SQE.  Closing it ends the work requests that wait on it.
    """

    __slots__ = ("_handle", "_number", "_rdd")
    rdd: RDDomain = read_only("_rdd", "The domain.")
    number: int = read_only("_number", "Its number.")

    def __init__(self, rdd: RDDomain) -> None:
        require(rdd, RDDomain, "rdd")
        rdd._require_open()
        self._driver = rdd._driver
        with creating("Failed to create EE context"):
            self._handle: EeHandle = self._driver.create_ee(rdd.number)
            self._rdd = rdd
            self._number = self._handle.number
            self._opened(rdd)

    def _destroy(self) -> None:
        self._handle.destroy()

    @property
    def eec_num(self) -> int:
        """Its number, which the peer's EE context must be given."""
        return self.number

    @property
    def handle(self) -> EeHandle:
        """The driver's half; raises `PyverbsUserError` when it is closed."""
        if not self._open:
            raise PyverbsUserError("This EEC is closed")
        return self._handle

    def to_rts(self, attr: QPAttr) -> None:
        """From RESET to RTS, with the attributes that this takes from ``attr``."""
        for state, needed in _REQUIRED.items():
            attr.qp_state = state
            self.modify(attr, needed | _STATE)

    def modify(self, attr: QPAttr, comp_mask: int) -> None:
        """Set the attributes that ``comp_mask`` names (``ibv_qp_attr_mask``), all of them or none."""
        require(attr, QPAttr, "attr")
        with translated("Failed to modify EE context"):
            self.handle.modify(attr.selected(INT32(comp_mask)))

    def query(self) -> QPAttr:
        """All attributes."""
        with translated("Failed to query EE context"):
            return QPAttr.of(self.handle.query())

    def query_counters(self) -> dict[str, int]:
        """What it has counted, by the names of a queue pair's counters."""
        with translated("Failed to query counters of EE context"):
            return self._driver.query_counters(ee=self.number)
