"""How adapters join a fabric that is served: `links.fabric_messages` on an abstract Unix socket.

Only programs of the same user, or root, may join.  What they send is hostile: a message that is none is
counted and dropped, whoever does not say who he is within his first message is refused.  A port whose burst
waits for its destination is not read; a port whose socket is full gets nothing until it has room.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
from collections import deque
from typing import Any

from softhca.fabric.ethernet.plane import EthernetPlane, EthernetPort
from softhca.fabric.packet_plane import AdapterPort, PacketPlane
from softhca.fabric.port_state import ACTIVE
from softhca.fabric.topology import End, Topology
from softhca.fabric.umad_sessions import attachment
from softhca.links import fabric_messages as m
from softhca.links.fabric import BUFFER_BYTES
from softhca.runtime import messages
from softhca.runtime.fabric_loop import FabricLoop

MOST_UNJOINED = 64
"""Connections that have not said yet who they are."""
MOST_A_TURN = 8
"""Bursts of one adapter that are taken before the others have their turn."""
MOST_INFOS = 16
_PORT = re.compile(r"(.+)\[([0-9]{1,3})\]")
COUNTERS = ("adapters_joined", "adapters_refused", "messages_bad")


Packets = PacketPlane | EthernetPlane
"""What carries the packets of adapters; ports that have joined are `AdapterPort` or `EthernetPort`."""


class FabricAdapters:
    """The adapters of ``packets``' fabric, on ``loop``, joining under ``name``.  OSError EADDRINUSE: somebody
    else serves one."""

    def __init__(self, loop: FabricLoop, packets: Packets, name: str) -> None:
        self.packets: Any = packets
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.loop = loop
        self.members: dict[AdapterPort | EthernetPort, Member] = {}
        self._unjoined: set[socket.socket] = set()
        self._buffer = bytearray(m.LARGEST + 1)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            self._listener.bind(m.socket_name(name))
            self._listener.listen(MOST_UNJOINED)
            loop.watch(self._listener.fileno(), self._accept)
        except BaseException:
            self._listener.close()
            raise
        if packets is not loop.plane:
            loop.timed.append(packets)
        loop.flushes.append(self._flush_infos)

    def _accept(self) -> None:
        try:
            made, _ = self._listener.accept()
        except OSError:
            return
        made.setblocking(False)
        _, uid = messages.peer_of(made)
        if uid not in (0, os.geteuid()) or len(self._unjoined) >= MOST_UNJOINED:
            self.counters["adapters_refused"] += 1
            made.close()
            return
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            with contextlib.suppress(OSError):
                made.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        self._unjoined.add(made)
        self.loop.watch(made.fileno(), lambda: self._join(made))

    def _join(self, made: socket.socket) -> None:
        """The first message of a connection."""
        try:
            data = made.recv(m.MOST_TEXT_BYTES + 1)
        except BlockingIOError:
            return  # its descriptor was another's, to whom something had come
        except OSError:
            data = b""
        self._unjoined.discard(made)
        self.loop.forget(made.fileno())
        try:
            kind, content = m.decode(data)
            if kind != m.HELLO or content.get("version") != m.VERSION:
                raise ValueError("no hello of this version")
        except ValueError:
            self.counters["messages_bad"] += 1
            self._refuse(made, errno.EPROTO, f"adapters of version {m.VERSION} may join")
            return
        try:
            end = self._place(str(content.get("node", "")))
            member = Member(self, made, end)
        except OSError as error:
            self._refuse(made, error.errno or errno.EINVAL, error.strerror or "it cannot be")
            return
        self.counters["adapters_joined"] += 1
        self.members[member.port] = member
        member.welcome()

    def _refuse(self, made: socket.socket, code: int, reason: str) -> None:
        self.counters["adapters_refused"] += 1
        with contextlib.suppress(OSError):
            made.send(m.encode(m.REFUSAL, {"errno": code, "reason": reason}))
        made.close()

    def _place(self, name: str) -> End:
        """The port at which an adapter joins that names a node, or none.  OSError."""
        topology: Topology = self.packets.topology
        if name:
            end = attachment(topology, name)
            if end is None:
                end = _named_port(topology, name)
            if end is None:
                raise OSError(errno.ENODEV, f"no node is called {name[:64]!r}")
            return end
        for node in topology.end_nodes:
            end = attachment(topology, topology.nodes[node].name)
            if end is not None and end not in self.packets.ports:
                return end
        raise OSError(errno.EBUSY, "every host has an adapter")

    def take(self, member: Member) -> None:
        """Messages have come from an adapter."""
        if member.port.is_blocked:
            member.part()  # nobody waits for messages
            return
        buffer = self._buffer
        view = memoryview(buffer)
        for _ in range(MOST_A_TURN):
            try:
                length = member.socket.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                length = 0
            if not length:
                member.leave()
                return
            kind, stride = m.HEADER.unpack_from(buffer) if length >= m.HEADER.size else (0, 0)
            if kind == m.GROUP and isinstance(self.packets, EthernetPlane):
                self._take_group(member.port, view[:length])
                continue
            if kind != m.BURST or not m.HEADER.size < length <= m.LARGEST:
                self.counters["messages_bad"] += 1
                continue
            self.packets.send(member.port, view[m.HEADER.size : length], stride, self.loop.clock())
            if member.port.is_blocked:
                self.loop.want(member.socket.fileno(), False, member.is_full)
                return

    def _take_group(self, port: EthernetPort, data: memoryview) -> None:
        """An adapter joins a group, or leaves it."""
        try:
            gid, member = m.group_change(m.decode(data)[1])
        except ValueError:
            self.counters["messages_bad"] += 1
            return
        if member and gid not in port.groups and len(port.groups) >= m.MOST_GROUPS:
            self.counters["messages_bad"] += 1
        else:
            self.packets.set_member(port, gid, member)

    def _flush_infos(self) -> None:
        """Adapters hear what managers have set."""
        for member in [each for each in self.members.values() if each.infos]:
            member.flush()

    def close(self) -> None:
        """Close it and all connections."""
        for member in list(self.members.values()):
            member.leave()
        for made in self._unjoined:
            self.loop.forget(made.fileno())
            made.close()
        self._unjoined.clear()
        self.loop.forget(self._listener.fileno())
        self._listener.close()


def _named_port(topology: Topology, name: str) -> End | None:
    """The port that ``NODE[PORT]`` names; None: there is none."""
    match = _PORT.fullmatch(name)
    end = attachment(topology, match[1]) if match is not None else None
    if match is None or end is None or int(match[2]) not in topology.nodes[end.node].addressed_ports:
        return None
    return End(end.node, int(match[2]))


class Member:
    """An adapter that has joined at ``end``.  OSError: it cannot."""

    def __init__(self, adapters: FabricAdapters, made: socket.socket, end: End) -> None:
        self._adapters = adapters
        self._loop = adapters.loop
        self.socket = made
        self.is_full = False
        self._parted = False
        self.infos: deque[dict[str, Any]] = deque()
        try:
            self.port = adapters.packets.join(end, self._deliver, self._wake, self._info_changed)
        except ValueError as error:
            code = errno.EBUSY if end in adapters.packets.ports else errno.ENODEV
            raise OSError(code, str(error)) from None
        try:
            self._watch()
        except OSError:
            adapters.packets.leave(self.port, adapters.loop.clock())
            raise

    def _watch(self) -> None:
        self._loop.watch(self.socket.fileno(), lambda: self._adapters.take(self), self._writable)

    def welcome(self) -> None:
        """Tell the adapter what its port is."""
        self._send(m.encode(m.WELCOME, {"version": m.VERSION, **self.port.facts(), **self.port.info()}))

    def _send(self, data: bytes) -> bool:
        """Send a message; False: there is no room, or nobody any more."""
        try:
            self.socket.send(data, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            self._fill()
            return False
        except OSError:
            return False  # its end is seen where it is read
        return True

    def _deliver(self, data: memoryview | bytes, stride: int) -> bool:
        if self.is_full or self.infos:
            self._fill()
            return False
        try:
            header = m.HEADER.pack(m.BURST, stride)
            self.socket.sendmsg([header, data], (), socket.MSG_NOSIGNAL)
        except BlockingIOError:
            self._fill()
            return False
        except OSError:
            pass  # its end is seen where it is read
        return True

    def _fill(self) -> None:
        self.is_full = True
        self._loop.want(self.socket.fileno(), not self.port.is_blocked, True)

    def _writable(self) -> None:
        self.is_full = False
        self._loop.want(self.socket.fileno(), not self.port.is_blocked, False)
        self.flush()
        if not self.is_full:
            self._adapters.packets.has_room(self.port, self._loop.clock())

    def _wake(self) -> None:
        """The burst that waited has gone."""
        if self._parted:
            self._parted = False
            self._watch()
        self._loop.want(self.socket.fileno(), True, self.is_full)

    def _info_changed(self) -> None:
        """What a manager has set has changed.  That the port has left ACTIVE, or come to it, is not passed
        over, even if it changes again at once."""
        info = self.port.info()
        last = self.infos[-1] if self.infos else None
        if last is not None and (
            (last["state"] == ACTIVE) == (info["state"] == ACTIVE) or len(self.infos) >= MOST_INFOS
        ):
            self.infos.pop()
        self.infos.append(info)

    def flush(self) -> None:
        """Tell the adapter what managers have set."""
        while self.infos and not self.is_full:
            if not self._send(m.encode(m.INFO, self.infos[0])):
                return
            self.infos.popleft()

    def part(self) -> None:
        """The adapter has gone, while a burst of it waits: what it has sent still arrives."""
        self._parted = True
        self._loop.forget(self.socket.fileno())
        if self.is_full:
            self._writable()

    def leave(self) -> None:
        """The adapter has gone."""
        adapters = self._adapters
        if adapters.members.pop(self.port, None) is None:
            return
        self._loop.forget(self.socket.fileno())
        adapters.packets.leave(self.port, self._loop.clock())
        self.socket.close()
