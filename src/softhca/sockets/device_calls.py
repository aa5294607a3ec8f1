"""Calls that poll a device: what they do in the place of its completion thread.

Each one is counted at the device for whose events it sleeps when it has polled in vain, so that the
completion thread stands by meanwhile; one that waited beside it for the same packets would be woken by each,
and want the interpreter's lock.  And the events that polls bring are for every socket of the device, so they
take them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softhca.driver.device import DeviceDriver

__all__ = ["DeviceCalls"]


class DeviceCalls:
    """Of one device.  ``begun``: how many calls have polled it that sleep there, too."""

    def __init__(self, driver: DeviceDriver) -> None:
        self.begun = 0
        self._events = driver.session.channel.events.consumer
        self._dispatch = driver.events.dispatch

    def begin(self) -> None:
        """A call begins to poll."""
        self.begun += 1

    def take_events(self) -> None:
        """After a poll: hand out what has come, for whichever socket it is."""
        if not self._events.idle():
            self._dispatch()
