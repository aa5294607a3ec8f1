"""Which device and port of this process has an IP address, and by which one a peer is reached.

Identifiers share devices: each is opened with the first identifier that needs it, and closed with the last.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from softhca.driver import registry
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError
from softhca.driver.rdmacm.addresses import SocketAddress, of_gid
from softhca.driver.rdmacm.ports import forget_ports
from softhca.management.ip_service import V4_MAPPED_PREFIX

LINK_LAYER_ETHERNET = 2
_ROCE_PORT = 4791


@dataclass(frozen=True)
class LocalPort:
    """A port of an open device, by its GID ``gid``, which is entry ``gid_index`` of its table."""

    device: DeviceDriver
    port: int
    gid_index: int
    gid: bytes

    @property
    def address(self) -> SocketAddress:
        """The port's IP address, without a port number."""
        return of_gid(self.gid)


class LocalDevices:
    """The devices that identifiers of this process use.  ``names`` and ``open_device`` are the registry's."""

    def __init__(
        self,
        names: Callable[[], Sequence[str]] = registry.names,
        open_device: Callable[[str], DeviceDriver] = registry.open_device,
    ) -> None:
        self._names = names
        self._open = open_device
        self._lock = threading.RLock()
        self._users: dict[str, tuple[DeviceDriver, int]] = {}
        self._pid = os.getpid()

    def at(self, address: SocketAddress) -> LocalPort:
        """The port with this address; the caller has its device until `release`.

        127.0.0.1 and ::1, where no device has them, stand for the first device at a loopback address.
        DriverError EADDRNOTAVAIL: none of our devices has it; ENODEV: there is no device.
        """
        try:
            return self._choose(partial(_has, address.gid), f"no device has {address.host}")
        except DriverError as error:
            if error.errno != errno.EADDRNOTAVAIL or not address.is_localhost:
                raise
        return self._choose(partial(_on_loopback, address.is_ipv6), f"no device has {address.host}")

    def towards(self, destination: SocketAddress) -> LocalPort:
        """The port by which ``destination`` is reached: the one that has the address itself, the one that the
        kernel's routes name, or else the first of the same IP version.  As `at`; ENETUNREACH.
        """
        fits: list[Callable[[LocalPort], bool]] = [partial(_has, destination.gid)]
        source = _source_towards(destination)
        if source is not None:
            fits.append(partial(_has, source))
        fits.append(lambda found: found.address.is_ipv6 == destination.is_ipv6)
        with self._lock:
            for each in fits:
                try:
                    return self._choose(each, "")
                except DriverError as error:
                    if error.errno != errno.EADDRNOTAVAIL:
                        raise
        raise DriverError(errno.ENETUNREACH, f"no device reaches {destination.host}")

    def all(self) -> list[LocalPort]:
        """All ports, to listen at all of their addresses; the caller has each device once until `release`."""
        with self._lock:
            taken: list[LocalPort] = []
            for name in self._names():
                found = {place.port: place for place in reversed(self._of(name))}
                taken += found.values()
                if not found:
                    self._give_back(name)
            return taken

    def share(self, place: LocalPort, gid: bytes) -> LocalPort:
        """The same port for one more user, by its GID ``gid`` where it has that."""
        with self._lock:
            for name, (device, users) in self._users.items():
                if device is place.device:
                    self._users[name] = device, users + 1
            for index, each in _gids(place.device, place.port):
                if each == gid:
                    return LocalPort(place.device, place.port, index, gid)
        return place

    def release(self, device: DeviceDriver) -> None:
        """One user of ``device`` less; closed with the last."""
        with self._lock:
            for name, (each, _) in self._users.items():
                if each is device:
                    self._give_back(name)
                    return

    def _choose(self, fits: Callable[[LocalPort], bool], why_not: str) -> LocalPort:
        with self._lock:
            names = self._names()
            if not names:
                raise DriverError(errno.ENODEV, "there is no device")
            for name in names:
                for found in self._of(name):
                    if fits(found):
                        return found
                self._give_back(name)
        raise DriverError(errno.EADDRNOTAVAIL, why_not)

    def _of(self, name: str) -> list[LocalPort]:
        """One more user of a device, and its RoCE ports' GIDs."""
        device = self._take(name)
        try:
            return [
                LocalPort(device, port, index, gid)
                for port in range(1, device.query_device()["phys_port_cnt"] + 1)
                for index, gid in _gids(device, port)
            ]
        except DriverError:
            self._give_back(name)
            raise

    def _take(self, name: str) -> DeviceDriver:
        if os.getpid() != self._pid:  # this is a forked child: they are the parent's
            self._users.clear()
            self._pid = os.getpid()
        device, users = self._users.get(name, (None, 0))
        if device is None or not device.alive:
            device, users = self._open(name), 0
        self._users[name] = device, users + 1
        return device

    def _give_back(self, name: str) -> None:
        device, users = self._users[name]
        if users > 1:
            self._users[name] = device, users - 1
            return
        del self._users[name]
        forget_ports(device)
        device.close()


def _has(gid: bytes, found: LocalPort) -> bool:
    return found.gid == gid


def _on_loopback(is_ipv6: bool, found: LocalPort) -> bool:
    return found.address.is_loopback and found.address.is_ipv6 == is_ipv6


def _gids(device: DeviceDriver, port: int) -> Iterator[tuple[int, bytes]]:
    """The used entries of a port's GID table; none where the port is not RoCE's."""
    attributes = device.query_port(port)
    if attributes["link_layer"] == LINK_LAYER_ETHERNET:
        for index in range(attributes["gid_tbl_len"]):
            gid = device.query_gid(port, index)
            if any(gid):
                yield index, gid


def _source_towards(destination: SocketAddress) -> bytes | None:
    """The GID of the address that the kernel's routes say packets to ``destination`` leave from."""
    family = socket.AF_INET6 if destination.is_ipv6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(destination.with_port(_ROCE_PORT).sockaddr)
            host = probe.getsockname()[0].split("%", 1)[0]
    except OSError:
        return None
    packed = socket.inet_pton(family, host)
    return packed if len(packed) == 16 else V4_MAPPED_PREFIX + packed
