"""A link that says what it is told to, and notes what it is asked."""

from __future__ import annotations

import os
from typing import Any

from softhca.links.link import NEVER, SENT, Link
from softhca.wire.burst import Arrival, Burst
from softhca.wire.framing import ROCE_V4, ROCE_V6
from softhca.wire.route import V4_MAPPED_PREFIX


class Wooden(Link):
    """A link that says what it is told to, and notes what it is asked."""

    def __init__(self, gid: bytes, mtu: int = 4096, sees: bool = False) -> None:
        super().__init__(ROCE_V4 if gid.startswith(V4_MAPPED_PREFIX) else ROCE_V6, sees)
        self.gid, self.address, self.active_mtu = gid, gid.hex(), mtu
        self.said: list[Any] = []
        self.answer, self.due, self.pipe = SENT, NEVER, os.pipe()
        self.waiting: list[tuple[bytes, bytes]] = []

    def source_port_for(
        self, entropy: int, destination: bytes | None = None, source: bytes | None = None
    ) -> int:
        self.said.append(("port", entropy, destination))
        return 0xC000

    def send(self, burst: Burst) -> int:
        return self.answer

    def receive(self, arrival: Arrival) -> bool:
        if not self.waiting:
            return False
        arrival.source, arrival.destination = self.waiting.pop(0)
        return True

    def join(self, gid: bytes) -> None:
        self.said.append(("join", gid))

    def leave(self, gid: bytes) -> None:
        self.said.append(("leave", gid))

    def abandon(self, burst: Burst) -> None:
        self.said.append("abandon")

    def preserves_bursts(self, destination: bytes) -> bool:
        self.said.append(("near", destination))
        return True

    def listen_for_frames(self) -> None:
        self.said.append("frames")

    def fileno(self) -> int:
        return self.pipe[0]

    def next_deadline(self) -> int:
        return self.due

    def expire(self, now: int) -> bool:
        self.said.append(now)
        return self.due <= now

    def counters(self) -> dict[str, int]:
        return {"sent": 2}

    def shown_counters(self) -> dict[str, int]:
        return {"shown": 3}

    def close(self) -> None:
        for each in self.pipe:
            os.close(each)
        self.pipe = (-1, -1)
