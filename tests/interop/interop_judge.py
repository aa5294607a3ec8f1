"""Who owed what: a capture of a link, read as conversations of one requester with its responder each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

ATOMICS = (19, 20)
_LAST_OF_SENDS_AND_WRITES = 11
_READ_REQUEST = 12
_INVALIDATES = (22, 23)
_RNR, _NAK = 1, 3  # bits 6:5 of the syndrome
_PSNS = 1 << 24


def is_request(opcode: int) -> bool:
    """Whether a packet of an RC queue pair asks for something."""
    return opcode <= _READ_REQUEST or opcode in (*ATOMICS, *_INVALIDATES)


def _before(psn: int, other: int) -> bool:
    """Whether a PSN comes before another one."""
    return 0 < (other - psn) % _PSNS < _PSNS // 2


@dataclass
class Conversation:
    """What a requester has asked on one queue pair, and what it was answered.

    ``unasked``: request packets that were sent again though no RNR NAK or NAK had asked for that.  A NAK asks
    as well for what leaves before the requester has read it: it stands until the requester goes back, or is
    answered beyond it.
    """

    requests: int = 0
    again: int = 0
    unasked: int = 0
    highest: int = -1
    last_request: dict[str, Any] = field(default_factory=dict)
    last_answer: dict[str, Any] = field(default_factory=dict)
    _may_resend: Counter[int] = field(default_factory=Counter)
    _standing: list[int] = field(default_factory=list)
    _sent: dict[int, None] = field(default_factory=dict)

    def asked(self, frame: dict[str, Any]) -> None:
        """A request packet."""
        psn = frame["psn"]
        self.requests += 1
        if psn in self._sent:
            self.again += 1
            if self._may_resend[psn]:
                self._may_resend[psn] -= 1
            else:
                self.unasked += 1
            if self._standing and not _before(self.last_request["psn"], psn):
                self._standing.pop(0)  # the requester has gone back
        else:
            self._may_resend[psn] = sum(not _before(psn, first) for first in self._standing)
        self._sent[psn] = None
        self.highest = psn
        self.last_request = frame

    def answered(self, frame: dict[str, Any]) -> None:
        """A response packet."""
        if frame["syndrome"] >= 0 and frame["syndrome"] >> 5 in (_RNR, _NAK):
            first = frame["psn"]
            # each NAK once: a further one may be on its way while the packets that one asked for still leave
            self._may_resend.update(psn for psn in self._sent if not _before(psn, first))
            self._standing.append(first)
        else:
            self._standing = [first for first in self._standing if _before(frame["psn"], first)]
        self.last_answer = frame

    def owes(self) -> str:
        """Whose turn it is: ``requester``, or ``responder`` when the last that was heard is a request."""
        asked, answered = self.last_request.get("time_ns", 0), self.last_answer.get("time_ns", 0)
        return "responder" if asked > answered else "requester"

    def told(self) -> str:
        """The last packets in one line."""
        parts = []
        for name, frame in (("request", self.last_request), ("answer", self.last_answer)):
            if frame:
                parts.append(
                    f"last {name} opcode {frame['opcode']} PSN {frame['psn']:#08x}"
                    + (f" syndrome {frame['syndrome']:#04x}" if frame["syndrome"] >= 0 else "")
                )
        parts.append(f"the {self.owes()}'s turn")
        return ", ".join(parts)


def conversation(frames: Iterable[dict[str, Any]], requester_qpn: int, responder_qpn: int) -> Conversation:
    """The conversation between two queue pairs, of which the one has asked."""
    found = Conversation()
    for frame in frames:
        if frame["qpn"] == responder_qpn and is_request(frame["opcode"]):
            found.asked(frame)
        elif frame["qpn"] == requester_qpn and not is_request(frame["opcode"]):
            found.answered(frame)
    return found
