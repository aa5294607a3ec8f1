"""An event channel whose identifiers come and go while a thread waits on it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from softhca.driver.rdmacm.events import EventChannel


class Known:
    """As much of an identifier."""

    def lost(self) -> None:
        """Its device has gone."""


class Device:
    """As much of a device as a channel asks for; ``at_hash`` is called at its first look-up from then on, as
    another thread's call might come in between."""

    lost = False
    at_hash: Any = None

    def __init__(self) -> None:
        self.events = SimpleNamespace(watch=lambda at_end: None, unwatch=lambda at_end: None)
        self.session = SimpleNamespace(check=lambda: None)

    def __hash__(self) -> int:
        call, self.at_hash = self.at_hash, None
        if call is not None:
            call()
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def wake_waiters(self) -> None:
        pass

    def wait_for(self, ready: Any, timeout_s: float | None) -> None:
        ready()


def test_identifiers_may_come_while_a_thread_looks_through_the_devices() -> None:
    channel, first, second = EventChannel(), Device(), Device()
    identifier: Any = Known()
    channel.attach(first, identifier)
    first.at_hash = lambda: channel.attach(second, identifier)
    assert channel.next_event(0.0) is None
    first.at_hash = lambda: channel.detach(second, identifier)
    assert channel.next_event(0.0) is None
    assert first.at_hash is None
