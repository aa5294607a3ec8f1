"""The layout of the host interface: every record, number and size that a host and an adapter share, as data.

This file and ``control_fields`` (commands) and ``handshake`` (the control socket) are the table: Python's
encoders and decoders take offsets, widths and numbers from it, and `header` makes the C header of it.  The
compiled modules take them at compile time: the build writes the constants of this module, those of
`placements` included, into a ``.pxd`` that they cimport as ``abi``; interpreted, ``abi`` is this module.

ABI_VERSION is the number that both sides must have.  It goes up with every change of the table that a client
could see; a host whose number is another one is refused when it attaches (``handshake``).

Nothing is imported here that is not in the standard library: the build runs this file before anything is
compiled.
"""

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

ABI_VERSION = 2

PAGE_BYTES = 4096
SLOT_PAGES = 4096
"""A frame number is 20 bits of slot and 12 bits of page."""

WORDS_PER_PAGE = PAGE_BYTES // 8
REFERENCES_PER_PAGE = PAGE_BYTES // 8

# Opcodes of send entries (ibv_wr_opcode).
RDMA_WRITE = 0
RDMA_WRITE_WITH_IMM = 1
SEND = 2
SEND_WITH_IMM = 3
RDMA_READ = 4
ATOMIC_CMP_AND_SWP = 5
ATOMIC_FETCH_AND_ADD = 6
LOCAL_INV = 7
BIND_MW = 8
SEND_WITH_INV = 9
REG_MR = 11
FLUSH = 14
ATOMIC_WRITE = 15

# Flags of send entries; these are not ibv_send_flags' bits.
SIGNALED = 1
FENCE = 2
SOLICITED = 4
INLINE = 8

# Limits of work queue entries.
MAX_SGES = 4096
MAX_INLINE_BYTES = 1 << 16
MAX_MESSAGE_BYTES = 1 << 31

# Status of a completion (ibv_wc_status).
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

# Opcode of a completion (ibv_wc_opcode).
WC_SEND = 0
WC_RDMA_WRITE = 1
WC_RDMA_READ = 2
WC_COMP_SWAP = 3
WC_FETCH_ADD = 4
WC_BIND_MW = 5
WC_LOCAL_INV = 6
WC_FLUSH = 8
WC_ATOMIC_WRITE = 9
WC_RECV = 128
WC_RECV_RDMA_WITH_IMM = 129
WC_DRIVER1 = 135

# Flags of a completion (ibv_wc_flags).
WC_GRH = 1
WC_WITH_IMM = 2
WC_WITH_INV = 8

# The arm word of a completion queue: at which completion its host wants one event.
ARM_NONE = 0
ARM_NEXT = 1
ARM_SOLICITED = 2

# Bounds of a ring.
MAX_ENTRIES = 1 << 24
MAX_BODY_BYTES = 1 << 31

# The control rings, in this order: commands, replies, events.
COMMAND_ENTRIES = 64
COMMAND_BYTES = 256 << 10
COMMAND_BODY_BYTES = 2 * COMMAND_BYTES
REPLY_BYTES = 8 << 10
REPLY_BODY_BYTES = COMMAND_ENTRIES * REPLY_BYTES
EVENT_ENTRIES = 1024
EVENT_BODY_BYTES = EVENT_ENTRIES * 16

# The doorbell FIFO of a host.
DOORBELL_SLOTS = 16_384
MAX_DOORBELL_SLOTS = 1 << 22

# The receive ring of an agent: its entries are a mad_header and the datagram.
MAX_AGENT_ENTRIES = 1024
MAD_BYTES = 256

# The ring of a connection channel: its entries are a cm_header and private data.
MAX_CM_ENTRIES = 1024
CM_PRIVATE_BYTES = 224

# The sleep flag of an adapter process.
ADAPTER_AWAKE = 0
ADAPTER_ASLEEP = 1

# The control socket.
MESSAGE_MAGIC = int.from_bytes(b"SHCA", "little")
MESSAGE_BYTES = 64 << 10
MAX_DESCRIPTORS = 3
PROBE_BYTES = 16

WIDTHS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}
_FORMATS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q"}


