"""The sockets of a RoCEv2 link: one that receives on the RoCE port, and many that only send.

A source port takes a socket that is bound to it: without privilege there is no other way to send from one.
Each connection has a port of its own, so that the network spreads flows over its paths (IBTA annex A17.9.2),
up to a number of sockets that leaves the process most of its descriptors; flows beyond it share.  Where there
is no network, on this machine, queue pairs with one destination share a port.  The ICRC covers the source
port, so it is chosen once for a flow and kept.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import socket
import struct
import threading

from softhca.machine.kernel_sockets import KernelSocket
from softhca.machine.primitives import address_of
from softhca.wire.flows import FIRST_SOURCE_PORT, LAST_SOURCE_PORT, source_port

ROCE_PORT = 4791
"""UDP destination port of RoCEv2 (IANA)."""

MOST_SENDERS = 512
"""Send-only sockets of a process, at most, however many descriptors it may have."""
DESCRIPTORS_A_SENDER = 8
"""One send-only socket for so many descriptors that the process may have (RLIMIT_NOFILE)."""
HOP_LIMIT = 64
"""What the sockets use where nothing else is said."""
FLOW_LABEL = slice(4, 8)
"""Where the flow label stands in a packed IPv6 socket address."""
BUFFER_BYTES = 4 << 20
"""What is asked of the kernel for a send or receive buffer; it gives what its limits allow."""
HELD_BUFFER_BYTES = 2_400_000
"""The same for the bursts that a sender holds; the kernel doubles it."""

_log = logging.getLogger(__name__)

# Linux's numbers; the socket module does not name them all.
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_ATTACH_FILTER = 32, 33, 26
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_DO = 10, 23, 2
_IP_RECVTOS = 13
_IPV6_FLOWINFO_SEND, _IPV6_AUTOFLOWLABEL = 33, 70
_SOL_UDP, _UDP_NO_CHECK6_RX, _UDP_GRO = 17, 102, 104
_TRIES = 256  # ports that are looked at before a flow shares another's
_EXHAUSTED = (errno.EADDRINUSE, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def _set_buffer(endpoint: socket.socket, plain: int, force: int, size_bytes: int) -> None:
    """Ask for a buffer; past the system's limit where the process may, else cut to it by the kernel."""
    try:
        endpoint.setsockopt(socket.SOL_SOCKET, force, size_bytes)
    except PermissionError:
        endpoint.setsockopt(socket.SOL_SOCKET, plain, size_bytes)


def _set_if_known(endpoint: socket.socket, level: int, option: int, value: int | bytes) -> None:
    """Set what an emulator of system calls (qemu-user) may not know, and no ICRC covers: there the kernel
    chooses the interface that groups are reached by, and the flow label.
    """
    try:
        endpoint.setsockopt(level, option, value)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
        _log.debug("this kernel knows no option %d of level %d: its own choice stays", option, level)


