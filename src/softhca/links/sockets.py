"""The sockets of a RoCEv2 link: one that receives on the RoCE port, and many that only send.

Senders give each queue pair one of so many source ports, so that the network spreads flows over its paths
(IBTA annex A17.9.3); where there is no network, on this machine, queue pairs with one destination share a
port.  The ICRC covers the source port, so it is chosen once per queue pair and kept.
"""

from __future__ import annotations

import contextlib
import errno
import socket

ROCE_PORT = 4791
"""UDP destination port of RoCEv2 (IANA)."""

FIRST_SOURCE_PORT = 0xC000
LAST_SOURCE_PORT = 0xFFFF
MAX_SENDERS = 64
BUFFER_BYTES = 4 << 20
"""What is asked of the kernel for a send or receive buffer; it gives what its limits allow."""

# Linux's numbers; the socket module does not name them all.
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_DO = 10, 23, 2
_IP_RECVTOS = 13
_SOL_UDP, _UDP_NO_CHECK6_RX, _UDP_GRO = 17, 102, 104
_PORTS_PER_SENDER = (LAST_SOURCE_PORT + 1 - FIRST_SOURCE_PORT) // MAX_SENDERS


def _set_buffer(endpoint: socket.socket, plain: int, force: int, size_bytes: int) -> None:
    """Ask for a buffer; past the system's limit where the process may, else cut to it by the kernel."""
    try:
        endpoint.setsockopt(socket.SOL_SOCKET, force, size_bytes)
    except PermissionError:
        endpoint.setsockopt(socket.SOL_SOCKET, plain, size_bytes)


def bound_socket(address: str, port: int, scope: int = 0) -> socket.socket:
    """A non-blocking UDP socket bound to a textual address without ``%scope``; OSError where that fails."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    endpoint = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        endpoint.bind((address, port, 0, scope) if family == socket.AF_INET6 else (address, port))
    except OSError:
        endpoint.close()
        raise
    return endpoint


def open_receiver(
    address: str, port: int, scope: int, buffer_bytes: int, gro: bool
) -> tuple[socket.socket, bool]:
    """The receiving socket of a link, and whether the kernel merges datagrams for it (UDP_GRO, Linux 5.0)."""
    endpoint = bound_socket(address, port, scope)
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


def open_sender(address: str, port: int, scope: int, buffer_bytes: int) -> socket.socket:
    """A send-only socket.

    It is never connected and never lets the kernel fragment: only then Linux sends IPv4 identification 0 with
    DF, the value that the ICRC was made with.
    """
    endpoint = bound_socket(address, port, scope)
    try:
        if endpoint.family == socket.AF_INET6:
            endpoint.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_DO)
        else:
            endpoint.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_DO)
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)  # the kernel's minimum: nobody reads here
        _set_buffer(endpoint, socket.SO_SNDBUF, _SO_SNDBUFFORCE, buffer_bytes)
    except OSError:
        endpoint.close()
        raise
    return endpoint


class Senders:
    """At most ``MAX_SENDERS`` send-only sockets of one address, opened when first needed."""

    def __init__(self, address: str, scope: int, buffer_bytes: int) -> None:
        self._address = address
        self._scope = scope
        self._buffer_bytes = buffer_bytes
        self._by_slot: dict[int, tuple[int, socket.socket]] = {}

    def choose(self, entropy: int) -> tuple[int, int]:
        """(port, file descriptor) of the sender for a flow; the same flow gets the same for ever.

        A port that somebody else holds is passed over.  OSError EADDRINUSE when not one of the sender's
        ports is free, or another errno when no socket can be had.
        """
        # Multiplicative hashing: neighbouring queue pair numbers get distant ports.
        slot = (((entropy & 0xFFFF_FFFF) * 0x9E37_79B1 & 0xFFFF_FFFF) >> 16) % MAX_SENDERS
        if slot not in self._by_slot:
            self._by_slot[slot] = self._open(slot)
        port, endpoint = self._by_slot[slot]
        return port, endpoint.fileno()

    def _open(self, slot: int) -> tuple[int, socket.socket]:
        first = FIRST_SOURCE_PORT + slot * _PORTS_PER_SENDER
        for port in range(first, first + _PORTS_PER_SENDER):
            try:
                return port, open_sender(self._address, port, self._scope, self._buffer_bytes)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise OSError(errno.EADDRINUSE, f"no free source port from {first:#x} on at {self._address}")

    def __len__(self) -> int:
        return len(self._by_slot)

    def close(self) -> None:
        """Close all of them; may be called again."""
        for _, endpoint in self._by_slot.values():
            endpoint.close()
        self._by_slot.clear()


def receive_buffer_bytes(endpoint: socket.socket) -> int:
    """A socket's receive buffer as the kernel counts it: the doubled request, its own overhead included."""
    return endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
