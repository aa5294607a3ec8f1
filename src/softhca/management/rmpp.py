"""RMPP: answers that are longer than one datagram, segment by segment (IBTA vol. 1, 13.6).

A `Sender` sends segments up to the window that the receiver's last ACK opened, and again those that are not
acknowledged in time.  A `Receiver` takes segments in order and acknowledges them, by datagrams with
the method of the request.  Both are of subnet
administration: a segment has 200 bytes, and 20 bytes of its header count as payload.
"""

from __future__ import annotations

from dataclasses import replace

from softhca.management.administration_attributes import AdministrationHeader
from softhca.management.constants import CLASS_SUBN_ADM, MAD_BYTES, RESPONSE
from softhca.management.mad import MadHeader
from softhca.wire.errors import WireError

VERSION = 1
DATA, ACK, STOP, ABORT = 1, 2, 3, 4
ACTIVE, FIRST, LAST = 1, 2, 4
SEGMENT_BYTES = 200
HEADER_BYTES = 20
HEADER_AT = 24
DATA_AT = 56
NEVER_NS = (1 << 64) - 1
STATUS_NO_RESOURCES = 1
STATUS_BAD_TYPE = 121
STATUS_BAD_VERSION = 125
STATUS_TOO_MANY_RETRIES = 126
STATUS_UNSPECIFIED = 127
WINDOW = 16
MOST_AHEAD = 64
"""So many segments beyond the last that was acknowledged a sender sends at most, whatever it is allowed."""