def bound_socket(address: str, port: int, scope: int = 0, shared: bool = False) -> socket.socket:
    """A non-blocking UDP socket bound to a textual address without ``%scope``; OSError where that fails.
    ``shared``: others that want so may be bound to the same.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    endpoint = KernelSocket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        if shared:
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        endpoint.bind((address, port, 0, scope) if family == socket.AF_INET6 else (address, port))
    except OSError:
        endpoint.close()
        raise
    return endpoint


def open_receiver(
    address: str, port: int, scope: int, buffer_bytes: int, gro: bool, shared: bool = False
) -> tuple[socket.socket, bool]:
    """A receiving socket of a link, and whether the kernel merges datagrams for it (UDP_GRO, Linux 5.0);
    ``shared`` as of `bound_socket`.
    """
    endpoint = bound_socket(address, port, scope, shared)
    try:
        _set_buffer(endpoint, socket.SO_RCVBUF, _SO_RCVBUFFORCE, buffer_bytes)
        if endpoint.family == socket.AF_INET6:
            endpoint.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
            # RoCE's UDP checksum may be 0, which UDP over IPv6 drops unless told (RFC 6935).
            endpoint.setsockopt(_SOL_UDP, _UDP_NO_CHECK6_RX, 1)
        else:
            endpoint.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)
        merges = False
        if gro:
            with contextlib.suppress(OSError):
                endpoint.setsockopt(_SOL_UDP, _UDP_GRO, 1)
                merges = True
    except OSError:
        endpoint.close()
        raise
    return endpoint, merges


def open_sender(address: str, port: int, scope: int, buffer_bytes: int, interface: int = 0) -> socket.socket:
    """A send-only socket.  What it sends to groups leaves by the ``interface`` of this index (0: the kernel
    chooses).

    It is never connected and never lets the kernel fragment: only then Linux sends IPv4 identification 0 with
    DF, the value that the ICRC was made with.
    """
    endpoint = bound_socket(address, port, scope)
    try:
        if endpoint.family == socket.AF_INET6:
            endpoint.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_DO)
            endpoint.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, HOP_LIMIT)
            endpoint.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, HOP_LIMIT)
            _set_if_known(endpoint, socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface)
            # The label is what the address says, 0 too.
            _set_if_known(endpoint, socket.IPPROTO_IPV6, _IPV6_AUTOFLOWLABEL, 0)
            _set_if_known(endpoint, socket.IPPROTO_IPV6, _IPV6_FLOWINFO_SEND, 1)
        else:
            endpoint.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_DO)
            endpoint.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, HOP_LIMIT)
            endpoint.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, HOP_LIMIT)
            by = bytes(4) + socket.inet_aton(address) + struct.pack("=i", interface)
            _set_if_known(endpoint, socket.IPPROTO_IP, socket.IP_MULTICAST_IF, by)
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)  # the kernel's minimum: nobody reads here
        _set_buffer(endpoint, socket.SO_SNDBUF, _SO_SNDBUFFORCE, buffer_bytes)
    except OSError:
        endpoint.close()
        raise
    return endpoint


def hold_bursts(descriptor: int) -> int:
    """Give a send-only socket room for bursts that are held (`links.held_bursts`); the size of its receive
    buffer, as the kernel counts it, 0 where it cannot have that, or where there is one processor, in whose
    cache all stays.  It goes on receiving nothing.
    """
    if os.cpu_count() == 1:
        return 0
    instruction = struct.pack("=HBBI", 6, 0, 0, 0)  # BPF_RET | BPF_K, 0 bytes: drop what comes
    program = struct.pack("@HP", 1, address_of(instruction, False))
    endpoint = socket.socket(fileno=descriptor)  # no copy: there may be no descriptor left
    try:
        endpoint.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        _set_buffer(endpoint, socket.SO_RCVBUF, _SO_RCVBUFFORCE, HELD_BUFFER_BYTES)
        return receive_buffer_bytes(endpoint)
    except OSError:
        return 0
    finally:
        endpoint.detach()


def most_senders() -> int:
    """How many send-only sockets this process may have open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_SENDERS
    return min(MOST_SENDERS, soft // DESCRIPTORS_A_SENDER)


class _Open:
    """Send-only sockets that are open in this process, of all links."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def change(self, by: int) -> None:
        """So many more, or fewer."""
        with self._lock:
            self.count += by


open_senders = _Open()


class Senders:
    """The send-only sockets of one address, each opened with the first flow that wants its port."""

    def __init__(self, address: str, scope: int, buffer_bytes: int, interface: int = 0) -> None:
        self._address = address
        self._scope = scope
        self._interface = interface
        self._buffer_bytes = buffer_bytes
        self._by_port: dict[int, socket.socket] = {}
        self._ports: dict[int, int] = {}

    def choose(self, label: int) -> tuple[int, int]:
        """(port, file descriptor) of the sender for a flow; the same flow gets the same for ever.

        Where another process has the port it is one of the next free ones.  A flow gets a port that is open
        already where this process has `most_senders` or cannot have another.  OSError when no socket can be
        had and none is open.
        """
        wanted = source_port(label)
        port = self._ports.get(wanted)
        if port is None:
            port = self._ports[wanted] = self._take(wanted)
        return port, self._by_port[port].fileno()

    def _take(self, wanted: int) -> int:
        """The port for flows that want this one."""
        if self._by_port and open_senders.count >= most_senders():
            return self._shared(wanted)
        try:
            return self._open(wanted)
        except OSError as error:
            if not self._by_port or error.errno not in _EXHAUSTED:
                raise
            return self._shared(wanted)

    def _shared(self, wanted: int) -> int:
        """One of the ports that are open."""
        ports = list(self._by_port)
        return ports[wanted % len(ports)]

    def _open(self, wanted: int) -> int:
        ports = LAST_SOURCE_PORT + 1 - FIRST_SOURCE_PORT
        for step in range(_TRIES):
            port = FIRST_SOURCE_PORT + (wanted - FIRST_SOURCE_PORT + step) % ports
            if port in self._by_port:
                continue
            try:
                sender = open_sender(
                    self._address, port, self._scope, self._buffer_bytes, self._interface
                )
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            self._by_port[port] = sender
            open_senders.change(1)
            return port
        raise OSError(errno.EADDRINUSE, f"no free source port from {wanted:#x} on at {self._address}")

    def __len__(self) -> int:
        return len(self._by_port)

    def close(self) -> None:
        """Close all of them; may be called again."""
        for endpoint in self._by_port.values():
            endpoint.close()
        open_senders.change(-len(self._by_port))
        self._by_port.clear()
        self._ports.clear()


def receive_buffer_bytes(endpoint: socket.socket) -> int:
    """A socket's receive buffer as the kernel counts it: the doubled request, its own overhead included."""
    return endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
