"""The structured trace of a world: JSON lines, and one digest over all events and every packet's bytes."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from typing import Any

from softhca.wire.opcodes import OPCODES, UD

_NAMES = {code: opcode.name for code, opcode in OPCODES.items()}
_SHORTEST_BYTES = 12
_DATAGRAM_BYTES = 20
_RECORD = struct.Struct("<QBBIIQ")
_ARRIVALS = struct.Struct("<QBI")
_EVENTS = {"sent": 1, "received": 2, "lost": 3}
_CHUNK_BYTES = 1 << 16
_MASK64 = (1 << 64) - 1


class Trace:
    """Takes events in the order in which they happen.  ``write``, when given, gets every line.

    Every line is an object with ``time_ns`` (virtual), ``event`` and ``adapter`` first; packets have their
    ``number`` (counted as they are sent, from 1), ``qp`` (destination), ``source_qp`` (of datagrams),
    ``opcode``, ``psn``, ``length_bytes`` and, where something happened to them, ``reason``.  Of ``raw``
    datagrams there is their length alone.
    The digest is the same whether lines are written or not.
    """

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        self.raw = False
        self._write = write
        self._hash = hashlib.blake2b(digest_size=16)
        self._pending = bytearray()
        self.packets = 0

    def add(self, time_ns: int, event: str, adapter: int, **details: Any) -> None:
        """One event."""
        fields = {"time_ns": time_ns, "event": event, "adapter": adapter, **details}
        self._line(json.dumps(fields, separators=(",", ":")) + "\n")

    def inside(
        self, time_ns: int, event: str, adapter: int, qp: int, psn: int, state: str, reason: str
    ) -> None:
        """Something happened inside an adapter (`softhca.transport.observation`); what is unset stays out."""
        line = f'{{"time_ns":{time_ns},"event":"{event}","adapter":{adapter}'
        if qp >= 0:
            line += f',"qp":{qp}'
        if psn >= 0:
            line += f',"psn":{psn}'
        if state:
            line += f',"state":"{state}"'
        self._line(f'{line},"reason":"{reason}"}}\n' if reason else line + "}\n")

    def _line(self, line: str) -> None:
        self._pending += line.encode()
        if self._write is not None:
            self._write(line)

    def packet(
        self, time_ns: int, event: str, adapter: int, data: bytes, reason: str = "", number: int = 0
    ) -> None:
        """Something happened to a packet BTH … ICRC: ``sent``, ``received`` or ``lost``; its bytes count too.

        ``number``: which one (default: the one sent last; −1: none that was sent).  A packet too short for
        its BTH has neither ``qp`` nor ``psn``.
        """
        pending = self._pending
        if event == "sent":
            self.packets += 1
        number = number or self.packets
        pending += _RECORD.pack(time_ns, _EVENTS[event], adapter, len(data), len(reason), number & _MASK64)
        pending += data
        pending += reason.encode()
        if len(pending) > _CHUNK_BYTES:
            self._hash.update(pending)
            pending.clear()
        if self._write is not None:
            self._write(_line(time_ns, event, adapter, data, reason, number, self.raw))

    def arrivals(self, time_ns: int, adapter: int, packets: list[bytes], numbers: list[int]) -> None:
        """Packets arrive together, all as they were sent: their bytes have counted already."""
        self._pending += _ARRIVALS.pack(time_ns, adapter, len(numbers))
        self._pending += struct.pack(f"<{len(numbers)}q", *numbers)
        if self._write is not None:
            for number, data in zip(numbers, packets, strict=True):
                self._write(_line(time_ns, "received", adapter, data, "", number, self.raw))

    @property
    def digest(self) -> str:
        """BLAKE2b over everything so far, 16 bytes in hexadecimal."""
        self._hash.update(self._pending)
        self._pending.clear()
        return self._hash.hexdigest()


def _line(time_ns: int, event: str, adapter: int, data: bytes, reason: str, number: int, raw: bool) -> str:
    """A packet's event as a line."""
    head = f'{{"time_ns":{time_ns},"event":"{event}","adapter":{adapter}'
    if number > 0:
        head += f',"number":{number}'
    if len(data) >= _SHORTEST_BYTES and not raw:
        name = _NAMES.get(data[0], f"{data[0]:#04x}")
        qp, psn = int.from_bytes(data[5:8], "big"), int.from_bytes(data[9:12], "big")
        head += f',"qp":{qp},"opcode":"{name}","psn":{psn}'
        if data[0] >> 5 == UD and len(data) >= _DATAGRAM_BYTES:
            head += f',"source_qp":{int.from_bytes(data[17:20], "big")}'
    tail = f',"reason":"{reason}"}}\n' if reason else "}\n"
    return f'{head},"length_bytes":{len(data)}{tail}'
