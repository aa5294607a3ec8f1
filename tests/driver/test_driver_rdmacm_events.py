"""Channels of identifiers' events: their descriptor, their devices, and what a forked child keeps of them."""

import select
from types import SimpleNamespace

import pytest

from softhca.driver.rdmacm.events import EventChannel


class Device:
    """Notes who watches it, and whom it wakes."""

    lost = False

    def __init__(self):
        self.noted = []
        self.events = SimpleNamespace(
            watch=lambda at_end: self.noted.append("watch"),
            unwatch=lambda at_end: self.noted.append("unwatch"),
        )

    def wake_waiters(self):
        self.noted.append("wake")


@pytest.fixture
def channel():
    made = EventChannel()
    yield made
    made.close()


def readable(channel):
    return bool(select.select([channel.fileno()], [], [], 0)[0])


def never():
    """A notice of nothing."""


def test_a_descriptor_that_is_asked_for_late_tells_of_what_waits(channel):
    one, other = object(), object()
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


def test_a_device_is_watched_until_its_last_identifier_has_left(channel):
    device, one, other = Device(), object(), object()
    channel.fileno()
    for identifier in (one, other):
        channel.attach(device, identifier)
    channel.detach(device, one)
    assert device.noted == ["watch", "watch"]
    channel.detach(device, other)
    assert device.noted[2:] == ["unwatch"]


def test_the_end_of_a_channel_wakes_who_waits_at_its_devices(channel):
    device = Device()
    channel.attach(device, object())
    channel.close()
    assert device.noted == ["unwatch", "wake"]


def test_a_forked_child_hears_nothing_of_what_its_parent_was_told(channel):
    channel.post(object(), lambda: pytest.fail("it is the parent's"))
    channel.fileno()
    channel.inherited()
    assert channel.next_event(0) is None
    assert not readable(channel)
