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
from softhca.driver.rdmacm.events import IdentifierEvent, Notice
from softhca.driver.rdmacm.local_devices import LocalPort
from softhca.driver.rdmacm.ports import CmPort, Taker, port_of
from softhca.driver.rdmacm.routes import index_of
from softhca.management.ip_service import IpHeader, service_id

if TYPE_CHECKING:
    from softhca.driver.rdmacm.identifier import Identifier

BACKLOG = 128
MOST_BACKLOG = 1024
NOBODY_LISTENS = 8
"""REJ's reason: the service ID is not valid (IBTA vol. 1, table 109)."""
SIDR_NOT_SUPPORTED = 1


class _Taker:
    """Takes a listener's requests at one port."""

    def __init__(self, listener: Listener, place: LocalPort, port: CmPort) -> None:
        self.listener, self.place, self.port = listener, place, port

    def is_for(self, event: CmEvent) -> bool:
        """As `ports.Taker`'s."""
        header = _header(event)
        return header is not None and self.listener.is_for(header, self.place)

    def is_apart(self, other: Taker) -> bool:
        """By the address, or its version."""
        return isinstance(other, _Taker) and self.listener.is_apart(other.listener)

    def take(self, event: CmEvent) -> None:
        """As `ports.Taker`'s."""
        self.listener.on_request(self.place, self.port, event)


def _header(event: CmEvent) -> IpHeader | None:
    """The header of a request, if it has one of a known version."""
    try:
        header = IpHeader.decode(event.private_data)
    except ValueError:
        return None
    return header if header.known else None


class Listener:
    """``owner`` listens from here on, until `close`.  EADDRINUSE."""

    def __init__(self, owner: Identifier, backlog: int) -> None:
        assert owner.source is not None
        self._owner = owner
        self._takers: list[_Taker] = []
        self._own_devices = owner.local is None
        self._waiting: dict[int, CmPort] = {}  # requests that are no events of the program yet
        self._service_id = service_id(owner.space, owner.source.port)
        waiting = min(backlog, MOST_BACKLOG) if backlog > 0 else BACKLOG
        places = [owner.local] if owner.local is not None else owner.devices.all()
        self._devices = {place.device for place in places} if self._own_devices else set()
        try:
            if not places:
                raise DriverError(errno.ENODEV, "there is no device to listen on")
            for place in places:
                port = port_of(place.device, place.port)
                taker = _Taker(self, place, port)
                port.listen(self._service_id, waiting, taker)
                self._takers.append(taker)
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
        for taker in self._takers:
            taker.port.stop(self._service_id, taker)

    def on_request(self, place: LocalPort, port: CmPort, event: CmEvent) -> None:
        """A request has come to one of its ports."""
        self._waiting[event.id] = port
        notice = partial(self._take, place, port, event)
        port.register(event.id, partial(self._on_end, port, notice))
        self._owner.post(notice, here=False)

    def _on_end(self, port: CmPort, notice: Notice, event: CmEvent) -> None:
        """A request has ended, displaced by later ones or taken back, before the program has heard of it."""
        if self._waiting.pop(event.id, None) is None:
            port.keep(event.id, event)  # its identifier is being made
        else:
            port.forget(event.id)
            self._owner.take_back(notice)

    def _take(self, place: LocalPort, port: CmPort, event: CmEvent) -> IdentifierEvent | None:
        """A request as an event with a new identifier; None where it is none for this listener."""
        owner = self._owner
        if self._waiting.pop(event.id, None) is None:
            return None  # the listener was closed meanwhile
        header = _header(event)
        known = header is not None and self.is_for(header, place)
        if header is None or not known or (place.is_native and index_of(place, event.pkey) < 0):
            port.forget(event.id)
            with contextlib.suppress(DriverError):  # it may have ended meanwhile
                if event.kind == CM_SIDR_REQUEST:
                    port.channel.answer(event.id, SIDR_NOT_SUPPORTED)
                else:
                    port.channel.reject(event.id, NOBODY_LISTENS)
            return None
        local = owner.devices.share(place, event.own_gid, header.destination_gid)
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

    def is_apart(self, other: Listener) -> bool:
        """Whether requests tell two listeners of one port number apart: by the address, or its version."""
        one, two = self._owner, other._owner
        assert one.source is not None
        assert two.source is not None
        if one.source.is_ipv6 == two.source.is_ipv6:
            return one.local is not None and two.local is not None and one.local.address != two.local.address
        six = one if one.source.is_ipv6 else two
        return six.local is not None or six.family_only is True

    def is_for(self, header: IpHeader, place: LocalPort) -> bool:
        """Whether a request, by its addresses, is for an identifier bound as the owner is."""
        owner = self._owner
        assert owner.source is not None
        if owner.local is not None:
            return header.destination_gid == place.address.gid
        is_ipv6 = header.ip_version == 6
        return is_ipv6 == owner.source.is_ipv6 or (owner.source.is_ipv6 and not owner.family_only)
