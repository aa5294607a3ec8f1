"""The link of an adapter's port to the process of a fabric (`softhca fabric serve`, `softhca run`).

Bursts of native packets go over a Unix socket of sequenced packets, one message each.  A burst that the
fabric has no room for stays with its sender (``AGAIN``): nothing is lost here.  What a subnet manager sets
at the port comes by the same socket, in order with the packets, and is told to ``on_info``; when the fabric
is gone the port is down.

One thread at a time uses a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from softhca.links import fabric_messages as messages
from softhca.links.link import AGAIN, SENT, Link
from softhca.wire.framing import NATIVE

if TYPE_CHECKING:
    from softhca.wire.burst import Arrival, Burst

BUFFER_BYTES = 1 << 20
"""Asked of the kernel for what has been sent and not been taken."""
JOIN_S = 30.0
MOST_TEXTS = 16
"""Messages that are no bursts which one `receive` takes."""
PORT_DOWN = 1
_CREDENTIALS = struct.Struct("3i")
_COUNTERS = ("bursts_sent", "bytes_sent", "send_blocked", "send_errors", "bursts_received", "bytes_received",
             "messages_bad", "infos")  # fmt: skip


class FabricLink(Link):
    """Joins the fabric that is served under ``name`` at ``node`` (a name or description; empty: the first
    host that is free), unless it has been ``joined``: a socket, and what the fabric has said.

    Attributes: ``node`` (its name), ``address`` (the same), ``gid``, ``node_guid``, ``active_mtu``
    (bytes), ``active_width``, ``active_speed``, ``info`` (what the manager has set, by
    `fabric_messages.NUMBERS`, and ``pkeys``) and the counters of ``counters()``.

    OSError: nobody serves such a fabric (ECONNREFUSED), it is another user's (EPERM), or has no such free
    host (EBUSY, ENODEV).
    """

    is_native = True

    def __init__(
        self, name: str, node: str = "", joined: Joined | None = None, framing: int = NATIVE
    ) -> None:
        super().__init__(framing, sees_packets=True)
        self.on_info: Callable[[dict[str, Any]], None] = lambda info: None
        self.socket: socket.socket | None
        self.socket, welcome = joined or join(name, node)
        facts = messages.port_facts(welcome)
        self.info = messages.port_info(welcome)
        self.node = str(welcome.get("node"))
        self.address = self.node
        self.node_guid = facts["node_guid"]
        prefix = self.info["gid_prefix"]
        self.gid = prefix.to_bytes(8, "big") + facts["port_guid"].to_bytes(8, "big")
        self.active_mtu = 128 << max(facts["mtu"], 1)
        self.active_width = facts["width"]
        self.active_speed = facts["speed"]
        self._header = bytearray(messages.HEADER.size)
        self._front = bytearray()  # what stands between it and a burst's packets
        for counter in _COUNTERS:
            setattr(self, counter, 0)

    bursts_sent: int
    bytes_sent: int
    send_blocked: int
    send_errors: int
    bursts_received: int
    bytes_received: int
    messages_bad: int
    infos: int

    def fileno(self) -> int:
        """The socket; −1 when closed."""
        return -1 if self.socket is None else self.socket.fileno()

    def counters(self) -> dict[str, int]:
        """`Link.counters`."""
        return {name: getattr(self, name) for name in _COUNTERS}

    def source_port_for(
        self, entropy: int, destination: bytes | None = None, source: bytes | None = None
    ) -> int:
        """Native packets have no UDP port."""
        return 0

    def preserves_bursts(self, destination: bytes) -> bool:
        """`Link.preserves_bursts`."""
        return True

    def send(self, burst: Burst) -> int:
        """`Link.send`."""
        return self._send(burst, b"")

    def _send(self, burst: Burst, front: bytes) -> int:
        """The same, with what stands in front of the packets."""
        made = self.socket
        if made is None:
            self.send_errors += 1
            return -errno.ENETDOWN
        length = burst.length
        header = messages.HEADER.pack(messages.BURST, burst.stride or length)
        try:
            made.sendmsg([header, front, memoryview(burst.buffer)[:length]], (), socket.MSG_NOSIGNAL)
        except BlockingIOError:
            self.send_blocked += 1
            return AGAIN
        except OSError as error:
            self.send_errors += 1
            return -(error.errno or errno.EIO)
        self.bursts_sent += 1
        self.bytes_sent += length
        return SENT

    def receive(self, arrival: Arrival) -> bool:
        """`Link.receive`."""
        for _ in range(MOST_TEXTS):
            made = self.socket
            if made is None:
                return False
            try:
                length, _, flags, _ = made.recvmsg_into([self._header, self._front, arrival.buffer])
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                length, flags = 0, 0
            if not length:
                self._ended()
                return False
            kind, stride = messages.HEADER.unpack(self._header)
            packets = length - messages.HEADER.size - len(self._front)
            if flags & socket.MSG_TRUNC or length <= messages.HEADER.size:
                self.messages_bad += 1
            elif kind != messages.BURST:
                text = memoryview(arrival.buffer)[: max(packets, 0)]
                self._take_text(b"".join((self._header, self._front, text))[:length])
            elif 0 < stride <= packets:
                arrival.length, arrival.stride, arrival.framing = packets, stride, self.framing
                self._read_front(arrival)
                self.bursts_received += 1
                self.bytes_received += packets
                return True
            else:
                self.messages_bad += 1
        return False

    def _read_front(self, arrival: Arrival) -> None:
        """What stands in front of a burst that has come."""

    def _take_text(self, data: bytes) -> None:
        try:
            kind, content = messages.decode(data)
            if kind != messages.INFO:
                raise ValueError("an unknown message")
            info = messages.port_info(content)
        except ValueError:
            self.messages_bad += 1
            return
        self.infos += 1
        self.info = info
        self.on_info(info)

    def _ended(self) -> None:
        """The fabric has gone."""
        self.info = {**self.info, "state": PORT_DOWN}
        self.close()
        self.on_info(self.info)

    def close(self) -> None:
        """`Link.close`."""
        made, self.socket = self.socket, None
        if made is not None:
            made.close()


Joined = tuple[socket.socket, dict[str, Any]]


def join(name: str, node: str = "") -> Joined:
    """Join a fabric as `FabricLink` does; OSError."""
    made = _connected(name)
    try:
        return made, _welcome(made, name, node)
    except BaseException:
        made.close()
        raise


def _welcome(made: socket.socket, name: str, node: str) -> dict[str, Any]:
    """What a fabric says of the port, checked."""
    made.settimeout(JOIN_S)
    made.send(messages.encode(messages.HELLO, {"version": messages.VERSION, "node": node}))
    try:
        kind, content = messages.decode(made.recv(messages.MOST_TEXT_BYTES))
    except ValueError:
        raise OSError(errno.EPROTO, f"the fabric {name!r} gave no answer") from None
    if kind != messages.WELCOME:
        code, reason = content.get("errno"), str(content.get("reason"))
        raise OSError(code if isinstance(code, int) else errno.EPROTO, f"fabric {name!r}: {reason}")
    try:
        messages.port_facts(content)
        messages.port_info(content)
        if content.get("kind") == messages.ETHERNET:
            messages.ethernet_facts(content)
    except ValueError as error:
        raise OSError(errno.EPROTO, f"fabric {name!r}: {error}") from None
    made.setblocking(False)
    return content


def _connected(name: str) -> socket.socket:
    """A socket to the fabric ``name``, of this user or root."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            with contextlib.suppress(OSError):
                made.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        made.settimeout(JOIN_S)
        try:
            made.connect(messages.socket_name(name))
        except (ConnectionRefusedError, FileNotFoundError):
            reason = f"nobody serves a fabric under the name {name!r} (softhca fabric serve)"
            raise OSError(errno.ECONNREFUSED, reason) from None
        data = made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(data)[1] not in (0, os.geteuid()):
            raise OSError(errno.EPERM, f"the fabric {name!r} is another user's")
    except BaseException:
        made.close()
        raise
    return made
