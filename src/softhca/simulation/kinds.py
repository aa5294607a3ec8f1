"""Kinds of requests in a world; services, opcodes and completion statuses as the verbs number them."""

from __future__ import annotations

RC, UC, UD, RAW = 2, 3, 4, 8
"""ibv_qp_type"""

SEND, SEND_IMM, WRITE, WRITE_IMM, READ, ADD, SWAP = (
    "send", "send_imm", "write", "write_imm", "read", "add", "swap",
)  # fmt: skip
OVERWRITE = "overwrite"
"""An RDMA WRITE to where an earlier one of the same queue pair went."""
READ_BACK = "read_back"
"""An RDMA READ of what an earlier RDMA WRITE of the same queue pair wrote."""
RELAY = "relay"
"""A fenced SEND of what an earlier RDMA READ of the same queue pair brought."""
BOARD_WRITE, BOARD_READ = "board_write", "board_read"
"""A whole board of counted words is written by one queue pair while others read it."""

ATOMIC_WRITE, FLUSH = "atomic_write", "flush"
"""Of annex A19."""

MESSAGES = frozenset({SEND, SEND_IMM, WRITE_IMM, RELAY})
"""Kinds that use a receive."""
WRITES = frozenset({WRITE, WRITE_IMM, OVERWRITE})
READS = frozenset({READ, READ_BACK})
ATOMICS = frozenset({ADD, SWAP})
OPCODES = {
    WRITE: 0, OVERWRITE: 0, BOARD_WRITE: 0, WRITE_IMM: 1, SEND: 2, RELAY: 2, SEND_IMM: 3,
    READ: 4, READ_BACK: 4, BOARD_READ: 4, SWAP: 5, ADD: 6, FLUSH: 14, ATOMIC_WRITE: 15,
}  # fmt: skip
"""ibv_wr_opcode"""
COMPLETED = {
    SEND: 0, RELAY: 0, SEND_IMM: 0, WRITE: 1, OVERWRITE: 1, BOARD_WRITE: 1, WRITE_IMM: 1,
    READ: 2, READ_BACK: 2, BOARD_READ: 2, SWAP: 3, ADD: 4,
}  # fmt: skip
"""ibv_wc_opcode of a send request"""
RECEIVED, RECEIVED_WRITE = 128, 129
"""ibv_wc_opcode of a receive"""
NEEDS_WRITE = frozenset({WRITE, WRITE_IMM, OVERWRITE, BOARD_WRITE, READ_BACK})
NEEDS_READ = frozenset({READ, READ_BACK, RELAY, BOARD_READ})

SUCCESS = 0
LOCAL_LENGTH = 1
LOCAL_OPERATION = 2
LOCAL_PROTECTION = 4
FLUSHED = 5
BAD_RESPONSE = 7
REMOTE_INVALID = 9
REMOTE_ACCESS = 10
REMOTE_OPERATION = 11
RETRY_EXCEEDED = 12
RNR_EXCEEDED = 13
"""ibv_wc_status"""
