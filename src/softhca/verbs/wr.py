"""Scatter/gather elements and work requests."""

import struct
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from softhca.driver.work_requests import Element, ReceiveRequest, SendRequest, WorkRequest
from softhca.queues.layout import REG_MR
from softhca.verbs.base import PyverbsCM, inc_rkey, require
from softhca.verbs.memory_access import read_bytes
from softhca.verbs.pyverbs_error import PyverbsUserError
from softhca.verbs.queue_enums import ibv_send_flags, ibv_wr_opcode
from softhca.verbs.structures import INT32, UINT32, UINT64
from softhca.verbs.utils import flags_text, lines
from softhca.wire.raw import RAW_IPV6

if TYPE_CHECKING:
    from softhca.verbs.addr import AH
    from softhca.verbs.eec import EEC
    from softhca.verbs.fast_registration import FastMR, Piece
    from softhca.verbs.mr import MW, MWBindInfo

MISFITS = (OverflowError, TypeError, struct.error)
"""How a number that does not fit its field of a work request shows itself."""

_LARGEST = (1 << 64) - 1
_SEND = int(ibv_wr_opcode.IBV_WR_SEND)
_BIND_MW = int(ibv_wr_opcode.IBV_WR_BIND_MW)
_SIGNALED = int(ibv_send_flags.IBV_SEND_SIGNALED)
_WITHOUT_DATA = frozenset(
    (
        ibv_wr_opcode.IBV_WR_LOCAL_INV,
        ibv_wr_opcode.IBV_WR_BIND_MW,
        ibv_wr_opcode.IBV_WR_SEND_WITH_INV,
        REG_MR,
    )
)
_FLAG_NAMES: dict[int, str] = {int(each): str(each.name) for each in ibv_send_flags}


# One call looks whether the numbers of an object fit; only where they do not, they are converted one by one.
_FIT_ELEMENT = struct.Struct("=QII").pack
_FIT_SEND = struct.Struct("=QIII").pack
_FIT_RDMA = struct.Struct("=IQ").pack


class SGE(PyverbsCM):
    """A scatter/gather element: ``length`` bytes at ``addr`` of the region of ``lkey``."""

    __slots__ = ("addr", "length", "lkey")

    def __init__(self, addr: int, length: int, lkey: int) -> None:
        try:
            _FIT_ELEMENT(addr, length, lkey)
        except struct.error:
            addr, length, lkey = UINT64(addr), UINT32(length), UINT32(lkey)
        self.addr = addr
        self.length = length
        self.lkey = lkey

    def read(self, length: int, offset: int) -> bytes:
        """A copy of ``length`` bytes at ``addr + offset``, which the caller knows to be mapped."""
        return read_bytes(self.addr + offset, length)

    def __str__(self) -> str:
        return lines({"Address": hex(self.addr), "Length": self.length, "Key": hex(self.lkey)})


class _WorkRequest(PyverbsCM, WorkRequest):
    """What send and receive requests share.

    The elements are copied when the request is made: changing an `SGE` later changes nothing.  ``sges`` is
    the tuple that goes to the driver, whose `SendRequest` and `ReceiveRequest` keep all values.
    """

    __slots__ = ()

    def _init(self, wr_id: int, num_sge: int, sg: Sequence[SGE] | None) -> None:
        elements = _elements(sg)
        if type(num_sge) is not int:
            num_sge = INT32(num_sge)
        if num_sge < 0 or (num_sge and not elements):
            raise PyverbsUserError("A WR needs at least one SGE")
        if num_sge > len(elements):
            raise IndexError(f"num_sge is {num_sge}, the scatter/gather list has {len(elements)}")
        self.wr_id = wr_id
        self._all = elements
        self.sges = elements if num_sge == len(elements) else elements[:num_sge]

    @property
    def num_sge(self) -> int:
        """Elements in use."""
        return len(self.sges)

    @num_sge.setter
    def num_sge(self, val: int) -> None:
        val = INT32(val)
        if not 0 <= val <= len(self._all):
            raise IndexError(f"num_sge is {val}, the scatter/gather list has {len(self._all)}")
        self.sges = self._all[:val]

    @property
    def sg_list(self) -> tuple[Element, ...]:
        """The elements in use, as (address, length, L_Key)."""
        return self.sges

    @sg_list.setter
    def sg_list(self, val: SGE | Sequence[SGE]) -> None:
        self._all = self.sges = _elements((val,) if isinstance(val, SGE) else val)


