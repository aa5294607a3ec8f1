"""Identifiers whose device's adapter has gone are told so, once each, whenever they come."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm.events import EventChannel


class Device:
    def __init__(self, lost: bool = False) -> None:
        self.lost = lost
        self.watched = 0
        self.session = SimpleNamespace(check=lambda: None)
        self.events = SimpleNamespace(watch=self.watch, unwatch=self.unwatch)

    def watch(self, _: Any) -> None:
        self.watched += 1

    def unwatch(self, _: Any) -> None:
        self.watched = 0


class Identifier:
    """Counts how often it was told."""

    def __init__(self) -> None:
        self.told = 0

    def lost(self) -> None:
        self.told += 1


def on(channel: EventChannel, device: Device, count: int = 1) -> list[Any]:
    made: list[Any] = [Identifier() for _ in range(count)]
    for each in made:
        channel.attach(device, each)  # type: ignore[arg-type]
    return made


def take(channel: EventChannel) -> Any:
    return channel._take(0)


def test_all_of_a_lost_device_are_told_once_and_no_others() -> None:
    channel, gone, there = EventChannel(), Device(), Device()
    lost, kept = on(channel, gone, 2), on(channel, there)
    gone.lost = True
    for _ in range(2):
        channel._tell_lost()
    assert [each.told for each in (*lost, *kept)] == [1, 1, 0]
    assert channel._living() == [there]


def test_who_comes_to_a_lost_device_is_told_at_once() -> None:
    channel, gone = EventChannel(), Device()
    first = on(channel, gone)
    gone.lost = True
    channel._tell_lost()
    later = on(channel, gone)
    assert (first[0].told, later[0].told) == (1, 1)
    channel._tell_lost()
    assert (first[0].told, later[0].told) == (1, 1)


def test_a_channel_of_lost_devices_alone_says_so() -> None:
    channel, gone = EventChannel(), Device()
    on(channel, gone)
    gone.lost = True
    channel._tell_lost()
    with pytest.raises(DriverError) as said:
        take(channel)
    assert said.value.errno == errno.EIO


def test_what_is_said_of_a_lost_device_ends_with_its_last_identifier() -> None:
    channel, device = EventChannel(), Device()
    first, second = on(channel, device, 2)
    device.lost = True
    channel._tell_lost()
    channel.detach(device, first)  # type: ignore[arg-type]
    assert on(channel, device)[0].told == 1
    for each in list(channel._devices[device]):  # type: ignore[index]
        channel.detach(device, each)  # type: ignore[arg-type]
    assert take(channel) is None
    device.lost = False  # another one at the same place
    again = on(channel, device)
    assert (again[0].told, channel._living(), second.told) == (0, [device], 1)


def test_devices_are_watched_while_there_are_several_and_until_they_are_left() -> None:
    channel, one, other = EventChannel(), Device(), Device()
    first = on(channel, one)
    assert not one.watched
    second = on(channel, other)
    assert one.watched
    assert other.watched
    for device, each in ((one, first), (other, second)):
        channel.detach(device, each[0])  # type: ignore[arg-type]
    assert not one.watched
    assert not other.watched
