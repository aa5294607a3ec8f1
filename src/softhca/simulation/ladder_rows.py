"""What a ladder shows, in order: a trace's lines about two queue pairs as rows of its left and right side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from softhca.transport import observation as seen

LEFT, RIGHT = 0, 1
SENT, ARRIVED, MARK = "sent", "arrived", "mark"

# event inside an adapter → how its mark looks (`ladder_picture.MARKS`)
LOOKS: dict[str, str] = {
    seen.STATE_CHANGED: "state",
    seen.ASYNC_EVENT: "state",
    seen.RETRANSMISSION: "retry",
    seen.RNR_WAIT_OVER: "retry",
    seen.GAP: "nak",
    seen.NAK_SENT: "nak",
    seen.NAK_RECEIVED: "nak",
    seen.RNR_NAK_SENT: "rnr",
    seen.RNR_NAK_RECEIVED: "rnr",
    seen.MESSAGE_DROPPED: "drop",
    seen.PACKET_DROPPED: "drop",
    seen.RETRY_EXHAUSTED: "error",
    seen.RNR_RETRY_EXHAUSTED: "error",
    seen.PATH_MIGRATED: "retry",
    seen.SEND_FAILED: "error",
    seen.RECEIVE_FAILED: "error",
    seen.DUPLICATE_ANSWERED: "repeat",
    seen.GHOST_RESPONSE: "repeat",
}
_NAKS = {seen.NAK_SENT: "NAK", seen.RNR_NAK_SENT: "RNR_NAK"}
_FRAME = ("start", "end", "queue_pair")
_SHORTER = (
    ("RC_", ""), ("UC_", ""), ("UD_", ""), ("RDMA_", ""), ("ACKNOWLEDGE", "ACK"),
    ("_WITH_IMMEDIATE", "_IMM"), ("_WITH_INVALIDATE", "_INV"),
)  # fmt: skip


class End(NamedTuple):
    """A queue pair of an adapter."""

    adapter: int
    qp: int


Pair = tuple[End, End]


@dataclass(slots=True)
class Packet:
    """One packet: its number (0: no adapter sent it), who sent it (LEFT or RIGHT), its label, whether it
    answers, what became of it."""

    number: int
    side: int
    label: str
    answer: bool
    lost: str = ""
    arrives: bool = False


@dataclass(slots=True)
class Row:
    """Something at a moment on one side: a packet SENT, a copy ARRIVED, or a MARK.

    ``look`` is what was done to the arriving copy or the kind of mark; ``text`` stands beside the line.
    """

    time_ns: int
    side: int
    what: str
    text: str = ""
    look: str = ""
    packet: Packet | None = None
    times: int = 1


@dataclass(slots=True)
class Ladder:
    """Rows in order; ``before`` and ``after`` that many more are left out."""

    pair: Pair
    rows: list[Row] = field(default_factory=list)
    before: int = 0
    after: int = 0


def rows_of(records: Iterable[Mapping[str, Any]], pair: Pair) -> list[Row]:
    """All rows of a pair, in order."""
    reader = _Reader(pair)
    for record in records:
        reader.take(record)
    return reader.rows


class _Reader:
    """Collects what belongs to a pair.  ``_arrived``: when each adapter received its last packet, and which
    one of the pair's that was."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.rows: list[Row] = []
        self._packets: dict[int, Packet] = {}
        self._naks: list[tuple[int, str]] = [(-1, ""), (-1, "")]
        self._arrived: dict[int, tuple[int, Packet | None]] = {}

    def take(self, record: Mapping[str, Any]) -> None:
        event = record["event"]
        if event == "sent":
            self._sent(record)
        elif event == "lost":
            packet = self._packets.get(record["number"])
            if packet is not None:
                packet.lost = record["reason"]
        elif event == "received":
            self._received(record)
        elif event not in _FRAME:
            self._inside(record)

    def _sent(self, record: Mapping[str, Any]) -> None:
        for side, (end, peer) in enumerate((self.pair, self.pair[::-1])):
            source = record.get("source_qp", end.qp)
            if (record["adapter"], source, record.get("qp")) != (end.adapter, end.qp, peer.qp):
                continue
            name, psn = short(record["opcode"]), record["psn"]
            if name == "ACK" and self._naks[side][0] == psn:
                name = self._naks[side][1]
                self._naks[side] = -1, ""
            packet = _packet(record, record["number"], side, name)
            self._packets[packet.number] = packet
            self.rows.append(Row(record["time_ns"], side, SENT, packet.label, packet=packet))
            return

    def _received(self, record: Mapping[str, Any]) -> None:
        packet = self._packets.get(record["number"]) if "number" in record else self._foreign(record)
        self._arrived[record["adapter"]] = record["time_ns"], packet
        if packet is None:
            return
        packet.arrives = True
        reason = record.get("reason", "")
        text = f"{reason}: {packet.label}" if reason else ""
        self.rows.append(Row(record["time_ns"], 1 - packet.side, ARRIVED, text, reason, packet))

    def _foreign(self, record: Mapping[str, Any]) -> Packet | None:
        """A packet that no adapter of the world sent, if it names a queue pair of this pair."""
        for side, end in enumerate(self.pair):
            if (record["adapter"], record.get("qp")) == (end.adapter, end.qp):
                return _packet(record, 0, 1 - side, short(record["opcode"]))
        return None

    def _inside(self, record: Mapping[str, Any]) -> None:
        side = self._side(record)
        if side is None:
            return
        event, psn, reason = record["event"], record.get("psn", -1), record.get("reason", "")
        if event in _NAKS:
            self._naks[side] = psn, _NAKS[event]
        words = [event.replace("_", " ")]
        if event == seen.STATE_CHANGED:
            words = [record["state"]]
        if psn >= 0:
            words.append(str(psn))
        if reason:
            words.append(reason)
        self._mark(Row(record["time_ns"], side, MARK, " ".join(words), LOOKS.get(event, "state")))

    def _side(self, record: Mapping[str, Any]) -> int | None:
        """On which side an event happened, if on any.

        A packet that the adapter dropped may name any queue pair: it is the one that has just arrived.
        """
        adapter, time_ns = record["adapter"], record["time_ns"]
        if record["event"] == seen.PACKET_DROPPED and "state" not in record:
            moment, packet = self._arrived.get(adapter, (-1, None))
            if moment == time_ns:
                return None if packet is None else 1 - packet.side
        for side, end in enumerate(self.pair):
            if adapter == end.adapter and record.get("qp", end.qp) == end.qp:
                return side if "qp" in record or record["event"] not in seen.EVENTS else None
        return None

    def _mark(self, row: Row) -> None:
        """Add a mark; what repeats or goes on at once is one row with the last one of its side."""
        last = next((found for found in reversed(self.rows) if found.side == row.side), None)
        if last is not None and last.what == MARK and last.time_ns == row.time_ns and last.look == row.look:
            if last.text == row.text:
                last.times += 1
                return
            joined = join_states(last.text, row.text)
            if joined:
                last.text = joined
                return
        self.rows.append(row)


def _packet(record: Mapping[str, Any], number: int, side: int, name: str) -> Packet:
    answer = any(word in name for word in ("ACK", "NAK", "RESPONSE"))
    return Packet(number, side, f"{name} {record['psn']}, {record['length_bytes']} B", answer)


def short(opcode: str) -> str:
    """An opcode's name without what a ladder shows anyway."""
    for long, brief in _SHORTER:
        opcode = opcode.replace(long, brief)
    return opcode


def join_states(first: str, second: str) -> str:
    """``A>B why`` and ``B>C why`` as ``A>B>C why``; empty where they do not go on from each other."""
    states, _, reason = first.partition(" ")
    following, _, why = second.partition(" ")
    before, _, after = following.partition(">")
    if ">" in states and after and states.endswith(f">{before}") and reason == why:
        return f"{states}>{after} {reason}"
    return ""
