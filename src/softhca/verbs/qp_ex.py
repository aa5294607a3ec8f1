"""The extended way of posting: a batch of operations between `QPEx.wr_start` and `QPEx.wr_complete`."""

import errno
import sys
from collections.abc import Sequence
from typing import NoReturn

from softhca.driver.batches import SendBatch
from softhca.driver.errors import DriverError
from softhca.driver.work_requests import SendRequest
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
from softhca.verbs.queue_pair import QP
from softhca.verbs.structures import UINT8, UINT32, UINT64
from softhca.verbs.utils import htonl
from softhca.verbs.wq import RwqIndTable
from softhca.verbs.wr import MISFITS, SGE

_SEND_OPS = int(ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
_OPERATIONS = {
    ibv_wr_opcode.IBV_WR_RDMA_WRITE: ops.IBV_QP_EX_WITH_RDMA_WRITE,
    ibv_wr_opcode.IBV_WR_RDMA_WRITE_WITH_IMM: ops.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
    ibv_wr_opcode.IBV_WR_SEND: ops.IBV_QP_EX_WITH_SEND,
    ibv_wr_opcode.IBV_WR_SEND_WITH_IMM: ops.IBV_QP_EX_WITH_SEND_WITH_IMM,
    ibv_wr_opcode.IBV_WR_RDMA_READ: ops.IBV_QP_EX_WITH_RDMA_READ,
    ibv_wr_opcode.IBV_WR_ATOMIC_CMP_AND_SWP: ops.IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
    ibv_wr_opcode.IBV_WR_ATOMIC_FETCH_AND_ADD: ops.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
    ibv_wr_opcode.IBV_WR_BIND_MW: ops.IBV_QP_EX_WITH_BIND_MW,
    ibv_wr_opcode.IBV_WR_LOCAL_INV: ops.IBV_QP_EX_WITH_LOCAL_INV,
    ibv_wr_opcode.IBV_WR_SEND_WITH_INV: ops.IBV_QP_EX_WITH_SEND_WITH_INV,
    ibv_wr_opcode.IBV_WR_FLUSH: ops.IBV_QP_EX_WITH_FLUSH,
    ibv_wr_opcode.IBV_WR_ATOMIC_WRITE: ops.IBV_QP_EX_WITH_ATOMIC_WRITE,
}
_NEEDED = {int(opcode): int(needed) for opcode, needed in _OPERATIONS.items()}
(
    _RDMA_WRITE,
    _RDMA_WRITE_WITH_IMM,
    _SEND,
    _SEND_WITH_IMM,
    _RDMA_READ,
    _ATOMIC_CMP_AND_SWP,
    _ATOMIC_FETCH_AND_ADD,
    _BIND_MW,
    _LOCAL_INV,
    _SEND_WITH_INV,
    _FLUSH,
    _ATOMIC_WRITE,
) = _NEEDED
_WORD_BYTES = 8
_SUPPORTED = sum(_NEEDED.values())


class DataBuffer(PyverbsCM):
    """``length`` bytes at ``addr``, for inline data."""

    __slots__ = ("addr", "length")

    def __init__(self, addr: int, length: int) -> None:
        self.addr = addr
        self.length = length


class QPEx(QP):
    """A QP that is posted to in batches.

    `wr_start` begins a batch.  For each request set `wr_id` and `wr_flags`, call the operation (`wr_send`,
    `wr_rdma_write` …), then what belongs to it (`wr_set_ud_addr`, `wr_set_sge` …).  `wr_complete` posts the
    batch, `wr_abort` drops it.  Calls out of this order, and operations that were not in ``send_ops_flags``,
    raise `PyverbsUserError`.

    A batch is one thread's: another one that begins meanwhile waits for its end.
    """

    __slots__ = ("_batch", "_send_ops", "comp_mask", "wr_flags", "wr_id")

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
        self._batch = SendBatch()
        super().__init__(creator, init_attr, qp_attr)

    @property
    def ind_table(self) -> RwqIndTable | None:
        """The indirection table, if it was made with one."""
        return self._ind_table

    def wr_start(self) -> None:
        """Begin a batch."""
        self._require_open()
        if not self._send_ops:
            raise PyverbsUserError("The QP was made without IBV_QP_INIT_ATTR_SEND_OPS_FLAGS")
        if self._batch.mine():
            raise PyverbsUserError("wr_start inside a batch: wr_complete or wr_abort is missing")
        if not self._batch.begin():
            self._require_open()

    def wr_abort(self) -> None:
        """Drop the batch."""
        self._batch.drop()

    def _released(self) -> None:
        super()._released()
        self._batch.call_off()

    def wr_complete(self) -> None:
        """Post the batch and ring the doorbell once.

        At the first refusal `PyverbsRDMAError` is raised; the operations before it are posted, it and the
        ones after it are not.
        """
        first = self._batch.chain()
        try:
            if first is not None:
                self._post_chain(first)
            elif not self._batch.mine():
                self._refuse_call()
        except DriverError as error:
            error.message = error.message.replace("send_flags", "wr_flags", 1)
            raise rdma_error("Failed to complete the batch", error) from error
        except MISFITS as error:
            raise PyverbsUserError(f"Failed to complete the batch: {error}") from error
        finally:
            self._batch.drop()

    def _refuse_call(self) -> NoReturn:
        """A call that finds no batch of this thread, or no operation in it."""
        if not self._batch.mine():
            raise PyverbsUserError("There is no batch: wr_start is missing")
        raise PyverbsUserError("The batch has no operation yet")

    def _begin(self, opcode: int, rkey: int = 0, remote_addr: int = 0) -> SendRequest:
        if not self._send_ops & _NEEDED[opcode]:
            if not self._batch.mine():
                self._refuse_call()
            needed = _OPERATIONS[ibv_wr_opcode(opcode)].name
            raise PyverbsUserError(f"The QP was made without {needed} in send_ops_flags")
        added = self._batch.add(opcode, self.wr_id, self.wr_flags, rkey, remote_addr)
        return added if added is not None else self._refuse_call()

    def _last(self) -> SendRequest:
        return self._batch.last() or self._refuse_call()

    def wr_send(self) -> None:
        """A send."""
        self._begin(_SEND)

    def wr_send_imm(self, data: int) -> None:
        """A send with immediate ``data``."""
        self._begin(_SEND_WITH_IMM).imm_data = htonl(UINT32(data))

    def wr_send_inv(self, invalidate_rkey: int) -> None:
        """A send that invalidates a key of the peer."""
        self._begin(_SEND_WITH_INV).imm_data = invalidate_rkey

    def wr_bind_mw(self, mw: MW, rkey: int, bind_info: MWBindInfo) -> None:
        """Bind a memory window; the low byte of ``rkey`` becomes that of its key."""
        require(mw, MW, "mw")
        require(bind_info, MWBindInfo, "bind_info")
        operation = self._begin(_BIND_MW, mw.handle, bind_info.addr)
        operation.imm_data = rkey
        operation.compare_add, operation.swap = bind_info.length, bind_info.rights_and_lkey
        mw._bound(bind_info)

    def wr_local_inv(self, invalidate_rkey: int) -> None:
        """Invalidate a key of this side."""
        self._begin(_LOCAL_INV).imm_data = invalidate_rkey

    def wr_rdma_write(self, rkey: int, remote_addr: int) -> None:
        """A write to the peer's memory."""
        self._begin(_RDMA_WRITE, rkey, remote_addr)

    def wr_rdma_write_imm(self, rkey: int, remote_addr: int, data: int) -> None:
        """A write that also takes a receive of the peer and gives it ``data``."""
        self._begin(_RDMA_WRITE_WITH_IMM, rkey, remote_addr).imm_data = htonl(UINT32(data))

    def wr_rdma_read(self, rkey: int, remote_addr: int) -> None:
        """A read from the peer's memory."""
        self._begin(_RDMA_READ, rkey, remote_addr)

    def wr_atomic_cmp_swp(self, rkey: int, remote_addr: int, compare: int, swap: int) -> None:
        """Compare and swap eight bytes of the peer; the old value comes back."""
        operation = self._begin(_ATOMIC_CMP_AND_SWP, rkey, remote_addr)
        operation.compare_add, operation.swap = compare, swap

    def wr_atomic_fetch_add(self, rkey: int, remote_addr: int, add: int) -> None:
        """Add to eight bytes of the peer; the old value comes back."""
        operation = self._begin(_ATOMIC_FETCH_AND_ADD, rkey, remote_addr)
        operation.compare_add = add

    def wr_atomic_write(self, rkey: int, remote_addr: int, atomic_wr: bytes) -> None:
        """Write the first eight bytes of ``atomic_wr`` to the peer, in one step; they are taken now.

        Reliable connections only; ``remote_addr`` must be a multiple of eight.
        """
        data = bytes(memoryview(atomic_wr)[:_WORD_BYTES])
        if len(data) < _WORD_BYTES:
            raise PyverbsUserError(f"An atomic write takes {_WORD_BYTES} bytes, not {len(data)}")
        operation = self._begin(_ATOMIC_WRITE, rkey, remote_addr)
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
        operation = self._begin(_FLUSH, rkey, remote_addr)
        operation.compare_add = length
        operation.swap = selectivity << 4 | placement if placement < 16 else 0

    def wr_send_tso(self, hdr: int, hdr_sz: int, mss: int) -> None:
        """Send a segmented packet: ``EOPNOTSUPP``."""
        refuse("Failed to post a segmented send")

    def wr_set_ud_addr(self, ah: AH, remote_qpn: int, remote_rkey: int) -> None:
        """Address the datagram; ``remote_rkey`` (pyverbs' name) is the Q_Key."""
        require(ah, AH, "ah")
        last = self._last()
        ah._require_open()
        last.ah, last.remote_qpn, last.remote_qkey = ah, remote_qpn, remote_rkey

    def wr_set_xrc_srqn(self, remote_srqn: int) -> None:
        """Of an XRC initiator: the number of the peer's shared receive queue that the operation is for."""
        self._last().remote_qpn = remote_srqn

    def wr_set_sge(self, sge: SGE) -> None:
        """The one element of the operation."""
        if not isinstance(sge, SGE):
            require(sge, SGE, "sge")
        self._last().sges = ((sge.addr, sge.length, sge.lkey),)

    def wr_set_sge_list(self, num_sge: int, sg_list: Sequence[SGE]) -> None:
        """The elements of the operation."""
        if not 0 <= num_sge <= len(sg_list):
            raise PyverbsUserError(f"num_sge is {num_sge}, the scatter/gather list has {len(sg_list)}")
        self._last().sges = tuple((each.addr, each.length, each.lkey) for each in sg_list[:num_sge])

    def wr_set_inline_data(self, addr: int, length: int) -> None:
        """Take ``length`` bytes at ``addr`` now as the operation's data."""
        self._last().sges = read_bytes(addr, length)

    def wr_set_inline_data_list(self, num_buf: int, buf_list: Sequence[DataBuffer]) -> None:
        """Take the bytes of several buffers now as the operation's data."""
        if not 0 <= num_buf <= len(buf_list):
            raise PyverbsUserError(f"num_buf is {num_buf}, the list has {len(buf_list)}")
        data = [read_bytes(each.addr, each.length) for each in buf_list[:num_buf]]
        self._last().sges = b"".join(data)
