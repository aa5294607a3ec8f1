"""Identifiers: one end of a connection, a listener, or a user of multicast groups (``rdma_cm_id``).

`Identifier` has the address, the port number, the device and the state; `connecting.Connection` what passes
between it and a peer; `groups.Groups` the groups that it has joined.
"""

from __future__ import annotations

import errno
import random
import threading
from typing import TYPE_CHECKING

from softhca.driver.errors import DriverError
from softhca.driver.forks import heed_forks
from softhca.driver.rdmacm import events, states
from softhca.driver.rdmacm.addresses import SocketAddress, any_address
from softhca.driver.rdmacm.connecting import Connection
from softhca.driver.rdmacm.events import EventChannel, IdentifierEvent, Notice
from softhca.driver.rdmacm.groups import Groups
from softhca.driver.rdmacm.local_devices import LocalDevices, LocalPort
from softhca.driver.rdmacm.port_numbers import Binding, PortNumbers
from softhca.driver.rdmacm.routes import ON_ETHERNET, find_port, find_route
from softhca.management.ip_service import PORT_SPACES, TCP

if TYPE_CHECKING:
    from softhca.driver.device import DeviceDriver
    from softhca.driver.qp import QpHandle

OPTION_ID = 0
OPTION_TOS, OPTION_REUSEADDR, OPTION_AFONLY, OPTION_ACK_TIMEOUT = range(4)
_MOST_ACK_TIMEOUT = 31
ADDRESS_MS = ROUTE_MS = 2000

DEVICES = LocalDevices()
PORT_NUMBERS = PortNumbers()


