"""One port of an adapter that shares memory: its addresses, each of which meets peers for itself.

A peer is the pair of an address here and one there, as a path of the wire is: where a port has several
addresses, a queue pair's route names both ends, so the grant that it finds, and where packets of its ring
have come from and gone to, are what they would be if the port had that address alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from softhca.memory.shared_path import SharedPath
from softhca.runtime.same_host_address import SameHostAddress
from softhca.runtime.same_host_ring import PacketReceiver, PacketSender
from softhca.wire.route import Route

if TYPE_CHECKING:
    from softhca.runtime.same_host import SameHost


class SameHostPort:
    """The port ``number`` of the adapter of ``same_host``.  Everything under the engine's lock.

    ``addresses`` are those that were added, by GID.  ``receivers`` are the rings of packets from peers of all
    of them; ``changed`` is called when `link_of` may give another answer than before, ``take_rest``, with the
    port's number, before the ring of a peer that has gone is dropped.  ``in_flight`` says how much is under
    way to a GID by other ways.
    """

    def __init__(self, same_host: SameHost, number: int, in_flight: Callable[[bytes], int]) -> None:
        self.same_host = same_host
        self.number = number
        self.in_flight = in_flight
        self.addresses: dict[bytes, SameHostAddress] = {}
        self.receivers: list[PacketReceiver] = []
        self.changed: Callable[[], object] = lambda: None
        self.take_rest: Callable[[int, PacketReceiver], object] = lambda number, receiver: None

    @property
    def first(self) -> SameHostAddress:
        """The address that was added first."""
        return next(iter(self.addresses.values()))

    def path_to(self, source: bytes, gid: bytes) -> SharedPath | None:
        """`SameHostAddress.path_to` from the address ``source``; None where that one does not share."""
        address = self.addresses.get(source)
        return None if address is None else address.path_to(gid)

    def link_of(self, route: Route) -> PacketSender | None:
        """`SameHostAddress.link_of` of the address that a route begins at; None where that one does not
        share."""
        address = self.addresses.get(route.source)
        return None if address is None else address.link_of(route)

    @property
    def is_switching(self) -> bool:
        """Whether there are peers whose rings carry no packets yet."""
        return any(address.is_switching for address in self.addresses.values())

    def switch(self) -> None:
        """`SameHostAddress.switch` of each address."""
        for address in self.addresses.values():
            address.switch()

    def close(self) -> None:
        """Listen no more; may be called again."""
        for address in self.addresses.values():
            address.close()
