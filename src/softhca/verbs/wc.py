"""Work completions, and text for their numbers."""

from softhca.driver.work_requests import Completion
from softhca.verbs.base import PyverbsObject
from softhca.verbs.queue_enums import ibv_create_cq_wc_flags, ibv_wc_flags
from softhca.verbs.structures import UINT32, UINT64
from softhca.verbs.utils import flags_text, lines

_STATUSES = (
    "Success",
    "Local length error",
    "Local QP operation error",
    "Local EEC operation error",
    "Local protection error",
    "WR flush error",
    "Memory window bind error",
    "Bad response error",
    "Local access error",
    "Remote invalid request error",
    "Remote access error",
    "Remote operation error",
    "Transport retry exceeded",
    "RNR retry exceeded",
    "Local RDD violation error",
    "Remote invalid RD request error",
    "Remote aborted error",
    "Invalid EEC number error",
    "Invalid EEC state error",
    "Fatal error",
    "Response timeout error",
    "General error",
    "Tag matching error",
    "Incomplete rendezvous",
)
_OPCODES = {
    0: "Send",
    1: "RDMA write",
    2: "RDMA read",
    3: "Compare and swap",
    4: "Fetch and add",
    5: "Bind MW",
    6: "Local invalidate",
    7: "TSO",
    8: "Flush",
    9: "Atomic write",
    128: "Receive",
    129: "Receive RDMA with immediate",
}
_FLAGS: dict[int, str] = {int(each): str(each.name) for each in ibv_wc_flags}
_CREATION: dict[int, str] = {int(each): str(each.name) for each in ibv_create_cq_wc_flags}


_WORD_FIELDS = (
    "status",
    "opcode",
    "vendor_err",
    "byte_len",
    "qp_num",
    "src_qp",
    "imm_data",
    "wc_flags",
    "pkey_index",
    "slid",
    "sl",
    "dlid_path_bits",
)


class WC(PyverbsObject, Completion):
    """A work completion (``ibv_wc``).

    After an error only ``wr_id``, ``status``, ``qp_num`` and ``vendor_err`` count.  ``imm_data`` is the
    immediate in network byte order, or the invalidated key in host order, as ``wc_flags`` says.
    """

    __slots__ = ()

    def __init__(
        self,
        wr_id: int = 0,
        status: int = 0,
        opcode: int = 0,
        vendor_err: int = 0,
        byte_len: int = 0,
        qp_num: int = 0,
        src_qp: int = 0,
        imm_data: int = 0,
        wc_flags: int = 0,
        pkey_index: int = 0,
        slid: int = 0,
        sl: int = 0,
        dlid_path_bits: int = 0,
    ) -> None:
        self.wr_id = UINT64(wr_id)
        words = (
            status, opcode, vendor_err, byte_len, qp_num, src_qp, imm_data, wc_flags, pkey_index, slid, sl,
            dlid_path_bits,
        )  # fmt: skip
        for name, value in zip(_WORD_FIELDS, words, strict=True):
            setattr(self, name, UINT32(value))

    def __str__(self) -> str:
        return lines(
            {
                "WR ID": self.wr_id,
                "status": cqe_status_to_str(self.status),
                "opcode": cqe_opcode_to_str(self.opcode),
                "vendor error": self.vendor_err,
                "byte length": self.byte_len,
                "QP num": self.qp_num,
                "source QP": self.src_qp,
                "WC flags": cqe_flags_to_str(self.wc_flags),
                "pkey index": self.pkey_index,
                "slid": self.slid,
                "sl": self.sl,
                "imm_data": self.imm_data,
                "dlid path bits": self.dlid_path_bits,
            }
        )


def cqe_status_to_str(status: int) -> str:
    """Text of an ``ibv_wc_status``."""
    return _STATUSES[status] if 0 <= status < len(_STATUSES) else f"Unknown CQE status ({status})"


def cqe_opcode_to_str(opcode: int) -> str:
    """Text of an ``ibv_wc_opcode``."""
    return _OPCODES.get(opcode, f"Unknown CQE opcode ({opcode})")


def flags_to_str(flags: int, dictionary: dict[int, str]) -> str:
    """The names of the bits that are set."""
    return flags_text(flags, dictionary)


def cqe_flags_to_str(flags: int) -> str:
    """Names of ``ibv_wc_flags``."""
    return flags_text(flags, _FLAGS)


def create_wc_flags_to_str(flags: int) -> str:
    """Names of ``ibv_create_cq_wc_flags``."""
    return flags_text(flags, _CREATION)
