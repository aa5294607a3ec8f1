"""A peer that knows everything and obeys nothing: packets with right ICRC and fields of its choice."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

from softhca.machine.primitives import address_of
from softhca.wire import icrc
from softhca.wire.framing import ROCE_V4
from softhca.wire.route import Route

PUBLIC = bytes(range(128))
"""What packets carry and open memory holds; a byte above it is a secret."""

SERVICE_BITS = {"RC": 0x00, "UC": 0x20, "UD": 0x60}
# name → opcode below the service's bits, extension headers
SHAPES: dict[str, tuple[int, str]] = {
    "send first": (0x00, ""),
    "send middle": (0x01, ""),
    "send last": (0x02, ""),
    "send only": (0x04, ""),
    "send only with immediate": (0x05, "i"),
    "write first": (0x06, "r"),
    "write middle": (0x07, ""),
    "write last": (0x08, ""),
    "write last with immediate": (0x09, "i"),
    "write only": (0x0A, "r"),
    "write only with immediate": (0x0B, "ri"),
    "read request": (0x0C, "r"),
    "read response first": (0x0D, "a"),
    "read response middle": (0x0E, ""),
    "read response last": (0x0F, "a"),
    "read response only": (0x10, "a"),
    "acknowledge": (0x11, "a"),
    "atomic acknowledge": (0x12, "ao"),
    "compare and swap": (0x13, "t"),
    "fetch and add": (0x14, "t"),
    "send only with invalidate": (0x17, "i"),
}
_REQUESTS = (
    "write only", "write only", "write only", "write first", "write first", "write only with immediate",
    "send only", "send first", "send only with immediate", "read request", "read request",
    "compare and swap", "fetch and add",
)  # fmt: skip
_RESPONSES = (
    "read response first", "read response middle", "read response last", "read response only",
    "acknowledge", "atomic acknowledge",
)  # fmt: skip
_FIELDS = ("opcode", "va", "key", "length", "payload", "pad", "version", "pkey", "qpn", "cut", "service")


@dataclass
class Range:
    """Bytes at ``va`` that ``key`` names, or named."""

    va: int
    length: int
    key: int


@dataclass
class Victim:
    """What the attacker knows of one queue pair: all, and which PSNs it will look at."""

    service: str
    qpn: int
    mtu_bytes: int
    expected_psn: int
    answered_psn: int
    under_way: str  # "", "send" or "write": a message of several packets has begun


@dataclass
class Packet:
    """The fields of one packet."""

    opcode: int
    extensions: str
    qpn: int
    psn: int
    va: int = 0
    key: int = 0
    length: int = 0
    payload: bytes = b""
    pkey: int = 0xFFFF
    version: int = 0
    pad: int = -1
    cut: int = 0
    syndrome: int = 0x1F
    operands: tuple[int, int] = (0, 0)

    def encode(self) -> bytearray:
        """BTH … pad.  ``cut`` bytes are missing at the end, or added when it is negative."""
        right_pad = -len(self.payload) % 4
        flags = 0x40 | (right_pad if self.pad < 0 else self.pad) << 4 | self.version
        data = bytearray(struct.pack(">BBHII", self.opcode, flags, self.pkey, self.qpn, 1 << 31 | self.psn))
        for extension in self.extensions:
            if extension == "r":
                data += struct.pack(">QII", self.va, self.key, self.length)
            elif extension == "t":
                data += struct.pack(">QIQQ", self.va, self.key, *self.operands)
            elif extension == "a":
                data += struct.pack(">I", self.syndrome << 24)
            elif extension == "o":
                data += struct.pack(">Q", self.operands[0])
            else:
                data += struct.pack(">I", self.key)
        data += self.payload + bytes(right_pad)
        if self.cut > 0:
            del data[max(12, len(data) - self.cut) :]
        return data + bytes(-self.cut if self.cut < 0 else 0)


class Attacker:
    """Packets from one GID to another; ``open_range`` may be written and read, ``counters`` changed by
    atomics, the ``closed`` ranges neither.
    """

    def __init__(
        self,
        seed: int,
        source: bytes,
        destination: bytes,
        open_range: Range,
        counters: Range,
        closed: list[Range],
    ) -> None:
        self.random = random.Random(seed)
        self.route = Route(ROCE_V4, source, destination, 0xC000)
        self.open_range = open_range
        self.counters = counters
        self.closed = closed
        self.begun: dict[int, tuple[int, int]] = {}  # by QPN: first PSN and length of its last long write

    def packet(self, victim: Victim) -> bytes:
        """One packet BTH … ICRC: right in everything, or wrong in one field, or in two or three."""
        packet = self._right(victim)
        draw = self.random.random()
        if victim.service == "RC" and draw < 0.7:
            packet.psn = (packet.psn + self.random.choice((1, 2, -1, -2, 1 << 23, 12_345))) & 0xFFFFFF
        for _ in range(self.random.choice((0, 0, 1, 1, 2))):
            self._spoil(packet)
        data = packet.encode()
        return bytes(data) + icrc.compute(self.route, address_of(data), len(data)).to_bytes(4, "little")

    def _payload(self, n: int) -> bytes:
        start = self.random.randrange(128)
        return (PUBLIC * (n // 128 + 2))[start : start + n]

    def _right(self, victim: Victim) -> Packet:
        """What the victim would execute."""
        choose = self.random.choice
        mtu = victim.mtu_bytes
        if victim.service == "UD":
            name = choose(("send only", "send only with immediate"))
        elif victim.under_way and self.random.random() < 0.8:
            return self._continued(victim)
        elif victim.service == "RC" and self.random.random() < 0.15:
            name = choose(_RESPONSES)
        else:
            name = choose(_REQUESTS)
        code, extensions = SHAPES[name]
        response = name in _RESPONSES
        psn = victim.answered_psn if response else victim.expected_psn
        packet = Packet(SERVICE_BITS[victim.service] | code, extensions, victim.qpn, psn)
        packet.length = choose((0, 1, 8, 100, mtu, self.random.randrange(1, 8000)))
        if name in ("write only", "write only with immediate"):
            packet.length = min(packet.length, mtu)
        elif name == "write first":
            packet.length = mtu + self.random.randrange(1, 3 * mtu)
            self.begun[victim.qpn] = psn, packet.length
        if "t" in extensions or name == "atomic acknowledge":
            packet.length = 8
            packet.operands = self.random.getrandbits(64), self.random.getrandbits(64)
        target = self.counters if "t" in extensions else self.open_range
        if self.random.random() < 0.12:
            target = choose(self.closed)  # everything is right but what the key stands for
            packet.length = min(packet.length, target.length)
        last = target.length - packet.length
        at = choose((0, last, self.random.randint(0, last)))
        packet.va = target.va + at
        if "t" in extensions:
            packet.va &= ~7
        packet.key = target.key
        if name.startswith(("send", "write")):
            full = name.endswith("first")
            packet.payload = self._payload(mtu if full else min(packet.length, mtu))
        elif name.startswith("read response"):
            packet.payload = self._payload(
                mtu if name.endswith(("first", "middle")) else choose((1, 88, mtu))
            )
        return packet

    def _continued(self, victim: Victim) -> Packet:
        """The next packet of a message that has begun."""
        rest = self.random.choice((100, 600))
        if victim.under_way == "write":
            psn, length = self.begun.get(victim.qpn, (victim.expected_psn, rest))
            rest = max(1, length - (victim.expected_psn - psn) % (1 << 24) * victim.mtu_bytes)
        ends = rest <= victim.mtu_bytes
        code, _ = SHAPES[f"{victim.under_way} {'last' if ends else 'middle'}"]
        payload = self._payload(min(rest, victim.mtu_bytes))
        return Packet(
            SERVICE_BITS[victim.service] | code, "", victim.qpn, victim.expected_psn, payload=payload
        )

    def _spoil(self, packet: Packet) -> None:
        """Make one field hostile."""
        choose, bits = self.random.choice, self.random.getrandbits
        field = choose(_FIELDS)
        near = choose([self.open_range, *self.closed])
        if field == "opcode":
            packet.opcode = (packet.opcode & 0xE0) | bits(5)
        elif field == "service":
            packet.opcode = bits(8)
        elif field == "va":
            edges = (near.va - 1, near.va + near.length, near.va + near.length - 1, near.va, 0, (1 << 64) - 1)
            packet.va = choose((*edges, bits(64), (packet.va + choose((-1, 1, 4096, -4096))) % (1 << 64)))
        elif field == "key":
            packet.key = choose((near.key, packet.key ^ 1 << bits(5), bits(32), 0, 0xFFFFFFFF))
            if self.random.random() < 0.5:
                packet.va = near.va
        elif field == "length":
            packet.length = choose(
                (
                    0,
                    (packet.length + 1) % (1 << 32),
                    packet.length * 2 % (1 << 32),
                    1 << 31,
                    (1 << 31) + 1,
                    bits(32),
                )
            )
        elif field == "payload":
            packet.payload = self._payload(choose((0, 1, 3, 255, 256, 257, 511, 1024, 4096)))
        elif field == "pad":
            packet.pad = bits(2)
        elif field == "version":
            packet.version = bits(4)
        elif field == "pkey":
            packet.pkey = bits(16)
        elif field == "qpn":
            packet.qpn = choose((packet.qpn ^ 1 << bits(4), bits(24), 0, 1, 0xFFFFFF))
        else:
            packet.cut = choose((1, 2, 3, 4, 8, 16, 64, -1, -4, -64))