@dataclass(frozen=True)
class Record:
    """A structure of fixed size: its fields as (name, kind, offset in bytes), in order; what lies between
    them is zero.  Numbers are little-endian.  ``about`` is its line in the C header.

    ValueError for fields that overlap, do not fit or are not aligned to their width: C must not need padding
    other than ours.
    """

    name: str
    size_bytes: int
    about: str
    fields: tuple[tuple[str, str, int], ...]

    def __post_init__(self) -> None:
        end = 0
        for name, kind, offset in self.fields:
            if offset < end or offset % WIDTHS[kind]:
                raise ValueError(f"{self.name}.{name} cannot stand at {offset}")
            end = offset + WIDTHS[kind]
        if end > self.size_bytes:
            raise ValueError(f"{self.name} does not fit {self.size_bytes} bytes")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(name for name, _, _ in self.fields)

    def packing(self) -> struct.Struct:
        """How the fields are packed, the gaps as zeros."""
        form, end = "<", 0
        for _, kind, offset in self.fields:
            form += f"{offset - end}x{_FORMATS[kind]}" if offset > end else _FORMATS[kind]
            end = offset + WIDTHS[kind]
        return struct.Struct(form + (f"{self.size_bytes - end}x" if end < self.size_bytes else ""))


SEND_WQE = Record("send_wqe", 64, "what precedes the elements, or the inline bytes, of a send", (
    ("opcode", "u8", 0),
    ("flags", "u8", 1),
    ("num_sge", "u16", 2),
    ("imm_or_key", "u32", 4),
    ("wr_id", "u64", 8),
    ("remote_va", "u64", 16),
    ("rkey", "u32", 24),
    ("inline_bytes", "u32", 28),
    ("compare_add", "u64", 32),
    ("swap", "u64", 40),
    ("ah", "u32", 48),
    ("remote_qpn", "u32", 52),
    ("remote_qkey", "u32", 56),
))  # fmt: skip

RECV_WQE = Record("recv_wqe", 16, "what precedes the elements of a receive", (
    ("num_sge", "u16", 0),
    ("wr_id", "u64", 8),
))  # fmt: skip

SGE = Record("sge", 16, "a scatter/gather element", (
    ("va", "u64", 0),
    ("length", "u32", 8),
    ("lkey", "u32", 12),
))  # fmt: skip

PAGE_RUN = Record("page_run", 16, "an element of a REG_MR entry: a run of pages", (
    ("first_frame", "u64", 0),
    ("count", "u32", 8),
))  # fmt: skip

CQE = Record("cqe", 48, "a completion queue entry", (
    ("wr_id", "u64", 0),
    ("status", "u8", 8),
    ("opcode", "u8", 9),
    ("wc_flags", "u16", 10),
    ("qp_num", "u32", 12),
    ("byte_len", "u32", 16),
    ("imm_or_key", "u32", 20),
    ("src_qp", "u32", 24),
    ("vendor_err", "u32", 28),
    ("timestamp_ns", "u64", 32),
    ("pkey_index", "u16", 40),
    ("sl", "u8", 42),
    ("path_bits", "u8", 43),
    ("slid", "u16", 44),
))  # fmt: skip

RING = Record("ring", PAGE_BYTES, "the first page of a ring, a cache line a word", (
    ("tail", "u64", 0),
    ("head", "u64", 64),
    ("arm", "u64", 128),
))  # fmt: skip

REFERENCE = Record("reference", 8, "where an entry stands in the body store", (
    ("body_offset", "u32", 0),
    ("body_bytes", "u32", 4),
))  # fmt: skip

DOORBELLS = Record("doorbells", PAGE_BYTES, "the first page of the doorbell FIFO", (
    ("tail", "u64", 0),
    ("head", "u64", 64),
))  # fmt: skip

COMMAND_HEADER = Record("command_header", 16, "what precedes the fields of a command", (
    ("command", "u16", 0),
    ("reserved", "u16", 2),
    ("tag", "u32", 4),
    ("bytes", "u32", 8),
    ("reserved2", "u32", 12),
))  # fmt: skip

REPLY_HEADER = Record("reply_header", 16, "what precedes the fields of a reply", (
    ("tag", "u32", 0),
    ("command", "u16", 4),
    ("error", "u16", 6),
    ("bytes", "u32", 8),
    ("reserved", "u32", 12),
))  # fmt: skip

EVENT = Record("event", 16, "an entry of the event ring", (
    ("kind", "u32", 0),
    ("element", "u32", 4),
    ("extra", "u64", 8),
))  # fmt: skip

