"""How large a channel is, and how patient."""

from __future__ import annotations

from dataclasses import dataclass

MOST_SLOTS = 4096
LEAST_SLOT_BYTES, MOST_SLOT_BYTES = 64, 1 << 20
MOST_MESSAGE_BYTES = 1 << 33
MOST_ACK_TIMEOUT = 31


@dataclass(frozen=True)
class ChannelOptions:
    """``slots``: so many messages that the program has not taken may wait at this end; ``slot_bytes``: up to
    so many bytes a message is copied into a slot, a longer one is fetched from the sender's memory by RDMA
    READ; ``largest_bytes``: no message to this end may be longer.

    ``keepalive_s``: who waits asks so often whether the peer's adapter is still there; ``ack_timeout``: the
    exponent of 4.096 µs, after twice which a packet goes again, 7 times (16: 0.54 s); ``linger_s``: a close
    waits so long until what was sent has arrived.  ValueError for what cannot be.
    """

    slots: int = 64
    slot_bytes: int = 8192
    largest_bytes: int = 1 << 30
    keepalive_s: float = 1.0
    ack_timeout: int = 16
    linger_s: float = 5.0

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("slots", self.slots, 4, MOST_SLOTS),
            ("slot_bytes", self.slot_bytes, LEAST_SLOT_BYTES, MOST_SLOT_BYTES),
            ("largest_bytes", self.largest_bytes, self.slot_bytes, MOST_MESSAGE_BYTES),
            ("ack_timeout", self.ack_timeout, 1, MOST_ACK_TIMEOUT),
        ):
            if type(value) is not int or not least <= value <= most:
                raise ValueError(f"{name} is a whole number of {least} … {most}, not {value!r}")
        if not self.keepalive_s > 0:
            raise ValueError(f"keepalive_s is more than 0, not {self.keepalive_s!r}")
        if not self.linger_s >= 0:
            raise ValueError(f"linger_s is 0 or more, not {self.linger_s!r}")
