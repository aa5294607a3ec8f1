"""Completion queue entries: 48 bytes, little-endian; statuses, opcodes and flags are the verbs' numbers.

0 wr_id u64 · 8 status u8 · 9 opcode u8 · 10 wc_flags u16 · 12 qp_num u32 · 16 byte_len u32 · 20 imm_or_key
u32 · 24 src_qp u32 · 28 vendor_err u32 · 32 timestamp_ns u64 · 40 pkey_index u16 · 42 sl u8 · 43 path_bits
u8 · 44 slid u16 · 46 zero
"""

import struct
from array import array

import cython

from softhca.machine.primitives import address_of

CQE_BYTES = 48
CQE = struct.Struct("<QBBHIIIIIQHBBH2x")
FIELDS = ("wr_id", "status", "opcode", "wc_flags", "qp_num", "byte_len", "imm_or_key", "src_qp", "vendor_err",
          "timestamp_ns", "pkey_index", "sl", "path_bits", "slid")

WC_SUCCESS = 0
WC_LOC_LEN_ERR = 1
WC_LOC_QP_OP_ERR = 2
WC_LOC_EEC_OP_ERR = 3
WC_LOC_PROT_ERR = 4
WC_WR_FLUSH_ERR = 5
WC_MW_BIND_ERR = 6
WC_BAD_RESP_ERR = 7
WC_LOC_ACCESS_ERR = 8
WC_REM_INV_REQ_ERR = 9
WC_REM_ACCESS_ERR = 10
WC_REM_OP_ERR = 11
WC_RETRY_EXC_ERR = 12
WC_RNR_RETRY_EXC_ERR = 13
WC_LOC_RDD_VIOL_ERR = 14
WC_REM_INV_RD_REQ_ERR = 15
WC_REM_ABORT_ERR = 16
WC_INV_EECN_ERR = 17
WC_INV_EEC_STATE_ERR = 18
WC_FATAL_ERR = 19
WC_RESP_TIMEOUT_ERR = 20
WC_GENERAL_ERR = 21

WC_SEND = 0
WC_RDMA_WRITE = 1
WC_RDMA_READ = 2
WC_COMP_SWAP = 3
WC_FETCH_ADD = 4
WC_BIND_MW = 5
WC_LOCAL_INV = 6
WC_RECV = 128
WC_RECV_RDMA_WITH_IMM = 129
WC_DRIVER1 = 135

WC_GRH = 1
WC_WITH_IMM = 2
WC_WITH_INV = 8

_BYTE = cython.declare(cython.ulonglong, 0xFF)
_HALF = cython.declare(cython.ulonglong, 0xFFFF)
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)


class CompletionEntry:
    """One entry being written: 48 bytes at ``address``."""

    def __init__(self):
        self.words = array("Q", bytes(CQE_BYTES))
        self.address = address_of(self.words)

    def fill(self, wr_id, status, opcode, wc_flags, qp_num, byte_len, imm_or_key, src_qp, vendor_err,
             pkey_index, sl, slid, path_bits, now):
        """Write every field; ``now`` becomes ``timestamp_ns``.  A value wider than its field is cut."""
        word: cython.ulonglong
        self.words[0] = wr_id
        word = qp_num & _WORD
        self.words[1] = (word << 32) | ((wc_flags & _HALF) << 16) | ((opcode & _BYTE) << 8) | (status & _BYTE)
        word = imm_or_key & _WORD
        self.words[2] = (word << 32) | (byte_len & _WORD)
        word = vendor_err & _WORD
        self.words[3] = (word << 32) | (src_qp & _WORD)
        self.words[4] = now
        self.words[5] = ((slid & _HALF) << 32) | ((path_bits & _BYTE) << 24) | ((sl & _BYTE) << 16) \
            | (pkey_index & _HALF)
