"""Channels of identifiers' events: their descriptor, their devices, identifiers that come and go while a
thread waits, and what a forked child keeps.
"""

from __future__ import annotations

import select
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.driver.rdmacm.events import EventChannel


class Known:
    """As much of an identifier."""

    def lost(self) -> None:
        """Its device has gone."""


class Device:
    """As much of a device as a channel asks for; ``noted``: who watches it, and whom it wakes.  ``at_hash``
    is called at its first look-up from then on, as another thread's call might come in between.
    """

    lost = False
    at_hash: Any = None

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.events = SimpleNamespace(
            watch=lambda at_end: self.noted.append("watch"),
            unwatch=lambda at_end: self.noted.append("unwatch"),
        )
        self.session = SimpleNamespace(check=lambda: None)

    def __hash__(self) -> int:
        call, self.at_hash = self.at_hash, None
        if call is not None:
            call()
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def wake_waiters(self) -> None:
        self.noted.append("wake")

    def wait_for(self, ready: Any, timeout_s: float | None) -> None:
        ready()


@pytest.fixture
def channel() -> Iterator[EventChannel]:
    made = EventChannel()
    yield made
    made.close()


def readable(channel: EventChannel) -> bool:
    return bool(select.select([channel.fileno()], [], [], 0)[0])


def never() -> None:
    """A notice of nothing."""


def test_a_descriptor_that_is_asked_for_late_tells_of_what_waits(channel: EventChannel) -> None:
    one: Any = Known()
    other: Any = Known()
    channel.post(one, never)
    channel.post(other, never)
    assert readable(channel)
    assert channel.withdraw(one) == [never]
    assert readable(channel)
    channel.take_back(other, never)
    assert not readable(channel)
    channel.post(one, never)
    assert readable(channel)
    assert channel.withdraw(one) == [never]
    assert not readable(channel)


def test_a_device_is_watched_until_its_last_identifier_has_left(channel: EventChannel) -> None:
    device: Any = Device()
    one: Any = Known()
    other: Any = Known()
    channel.fileno()
    for identifier in (one, other):
        channel.attach(device, identifier)
    channel.detach(device, one)
    assert device.noted == ["watch", "watch"]
    channel.detach(device, other)
    assert device.noted[2:] == ["unwatch"]


def test_the_end_of_a_channel_wakes_who_waits_at_its_devices(channel: EventChannel) -> None:
    device: Any = Device()
    identifier: Any = Known()
    channel.attach(device, identifier)
    channel.close()
    assert device.noted == ["unwatch", "wake"]


def test_a_forked_child_hears_nothing_of_what_its_parent_was_told(channel: EventChannel) -> None:
    identifier: Any = Known()
    channel.post(identifier, lambda: pytest.fail("it is the parent's"))
    channel.fileno()
    channel.inherited()
    assert channel.next_event(0) is None
    assert not readable(channel)


def test_identifiers_may_come_while_a_thread_looks_through_the_devices(channel: EventChannel) -> None:
    first: Any = Device()
    second: Any = Device()
    identifier: Any = Known()
    channel.attach(first, identifier)
    first.at_hash = lambda: channel.attach(second, identifier)
    assert channel.next_event(0.0) is None
    first.at_hash = lambda: channel.detach(second, identifier)
    assert channel.next_event(0.0) is None
    assert first.at_hash is None
