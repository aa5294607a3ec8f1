"""Listeners: requests for a port number, at one address or at all of this process's devices."""

from __future__ import annotations

import contextlib
import errno
from functools import partial
from typing import TYPE_CHECKING

from softhca.driver.connections import CM_SIDR_REQUEST, CmEvent
from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import events
from softhca.driver.rdmacm.addresses import of_gid
from softhca.driver.rdmacm.events import IdentifierEvent
from softhca.driver.rdmacm.local_devices import LocalPort
from softhca.driver.rdmacm.ports import CmPort, port_of
from softhca.driver.rdmacm.routes import index_of
from softhca.management.ip_service import IpHeader, service_id

if TYPE_CHECKING:
    from softhca.driver.rdmacm.identifier import Identifier

BACKLOG = 128
MOST_BACKLOG = 1024
NOBODY_LISTENS = 8
"""REJ's reason: the service ID is not valid (IBTA vol. 1, table 109)."""
SIDR_NOT_SUPPORTED = 1


class Listener:
    """``owner`` listens from here on, until `close`.  EADDRINUSE."""

    def __init__(self, owner: Identifier, backlog: int) -> None:
        assert owner.source is not None
        self._owner = owner
        self._places: list[tuple[LocalPort, CmPort, int]] = []
        self._own_devices = owner.local is None
        self._waiting: dict[int, CmPort] = {}  # requests that are no events of the program yet
        service = service_id(owner.space, owner.source.port)
        waiting = min(backlog, MOST_BACKLOG) if backlog > 0 else BACKLOG
        places = [owner.local] if owner.local is not None else owner.devices.all()
        self._devices = {place.device for place in places} if self._own_devices else set()
        try:
            if not places:
                raise DriverError(errno.ENODEV, "there is no device to listen on")
            for place in places:
                port = port_of(place.device, place.port)
                number = port.channel.listen(service, waiting)
                self._places.append((place, port, number))
                port.register(number, partial(self._on_request, place, port))
            for device in self._devices:
                owner.attach(device)
        except DriverError:
            self._close_ports()
            for device in self._devices:
                owner.devices.release(device)
            raise

    def close(self) -> None:
        """Take no more; who has asked, and whom the program has not heard of, is told."""
        self._close_ports()
        for number in list(self._waiting):
            port = self._waiting.pop(number, None)
            if port is not None:
                port.end(number)
        for device in self._devices:
            self._owner.detach(device)
            self._owner.devices.release(device)

    def _close_ports(self) -> None:
        for _, port, number in self._places:
            port.end(number)

    def _on_request(self, place: LocalPort, port: CmPort, event: CmEvent) -> None:
        self._waiting[event.id] = port
        self._owner.channel.post(self._owner, partial(self._take, place, port, event), here=False)

    def _take(self, place: LocalPort, port: CmPort, event: CmEvent) -> IdentifierEvent | None:
        """A request as an event with a new identifier; None where it is none for this listener."""
        owner = self._owner
        if self._waiting.pop(event.id, None) is None:
            return None  # the listener was closed meanwhile
        try:
            header = IpHeader.decode(event.private_data)
        except ValueError:
            header = None
        known = header is not None and header.known and self._is_for(header, place)
        if header is None or not known or (place.is_native and index_of(place, event.pkey) < 0):
            with contextlib.suppress(DriverError):  # it may have ended meanwhile
                if event.kind == CM_SIDR_REQUEST:
                    port.channel.answer(event.id, SIDR_NOT_SUPPORTED)
                else:
                    port.channel.reject(event.id, NOBODY_LISTENS)
            return None
        local = owner.devices.share(place, event.own_gid)
        assert owner.source is not None
        child = type(owner)(owner.channel, owner.space, owner.devices)
        child.traffic_class = owner.traffic_class
        child.ack_timeout = owner.ack_timeout
        child.adopt(
            local,
            local.address.with_port(owner.source.port),
            of_gid(header.source_gid, header.source_port),
        )
        wanted = child.connection.requested(port, event)
        return IdentifierEvent(
            events.CONNECT_REQUEST, child, owner, private_data=wanted.private_data, connection=wanted
        )

    def _is_for(self, header: IpHeader, place: LocalPort) -> bool:
        """Whether a request, by its addresses, is for an identifier bound as the owner is."""
        owner = self._owner
        assert owner.source is not None
        if not owner.source.is_any or owner.local is not None:
            return header.destination_gid == place.gid
        is_ipv6 = header.ip_version == 6
        return is_ipv6 == owner.source.is_ipv6 or (owner.source.is_ipv6 and not owner.family_only)
