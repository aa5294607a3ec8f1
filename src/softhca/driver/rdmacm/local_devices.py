"""Which device and port of this process has an IP address, and by which one a peer is reached.

Identifiers share devices: each is opened with the first identifier that needs it, and closed with the last.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from softhca.driver import registry
from softhca.driver.adapters import HostAdapters
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError
from softhca.driver.forks import heed_forks
from softhca.driver.rdmacm.addresses import SocketAddress, of_gid
from softhca.driver.rdmacm.ports import forget_ports
from softhca.driver.rdmacm.routes import address_of
from softhca.machine.kernel_sockets import KernelSocket
from softhca.machine.signals import raised_by_handler

LINK_LAYER_ETHERNET = 2
PREFIX_BYTES = 8
"""Of a GID: those of its subnet."""
ADDRESS_MS = 1000
"""So long a subnet manager has time to tell an own port's IP address."""
_ROCE_PORT = 4791


@dataclass(frozen=True)
class LocalPort:
    """A port of an open device, by its GID ``gid``, which is entry ``gid_index`` of its table; its MTU
    (``ibv_mtu``), and how many READs and atomics the device can do at a time, as responder and as initiator.
    ``is_native``: it is InfiniBand's, where a GID is an IPv6 address of its own subnet alone; ``ip`` is the
    address, in the form of a GID, by which subnet administration knows it besides (empty: by none).
    """

    device: DeviceDriver
    port: int
    gid_index: int
    gid: bytes
    mtu: int
    max_responder_resources: int
    max_initiator_depth: int
    is_native: bool = False
    ip: bytes = b""

    @property
    def address(self) -> SocketAddress:
        """The port's IP address, without a port number."""
        return of_gid(self.ip or self.gid)

    def shares_subnet(self, gid: bytes) -> bool:
        """Whether ``gid`` is one of the native port's subnet."""
        return self.is_native and self.gid[:PREFIX_BYTES] == gid[:PREFIX_BYTES]


