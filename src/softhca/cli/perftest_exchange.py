"""The exchange of perftest's programs (``ib_write_bw`` … 4.5) over TCP, without RDMA CM.

Every step is lock-step, the client first: its version; the sizes of the cycled buffer and of a cache line;
the MTU code; then *handshakes*, each of which carries the keys of one queue pair.  How many handshakes stand
before and after the queue pairs are connected differs between the programs and is the table ``SCRIPTS``.  All
texts travel with their terminating NUL; reports are 8-byte values in network order.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

from softhca.cli.control import STEP_TIMEOUT_S, ControlConnection
from softhca.cli.errors import CommandError

VERSION = b"6.06"  # the newest whose exchange is this one; programs refuse peers older than 5.70
VERSION_BYTES = 16
CYCLE_BUFFER_BYTES = 4096
CACHE_LINE_BYTES = 64
KEYS_BYTES = 108
DONE = b"done\0"

_MAX_CYCLE_BUFFER_BYTES = 1 << 30
_KEYS_FORM = re.compile(
    rb"([0-9a-f]{4}):([0-9a-f]{4}):([0-9a-f]{6}):([0-9a-f]{6}):([0-9a-f]{8}):([0-9a-f]{16}):"
    rb"((?:[0-9a-f]{2}:){16})([0-9a-f]{8}):\0",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Script:
    """Which handshakes a program makes beyond one for every queue pair before and after connecting.

    ``first`` stand before those, ``ready`` after the queue pairs are connected, ``posted`` after receives are
    posted. ``report``: the client says that it is finished and both exchange reports; ``close``: a last
    handshake and ``done``.
    """

    first: int = 0
    ready: int = 1
    posted: int = 0
    report: bool = False
    close: bool = True


SCRIPTS = {
    "write-bw": Script(report=True),
    "read-bw": Script(report=True),
    "atomic-bw": Script(report=True),
    "send-bw": Script(posted=1),
    "write-lat": Script(first=1, close=False),
    "read-lat": Script(first=1),
    "atomic-lat": Script(first=1),
    "send-lat": Script(posted=1),
}


@dataclass(frozen=True)
class Keys:
    """What one queue pair's owner tells about it: address, first PSN, and the memory the peer may use."""

    lid: int
    out_reads: int
    qpn: int
    psn: int
    rkey: int
    vaddr: int
    gid: bytes
    srqn: int = 0

    def encode(self) -> bytes:
        """The keys as text with the GID in it, NUL included."""
        gid = ":".join(f"{byte:02x}" for byte in self.gid)
        return (
            f"{self.lid:04x}:{self.out_reads:04x}:{self.qpn:06x}:{self.psn:06x}:{self.rkey:08x}:{self.vaddr:016x}:"
            f"{gid}:{self.srqn:08x}:"
        ).encode() + b"\0"

    @classmethod
    def decode(cls, message: bytes) -> Keys:
        """The keys in ``message``.  Raises :class:`CommandError` when it does not hold them."""
        match = _KEYS_FORM.fullmatch(message)
        if match is None:
            raise CommandError(
                f"the peer's keys {message[:KEYS_BYTES]!r} are not those of a perftest program"
            )
        lid, out_reads, qpn, psn, rkey, vaddr = (int(field, 16) for field in match.groups()[:6])
        gid = bytes.fromhex(match[7].decode().replace(":", ""))
        return cls(lid, out_reads, qpn, psn, rkey, vaddr, gid, int(match[8], 16))


@dataclass(frozen=True)
class Report:
    """A bandwidth report: MiB/s and millions of messages a second, as the programs print them."""

    size_bytes: int
    iterations: int
    peak_mib_per_s: float
    average_mib_per_s: float
    million_messages_per_s: float

    _FORM = struct.Struct(">QQddd")

    def fields(self) -> list[bytes]:
        """Its five values, each 8 bytes in network order, in the order in which they are exchanged."""
        packed = self._FORM.pack(
            self.size_bytes,
            self.iterations,
            self.peak_mib_per_s,
            self.average_mib_per_s,
            self.million_messages_per_s,
        )
        return [packed[at : at + 8] for at in range(0, len(packed), 8)]

    @classmethod
    def from_fields(cls, fields: list[bytes]) -> Report:
        """The report in the five values."""
        return cls(*cls._FORM.unpack(b"".join(fields)))


class PerftestExchange:
    """One end of the exchange; ``client`` speaks first in every step.

    ``attend``: what this end does until the peer's word is there (None: it waits in the system call).
    """

    def __init__(self, control: ControlConnection, client: bool) -> None:
        self.control = control
        self.client = client
        self.attend: Callable[[], None] | None = None

    def swap(self, mine: bytes, timeout_s: float | None = STEP_TIMEOUT_S) -> bytes:
        """Give ``mine`` and get as many bytes of the peer."""
        if self.client:
            self.control.send(mine)
            return self._hear(len(mine), timeout_s)
        theirs = self._hear(len(mine), timeout_s)
        self.control.send(mine)
        return theirs

    def _hear(self, length_bytes: int, timeout_s: float | None) -> bytes:
        if self.attend is not None:
            self.attend()
        return self.control.receive(length_bytes, timeout_s)

    def introduce(self, mtu_code: int) -> tuple[int, int]:
        """Versions, buffer sizes and MTU; returns the common (MTU code, cycled buffer in bytes)."""
        text = self.swap(VERSION.ljust(VERSION_BYTES, b"\0")).split(b"\0")[0]
        if re.fullmatch(rb"[0-9]{1,6}(\.[0-9]{1,6})?", text) is None or float(text) < 5.70:
            raise CommandError(f"the peer's perftest version {text!r} is not 5.70 or newer")
        cycle_bytes, _ = (self._number(own) for own in (CYCLE_BUFFER_BYTES, CACHE_LINE_BYTES))
        if not 0 < cycle_bytes <= _MAX_CYCLE_BUFFER_BYTES:
            raise CommandError(f"the peer's buffer of {cycle_bytes} bytes makes no sense")
        theirs = self.swap(str(mtu_code).encode() + b"\0")
        peer_code = int(theirs[:1]) if theirs[:1] in (b"1", b"2", b"3", b"4", b"5") else mtu_code
        return min(mtu_code, peer_code), max(cycle_bytes, CYCLE_BUFFER_BYTES)

    def _number(self, own: int) -> int:
        return int(struct.unpack(">i", self.swap(struct.pack(">i", own)))[0])

    def handshake(self, mine: Keys, timeout_s: float | None = STEP_TIMEOUT_S) -> Keys:
        """Give the keys of one queue pair, get the peer's."""
        return Keys.decode(self.swap(mine.encode(), timeout_s))

    def report(self, mine: Report) -> Report:
        """Give our report, get the peer's."""
        return Report.from_fields([self.swap(field) for field in mine.fields()])

    def finish(self, mine: Keys, timeout_s: float | None = STEP_TIMEOUT_S) -> None:
        """The closing handshake and ``done``, which both ends write.

        Raises :class:`CommandError` when the peer goes on instead, as one does that runs through more sizes.
        One that goes away behind the handshake has ended, too.
        """
        self.handshake(mine, timeout_s)
        self.control.send(DONE)
        self.control.part()
        try:
            word = self.control.receive(len(DONE), timeout_s)
        except CommandError:
            return
        if word != DONE:
            raise CommandError(
                "the peer goes on where this end is done: both must be given the same of -a and -n"
            )
