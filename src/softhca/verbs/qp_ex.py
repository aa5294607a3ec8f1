"""The extended way of posting: a batch of operations between `QPEx.wr_start` and `QPEx.wr_complete`."""

import errno
import sys
from collections.abc import Sequence

from softhca.driver.errors import DriverError
from softhca.driver.work_requests import Element
from softhca.verbs.absent import refuse
from softhca.verbs.addr import AH
from softhca.verbs.base import PyverbsCM, rdma_error, require
from softhca.verbs.device import Context
from softhca.verbs.memory_access import read_bytes
from softhca.verbs.mr import MW, MWBindInfo
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp_attributes import QPAttr, QPInitAttr, QPInitAttrEx
from softhca.verbs.queue_enums import ibv_qp_create_send_ops_flags as ops
from softhca.verbs.queue_enums import ibv_qp_init_attr_mask, ibv_wr_opcode
from softhca.verbs.queue_pair import INLINE, KNOWN_FLAGS, QP
from softhca.verbs.structures import UINT8, UINT64
from softhca.verbs.turns import Turn
from softhca.verbs.wr import MISFITS, SGE

_SEND_OPS = int(ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
_OPERATIONS = {
    int(ibv_wr_opcode.IBV_WR_RDMA_WRITE): ops.IBV_QP_EX_WITH_RDMA_WRITE,
    int(ibv_wr_opcode.IBV_WR_RDMA_WRITE_WITH_IMM): ops.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
    int(ibv_wr_opcode.IBV_WR_SEND): ops.IBV_QP_EX_WITH_SEND,
    int(ibv_wr_opcode.IBV_WR_SEND_WITH_IMM): ops.IBV_QP_EX_WITH_SEND_WITH_IMM,
    int(ibv_wr_opcode.IBV_WR_RDMA_READ): ops.IBV_QP_EX_WITH_RDMA_READ,
    int(ibv_wr_opcode.IBV_WR_ATOMIC_CMP_AND_SWP): ops.IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
    int(ibv_wr_opcode.IBV_WR_ATOMIC_FETCH_AND_ADD): ops.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
    int(ibv_wr_opcode.IBV_WR_BIND_MW): ops.IBV_QP_EX_WITH_BIND_MW,
    int(ibv_wr_opcode.IBV_WR_LOCAL_INV): ops.IBV_QP_EX_WITH_LOCAL_INV,
    int(ibv_wr_opcode.IBV_WR_SEND_WITH_INV): ops.IBV_QP_EX_WITH_SEND_WITH_INV,
    int(ibv_wr_opcode.IBV_WR_FLUSH): ops.IBV_QP_EX_WITH_FLUSH,
    int(ibv_wr_opcode.IBV_WR_ATOMIC_WRITE): ops.IBV_QP_EX_WITH_ATOMIC_WRITE,
}
_WORD_BYTES = 8
_SUPPORTED = sum(int(each) for each in _OPERATIONS.values())


class DataBuffer(PyverbsCM):
    """``length`` bytes at ``addr``, for inline data."""

    __slots__ = ("addr", "length")

    def __init__(self, addr: int, length: int) -> None:
        self.addr = addr
        self.length = length


class _Operation:
    """One operation of a batch."""

    __slots__ = (
        "ah",
        "compare_add",
        "immediate",
        "inline",
        "opcode",
        "remote_addr",
        "remote_qkey",
        "remote_qpn",
        "rkey",
        "sges",
        "swap",
        "wr_flags",
        "wr_id",
    )

    def __init__(self, opcode: int, wr_id: int, wr_flags: int) -> None:
        self.opcode = opcode
        self.wr_id = wr_id
        self.wr_flags = wr_flags
        self.immediate = self.remote_addr = self.rkey = self.compare_add = self.swap = 0
        self.ah = self.remote_qpn = self.remote_qkey = 0
        self.sges: tuple[Element, ...] = ()
        self.inline: bytes | None = None


class QPEx(QP):
    """A QP that is posted to in batches.

    `wr_start` begins a batch.  For each request set `wr_id` and `wr_flags`, call the operation (`wr_send`,
    `wr_rdma_write` …), then what belongs to it (`wr_set_ud_addr`, `wr_set_sge` …).  `wr_complete` posts the
    batch, `wr_abort` drops it.  Calls out of this order, and operations that were not in ``send_ops_flags``,
    raise `PyverbsUserError`.

    A batch is one thread's: another one that begins meanwhile waits for its end.
    """

    __slots__ = ("_batch", "_send_ops", "_turn", "comp_mask", "wr_flags", "wr_id")

    def __init__(self, creator: PD | Context, init_attr: QPInitAttr, qp_attr: QPAttr | None = None) -> None:
        self._send_ops = 0
        if isinstance(init_attr, QPInitAttrEx) and init_attr.comp_mask & _SEND_OPS:
            if init_attr.send_ops_flags & ~_SUPPORTED:
                raise PyverbsRDMAError(
                    "Failed to create QP: send_ops_flags has operations that are not supported",
                    errno.EOPNOTSUPP,
                )
            self._send_ops = init_attr.send_ops_flags
        self.wr_id = 0
        self.wr_flags = 0
        self.comp_mask = 0
        self._batch: list[_Operation] | None = None
        self._turn = Turn()
        super().__init__(creator, init_attr, qp_attr)

    @property
    def ind_table(self) -> None:
        """There are no indirection tables: None."""
        return None

    def wr_start(self) -> None:
        """Begin a batch."""
        self._require_open()
        if not self._send_ops:
            raise PyverbsUserError("The QP was made without IBV_QP_INIT_ATTR_SEND_OPS_FLAGS")
        if self._turn.mine:
            raise PyverbsUserError("wr_start inside a batch: wr_complete or wr_abort is missing")
        self._turn.begin(lambda: self._open)
        self._require_open()
        self._batch = []

    def wr_abort(self) -> None:
        """Drop the batch."""
        if self._turn.mine:
            self._batch = None
            self._turn.end()

    def _released(self) -> None:
        super()._released()
        self._turn.call_off()

    def wr_complete(self) -> None:
        """Post the batch and ring the doorbell once.

        At the first refusal `PyverbsRDMAError` is raised; the operations before it are posted, it and the
        ones after it are not.
        """
        batch = self._require_batch()
        posted = 0
        try:
            for each in batch:
                if each.wr_flags & ~KNOWN_FLAGS:
                    raise DriverError(errno.EINVAL, f"wr_flags = {each.wr_flags:#x}: there are no such flags")
                self._post_send(
                    each.opcode,
                    each.wr_flags,
                    each.immediate,
                    each.wr_id,
                    each.remote_addr,
                    each.rkey,
                    each.compare_add,
                    each.swap,
                    each.ah,
                    each.remote_qpn,
                    each.remote_qkey,
                    each.sges,
                    each.inline,
                )
                posted += 1
        except DriverError as error:
            raise rdma_error("Failed to complete the batch", error) from error
        except MISFITS as error:
            raise PyverbsUserError(f"Failed to complete the batch: {error}") from error
        finally:
            self.wr_abort()
            if posted:
                self._ring()

    def _require_batch(self) -> list[_Operation]:
        batch = self._batch
        if batch is None or not self._turn.mine:
            raise PyverbsUserError("There is no batch: wr_start is missing")
        return batch

    def _begin(self, opcode: ibv_wr_opcode, rkey: int = 0, remote_addr: int = 0) -> _Operation:
        batch = self._require_batch()
        needed = _OPERATIONS[opcode]
        if not self._send_ops & needed:
            raise PyverbsUserError(f"The QP was made without {needed.name} in send_ops_flags")
        operation = _Operation(int(opcode), self.wr_id, int(self.wr_flags))
        operation.rkey, operation.remote_addr = rkey, remote_addr
        batch.append(operation)
        return operation

    def _last(self) -> _Operation:
        batch = self._require_batch()
        if not batch:
            raise PyverbsUserError("The batch has no operation yet")
        return batch[-1]

    def wr_send(self) -> None:
        """A send."""
        self._begin(ibv_wr_opcode.IBV_WR_SEND)

    def wr_send_imm(self, data: int) -> None:
        """A send with immediate ``data``."""
        self._begin(ibv_wr_opcode.IBV_WR_SEND_WITH_IMM).immediate = data

    def wr_send_inv(self, invalidate_rkey: int) -> None:
        """A send that invalidates a key of the peer."""
        self._begin(ibv_wr_opcode.IBV_WR_SEND_WITH_INV).immediate = invalidate_rkey

    def wr_bind_mw(self, mw: MW, rkey: int, bind_info: MWBindInfo) -> None:
        """Bind a memory window; the low byte of ``rkey`` becomes that of its key."""
        require(mw, MW, "mw")
        require(bind_info, MWBindInfo, "bind_info")
        operation = self._begin(ibv_wr_opcode.IBV_WR_BIND_MW, mw.handle, bind_info.addr)
        operation.immediate = rkey
        operation.compare_add, operation.swap = bind_info.length, bind_info.rights_and_lkey
        mw._bound(bind_info)

    def wr_local_inv(self, invalidate_rkey: int) -> None:
        """Invalidate a key of this side."""
        self._begin(ibv_wr_opcode.IBV_WR_LOCAL_INV).immediate = invalidate_rkey

    def wr_rdma_write(self, rkey: int, remote_addr: int) -> None:
        """A write to the peer's memory."""
        self._begin(ibv_wr_opcode.IBV_WR_RDMA_WRITE, rkey, remote_addr)

    def wr_rdma_write_imm(self, rkey: int, remote_addr: int, data: int) -> None:
        """A write that also takes a receive of the peer and gives it ``data``."""
        self._begin(ibv_wr_opcode.IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr).immediate = data

    def wr_rdma_read(self, rkey: int, remote_addr: int) -> None:
        """A read from the peer's memory."""
        self._begin(ibv_wr_opcode.IBV_WR_RDMA_READ, rkey, remote_addr)

    def wr_atomic_cmp_swp(self, rkey: int, remote_addr: int, compare: int, swap: int) -> None:
        """Compare and swap eight bytes of the peer; the old value comes back."""
        operation = self._begin(ibv_wr_opcode.IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr)
        operation.compare_add, operation.swap = compare, swap

    def wr_atomic_fetch_add(self, rkey: int, remote_addr: int, add: int) -> None:
        """Add to eight bytes of the peer; the old value comes back."""
        operation = self._begin(ibv_wr_opcode.IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr)
        operation.compare_add = add

    def wr_atomic_write(self, rkey: int, remote_addr: int, atomic_wr: bytes) -> None:
        """Write the first eight bytes of ``atomic_wr`` to the peer, in one step; they are taken now.

        Reliable connections only; ``remote_addr`` must be a multiple of eight.
        """
        data = bytes(memoryview(atomic_wr)[:_WORD_BYTES])
        if len(data) < _WORD_BYTES:
            raise PyverbsUserError(f"An atomic write takes {_WORD_BYTES} bytes, not {len(data)}")
        operation = self._begin(ibv_wr_opcode.IBV_WR_ATOMIC_WRITE, rkey, remote_addr)
        operation.compare_add = int.from_bytes(data, sys.byteorder)

    def wr_flush(self, rkey: int, remote_addr: int, len: int, type: int, level: int) -> None:
        """Have the peer make what was written there before visible to all of its host
        (``IBV_FLUSH_GLOBAL`` in ``type``): ``len`` bytes at ``remote_addr``, or with ``level``
        ``IBV_FLUSH_MR`` the whole region.  Reliable connections only; the region and the peer's queue pair
        need ``IBV_ACCESS_FLUSH_GLOBAL``.  No region here gives ``IBV_FLUSH_PERSISTENT``: that is a remote
        access error.  Types or levels that there are not, and lengths of more than 32 bits, complete with
        ``IBV_WC_LOC_QP_OP_ERR``.
        """
        placement, selectivity = UINT8(type), UINT8(level)
        length = UINT64(len)
        operation = self._begin(ibv_wr_opcode.IBV_WR_FLUSH, rkey, remote_addr)
        operation.compare_add = length
        operation.swap = selectivity << 4 | placement if placement < 16 else 0

    def wr_send_tso(self, hdr: int, hdr_sz: int, mss: int) -> None:
        """Send a segmented packet: ``EOPNOTSUPP``."""
        refuse("Failed to post a segmented send")

    def wr_set_ud_addr(self, ah: AH, remote_qpn: int, remote_rkey: int) -> None:
        """Address the datagram; ``remote_rkey`` (pyverbs' name) is the Q_Key."""
        require(ah, AH, "ah")
        last = self._last()
        last.ah, last.remote_qpn, last.remote_qkey = ah.number, remote_qpn, remote_rkey

    def wr_set_xrc_srqn(self, remote_srqn: int) -> None:
        """Of an XRC initiator: the number of the peer's shared receive queue that the operation is for."""
        self._last().remote_qpn = remote_srqn

    def wr_set_sge(self, sge: SGE) -> None:
        """The one element of the operation."""
        require(sge, SGE, "sge")
        self._last().sges = ((sge.addr, sge.length, sge.lkey),)

    def wr_set_sge_list(self, num_sge: int, sg_list: Sequence[SGE]) -> None:
        """The elements of the operation."""
        if not 0 <= num_sge <= len(sg_list):
            raise PyverbsUserError(f"num_sge is {num_sge}, the scatter/gather list has {len(sg_list)}")
        self._last().sges = tuple((each.addr, each.length, each.lkey) for each in sg_list[:num_sge])

    def wr_set_inline_data(self, addr: int, length: int) -> None:
        """Take ``length`` bytes at ``addr`` now as the operation's data."""
        self._set_inline(read_bytes(addr, length))

    def wr_set_inline_data_list(self, num_buf: int, buf_list: Sequence[DataBuffer]) -> None:
        """Take the bytes of several buffers now as the operation's data."""
        if not 0 <= num_buf <= len(buf_list):
            raise PyverbsUserError(f"num_buf is {num_buf}, the list has {len(buf_list)}")
        self._set_inline(b"".join([read_bytes(each.addr, each.length) for each in buf_list[:num_buf]]))

    def _set_inline(self, data: bytes) -> None:
        last = self._last()
        last.inline = data
        last.wr_flags |= INLINE
