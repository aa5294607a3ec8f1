"""What an Ethernet switch is made with."""

from __future__ import annotations

from dataclasses import dataclass

PRIORITIES = 8
"""Classes of traffic (IEEE 802.1Q): the upper three bits of an IP traffic class."""


@dataclass(frozen=True, slots=True)
class Marking:
    """Random marks where a queue grows (RED, as DCQCN wants it; its authors' defaults for 40 Gb/s).

    No packet is marked before ``least_bytes`` (Kmin) stand in its output queue, each one behind
    ``most_bytes`` (Kmax); between them with a probability that rises up to ``probability`` (Pmax).
    """

    least_bytes: int = 5_000
    most_bytes: int = 200_000
    probability: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.least_bytes <= self.most_bytes or not 0 < self.probability <= 1:
            raise ValueError("marking: expected 0 ≤ Kmin ≤ Kmax bytes, and a probability Pmax of up to 1")

    def share(self, queued_bytes: int) -> float:
        """The probability of a mark behind so many bytes."""
        if queued_bytes < self.least_bytes:
            return 0.0
        if queued_bytes >= self.most_bytes:
            return 1.0
        span = self.most_bytes - self.least_bytes
        return self.probability * (queued_bytes - self.least_bytes) / span


@dataclass(frozen=True, slots=True)
class Pausing:
    """Priority flow control, PFC (IEEE 802.1Q, 36).

    What has come by one port in one priority and stands in the switch counts for that; beyond ``off_bytes``
    (Xoff) its sender is told to pause the priority, at ``on_bytes`` (Xon) or less to go on.  ``quanta`` of
    512 bit times is how long a pause lasts unless it is renewed, which is done after half of it.
    """

    off_bytes: int = 40_000
    on_bytes: int = 30_000
    priorities: tuple[int, ...] = (0,)
    quanta: int = 0xFFFF

    def __post_init__(self) -> None:
        if not 0 <= self.on_bytes < self.off_bytes or not 1 < self.quanta <= 0xFFFF:
            raise ValueError("pausing: expected 0 ≤ Xon < Xoff bytes, and a pause of 2…65535 quanta")
        if not all(0 <= priority < PRIORITIES for priority in self.priorities):
            raise ValueError(f"pausing: priorities are 0…{PRIORITIES - 1}")


@dataclass(frozen=True, slots=True)
class SwitchSettings:
    """``buffer_bytes`` are shared by all output queues, of which each holds ``queue_bytes`` at most; what
    does not fit is dropped at the tail.  ``marking`` and ``pausing``: None, there is none."""

    buffer_bytes: int = 4 << 20
    queue_bytes: int = 1 << 20
    marking: Marking | None = Marking()
    pausing: Pausing | None = None

    def __post_init__(self) -> None:
        if not self.queue_bytes > 0 or not self.buffer_bytes > 0:
            raise ValueError("a switch has a buffer, and its queues hold something")
