"""The elements of a communication manager by their numbers, and who listens for which service.

A number is a random communication ID, so that strangers do not guess it.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from typing import TypeVar

from softhca.management.cm.elements import Connection, Listener, Owner, Resolution

MAX_CONNECTIONS = 65_536
MAX_LISTENERS = 4096
MAX_BACKLOG = 1024

Element = Connection | Listener | Resolution
_Kind = TypeVar("_Kind", Connection, Resolution)


class Tables:
    """Listeners, connections and resolutions; ``connections`` counts the latter two."""

    def __init__(self, generator: random.Random) -> None:
        self.connections = 0
        self._random = generator
        self._elements: dict[int, Element] = {}
        self._services: dict[int, Listener] = {}

    def __iter__(self) -> Iterator[Element]:
        return iter(list(self._elements.values()))

    @property
    def full(self) -> bool:
        """Whether there is no room for another connection."""
        return self.connections >= MAX_CONNECTIONS

    def require_room(self) -> None:
        """OSError ENOMEM where there is none."""
        if self.full:
            raise OSError(errno.ENOMEM, f"id: a port has {MAX_CONNECTIONS} connections at most")

    def new_number(self) -> int:
        """A number that no element has; not 0."""
        while True:
            number = self._random.getrandbits(32)
            if number and number not in self._elements:
                return number

    def add(self, element: Connection | Resolution) -> None:
        """Keep an element by its number."""
        self._elements[element.number] = element
        self.connections += 1

    def remove(self, element: Connection | Resolution) -> None:
        """Forget it; once more is no error."""
        if self._elements.pop(element.number, None) is not None:
            self.connections -= 1

    def find(self, number: int) -> Element | None:
        """The element of that number."""
        return self._elements.get(number)

    def own(self, owner: Owner, number: int, kind: type[_Kind]) -> _Kind:
        """The owner's element of a kind; OSError EINVAL: there is none."""
        element = self._elements.get(number)
        if not isinstance(element, kind) or element.owner is not owner:
            raise OSError(errno.EINVAL, f"id = {number}: there is no such connection")
        return element

    def listen(self, owner: Owner, service_id: int, backlog: int) -> Listener:
        """Keep a new listener; OSError EADDRINUSE, EINVAL, ENOMEM."""
        if not 0 < backlog <= MAX_BACKLOG:
            raise OSError(errno.EINVAL, f"backlog = {backlog}: expected 1…{MAX_BACKLOG} requests")
        if service_id in self._services:
            raise OSError(errno.EADDRINUSE, f"service_id = {service_id:#x}: it has a listener")
        if len(self._services) >= MAX_LISTENERS:
            raise OSError(errno.ENOMEM, f"service_id: a port has {MAX_LISTENERS} listeners at most")
        listener = Listener(self.new_number(), owner, service_id, backlog)
        self._services[service_id] = self._elements[listener.number] = listener
        return listener

    def listener_of(self, service_id: int) -> Listener | None:
        """Who takes requests for a service."""
        return self._services.get(service_id)

    def close_listener(self, listener: Listener) -> None:
        """No requests come for it any more."""
        del self._services[listener.service_id], self._elements[listener.number]

    def answered(self, element: Connection | Resolution) -> None:
        """A request does not wait at its listener any more."""
        listener = self._elements.get(element.listener)
        if isinstance(listener, Listener):
            listener.waiting.remove(element.number)
