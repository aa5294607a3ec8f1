"""The structured trace of a world: JSON lines, and one digest over them and over every packet's bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from softhca.wire.opcodes import OPCODES, UD

_NAMES = {code: opcode.name for code, opcode in OPCODES.items()}
_SHORTEST_BYTES = 12
_DATAGRAM_BYTES = 20


class Trace:
    """Takes events in the order in which they happen.  ``write``, when given, gets every line.

    Every line is an object with ``time_ns`` (virtual), ``event`` and ``adapter`` first; packets have their
    ``number`` (counted as they are sent, from 1), ``qp`` (destination), ``source_qp`` (of datagrams),
    ``opcode``, ``psn``, ``length_bytes`` and, where something happened to them, ``reason``.
    """

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        self._write = write
        self._hash = hashlib.blake2b(digest_size=16)
        self.packets = 0

    def add(self, time_ns: int, event: str, adapter: int, **details: Any) -> None:
        """One event."""
        fields = {"time_ns": time_ns, "event": event, "adapter": adapter, **details}
        self._line(json.dumps(fields, separators=(",", ":")) + "\n")

    def packet(
        self, time_ns: int, event: str, adapter: int, data: bytes, reason: str = "", number: int = 0
    ) -> None:
        """Something happened to a packet BTH … ICRC: ``sent``, ``received`` or ``lost``; its bytes count too.

        ``number``: which one (default: the one sent last).  A packet too short for its BTH has neither ``qp``
        nor ``psn``.
        """
        if event == "sent":
            self.packets += 1
        number = number or self.packets
        head = f'{{"time_ns":{time_ns},"event":"{event}","adapter":{adapter},"number":{number}'
        if len(data) >= _SHORTEST_BYTES:
            name = _NAMES.get(data[0], f"{data[0]:#04x}")
            qp, psn = int.from_bytes(data[5:8], "big"), int.from_bytes(data[9:12], "big")
            head += f',"qp":{qp},"opcode":"{name}","psn":{psn}'
            if data[0] >> 5 == UD and len(data) >= _DATAGRAM_BYTES:
                head += f',"source_qp":{int.from_bytes(data[17:20], "big")}'
        tail = f',"reason":"{reason}"}}\n' if reason else "}\n"
        self._line(f'{head},"length_bytes":{len(data)}{tail}')
        self._hash.update(data)

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
        self._hash.update(line.encode())
        if self._write is not None:
            self._write(line)

    @property
    def digest(self) -> str:
        """BLAKE2b over everything so far, 16 bytes in hexadecimal."""
        return self._hash.hexdigest()
