"""RoCEv2 over UDP: the link of one adapter port with one IPv4 or IPv6 address.

A link moves bytes. Headers, ICRC, burst and stride are the core's; the kernel writes IP and UDP headers. A
burst is one system call (UDP_SEGMENT) where it is known which IPv4 identifications its datagrams get, for the
ICRC covers them (``paths``), and one per datagram elsewhere.  No call blocks, and none gives the interpreter
lock away.

One thread at a time uses a link.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Any

import cython

from softhca.links import interfaces, paths, sockets
from softhca.links.groups import GroupSockets
from softhca.links.held_bursts import HELD_BYTES, HOLDERS, IDLE_NS, HeldBursts
from softhca.links.link import AGAIN, NEVER, SENT, Link
from softhca.machine.primitives import ReceiveMeta, address_of, receive_burst, send_burst
from softhca.wire.burst import Arrival, Burst
from softhca.wire.framing import ROCE_V4, ROCE_V6
from softhca.wire.route import Route, gid_of
from softhca.wire.vxlan import VXLAN_PORT

__all__ = ["AGAIN", "SENT", "Arrival", "Burst", "Path", "RoceUdpLink", "Route", "open_first_free_loopback"]

_SENT = cython.declare(cython.int, SENT)
_AGAIN = cython.declare(cython.int, AGAIN)
_NEVER = cython.declare(cython.ulonglong, NEVER)
_HELD_BYTES = cython.declare(cython.uint, HELD_BYTES)
_IDLE_NS = cython.declare(cython.ulonglong, IDLE_NS)
_EAGAIN = cython.declare(cython.int, errno.EAGAIN)
_ENOBUFS = cython.declare(cython.int, errno.ENOBUFS)
_EBADF = cython.declare(cython.int, errno.EBADF)
_EMSGSIZE = cython.declare(cython.int, errno.EMSGSIZE)
_EADDRNOTAVAIL = cython.declare(cython.int, errno.EADDRNOTAVAIL)
_EAFNOSUPPORT = cython.declare(cython.int, errno.EAFNOSUPPORT)
_EIO = cython.declare(cython.int, errno.EIO)
_EINVAL = cython.declare(cython.int, errno.EINVAL)
_EOPNOTSUPP = cython.declare(cython.int, errno.EOPNOTSUPP)
# One UDP_SEGMENT call takes at most 64 segments, and what one datagram's length field can say under IPv6.
_MAX_SEGMENTS = cython.declare(cython.uint, 64)
_MAX_CALL_BYTES = cython.declare(cython.uint, 65_487)
_MAX_PATHS = 4096
_HOP_LIMIT = cython.declare(cython.uint, sockets.HOP_LIMIT)
# Empty datagrams that one `receive` passes over: a flood of them must not keep the engine.
_MAX_SKIPPED = cython.declare(cython.int, 16)
_COUNTERS = (
    "datagrams_sent", "bursts_sent", "bytes_sent", "send_calls", "send_errors", "send_blocked",
    "segmentation_refusals", "label_refusals", "datagrams_received", "bursts_received", "bytes_received",
    "receive_calls", "receive_drops", "receive_errors",
)


class Path:
    """What a link knows of one destination: its packed socket address, with the flow label in it
    (``labelled``), whether bursts are handed over whole (``segmenting``), whether they are then cut and
    their identifications counted (``counting``), and whether it stays on this machine, so that the memory of
    long bursts is held (``holding``)."""

    socket_address: bytes
    address: int
    address_bytes: int

    def __init__(self, route: Route, cutting: int) -> None:
        self.destination = route.destination
        self.labelled = route.framing == ROCE_V6 and route.flow_label != 0
        self._aim(route.socket_address)
        self.segmenting = cutting != paths.UNKNOWN
        self.counting = cutting == paths.COUNTING
        self.holding = False

    def _aim(self, socket_address: bytes) -> None:
        self.socket_address = socket_address
        self.address = address_of(socket_address, False)
        self.address_bytes = len(socket_address)

    def leave_label_out(self) -> None:
        """The kernel does not let us use this label: somebody has it to himself, or kernels before 5.3."""
        self.labelled = False
        plain = bytearray(self.socket_address)
        plain[sockets.FLOW_LABEL] = bytes(4)
        self._aim(bytes(plain))


class RoceUdpLink(Link):
    """The link of one port.  ``address`` is text (``10.0.0.1``, ``fe80::1%eth0``) and must be this machine's.

    Attributes: ``gid`` (16 bytes, IPv4-mapped for IPv4), ``framing``, ``interface`` (its name),
    ``active_mtu`` (bytes), ``receive_buffer_bytes`` (as the kernel counts it: with its own overhead),
    ``merges`` (UDP_GRO works), ``blocked_fileno`` (the socket that last had no room, −1: none), and the
    counters of ``counters()``.  ``counts`` may be set to False before anything is sent: no burst is made for
    counted identifications then, so its packets may leave in any order.

    ``receive_buffer_bytes`` and ``send_buffer_bytes`` are asked of the kernel, which doubles and limits them.
    OSError when the address or port cannot be had, ValueError when ``address`` is none or its
    interface cannot carry a path MTU of 256.
    """

    merges: bool
    datagrams_sent: int
    bursts_sent: int
    bytes_sent: int
    send_calls: int
    send_errors: int
    send_blocked: int
    segmentation_refusals: int
    label_refusals: int
    datagrams_received: int
    bursts_received: int
    bytes_received: int
    receive_calls: int
    receive_drops: int
    receive_errors: int
    _last_route: Route
    _last_path: Path
    _last_held: HeldBursts
    _held: dict[int, HeldBursts]
    _receiver: socket.socket
    _fds: dict[int, int]
    _paths: dict[bytes, Path]
    _near: dict[bytes, bool]
    _marked: set[bytes]
    _partial: Burst

    def __init__(
        self, address: str, port: int = sockets.ROCE_PORT, receive_buffer_bytes: int = sockets.BUFFER_BYTES,
        send_buffer_bytes: int = sockets.BUFFER_BYTES, gro: bool = True,
    ) -> None:
        packed, scope = interfaces.parse_address(address)
        self.address = str(ipaddress.ip_address(packed))
        super().__init__(ROCE_V4 if len(packed) == 4 else ROCE_V6)
        self.gid = gid_of(packed)
        self.interface = interfaces.interface_of_address(address)
        self.interface_mtu_bytes = interfaces.mtu_of_interface(self.interface)
        self.active_mtu = interfaces.active_mtu(self.interface_mtu_bytes)
        self.counts = True
        self._packed = packed
        self._scope = scope
        index = interfaces.index_of_interface(self.interface)
        self._receiver, self.merges = sockets.open_receiver(
            self.address, port, scope, receive_buffer_bytes, gro)
        self._fd = self._receiver.fileno()
        self.port = self._receiver.getsockname()[1]
        self.receive_buffer_bytes = sockets.receive_buffer_bytes(self._receiver)
        self._senders = sockets.Senders(self.address, scope, send_buffer_bytes, index)
        try:
            self._groups = GroupSockets(packed, index, self.port, receive_buffer_bytes, gro)
        except OSError:
            self._receiver.close()
            raise
        self._has_groups = False
        self._frames_fd = -1
        self._fds = {}
        self._paths = {}
        self._last_route = None
        self._last_path = None
        self._last_fd = -1
        self._last_held = None
        self._held = {}
        self._holds = self._held_lately = False
        self._drop_ns = 0
        self._near = {}
        self._marked = set()
        self._meta = ReceiveMeta()
        self._source = bytes(16)
        self._source_high = 0
        self._source_low = 0
        self._partial = None
        self._partial_offset = 0
        self.blocked_fileno = -1
        for name in _COUNTERS:
            setattr(self, name, 0)

    def fileno(self) -> int:
        """The receiving socket, for epoll; −1 when closed."""
        return self._fd

    def group_fileno(self) -> int:
        """The sockets of the groups that were joined, for epoll; −1 when closed."""
        return self._groups.fileno()

    def join(self, gid: bytes) -> None:
        """Receive what is sent to a group, but for what this link itself sends there; again does nothing.

        OSError as `GroupSockets.join`; EBADF when closed.
        """
        if self._fd < 0:
            raise OSError(errno.EBADF, "the link is closed")
        self._groups.join(gid)
        self._has_groups = True

    def leave(self, gid: bytes) -> None:
        """Receive it no more; nothing for a group that was not joined."""
        self._groups.leave(gid)
        self._has_groups = len(self._groups) > 0

    def listen_for_frames(self) -> None:
        """Receive Ethernet frames too, as VXLAN (RFC 7348); again does nothing.

        OSError where the address's port 4789 cannot be had; EBADF when closed.
        """
        if self._fd < 0:
            raise OSError(errno.EBADF, "the link is closed")
        if self._frames_fd >= 0:
            return
        try:
            endpoint, _ = sockets.open_receiver(
                self.address, VXLAN_PORT, self._scope, self.receive_buffer_bytes // 2, self.merges
            )
        except OSError as error:
            code = error.errno or errno.EADDRNOTAVAIL
            reason = f"{self.address} port {VXLAN_PORT}, by which Ethernet frames come: {error.strerror}"
            raise OSError(code, reason) from None
        self._groups.add_frames(endpoint, self.gid)
        self._frames_fd = endpoint.fileno()
        self._has_groups = True

    def counters(self) -> dict[str, int]:
        """All counters by name, since the link was opened."""
        return {name: getattr(self, name) for name in _COUNTERS}

    def source_port_for(
        self, entropy: int, destination: bytes | None = None, source: bytes | None = None
    ) -> int:
        """The UDP source port of a flow, stable for the link's life; opens its socket when it is the first.

        ``entropy`` is the flow's label (`wire.flows`), which names one of 16,384 ports.  Each takes a socket,
        so a flow gets the next free one where somebody else has it, and one that is open already where there
        are `sockets.most_senders` in this process.
        On this machine no network spreads flows: there all flows to one ``destination`` (a GID; None: it does
        not matter) have the same port, so that packets of many queue pairs can leave in one burst.
        A route made with it can be sent here.  ``source`` (a GID) can only be this link's.
        OSError when no socket can be had, EBADF when closed.
        """
        if self._fd < 0:
            raise OSError(errno.EBADF, "the link is closed")
        if destination is not None and self.preserves_bursts(bytes(destination)):
            entropy = int.from_bytes(destination[12:], "big")
        port, fd = self._senders.choose(entropy)
        self._fds[port] = fd
        return port

    def preserves_bursts(self, destination: bytes) -> bool:
        """Whether a GID is reached without a cut, which also means without a network: on this machine, or
        straight behind a veth; what has been found is remembered."""
        near = self._near.get(destination)
        if near is None:
            if len(self._near) >= _MAX_PATHS:
                self._near.clear()
            packed = destination[12:] if self.framing == ROCE_V4 else destination
            near = self._near[destination] = paths.leaves_bursts_uncut(self._packed, packed)
        return near

    def mark_segmenting(self, destination: bytes, segmenting: bool = True) -> None:
        """Say that bursts may (or may no more) go whole to a GID: the network card that cuts them counts
        identifications up from 0, as the kernel does.

        Paths on which no card cuts need no mark, and IPv6, which has no identification, needs none anywhere.
        """
        gid = bytes(destination)
        if segmenting:
            self._marked.add(gid)
        else:
            self._marked.discard(gid)
        self.forget_paths()

    def forget_paths(self) -> None:
        """Look every destination up again: to be called when the machine's routes have changed."""
        self._paths.clear()
        self._last_route = None
        self._near.clear()

    def is_segmenting(self, route: Route) -> bool:
        """True when bursts go to a route's destination in one piece."""
        return self._path(route).segmenting

    def receive(self, arrival: Arrival) -> bool:
        """Take one burst into ``arrival``; False when nothing is there (or the link is closed)."""
        if self._take(self._fd, arrival):
            arrival.destination = self.gid
            arrival.frames = False
            return True
        return self._has_groups and self._receive_from_groups(arrival)

    def _receive_from_groups(self, arrival: Arrival) -> bool:
        """One burst that was sent to a group by somebody else."""
        for fd, gid in self._groups.ready():
            if self._take(fd, arrival):
                if arrival.source == self.gid:  # the kernel gives a copy of what left here
                    self.receive_drops += 1
                    continue
                arrival.destination = gid
                arrival.frames = fd == self._frames_fd
                return True
        return False

    def _take(self, fd: int, arrival: Arrival) -> bool:
        """One burst of a socket, all but where it was sent to."""
        meta: ReceiveMeta = self._meta
        n: cython.int = 0
        skipped: cython.int = 0
        while n == 0:
            if skipped > _MAX_SKIPPED:
                return False
            n = receive_burst(fd, arrival.address, arrival.capacity, meta)
            self.receive_calls += 1
            if n < 0:
                if n != -_EAGAIN:
                    self.receive_errors += 1
                return False
            if n == 0 or meta.segment == 0 or meta.truncated:
                self.receive_drops += 1
                n = 0
            skipped += 1
        if meta.source_low != self._source_low or meta.source_high != self._source_high:
            self._source = meta.source
            self._source_low = meta.source_low
            self._source_high = meta.source_high
        arrival.length = n
        arrival.stride = meta.segment
        arrival.framing = self.framing
        arrival.source = self._source
        arrival.source_port = meta.port
        arrival.traffic_class = meta.traffic_class
        self.bursts_received += 1
        self.bytes_received += n
        self.datagrams_received += (n + meta.segment - 1) // meta.segment
        return True

    def send(self, burst: Burst) -> int:
        """Send a burst to its route: ``SENT``, ``AGAIN``, or −errno (the rest is dropped, and counted).

        After ``AGAIN`` (``blocked_fileno`` shows when the kernel has room) the link remembers how far it
        came; the next ``send`` of the same burst goes on there. Before that burst is given up or filled anew,
        ``abandon`` it.
        """
        length: cython.uint = burst.length
        stride: cython.uint = burst.stride if burst.stride != 0 else length
        whole: cython.bint
        offset: cython.uint = 0
        n: cython.uint
        result: cython.int
        if length > burst.capacity:
            return self._fail(_EMSGSIZE)
        if burst.route.framing != self.framing:
            return self._fail(_EAFNOSUPPORT)
        if burst.route is not self._last_route and not self._aim(burst.route):
            return self._fail(_EBADF if self._fd < 0 else _EADDRNOTAVAIL)
        fd: cython.int = self._last_fd
        path: Path = self._last_path
        if self._partial is burst:
            offset = self._partial_offset
        whole = self._goes_whole(burst, path)
        while offset < length:
            n = stride
            if whole:
                n = length
                if length > _MAX_CALL_BYTES or length > _MAX_SEGMENTS * stride:
                    n = min(_MAX_SEGMENTS, _MAX_CALL_BYTES // stride) * stride
            n = min(n, length - offset)
            result = self.transmit(fd, burst.address + offset, n, stride, path, burst.route)
            self.send_calls += 1
            if result >= 0:
                offset += n
                if self._last_held is not None and n >= _HELD_BYTES:
                    self._last_held.sent()
                    self._holds = self._held_lately = True
                self.datagrams_sent += (n + stride - 1) // stride
                self.bytes_sent += n
            elif result == -_EAGAIN or result == -_ENOBUFS:
                self._partial = burst
                self._partial_offset = offset
                self.blocked_fileno = fd
                self.send_blocked += 1
                self._drop_held()  # a socket that has something in its error queue is always ready
                return _AGAIN
            elif result == -_EINVAL and path.labelled:
                path.leave_label_out()
                self.label_refusals += 1
            elif self._last_held is not None and n >= _HELD_BYTES and result == -_EINVAL:
                self._held[fd] = self._last_held = None  # no time stamps for single messages here
            elif n > stride and (result == -_EIO or result == -_EINVAL or result == -_EOPNOTSUPP):
                path.segmenting = path.counting = whole = False
                burst.route.counted = False
                burst.route.identification = 0
                self.segmentation_refusals += 1
            else:
                return self._fail(-result)
        self._partial = None
        self.blocked_fileno = -1
        self.bursts_sent += 1
        return _SENT

    def _aim(self, route: Route) -> bool:
        """Find the sender and the path of ``route``, which the next burst will probably take too; False where
        there is no such sender."""
        fd = self._fds.get(route.source_port)
        self._last_route = None
        if fd is None:
            return False
        self._last_path = self._path(route)
        self._last_fd = fd
        self._last_route = route
        self._last_held = self._held_of(fd) if self._last_path.holding else None
        return True

    def _held_of(self, fd: int) -> HeldBursts:
        """What a sender holds; None where it holds nothing."""
        held: HeldBursts
        if fd not in self._held:
            if len(self._held) >= HOLDERS:
                return None
            self._held[fd] = HeldBursts(fd, sockets.hold_bursts(fd))
        held = self._held[fd]
        return None if held is None or held.most == 0 else held

    def _drop_held(self) -> None:
        """Give back the memory of all bursts that are held."""
        held: HeldBursts
        if self._holds:
            for held in self._held.values():
                if held is not None:
                    held.clear()
            self._holds = self._held_lately = False

    def held_bursts(self) -> int:
        """How many bursts' memory is held."""
        return sum([held.count for held in self._held.values() if held is not None])

    def next_deadline(self) -> int:
        """`Link.next_deadline`: when the memory of bursts is given back, if nothing more is sent."""
        return self._drop_ns if self._holds else _NEVER

    def expire(self, now: int) -> bool:
        """`Link.expire`: give that memory back where it is time."""
        if self._held_lately:
            self._held_lately = False
            self._drop_ns = now + _IDLE_NS
        elif self._holds and now >= self._drop_ns:
            self._drop_held()
            self._held.clear()  # others may hold next
            self._last_route = self._last_held = None
        return False

    def _goes_whole(self, burst: Burst, path: Path) -> bool:
        """Whether ``burst`` may be handed over in one call: its ICRCs are made for the identifications that
        its segments will get.  What the next burst of its route is made for follows its path."""
        if burst.route.counted != path.counting:
            burst.route.counted = path.counting
            burst.route.identification = 0
        return path.segmenting and burst.counted == path.counting and burst.stride < _MAX_CALL_BYTES

    def abandon(self, burst: Burst) -> None:
        """Forget how far a burst that met ``AGAIN`` had come: its buffer will be used for something else."""
        if self._partial is burst:
            self._partial = None
            self.blocked_fileno = -1

    def _fail(self, number: int) -> int:
        self._partial = None
        self.blocked_fileno = -1
        self.send_errors += 1
        return -number

    def transmit(self, fd: int, address: int, n: int, segment: int, path: Path, route: Route) -> int:
        """One system call: ``n`` bytes as datagrams of ``segment`` bytes; ``n`` or −errno."""
        return send_burst(
            fd, address, n, segment, path.address, path.address_bytes, route.traffic_class,
            0 if route.hop_limit == _HOP_LIMIT else route.hop_limit,
            self._last_held is not None and n >= _HELD_BYTES and self._last_held.most != 0,
        )  # fmt: skip

    def _path(self, route: Route) -> Path:
        path: Path = self._paths.get(route.socket_address)
        if path is None:
            if len(self._paths) >= _MAX_PATHS:
                self.forget_paths()
            cutting = self._cutting(route)
            path = Path(route, cutting)
            if route.destination != self.gid:  # what goes there is read by this thread
                path.holding = (
                    self.preserves_bursts(route.destination) if self.framing == ROCE_V6
                    else cutting == paths.UNCUT
                )  # fmt: skip
            self._paths[route.socket_address] = path
        return path

    def _cutting(self, route: Route) -> int:
        if self.framing == ROCE_V6:
            return paths.UNCUT  # it makes no difference: there is no identification
        known = paths.cutting(self._packed, route.destination[12:])
        if known == paths.UNKNOWN and route.destination in self._marked:
            known = paths.COUNTING
        return paths.UNKNOWN if known == paths.COUNTING and not self.counts else known

    def __enter__(self) -> RoceUdpLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every socket; may be called again.  ``receive`` then gives False and ``send`` −EBADF."""
        self._fd = self._frames_fd = -1
        self._fds.clear()
        self._paths.clear()
        self._last_route = self._last_held = None
        self._held.clear()
        self._holds = False
        self._partial = None
        self.blocked_fileno = -1
        self._receiver.close()
        self._senders.close()
        self._groups.close()
        self._has_groups = False


def open_first_free_loopback(
    port: int = sockets.ROCE_PORT, first: int = 2, last: int = 254, **options: Any
) -> RoceUdpLink:
    """A link on the first of 127.0.0.``first`` … 127.0.0.``last`` whose ``port`` is free.

    The successful bind takes the address, so processes that start together get different ones. ``options``
    are ``RoceUdpLink``'s. OSError EADDRINUSE when all are taken.
    """
    for host in range(first, last + 1):
        try:
            return RoceUdpLink(f"127.0.0.{host}", port, **options)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"port {port} is taken on all of 127.0.0.{first} … 127.0.0.{last}")
