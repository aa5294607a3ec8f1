"""What an observer of an adapter is given: the names of what happens inside, and their reasons.

``Environment.observer`` is None or a callable ``observer(event, qp_number, psn, state, reason)``.  It is
called at rare points only, never for a packet that is in order, and must neither raise nor call back.
``event`` is one of `EVENTS`; ``qp_number`` and ``psn`` are −1 where there is none; ``state`` is the queue
pair's (`states.NAMES`), of a state change both, as in ``RTS>ERR``; ``reason`` is a word of the event, and a
number after it where it has one.  Unset texts are empty.
"""

from __future__ import annotations

from collections.abc import Callable

from softhca.queues import control_fields
from softhca.wire import bth, grh, lrh
from softhca.wire.framing import NATIVE

STATE_CHANGED = "state_changed"
RETRANSMISSION = "retransmission"
RETRY_EXHAUSTED = "retry_exhausted"
GAP = "gap"
NAK_SENT = "nak_sent"
NAK_RECEIVED = "nak_received"
RNR_NAK_SENT = "rnr_nak_sent"
RNR_NAK_RECEIVED = "rnr_nak_received"
RNR_WAIT_OVER = "rnr_wait_over"
RNR_RETRY_EXHAUSTED = "rnr_retry_exhausted"
MEMORY_HELD = "memory_held"
MEMORY_TRIED = "memory_tried"
RESPONSE_PACED = "response_paced"
DUPLICATE_ANSWERED = "duplicate_answered"
GHOST_RESPONSE = "ghost_response"
MESSAGE_DROPPED = "message_dropped"
PACKET_DROPPED = "packet_dropped"
SEND_FAILED = "send_failed"
RECEIVE_FAILED = "receive_failed"
PATH_MIGRATED = "path_migrated"
ASYNC_EVENT = "async_event"

# event → (meaning, what its PSN is, its reasons)
EVENTS: dict[str, tuple[str, str, str]] = {
    STATE_CHANGED: (
        "a queue pair goes from one state to another",
        "",
        "`modify`, `completion_error`, `completion_lost`, `destroy`, or the NAK with which it answered",
    ),
    RETRANSMISSION: (
        "a requester goes back",
        "where it sends again from",
        "`timeout`, `sequence_error` (a NAK) or `implied_nak`",
    ),
    RETRY_EXHAUSTED: (
        "a requester gives up",
        "the oldest that is not answered",
        "that of the retransmission for which no retry is left",
    ),
    PATH_MIGRATED: (
        "a connection takes its alternate path",
        "",
        "`migrate` (the consumer), `peer_migrated`, or `path_failed`: no retry is left, or the port is down",
    ),
    GAP: ("a responder misses packets", "of the first packet beyond them", "`expected` and the PSN missed"),
    NAK_SENT: ("a NAK is written", "of the NAK", "its code"),
    NAK_RECEIVED: ("a NAK is taken", "of the NAK", "its code"),
    RNR_NAK_SENT: (
        "no receive is posted, or memory is held",
        "of the NAK",
        "`wait_ns` and the delay asked for",
    ),
    RNR_NAK_RECEIVED: ("an RNR NAK is taken", "of the NAK", "`wait_ns` and the delay asked for"),
    RNR_WAIT_OVER: ("a requester goes on after an RNR NAK", "where it sends again from", ""),
    RNR_RETRY_EXHAUSTED: ("a requester gives up after an RNR NAK", "of the NAK", ""),
    MEMORY_HELD: (
        "registered memory cannot be touched now",
        "of the packet that has to wait",
        "`request` (from the peer), `answer` (to its RDMA READ), `source` (of what is to be sent) or "
        "`result` (of an own READ or atomic)",
    ),
    MEMORY_TRIED: (
        "what waited for held memory is tried again",
        "as above",
        "`answer`, `source` or `result`",
    ),
    RESPONSE_PACED: (
        "the answer to an RDMA READ waits, to keep its pace",
        "of the packet that has to wait",
        "`wait_ns` and how long",
    ),
    DUPLICATE_ANSWERED: (
        "a request that was executed before is answered again",
        "of the request",
        "`acknowledged`, `read` or `atomic`",
    ),
    GHOST_RESPONSE: ("a response answers nothing outstanding", "of the response", ""),
    MESSAGE_DROPPED: (
        "UC or UD gives a message up",
        "of the packet missed, or of the one refused",
        "a drop's name",
    ),
    PACKET_DROPPED: ("a packet is ignored", "as it stands in the packet", "a drop's name (`wire/drops.py`)"),
    SEND_FAILED: ("a send request completes in error", "its first, where it was begun", "the status"),
    RECEIVE_FAILED: ("a receive completes in error", "", "the status"),
    ASYNC_EVENT: (
        "an asynchronous event is reported to the host",
        "",
        "the event's name, for a CQ or SRQ with its number",
    ),
}

# reasons
MODIFIED = "modify"
COMPLETION_ERROR = "completion_error"
COMPLETION_LOST = "completion_lost"
DESTROYED = "destroy"
TIMEOUT = "timeout"
SEQUENCE_ERROR = "sequence_error"
IMPLIED_NAK = "implied_nak"
EXPECTED = "expected"
WAIT_NS = "wait_ns"
HELD_REQUEST = "request"
HELD_ANSWER = "answer"
HELD_SOURCE = "source"
HELD_RESULT = "result"
ACKNOWLEDGED = "acknowledged"
READ_AGAIN = "read"
ATOMIC_AGAIN = "atomic"

# by the low five bits of a NAK's syndrome (IBTA table 46); all others are reserved
_NAK_CODES = (
    SEQUENCE_ERROR, "invalid_request", "remote_access_error", "remote_operational_error",
    "invalid_rd_request",
)  # fmt: skip
NAK_NAMES: tuple[str, ...] = _NAK_CODES + ("reserved",) * (32 - len(_NAK_CODES))

# by ``ibv_wc_status``
STATUS_NAMES: tuple[str, ...] = (
    "SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR",
    "MW_BIND_ERR", "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR",
    "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR",
    "INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR",
)  # fmt: skip

# by ``ibv_event_type``
ASYNC_EVENT_NAMES: dict[int, str] = {
    number: name.removeprefix("EVENT_")
    for name, number in vars(control_fields).items()
    if name.startswith("EVENT_") and isinstance(number, int)
}


def addressed(packet: bytes, framing: int) -> tuple[int, int]:
    """Destination queue pair and PSN as they stand in a segment, damaged or not; −1 where it has no BTH."""
    o = 0
    if framing == NATIVE:
        o = lrh.LENGTH_BYTES
        if len(packet) > lrh.SL_LNH and packet[lrh.SL_LNH] & 3 < lrh.LNH_LOCAL:
            return -1, -1
        if len(packet) > lrh.SL_LNH and packet[lrh.SL_LNH] & 3 == lrh.LNH_GLOBAL:
            o += grh.LENGTH_BYTES
    if len(packet) < o + bth.LENGTH_BYTES:
        return -1, -1
    header = bth.Bth.decode(packet, o)
    return header.dest_qp, header.psn


def observe_event(observer: Callable[..., object], kind: int, element: int) -> None:
    """Report to ``observer`` an asynchronous event of a host about an element."""
    name = ASYNC_EVENT_NAMES[kind]
    if kind in control_fields.QP_EVENTS:
        observer(ASYNC_EVENT, element, -1, "", name)
    else:
        observer(ASYNC_EVENT, -1, -1, "", f"{name} {element}")
