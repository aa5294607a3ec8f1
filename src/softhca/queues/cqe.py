"""Completion queue entries (``layout.CQE``); statuses, opcodes and flags are the verbs' numbers."""

from __future__ import annotations

from array import array

import cython

from softhca.machine.primitives import address_of
from softhca.queues import layout
from softhca.queues import layout as abi
from softhca.queues.layout import (  # noqa: F401 - a completion's numbers are taken from here
    WC_BAD_RESP_ERR,
    WC_BIND_MW,
    WC_COMP_SWAP,
    WC_DRIVER1,
    WC_FATAL_ERR,
    WC_FETCH_ADD,
    WC_GENERAL_ERR,
    WC_GRH,
    WC_INV_EEC_STATE_ERR,
    WC_INV_EECN_ERR,
    WC_LOC_ACCESS_ERR,
    WC_LOC_EEC_OP_ERR,
    WC_LOC_LEN_ERR,
    WC_LOC_PROT_ERR,
    WC_LOC_QP_OP_ERR,
    WC_LOC_RDD_VIOL_ERR,
    WC_LOCAL_INV,
    WC_MW_BIND_ERR,
    WC_RDMA_READ,
    WC_RDMA_WRITE,
    WC_RECV,
    WC_RECV_RDMA_WITH_IMM,
    WC_REM_ABORT_ERR,
    WC_REM_ACCESS_ERR,
    WC_REM_INV_RD_REQ_ERR,
    WC_REM_INV_REQ_ERR,
    WC_REM_OP_ERR,
    WC_RESP_TIMEOUT_ERR,
    WC_RETRY_EXC_ERR,
    WC_RNR_RETRY_EXC_ERR,
    WC_SEND,
    WC_SUCCESS,
    WC_WITH_IMM,
    WC_WITH_INV,
    WC_WR_FLUSH_ERR,
)

CQE_BYTES = layout.CQE.size_bytes
CQE = layout.CQE.packing()
FIELDS = layout.CQE.names

_BYTE = cython.declare(cython.ulonglong, 0xFF)
_HALF = cython.declare(cython.ulonglong, 0xFFFF)
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)


class CompletionEntry:
    """One entry being written: CQE_BYTES at ``address``."""

    def __init__(self) -> None:
        self.words = array("Q", bytes(CQE_BYTES))
        self.address = address_of(self.words)

    def fill(
        self, wr_id: int, status: int, opcode: int, wc_flags: int, qp_num: int, byte_len: int,
        imm_or_key: int, src_qp: int, vendor_err: int, pkey_index: int, sl: int, slid: int, path_bits: int,
        now: int,
    ) -> None:
        """Write every field; ``now`` becomes ``timestamp_ns``.  A value wider than its field is cut."""
        # Fields of one word are written together; that they are in one is held by a test.
        self.words[abi.CQE_WR_ID_WORD] = wr_id
        self.words[abi.CQE_STATUS_WORD] = (
            (status & _BYTE) << abi.CQE_STATUS_SHIFT | (opcode & _BYTE) << abi.CQE_OPCODE_SHIFT
            | (wc_flags & _HALF) << abi.CQE_WC_FLAGS_SHIFT
            | (qp_num & _WORD) << abi.CQE_QP_NUM_SHIFT)
        self.words[abi.CQE_BYTE_LEN_WORD] = (
            (byte_len & _WORD) << abi.CQE_BYTE_LEN_SHIFT
            | (imm_or_key & _WORD) << abi.CQE_IMM_OR_KEY_SHIFT)
        self.words[abi.CQE_SRC_QP_WORD] = (
            (src_qp & _WORD) << abi.CQE_SRC_QP_SHIFT
            | (vendor_err & _WORD) << abi.CQE_VENDOR_ERR_SHIFT)
        self.words[abi.CQE_TIMESTAMP_NS_WORD] = now
        self.words[abi.CQE_PKEY_INDEX_WORD] = (
            (pkey_index & _HALF) << abi.CQE_PKEY_INDEX_SHIFT | (sl & _BYTE) << abi.CQE_SL_SHIFT
            | (path_bits & _BYTE) << abi.CQE_PATH_BITS_SHIFT | (slid & _HALF) << abi.CQE_SLID_SHIFT)