class Sender:
    """Sends ``data`` under a datagram's ``header`` (its response, for the same transaction)."""

    def __init__(
        self,
        header: MadHeader,
        administration: AdministrationHeader,
        data: bytes,
        timeout_ns: int = 500_000_000,
        retries: int = 5,
    ) -> None:
        self._header = header
        self._administration = administration
        self._data = data
        self.segments = max(1, -(-len(data) // SEGMENT_BYTES))
        self._timeout_ns = timeout_ns
        self._retries = retries
        self._acknowledged = 0
        self._sent = 0
        self._window_last = 1
        self._tries = 0
        self.done = False
        self.deadline_ns = NEVER_NS

    @property
    def complete(self) -> bool:
        """Whether all has been acknowledged, or need not be."""
        return self.done and (self._acknowledged >= self.segments or self.segments == 1)

    def start(self, now: int) -> list[bytes]:
        """The first segment; an answer of one segment waits for no ACK."""
        out = self._send(1, now)
        if self.segments == 1:
            self.done = True
            self.deadline_ns = NEVER_NS
        return out

    def receive(self, mad: bytes, now: int) -> list[bytes]:
        """An ACK, STOP or ABORT of the receiver; what is to be sent then."""
        try:
            said = AdministrationHeader.decode(mad, HEADER_AT)
        except WireError:
            return []
        if said.rmpp_type in (STOP, ABORT):
            self.done = True
        if self.done or said.rmpp_type != ACK or said.rmpp_version != VERSION:
            return []
        acknowledged, window = said.segment_number, said.payload_length
        if not self._acknowledged <= acknowledged <= self._sent or window < self._window_last:
            return []
        last = max(self._window_last, min(window, acknowledged + MOST_AHEAD))
        if (acknowledged, last) == (self._acknowledged, self._window_last):
            return []  # nothing new: it keeps no timer from ending
        if acknowledged > self._acknowledged:
            self._tries = 0
        self._acknowledged = acknowledged
        self._window_last = last
        if acknowledged >= self.segments:
            self.done = True
            self.deadline_ns = NEVER_NS
            return []
        return self._send(max(self._sent, acknowledged) + 1, now)

    def expire(self, now: int) -> list[bytes]:
        """Send what is not acknowledged again, or give up by an ABORT."""
        if self.done or now < self.deadline_ns:
            return []
        self._tries += 1
        if self._tries > self._retries:
            self.done = True
            self.deadline_ns = NEVER_NS
            return [self._mad(replace(self._front(ABORT, 0), rmpp_status=STATUS_TOO_MANY_RETRIES), b"")]
        return self._send(self._acknowledged + 1, now)

    def _send(self, first: int, now: int) -> list[bytes]:
        last = min(self._window_last, self.segments)
        out = [self._segment(number) for number in range(first, last + 1)]
        self._sent = max(self._sent, last)
        self.deadline_ns = now + self._timeout_ns
        return out

    def _segment(self, number: int) -> bytes:
        flags = ACTIVE | (FIRST if number == 1 else 0) | (LAST if number == self.segments else 0)
        part = self._data[(number - 1) * SEGMENT_BYTES : number * SEGMENT_BYTES]
        length = 0
        if number == self.segments:
            length = len(part) + HEADER_BYTES
        elif number == 1:
            length = len(self._data) + self.segments * HEADER_BYTES
        front = replace(self._front(DATA, number), rmpp_flags=flags, payload_length=length)
        return self._mad(front, part)

    def _front(self, kind: int, number: int) -> AdministrationHeader:
        return replace(
            self._administration, rmpp_version=VERSION, rmpp_type=kind, rmpp_flags=ACTIVE, rmpp_status=0,
            segment_number=number, payload_length=0,
        )  # fmt: skip

    def _mad(self, front: AdministrationHeader, part: bytes) -> bytes:
        return (self._header.encode() + front.encode() + part).ljust(MAD_BYTES, b"\0")


class Receiver:
    """Takes the segments of one answer.  ``data`` is whole when ``done``; ``failed``: the sender gave up, or
    sent what cannot be; more than ``most`` bytes are not taken.  Segments of a whole answer that come again
    are acknowledged again: the last ACK was lost.
    """

    def __init__(self, most: int = 1 << 22) -> None:
        self.data = b""
        self.done = False
        self.failed = False
        self.administration = AdministrationHeader()
        self._next = 1
        self._most = most

    def receive(self, mad: bytes) -> bytes | None:
        """A datagram of the sender; the ACK or ABORT to send, None where none is due."""
        try:
            header = MadHeader.decode(mad)
            said = AdministrationHeader.decode(mad, HEADER_AT)
        except WireError:
            return None
        if self.failed:
            return None
        if self.done:
            again = said.rmpp_type == DATA and 0 < said.segment_number < self._next and self._next > 2
            return self._say(header, said, ACK, self._next - 1, self._next - 1 + WINDOW, 0) if again else None
        if said.rmpp_type in (STOP, ABORT):
            self.failed = True
            return None
        if said.rmpp_version != VERSION:
            self.failed = True
            return self._say(header, said, ABORT, 0, 0, STATUS_BAD_VERSION)
        if said.rmpp_type != DATA or not said.rmpp_flags & ACTIVE:
            self.failed = True
            return self._say(header, said, ABORT, 0, 0, STATUS_BAD_TYPE)
        if said.segment_number == self._next:
            length = SEGMENT_BYTES
            if said.rmpp_flags & LAST:
                length = min(max(said.payload_length - HEADER_BYTES, 0), SEGMENT_BYTES)
                self.done = True
            self.administration = said
            self.data += mad[DATA_AT : DATA_AT + length]
            self._next += 1
            if len(self.data) > self._most:
                self.failed = True
                self.done = False
                return self._say(header, said, ABORT, 0, 0, STATUS_UNSPECIFIED)
        if self.done and self._next == 2:
            return None  # one segment: no ACK is due
        return self._say(header, said, ACK, self._next - 1, self._next - 1 + WINDOW, 0)

    def _say(
        self, header: MadHeader, said: AdministrationHeader, kind: int, segment: int, window: int, status: int
    ) -> bytes:
        front = replace(
            said, rmpp_version=VERSION, rmpp_type=kind, rmpp_flags=ACTIVE, rmpp_status=status,
            segment_number=segment, payload_length=window,
        )  # fmt: skip
        asker = replace(header, method=header.method ^ RESPONSE, status=0)
        return (asker.encode() + front.encode()).ljust(MAD_BYTES, b"\0")


def stop(mad: bytes) -> bytes:
    """What tells the sender of a segment to send no more: its receiver has no room (13.6.2.3)."""
    header = MadHeader.decode(mad)
    front = replace(
        AdministrationHeader.decode(mad, HEADER_AT), rmpp_version=VERSION, rmpp_type=STOP, rmpp_flags=ACTIVE,
        rmpp_status=STATUS_NO_RESOURCES, segment_number=0, payload_length=0,
    )  # fmt: skip
    asker = replace(header, method=header.method ^ RESPONSE, status=0)
    return (asker.encode() + front.encode()).ljust(MAD_BYTES, b"\0")


def is_rmpp(mad: bytes) -> bool:
    """Whether a datagram of subnet administration is a part of a transfer."""
    return len(mad) == MAD_BYTES and mad[1] == CLASS_SUBN_ADM and bool(mad[HEADER_AT + 2] & ACTIVE)