def _elements(sg: Sequence[SGE] | None) -> tuple[Element, ...]:
    return tuple([(each.addr, each.length, each.lkey) for each in sg]) if sg else ()


def _check_chain(request: _WorkRequest, following: _WorkRequest | None) -> None:
    """A chain must end: refuse one that would lead back to ``request``."""
    link = following
    while link is not None:
        if link is request:
            raise PyverbsUserError("The work requests would form a ring")
        link = link.following


class RecvWR(_WorkRequest, ReceiveRequest):
    """A receive work request: where the next message goes."""

    __slots__ = ()

    def __init__(
        self,
        wr_id: int = 0,
        num_sge: int = 0,
        sg: Sequence[SGE] | None = None,
        next_wr: "RecvWR | None" = None,
    ) -> None:
        if type(wr_id) is not int or not 0 <= wr_id <= _LARGEST:
            wr_id = UINT64(wr_id)
        if next_wr is not None:
            require(next_wr, RecvWR, "next_wr")
        self._init(wr_id, num_sge, sg)
        self.following = next_wr

    @property
    def next_wr(self) -> "RecvWR | None":
        """The next request of the chain."""
        following: RecvWR | None = self.following
        return following

    @next_wr.setter
    def next_wr(self, val: "RecvWR | None") -> None:
        if val is not None:
            require(val, RecvWR, "val")
        _check_chain(self, val)
        self.following = val

    def become(self, other: "RecvWR") -> None:
        """Take all values of ``other``."""
        for name in WorkRequest.__slots__:
            setattr(self, name, getattr(other, name))

    def __str__(self) -> str:
        return lines({"WR ID": self.wr_id, "Num SGE": self.num_sge})


