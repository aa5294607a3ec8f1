"""What peers of `softhca perf` and `softhca pingpong` say over TCP: a CommandError of one line, or values
that say the same again.

Input: which message, then its bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

from fuzz_choices import Choices

from softhca.cli.errors import CommandError
from softhca.cli.perftest_exchange import KEYS_BYTES, Keys, PerftestExchange, Report
from softhca.cli.pingpong_exchange import Destination, exchange_as_client, exchange_as_server

GID = bytes(10) + b"\xff\xff\x7f\x00\x00\x02"
MINE = Keys(0, 1, 2, 3, 4, 5, GID)


class Peer:
    """A control connection whose other side says what the input says, then falls silent."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.sent = 0

    def send(self, message: bytes) -> None:
        """Take anything."""
        self.sent += len(message)

    def receive(self, length_bytes: int, timeout_s: float | None = None) -> bytes:
        """As `ControlConnection.receive`."""
        found = self.choices.take(length_bytes)
        if len(found) != length_bytes:
            raise CommandError("the peer closed the connection")
        return found

    def part(self) -> None:
        """As `ControlConnection.part`."""


def one_input(data: bytes) -> None:
    choices = Choices(data)
    kind = choices.below(6)
    peer = Peer(choices)
    mine = Destination(0, 1, 2, GID)
    try:
        if kind == 0:
            same(Destination.decode, choices.rest())
        elif kind == 1:
            same(Keys.decode, choices.rest())
        elif kind == 2:
            exchange_as_client(peer, mine)  # type: ignore[arg-type]
        elif kind == 3:
            exchange_as_server(peer, mine, lambda theirs: None)  # type: ignore[arg-type]
        elif kind == 4:
            exchange = PerftestExchange(peer, bool(choices.byte() & 1))  # type: ignore[arg-type]
            mtu, cycle_bytes = exchange.introduce(3)
            assert 1 <= mtu <= 3
            assert 4096 <= cycle_bytes <= 1 << 30
            exchange.handshake(MINE)
            exchange.finish(MINE)
        else:
            report(choices)
    except CommandError as error:
        assert "\n" not in str(error)


def same(decode, message: bytes) -> None:
    """What is taken says the same again, but for the case of its digits."""
    found = decode(message)
    assert found.encode() == message.lower()
    assert len(found.gid) == 16
    assert decode(found.encode()) == found


def report(choices: Choices) -> None:
    """Five fields of eight bytes."""
    fields = [choices.block(8) for _ in range(5)]
    found = Report.from_fields(fields)
    floats = struct.unpack(">ddd", b"".join(fields[2:]))
    if not any(map(math.isnan, floats)):
        assert found.fields() == fields


def seeds() -> Iterator[bytes]:
    """Right messages of each kind."""
    end = Destination(1, 0xABCDEF, 3, GID).encode()
    keys = MINE.encode()
    assert len(keys) == KEYS_BYTES
    yield b"\x00" + end
    yield b"\x01" + keys
    yield b"\x02" + end
    yield b"\x03" + end + b"done\0"
    greeting = b"6.06".ljust(16, b"\0") + struct.pack(">ii", 4096, 64) + b"3\0"
    yield b"\x04\x00" + greeting + keys + keys
    yield b"\x04\x01" + greeting + keys + keys
    yield b"\x05" + b"".join(Report(1, 2, 3.0, 4.0, 5.0).fields())