MAD_HEADER = Record("mad_header", 56, "what precedes a datagram in an agent's ring", (
    ("status", "u32", 0),
    ("qpn", "u32", 4),
    ("qkey", "u32", 8),
    ("pkey", "u16", 12),
    ("lid", "u16", 14),
    ("sl", "u8", 16),
    ("path_bits", "u8", 17),
    ("has_grh", "u8", 18),
    ("traffic_class", "u8", 19),
    ("gid_prefix", "u64", 24),
    ("gid_interface", "u64", 32),
    ("own_gid_prefix", "u64", 40),
    ("own_gid_interface", "u64", 48),
))  # fmt: skip

MAD_ENTRY_BYTES = MAD_HEADER.size_bytes + MAD_BYTES

CM_HEADER = Record("cm_header", 152, "what precedes the private data of an event in a connection channel", (
    ("kind", "u32", 0),
    ("id", "u32", 4),
    ("listener", "u32", 8),
    ("status", "u32", 12),
    ("service_id", "u64", 16),
    ("remote_ca_guid", "u64", 24),
    ("gid_prefix", "u64", 32),
    ("gid_interface", "u64", 40),
    ("own_gid_prefix", "u64", 48),
    ("own_gid_interface", "u64", 56),
    ("qp_num", "u32", 64),
    ("starting_psn", "u32", 68),
    ("qkey", "u32", 72),
    ("flow_label", "u32", 76),
    ("pkey", "u16", 80),
    ("private_bytes", "u16", 82),
    ("qp_type", "u8", 84),
    ("path_mtu", "u8", 85),
    ("responder_resources", "u8", 86),
    ("initiator_depth", "u8", 87),
    ("retry_cnt", "u8", 88),
    ("rnr_retry", "u8", 89),
    ("srq", "u8", 90),
    ("flow_control", "u8", 91),
    ("ack_timeout", "u8", 92),
    ("traffic_class", "u8", 93),
    ("hop_limit", "u8", 94),
    ("sl", "u8", 95),
    ("lid", "u16", 96),
    ("own_lid", "u16", 98),
    ("alternate_lid", "u16", 100),
    ("alternate_own_lid", "u16", 102),
    ("alternate_flow_label", "u32", 104),
    ("alternate_ack_timeout", "u8", 108),
    ("alternate_traffic_class", "u8", 109),
    ("alternate_hop_limit", "u8", 110),
    ("alternate_sl", "u8", 111),
    ("alternate_gid_prefix", "u64", 112),
    ("alternate_gid_interface", "u64", 120),
    ("alternate_own_gid_prefix", "u64", 128),
    ("alternate_own_gid_interface", "u64", 136),
    ("alternate_packet_rate", "u8", 144),
    ("failover", "u8", 145),
))  # fmt: skip

CM_ENTRY_BYTES = CM_HEADER.size_bytes + CM_PRIVATE_BYTES

MESSAGE_HEADER = Record("message_header", 20, "what precedes the fields of a message on the control socket", (
    ("magic", "u32", 0),
    ("version", "u32", 4),
    ("message", "u32", 8),
    ("error", "u32", 12),
    ("bytes", "u32", 16),
))  # fmt: skip

RECORDS = (SEND_WQE, RECV_WQE, SGE, PAGE_RUN, CQE, RING, REFERENCE,
           DOORBELLS, COMMAND_HEADER, REPLY_HEADER, EVENT, MAD_HEADER, CM_HEADER, MESSAGE_HEADER)  # fmt: skip


def constants() -> dict[str, int]:
    """The numbers of this module by name, in the order in which they stand here."""
    return {name: value for name, value in globals().items() if name.isupper() and isinstance(value, int)
            and name not in _PLACED}


def placements() -> dict[str, int]:
    """Where the fields stand: ``SEND_WQE_RKEY_AT`` is the byte, ``SEND_WQE_RKEY_WORD`` the word of 64
    bits and ``SEND_WQE_RKEY_SHIFT`` the bit in it; ``SEND_WQE_BYTES`` is the size."""
    found = {}
    for record in RECORDS:
        prefix = record.name.upper()
        found[f"{prefix}_BYTES"] = record.size_bytes
        for name, _, offset in record.fields:
            place = f"{prefix}_{name.upper()}"
            found[f"{place}_AT"] = offset
            found[f"{place}_WORD"] = offset // 8
            found[f"{place}_SHIFT"] = offset % 8 * 8
    return found


_PLACED = placements()
globals().update(_PLACED)

if TYPE_CHECKING:

    def __getattr__(name: str) -> int:
        """One of `placements`."""