class Identifier:
    """``channel`` gets its events; ``space`` is a port space (TCP: connected, UDP: datagrams).

    ``state`` is one of `states`; ``source`` and ``destination`` its addresses, ``local`` the device's port
    that it is bound to (each None until it is known), ``route`` the way between them; ``queue_pair`` the
    program's, where the identifier is to take it through its states (None: the program does).  ``psn`` is
    the first that its queue pair sends.  ``changing`` is its owner's, held while what stands on the
    identifier comes and goes; ``taken``: somebody is to close it, of those that a request makes.

    Any thread may call any method; every error is a DriverError, EINVAL where the state does not allow it.
    """

    def __init__(
        self,
        channel: EventChannel,
        space: int = TCP,
        devices: LocalDevices = DEVICES,
        port_numbers: PortNumbers = PORT_NUMBERS,
    ) -> None:
        if space not in PORT_SPACES:
            raise DriverError(errno.EPROTONOSUPPORT, f"port_space = {space:#x}: there is no such port space")
        self._make_locks()
        self.channel = channel
        self.space = space
        self.state = states.IDLE
        self.source: SocketAddress | None = None
        self.destination: SocketAddress | None = None
        self.peer_gid = bytes(16)
        self.local: LocalPort | None = None
        self.route = ON_ETHERNET
        self.queue_pair: QpHandle | None = None
        self.psn = random.getrandbits(24)
        self.traffic_class = 0
        self.ack_timeout: int | None = None
        self.reuse = False
        self.taken = True
        self.family_only: bool | None = None
        self.devices = devices
        self.connection = Connection(self)
        self.groups = Groups(self)
        self._port_numbers = port_numbers
        self._binding: Binding | None = None
        self._attached: list[DeviceDriver] = []
        self._closed = False
        heed_forks(self)

    def _make_locks(self) -> None:
        self.lock = threading.RLock()
        self._moving = threading.RLock()  # between two channels; within it is no other lock of this class
        self.changing = threading.RLock()

    def inherited(self) -> None:
        """This is a forked child: it is the parent's, and can be closed."""
        self._make_locks()

    @property
    def connected(self) -> bool:
        """Whether its port space is of connections, not of datagrams."""
        return self.space == TCP

    @property
    def place(self) -> LocalPort:
        """`local`; EINVAL where it is not known yet."""
        if self.local is None:
            raise DriverError(errno.EINVAL, "the identifier is bound to no device yet")
        return self.local

    # addresses

    def bind(self, address: SocketAddress) -> None:
        """Take an address and a port (0: any); the wildcard is bound to no device.

        EADDRINUSE, EADDRNOTAVAIL (no device has it), ENODEV.
        """
        with self.lock:
            after = states.after(self.state, states.BIND)
            self._bind(address)
            self.state = after

    def resolve_address(self, destination: SocketAddress, source: SocketAddress | None = None) -> None:
        """Find the device that leads to ``destination``; `events.ADDR_RESOLVED` follows.  ``source`` is bound
        first where the identifier is not bound; it stays bound, whatever becomes of the rest, as the kernel's
        does.  On native links subnet administration is asked who has an address that is no GID of the subnet.
        As `bind`; ENETUNREACH; as `find_port`.
        """
        with self.lock:
            states.after(self.state, states.RESOLVE_ADDRESS)
            if self.state == states.IDLE:
                self._bind(source or any_address(destination))
                self.state = states.BOUND
            assert self.source is not None
            if self.source.is_ipv6 != destination.is_ipv6:
                raise DriverError(errno.EINVAL, "src_addr, dst_addr: they are of different IP versions")
            if self.local is None:
                self._use(self.devices.towards(destination))
            own = destination.is_localhost or destination.is_any  # no device's: this one's
            if own and self.local is not None:
                destination = self.local.address.with_port(destination.port)
            place = self.place
        gid = destination.gid
        if place.is_native and not place.shares_subnet(gid) and not destination.is_multicast:
            gid = find_port(place, gid, ADDRESS_MS)
        with self.lock:
            self.state = states.after(self.state, states.RESOLVE_ADDRESS)
            self.destination, self.peer_gid = destination, gid
        self.queue_event(events.ADDR_RESOLVED)

    def resolve_route(self, timeout_ms: int = ROUTE_MS) -> None:
        """Find the way to the destination; `events.ROUTE_RESOLVED` follows.  On RoCEv2 it is known as soon as
        the addresses are; on native links subnet administration is asked, for ``timeout_ms`` in all (errors
        as `find_route`).
        """
        with self.lock:
            states.after(self.state, states.RESOLVE_ROUTE)
            place, gid = self.place, self.peer_gid
        found = find_route(place, gid, timeout_ms) if place.is_native else ON_ETHERNET
        with self.lock:
            self.state = states.after(self.state, states.RESOLVE_ROUTE)
            self.route = found
        self.queue_event(events.ROUTE_RESOLVED)

    def listen(self, backlog: int = 0) -> None:
        """Take requests at the bound address, or at all, which is bound then, whatever comes of it.
        ``backlog`` of them wait at most (0: many).  EADDRINUSE.
        """
        with self.lock:
            after = states.after(self.state, states.LISTEN)
            if self.state == states.IDLE:
                self._bind(SocketAddress(bytes(4)))
                self.state = states.BOUND
            assert self._binding is not None
            self._port_numbers.listen(self._binding)
            try:
                self.connection.listen(backlog)
            except DriverError:
                self._port_numbers.stop(self._binding)
                raise
            self.state = after

    def _bind(self, address: SocketAddress) -> None:
        if address.is_multicast:
            raise DriverError(errno.EADDRNOTAVAIL, f"src_addr: {address.host} is a group's address")
        found = self._at(address)
        own = any_address(address) if found is None else found.address
        try:
            self._binding = self._port_numbers.bind(self.space, own.with_port(address.port), self.reuse)
        except DriverError:
            if found is not None:
                self.devices.release(found.device)
            raise
        self.source = (address if found is None else found.address).with_port(self._binding.port)
        if found is not None:
            self._use(found)

    def _at(self, address: SocketAddress) -> LocalPort | None:
        """The port to be bound to; None for all: localhost is all addresses where no device is at one of
        loopback, as with the kernel."""
        if address.is_any:
            return None
        try:
            return self.devices.at(address)
        except DriverError as error:
            if error.errno != errno.EADDRNOTAVAIL or not address.is_localhost:
                raise
            return None

    def _use(self, found: LocalPort) -> None:
        """Be on this device, which is the identifier's until it is closed."""
        self.local = found
        assert self.local is not None
        if self.source is None or self.source.packed != found.address.packed:  # any, or localhost
            port = 0 if self.source is None else self.source.port
            self.source = found.address.with_port(port)
        self.attach(found.device)

    # options

    def set_option(self, name: int, value: int) -> None:
        """An option of `OPTION_ID`: ToS, address reuse, one IP version only (both before it is bound), or
        the time-out of acknowledgements (0 … 31, exponent of 4.096 µs).  ENOSYS for others.
        """
        with self.lock:
            if name == OPTION_TOS:
                if not 0 <= value <= 0xFF:
                    raise DriverError(
                        errno.EINVAL, f"RDMA_OPTION_ID_TOS = {value}: a type of service has 8 bits"
                    )
                self.traffic_class = value
            elif name == OPTION_ACK_TIMEOUT:
                if not 0 <= value <= _MOST_ACK_TIMEOUT:
                    raise DriverError(
                        errno.EINVAL,
                        f"RDMA_OPTION_ID_ACK_TIMEOUT = {value}: expected 0 … {_MOST_ACK_TIMEOUT}",
                    )
                self.ack_timeout = value
            elif name not in (OPTION_REUSEADDR, OPTION_AFONLY):
                raise DriverError(errno.ENOSYS, f"optname = {name}: there is no such option")
            elif self.state != states.IDLE:
                raise DriverError(errno.EINVAL, "optname: the identifier is bound")
            elif name == OPTION_REUSEADDR:
                self.reuse = bool(value)
            else:
                self.family_only = bool(value)

    # events

    def queue_event(self, kind: int) -> None:
        """An event of this identifier that is known here."""
        self.post(lambda: IdentifierEvent(kind, self))

    def post(self, notice: Notice, here: bool = True) -> None:
        """Queue what has happened to this identifier on its channel, as `EventChannel.post`; in order, also
        while it moves to another one.
        """
        with self._moving:
            self.channel.post(self, notice, here)

    def take_back(self, notice: Notice) -> None:
        """What was queued by `post` is no more, if the program has not taken it."""
        with self._moving:
            self.channel.take_back(self, notice)

    def migrate(self, channel: EventChannel) -> None:
        """Give further events, and those that wait, to another channel.  EBADF where that is closed."""
        with self.lock:
            channel.check()
            for device in self._attached:
                channel.attach(device, self)
            with self._moving:
                before, self.channel = self.channel, channel
                for notice in before.withdraw(self):
                    channel.post(self, notice)
            if before is not channel:
                for device in self._attached:
                    before.detach(device, self)

    def attach(self, device: DeviceDriver) -> None:
        """Events of ``device`` are to be waited for."""
        self._attached.append(device)
        self.channel.attach(device, self)

    def detach(self, device: DeviceDriver) -> None:
        """No more; a signal handler may have interrupted `attach`."""
        if device in self._attached:
            self._attached.remove(device)
            self.channel.detach(device, self)

    def lost(self) -> None:
        """The adapter of a device has gone: `events.DEVICE_REMOVAL` follows; of one that listens at all
        addresses with the last of its devices.
        """
        if all(device.lost for device in self._attached):
            self.post(self._take_removal, here=False)

    def _take_removal(self) -> IdentifierEvent | None:
        with self.lock:
            after = states.on_message(self.state, states.REMOVAL)
            if after is None:
                return None
            self.state = after
            self.connection.removed()
        return IdentifierEvent(events.DEVICE_REMOVAL, self)

    def adopt(self, local: LocalPort, source: SocketAddress, destination: SocketAddress) -> None:
        """For one that a request makes: where it is, and between whom."""
        self.local, self.source, self.destination = local, source, destination
        self.state = states.REQUESTED
        self.taken = False
        self.attach(local.device)

    def close(self) -> None:
        """Leave groups, connection, port and device; may be called again."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            self.groups.close()
            self.connection.close()
            if self._binding is not None:
                self._port_numbers.release(self._binding)
            self.channel.withdraw(self)
            self.state = states.CLOSED
            local = self.local
        if local is not None:
            self.detach(local.device)
            self.devices.release(local.device)