class SendWR(_WorkRequest, SendRequest):
    """A send work request.

    ``imm_data`` is in network byte order (``socket.htonl``), as in libibverbs; for the operations with
    invalidate it is the key, in host order.
    """

    __slots__ = ("_window",)

    _window: "weakref.ref[MW] | None"  # that a bind was set for

    def __init__(
        self,
        wr_id: int = 0,
        opcode: int = _SEND,
        num_sge: int = 0,
        imm_data: int = 0,
        sg: Sequence[SGE] | None = None,
        send_flags: int = _SIGNALED,
        next_wr: "SendWR | None" = None,
    ) -> None:
        if (num_sge < 1 or sg is None) and opcode not in _WITHOUT_DATA:
            raise PyverbsUserError("A WR needs at least one SGE")
        try:
            _FIT_SEND(wr_id, imm_data, opcode, send_flags)
        except struct.error:
            wr_id, imm_data = UINT64(wr_id), UINT32(imm_data)
            opcode, send_flags = UINT32(opcode), UINT32(send_flags)
        if next_wr is not None:
            require(next_wr, SendWR, "next_wr")
        self._init(wr_id, num_sge, sg)
        self.following = next_wr
        self.opcode = int(opcode)
        self.imm_data = imm_data
        self.send_flags = int(send_flags)
        self.ah: AH | EEC | None = None
        self.remote_addr = self.remote_rkey = self.compare_add = self.swap = 0
        self.remote_qpn = self.remote_qkey = 0
        self._window = None

    @property
    def next_wr(self) -> "SendWR | None":
        """The next request of the chain."""
        following: SendWR | None = self.following
        return following

    @next_wr.setter
    def next_wr(self, val: "SendWR | None") -> None:
        if val is not None:
            require(val, SendWR, "val")
        _check_chain(self, val)
        self.following = val

    @property
    def rdma_remote_addr(self) -> int:
        """Remote address of an RDMA operation."""
        return self.remote_addr

    @property
    def rdma_rkey(self) -> int:
        """R_Key of an RDMA operation."""
        return self.remote_rkey

    def set_wr_ud(self, ah: "AH", rqpn: int, rqkey: int) -> None:
        """Address a datagram: handle, remote QP number, Q_Key."""
        from softhca.verbs.addr import AH

        require(ah, AH, "ah")
        self.remote_qpn, self.remote_qkey = UINT32(rqpn), UINT32(rqkey)
        self.ah = ah

    def set_wr_raw(self, ah: "AH", service: int = RAW_IPV6) -> None:
        """Address a raw datagram: a handle without a global route, and the raw service whose packet the data
        is, an EtherType or `SOFTHCA_RAW_IPV6`.  A completion gives the receiver the service as ``src_qp``.
        """
        self.set_wr_ud(ah, service, 0)

    def set_wr_rd(self, eec: "EEC", rqpn: int, rqkey: int) -> None:
        """Address a reliable datagram: the own EE context, remote QP number, Q_Key (with its high bit: that
        of the own QP).
        """
        from softhca.verbs.eec import EEC

        require(eec, EEC, "eec")
        self.remote_qpn, self.remote_qkey = UINT32(rqpn), UINT32(rqkey)
        self.ah = eec

    def set_qp_type_xrc(self, remote_srqn: int) -> None:
        """Of an XRC initiator: the number of the peer's shared receive queue that the request is for."""
        self.remote_qpn = remote_srqn

    def set_wr_rdma(self, rkey: int, addr: int) -> None:
        """Remote key and address of a write or read."""
        try:
            _FIT_RDMA(rkey, addr)
        except struct.error:
            rkey, addr = UINT32(rkey), UINT64(addr)
        self.remote_rkey, self.remote_addr = rkey, addr

    def set_wr_atomic(self, rkey: int, addr: int, compare_add: int, swap: int = 0) -> None:
        """Remote key, address and operands of an atomic: ``compare_add`` is compared, or added; ``swap`` is
        stored.
        """
        compare_add, swap = UINT64(compare_add), UINT64(swap)
        self.set_wr_rdma(rkey, addr)
        self.compare_add, self.swap = compare_add, swap

    def set_bind_wr(self, mw: "MW", bind_info: "MWBindInfo") -> None:
        """Bind ``mw`` (``IBV_WR_BIND_MW``).  Its new key is `rkey`, the next one after ``mw.rkey``."""
        from softhca.verbs.mr import MW, MWBindInfo

        require(mw, MW, "mw")
        require(bind_info, MWBindInfo, "bind_info")
        self.imm_data = inc_rkey(mw.rkey)
        self.remote_rkey, self.remote_addr = mw.handle, bind_info.addr
        self.compare_add, self.swap = bind_info.length, bind_info.rights_and_lkey
        self._window = weakref.ref(mw)
        mw._bound(bind_info)

    @property
    def rkey(self) -> int:
        """The key that a bind, or a fast registration, is to give."""
        return self.imm_data

    def set_reg_wr(
        self, fast_mr: "FastMR", pieces: "Sequence[Piece]", access: int, iova: int | None = None
    ) -> None:
        """Register memory in ``fast_mr`` (``SOFTHCA_WR_REG_MR``).  Its new key is `rkey`.

        ``pieces`` are (region, offset, length): parts of registered regions, which begin and end at borders
        of pages except at the very first and last byte.  Requests name the bytes from ``iova`` on, by
        default from the address of the first.
        """
        from softhca.verbs.fast_registration import FastMR

        require(fast_mr, FastMR, "fast_mr")
        wanted = fast_mr._registration(pieces, iova)
        self.imm_data = fast_mr._next_key()
        self.remote_rkey, self.remote_addr = fast_mr.handle, wanted.iova
        self.compare_add, self.swap = wanted.length, int(access) << 32 | wanted.page_offset
        self._all = self.sges = wanted.runs

    def become(self, other: "SendWR") -> None:
        """Take all values of ``other``."""
        for name in WorkRequest.__slots__ + SendRequest.__slots__:
            setattr(self, name, getattr(other, name))
        self._window = other._window

    def _give_key(self) -> None:
        """It is posted: if it binds a window, that has the new key."""
        window = self._window() if self._window is not None else None
        if window is not None and self.opcode == _BIND_MW and window._number == self.remote_rkey:
            window._rkey = self.rkey

    def __str__(self) -> str:
        return lines(
            {
                "WR ID": self.wr_id,
                "Num SGE": self.num_sge,
                "Opcode": self.opcode,
                "Send flags": send_flags_to_str(self.send_flags),
                "Imm Data": self.imm_data,
            }
        )


def send_flags_to_str(flags: int) -> str:
    """Names of ``ibv_send_flags``."""
    return flags_text(flags, _FLAG_NAMES)
