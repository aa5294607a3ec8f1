"""A link on top of another one: what it does not say itself is the other one's."""

from __future__ import annotations

from typing import Any

from softhca.links.link import Link


class WrappedLink(Link):
    """All is as of ``link``; a subclass changes what it is there for.  Its packets are to be seen."""

    def __init__(self, link: Any) -> None:
        super().__init__(link.framing, sees_packets=True)
        self._link = link

    def __getattr__(self, name: str) -> Any:
        if name == "_link":  # not made yet, or only half
            raise AttributeError(name)
        return getattr(self._link, name)

    @property
    def counts(self) -> bool:
        """As `RoceUdpLink`'s."""
        return bool(self._link.counts)

    @counts.setter
    def counts(self, value: bool) -> None:
        self._link.counts = value

    def send(self, burst: Any) -> int:
        """As the link's."""
        return int(self._link.send(burst))

    def receive(self, arrival: Any) -> bool:
        """As the link's."""
        return bool(self._link.receive(arrival))

    def abandon(self, burst: Any) -> None:
        """As the link's."""
        self._link.abandon(burst)

    def fileno(self) -> int:
        """As the link's."""
        return int(self._link.fileno())

    def listen_for_frames(self) -> None:
        """As the link's."""
        self._link.listen_for_frames()

    def group_fileno(self) -> int:
        """As the link's."""
        return int(self._link.group_fileno())

    def join(self, gid: bytes) -> None:
        """As the link's."""
        self._link.join(gid)

    def leave(self, gid: bytes) -> None:
        """As the link's."""
        self._link.leave(gid)

    def next_deadline(self) -> int:
        """As the link's."""
        return int(self._link.next_deadline())

    def expire(self, now: int) -> bool:
        """As the link's."""
        return bool(self._link.expire(now))

    def preserves_bursts(self, destination: bytes) -> bool:
        """As the link's."""
        return bool(self._link.preserves_bursts(destination))

    def counters(self) -> dict[str, int]:
        """As the link's."""
        return dict(self._link.counters())

    def shown_counters(self) -> dict[str, int]:
        """As the link's."""
        return dict(self._link.shown_counters())

    def close(self) -> None:
        """As the link's."""
        self._link.close()
