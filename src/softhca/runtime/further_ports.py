"""Ports 2 and up of an adapter: their links, given turns beside that of port 1 (`loop`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softhca.links.link import NEVER, Link
from softhca.runtime.transmitter import BURSTS, Transmitter


class FurtherPorts:
    """``links`` are those of ports 2, 3 … of ``adapter``; used under the lock of the loop that has it."""

    def __init__(self, adapter: Any, links: Sequence[Link]) -> None:
        self._adapter = adapter
        self._ports = [
            (number, link, Transmitter(adapter, link, number)) for number, link in enumerate(links, 2)
        ]

    def receive(self, arrival: Any, now: int) -> bool:
        """Take what has come, a bounded number of bursts a port; whether there was anything."""
        worked = False
        for number, link, _ in self._ports:
            for _turn in range(BURSTS):
                if not link.receive(arrival):
                    break
                worked = True
                self._adapter.receive(number, arrival, now)
        return worked

    def transmit(self, now: int) -> bool:
        """Send what is due, a bounded number of bursts a port; whether anything was sent."""
        sent = [transmitter.transmit(now) for _, _, transmitter in self._ports]
        return any(sent)

    def expire(self, now: int) -> bool:
        """Send what links have held back and is due; whether any left."""
        left = [link.expire(now) for _, link, _ in self._ports]
        return any(left)

    def held_ns(self) -> int:
        """When the first packet that a link holds back is due; ``NEVER`` when none is held."""
        return min((link.next_deadline() for _, link, _ in self._ports), default=NEVER)

    def deadline(self) -> int:
        """When one of the ports is to have its next turn even if nothing arrives."""
        pending = min((transmitter.deadline() for _, _, transmitter in self._ports), default=NEVER)
        return min(pending, self.held_ns())
