"""Port numbers of this process's identifiers, as the kernel gives and guards them.

Each port space (and each IP version within it) has its own numbers.  Two identifiers have one port only at
different addresses, or where both allow it (``reuse``) and none of them listens.  Between the processes that
share an adapter its table of listeners guards service IDs, so that a listener's port is refused there.
"""

from __future__ import annotations

import errno
import random
import threading
from dataclasses import dataclass

from softhca.driver.errors import DriverError
from softhca.driver.forks import heed_forks
from softhca.driver.rdmacm.addresses import SocketAddress

FIRST_EPHEMERAL, LAST_EPHEMERAL = 32768, 60999
"""Where ports are taken from for who names none: Linux's ``ip_local_port_range``."""


@dataclass(eq=False)
class Binding:
    """A port that is taken: by whom it may be shared, and at which address."""

    space: int
    address: SocketAddress
    reuse: bool = False
    listens: bool = False

    @property
    def port(self) -> int:
        """The number."""
        return self.address.port


class PortNumbers:
    """All ports of one process.  Any thread may call any method."""

    def __init__(self, seed: int | None = None) -> None:
        self._lock = threading.Lock()
        self._bound: dict[tuple[int, bool, int], list[Binding]] = {}
        self._random = random.Random(seed)
        heed_forks(self)

    def inherited(self) -> None:
        """This is a forked child: the parent's ports stay taken until their identifiers are closed here."""
        self._lock = threading.Lock()

    def bind(self, space: int, address: SocketAddress, reuse: bool = False) -> Binding:
        """Take the port of ``address``, any free one where it is 0.  DriverError EADDRINUSE, EADDRNOTAVAIL
        (none is free).
        """
        with self._lock:
            port = address.port or self._free(space, address)
            binding = Binding(space, address.with_port(port), reuse)
            found = self._others(binding)
            if any(_meet(binding, each) for each in found):
                raise DriverError(errno.EADDRINUSE, f"src_addr: {binding.address}: the port is in use")
            found.append(binding)
            self._bound[_key(binding)] = found
        return binding

    def listen(self, binding: Binding) -> None:
        """Its identifier listens: nobody shares the port with it.  DriverError EADDRINUSE."""
        with self._lock:
            listening = Binding(binding.space, binding.address, binding.reuse, listens=True)
            if any(_meet(listening, each) for each in self._others(binding) if each is not binding):
                raise DriverError(errno.EADDRINUSE, f"src_addr: {binding.address}: the port is in use")
            binding.listens = True

    def stop(self, binding: Binding) -> None:
        """Its identifier does not listen, after all."""
        with self._lock:
            binding.listens = False

    def release(self, binding: Binding) -> None:
        """Give it back; again does nothing."""
        with self._lock:
            found = self._others(binding)
            if binding in found:
                found.remove(binding)
            if not found:
                self._bound.pop(_key(binding), None)

    def _others(self, binding: Binding) -> list[Binding]:
        return self._bound.get(_key(binding), [])

    def _free(self, space: int, address: SocketAddress) -> int:
        count = LAST_EPHEMERAL + 1 - FIRST_EPHEMERAL
        start = self._random.randrange(count)
        for step in range(count):
            port = FIRST_EPHEMERAL + (start + step) % count
            if (space, address.is_ipv6, port) not in self._bound:
                return port
        raise DriverError(errno.EADDRNOTAVAIL, "src_addr: no port is free")


def _key(binding: Binding) -> tuple[int, bool, int]:
    return binding.space, binding.address.is_ipv6, binding.address.port


def _meet(one: Binding, other: Binding) -> bool:
    """Whether two that want one port exclude each other."""
    if one.reuse and other.reuse and not one.listens and not other.listens:
        return False
    return one.address.is_any or other.address.is_any or one.address.packed == other.address.packed