class LocalDevices:
    """The devices that identifiers of this process use.  ``names`` and ``open_device`` are the registry's."""

    def __init__(
        self,
        names: Callable[[], Sequence[str]] = registry.names,
        open_device: Callable[[str], DeviceDriver] = registry.open_device,
    ) -> None:
        self.adapters = HostAdapters(names, open_device)
        self._names = names
        self._lock = threading.RLock()
        self._ports: dict[DeviceDriver, tuple[LocalPort, ...]] = {}
        self._unanswered: dict[DeviceDriver, dict[int, LocalPort]] = {}
        self._gid_changes: dict[DeviceDriver, int] = {}
        heed_forks(self)

    def inherited(self) -> None:
        """This is a forked child: what is open is the parent's."""
        self._lock = threading.RLock()
        self._ports.clear()
        self._unanswered.clear()
        self._gid_changes.clear()

    def at(self, address: SocketAddress) -> LocalPort:
        """The port with this address; the caller has its device until `release`.

        127.0.0.1 and ::1, where no device has them, stand for the first device at a loopback address.
        DriverError EADDRNOTAVAIL: none of our devices has it; ENODEV: there is no device.
        """
        fits = [partial(_has, address.gid)]
        if address.is_localhost:
            fits.append(partial(_on_loopback, address.is_ipv6))
        return self._choose(fits, DriverError(errno.EADDRNOTAVAIL, f"no device has {address.host}"))

    def towards(self, destination: SocketAddress) -> LocalPort:
        """The port by which ``destination`` is reached: the one that has the address itself, the one that the
        kernel's routes name, a native one of its subnet, or else the first of the same IP version (a native
        GID leads to no other subnet).  As `at`; ENETUNREACH.
        """
        gid = destination.gid
        fits: list[Callable[[LocalPort], bool]] = [partial(_has, gid)]
        source = _source_towards(destination)
        if source is not None:
            fits.append(partial(_has, source))
        fits.append(lambda found: found.shares_subnet(gid))
        fits.append(partial(_leads_anywhere, destination.is_ipv6))
        return self._choose(fits, DriverError(errno.ENETUNREACH, f"no device reaches {destination.host}"))

    def all(self) -> list[LocalPort]:
        """All ports, to listen at all of their addresses; the caller has each device once until `release`.
        Devices in virtual time are passed over, since no thread waits for their requests, and those that
        cannot be opened; DriverError says why where none can.
        """
        with self._lock:
            taken: list[LocalPort] = []
            refused: DriverError | None = None
            for name in self._names():
                try:
                    device = self._acquire(name)
                except DriverError as error:
                    refused = error
                    continue
                places = [place for place in self._ports[device] if device.events.waits]
                found = {place.port: place for place in reversed(places)}
                taken += found.values()
                if not found:
                    self.release(device)
            if refused is not None and not taken:
                raise refused
            return taken

    def share(self, place: LocalPort, gid: bytes, address: bytes = b"") -> LocalPort:
        """The same port for one more user, by its GID ``gid``, and its IP address ``address`` in the form of
        a GID, where it has these."""
        with self._lock:
            if not self.adapters.share(place.device):
                return place
            with contextlib.suppress(DriverError):  # it has died: what was known of it will do
                self._learn(place.device)
            fits = [each for each in self._ports[place.device] if each.gid == gid and each.port == place.port]
            named = [each for each in fits if each.address.gid == address]
        return (named or fits or [place])[0]

    def release(self, device: DeviceDriver) -> None:
        """One user of ``device`` less; closed with the last."""
        with self._lock:
            if self.adapters.users(device) <= 1:
                forget_ports(device)
                self._ports.pop(device, None)
                self._unanswered.pop(device, None)
                self._gid_changes.pop(device, None)
            self.adapters.release(device)

    def _choose(self, fits: Sequence[Callable[[LocalPort], bool]], otherwise: DriverError) -> LocalPort:
        """The first port that fits best, by the first of ``fits`` for which there is one.  A device that
        cannot be opened is none; DriverError says why where nothing fits.
        """
        with self._lock:
            names = self._names()
            if not names:
                raise DriverError(errno.ENODEV, "there is no device")
            found: list[DeviceDriver] = []
            chosen: DeviceDriver | None = None
            try:
                for name in names:
                    try:
                        found.append(self._acquire(name))
                    except DriverError as error:
                        otherwise = error
                        continue
                    if any(map(fits[0], self._ports[found[-1]])):
                        break
                for each in fits:
                    for device in found:
                        for place in self._ports[device]:
                            if each(place):
                                chosen = device
                                return place
                raise otherwise
            finally:
                for device in found:
                    if device is not chosen:
                        self.release(device)

    def _acquire(self, name: str) -> DeviceDriver:
        """One more user of a device, whose ports' present GIDs are known then."""
        device = self.adapters.acquire(name)
        try:
            self._learn(device)
        except DriverError:
            self.adapters.release(device)
            raise
        if self._unanswered[device]:
            self._ask_for_addresses(device)
        return device

    def _learn(self, device: DeviceDriver) -> None:
        """Know the GIDs of a device's ports, where they are not known or have changed since.  DriverError:
        what was known of it stays.
        """
        changes = device.events.gid_changes()
        if device in self._ports and changes == self._gid_changes[device]:
            return
        ports = tuple(_ports_of(device))
        self._ports[device], self._gid_changes[device] = ports, changes
        native = {each.port: each for each in ports if each.is_native}
        self._unanswered[device] = native if device.events.waits else {}

    def _ask_for_addresses(self, device: DeviceDriver) -> None:
        """Ask by which IP addresses native ports are known, until there is an answer."""
        unanswered = self._unanswered[device]
        for place in list(unanswered.values()):
            with contextlib.suppress(DriverError):
                ip = address_of(device, place.port, place.gid, ADDRESS_MS)
                del unanswered[place.port]
                if ip:
                    self._ports[device] += (replace(place, ip=ip),)


def _has(address: bytes, found: LocalPort) -> bool:
    return found.address.gid == address


def _leads_anywhere(is_ipv6: bool, found: LocalPort) -> bool:
    return found.address.is_ipv6 == is_ipv6 and (not found.is_native or bool(found.ip))


def _on_loopback(is_ipv6: bool, found: LocalPort) -> bool:
    return found.address.is_loopback and found.address.is_ipv6 == is_ipv6


def _ports_of(device: DeviceDriver) -> Iterator[LocalPort]:
    """The used entries of the GID tables of a device's ports."""
    limits = device.query_device()
    most = limits["max_qp_rd_atom"], limits["max_qp_init_rd_atom"]
    for port in range(1, limits["phys_port_cnt"] + 1):
        attributes = device.query_port(port)
        is_native = attributes["link_layer"] != LINK_LAYER_ETHERNET
        for index in range(attributes["gid_tbl_len"]):
            gid = device.query_gid(port, index)
            if any(gid):
                yield LocalPort(device, port, index, gid, attributes["active_mtu"], *most, is_native)


def _source_towards(destination: SocketAddress) -> bytes | None:
    """The GID of the address that the kernel's routes say packets to ``destination`` leave from."""
    family = socket.AF_INET6 if destination.is_ipv6 else socket.AF_INET
    try:
        with KernelSocket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(destination.with_port(_ROCE_PORT).sockaddr)
            host = probe.getsockname()[0].split("%", 1)[0]
    except OSError as error:
        if raised_by_handler(error):
            raise
        return None
    return SocketAddress(socket.inet_pton(family, host)).gid
