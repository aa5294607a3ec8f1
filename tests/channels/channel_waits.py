"""How long tests of channels wait at most, small channels, and peers that take nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

from machine_speed import limit_s
from softhca.channels import Channel, ChannelOptions

LIMIT_S = limit_s(60)
SMALL = ChannelOptions(slots=4, slot_bytes=256, largest_bytes=1 << 20)


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds; what it looks at is done by other threads."""
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.0005)


class Full:
    """The peer of a channel takes no control message, until `ends`."""

    def __init__(self, channel: Channel) -> None:
        self.link = channel._link
        self.link.poll()
        with self.link.guard:
            account = self.link._account
            assert account is not None
            self.account, self.slots = account, account.peer_slots
            account.peer_slots = account.sent - account.taken + 1

    def ends(self) -> None:
        with self.link.guard:
            self.account.peer_slots = self.slots
            self.link._flush()
