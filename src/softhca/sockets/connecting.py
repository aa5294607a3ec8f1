"""The side that asks: whether the peer of a TCP connection to be made has softhca, and a stream to it.

The order is: find a GID at which the port is served, ask there by RDMA CM with the TCP address that this side
is going to have, and when that is answered, connect by TCP.  So whoever accepts the TCP connection knows from
its peer's address which stream belongs to it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
from typing import Any

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import events
from softhca.driver.rdmacm.addresses import of_gid
from softhca.machine.kernel_sockets import KernelSocket
from softhca.sockets import devices
from softhca.sockets.port_lookup import gids_of
from softhca.sockets.protocol import Offer, ProtocolError
from softhca.sockets.settings import Settings
from softhca.sockets.stream import Stream
from softhca.verbs.cmid import CMID, AddrInfo, CMEventChannel, ConnParam
from softhca.verbs.librdmacm_enums import RAI_NUMERICHOST
from softhca.verbs.pyverbs_error import PyverbsError

_ACK_OPTION = 3
UNREACHED_S = 60.0
"""A host that has not answered is not asked again for so long."""
_MOST_UNREACHED = 1024

_unreached: dict[bytes, float] = {}
_unreached_lock = threading.Lock()


def mapped(host: str) -> bytes:
    """The IPv6 or IPv4-mapped address; ValueError."""
    address = ipaddress.ip_address(host.split("%", 1)[0])
    return address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed


def text_of(address: bytes, version: int) -> str | None:
    """An IPv6 or IPv4-mapped address as a socket of the IP version has it; None: it cannot have it."""
    is_ipv4 = address.startswith(bytes(10) + b"\xff\xff")
    if version == 4:
        return socket.inet_ntop(socket.AF_INET, address[12:]) if is_ipv4 else None
    return socket.inet_ntop(socket.AF_INET6, address)


def name_of(address: tuple[bytes, int], version: int) -> tuple[Any, ...]:
    """An address and port, as `recvfrom` gives them."""
    host = text_of(address[0], version)
    return (host, address[1]) if version == 4 else (host, address[1], 0, 0)


def any_like(address: bytes) -> bytes:
    """The address that stands for all of its family."""
    return bytes(10) + b"\xff\xff" + bytes(4) if address.startswith(bytes(10) + b"\xff\xff") else bytes(16)


def candidates(host: str, port: int, alone: bool = False) -> list[bytes]:
    """GIDs to ask for ``port`` of ``host``, a numeric address.  ``alone``: by the connection manager alone,
    which knows this host's addresses that are an adapter's, too.
    """
    gid = mapped(host)
    if is_here(host):
        found = gids_of(port, gid) or gids_of(port, any_like(gid))
        return found or ([gid] if alone else [])
    with _unreached_lock:
        since = _unreached.get(gid)
    if since is not None and time.monotonic() - since < UNREACHED_S:
        return []
    return [gid]


def is_here(host: str) -> bool:
    """Whether an address is this host's."""
    try:
        with KernelSocket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((host.split("%", 1)[0], 0))
    except OSError:
        return False
    return True


def source_towards(address: tuple[object, ...], family: int) -> str | None:
    """The address that this host has towards another one."""
    try:
        with KernelSocket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return None


def remember_unreached(gid: bytes) -> None:
    """A host has not answered, or cannot be asked."""
    with _unreached_lock:
        if len(_unreached) >= _MOST_UNREACHED:
            _unreached.clear()
        _unreached[gid] = time.monotonic()


def ask(
    gid: bytes, port: int, names: tuple[int, bytes, bytes], settings: Settings, limit_s: float
) -> Stream | None:
    """A stream to ``port`` at ``gid``; ``names`` are the port number and the address that this side is going
    to have, and the address that it connects to, by TCP.  None where there is none.  `PoolError` where this
    side cannot.
    """
    channel = CMEventChannel()
    cmid: CMID | None = None
    stream: Stream | None = None
    try:
        cmid = CMID(creator=channel)
        with contextlib.suppress(PyverbsError):
            cmid.set_option(0, _ACK_OPTION, settings.ack_timeout, 1)
        place = of_gid(gid)
        cmid.resolve_addr(AddrInfo(dst=place.host, dst_service=str(port), flags=RAI_NUMERICHOST))
        local = devices.keep(cmid)
        if not place.is_loopback and local.address.is_loopback:
            remember_unreached(gid)
            return None
        cmid.resolve_route()
        while channel.channel.next_event(0) is not None:
            pass
        stream = Stream(cmid, settings)
        hello = stream.offer(names[0], settings.by_cm).encode(*names[1:])
        parameters = ConnParam(resources=1, depth=1, retry=7, rnr_retry=7, data_len=len(hello))
        parameters.set_private_data(hello)
        cmid.connect(parameters)
        event = channel.channel.next_event(limit_s)
        if event is None:
            remember_unreached(gid)
        if event is None or event.kind != events.ESTABLISHED:
            return None
        stream.begin(Offer.decode(event.private_data))
        made, stream, cmid = stream, None, None
        made.follow(channel)
        made.open()
        return made
    except (PyverbsError, DriverError, ProtocolError):
        return None
    finally:
        if stream is not None:
            stream.destroy()
        elif cmid is not None:
            cmid.close()
        if stream is not None or cmid is not None:
            channel.close()
