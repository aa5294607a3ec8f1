"""What a link is: the way of bursts between an adapter and the ports of others.

A link moves bytes and what its framing shows of them; it reads no packet.  Nothing here blocks.  Links stand
beside each other (UDP, the ring to a peer on the same host), and on top of each other
(`wrapped.WrappedLink`): faults, a capture, a check.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softhca.wire.burst import Arrival, Burst

__all__ = ["AGAIN", "NEVER", "SENT", "Link"]

SENT = 1
"""``send`` has taken the whole burst."""
AGAIN = 0
"""``send`` has no room now: give it the same burst again."""

NEVER = (1 << 63) - 1
"""The deadline of a link that holds nothing back."""


class Link:
    """Base of all links: one that receives nothing, holds nothing back, and has nothing to count.

    ``framing`` is the one of all packets that it carries (`wire.framing`).  ``sees_packets``: it was put
    there to see or to change packets, so none may go another way.  ``needs_icrc``: bytes may change on its
    way, or somebody looks at them who wants to see ICRCs.
    """

    def __init__(self, framing: int = 0, sees_packets: bool = False, needs_icrc: bool = True) -> None:
        self.framing = framing
        self.sees_packets = sees_packets
        self.needs_icrc = needs_icrc

    def send(self, burst: Burst) -> int:
        """Send ``burst`` to its route: ``SENT``, ``AGAIN`` (the same burst is given again, or abandoned,
        before another one), or −errno: what is left of it is dropped, and counted."""
        raise NotImplementedError

    def receive(self, arrival: Arrival) -> bool:
        """Take one burst into ``arrival``; False when nothing is there."""
        return False

    def abandon(self, burst: Burst) -> None:
        """A burst that met ``AGAIN`` is not given again: its buffer will be used for something else."""

    def fileno(self) -> int:
        """A descriptor that is readable when there may be something to receive; −1: there is none."""
        return -1

    def listen_for_frames(self) -> None:
        """Have Ethernet frames come, in VXLAN, from here on; OSError where that cannot be."""
        raise OSError(errno.EOPNOTSUPP, "Ethernet frames do not go by this link")

    def group_fileno(self) -> int:
        """The same for what comes to multicast groups (`join`); −1: there is none, or `fileno` tells it too.
        """
        return -1

    def join(self, gid: bytes) -> None:
        """Receive what is sent to a multicast group; again does nothing.  OSError where that cannot be.  The
        base has nothing to do for it."""

    def leave(self, gid: bytes) -> None:
        """Receive it no more; nothing for a group that was not joined."""

    def next_deadline(self) -> int:
        """When ``expire`` is to be called for packets that are held back; ``NEVER`` when none are."""
        return NEVER

    def expire(self, now: int) -> bool:
        """Send what is due at ``now``, a bounded number of packets; whether any left."""
        return False

    def preserves_bursts(self, destination: bytes) -> bool:
        """Whether bursts reach the port with the GID ``destination`` in one piece."""
        return False

    def counters(self) -> dict[str, int]:
        """All counters by name, since the link was made."""
        return {}

    def shown_counters(self) -> dict[str, int]:
        """Those of `counters` that are shown with the port's."""
        return {}

    def close(self) -> None:
        """Close all descriptors; may be called again."""
