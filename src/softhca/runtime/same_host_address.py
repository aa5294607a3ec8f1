"""One address of a port, and the addresses of adapters on this host that it shares memory with.

The handshake (docs/same-host.md).  A port listens, for each of its addresses, on an abstract socket that the
address's GID and the user name; abstract names are a network namespace's own, so that only who shares the
loopback device can meet.  Who connects a queue pair to a GID, or sends a first packet there, connects to that
name.  The kernel says who the other side is (SO_PEERCRED): another user is refused, by either side.  The
listening side passes its directory, a reader and its arenas, and so gives the other one its memory; the other
direction takes a handshake of its own.  Messages are those of `messages`:

* ``{"connect": VERSION, "gid": …}``, answered by
  ``{"reader": VERSION, "fence": …, "probe": ADDRESS, "probe_bytes": HEX}`` with the descriptors of directory
  and reader.  The probe stands in the process's own memory: who finds it there can reach that memory, and no
  other process's is meant.  ``fence`` (true or false): whether the owner has barriers that reach who has
  joined them (`primitives.barrier_everywhere`).
* ``{"arena": NUMBER, "bytes": SIZE}`` with its descriptor, at once and whenever there is a new one
* ``{"gone": NUMBER}``: an arena is not used any more
* one byte, to the listening side: wake up, there is something in the ring

Of the descriptors that cross, a directory cannot be written through, a reader is one peer's alone, and none
is such that one side could make the other wait.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from typing import TYPE_CHECKING

from softhca.memory.shared_path import SharedPath
from softhca.runtime import messages
from softhca.runtime.clock import now_ns
from softhca.runtime.same_host_peers import VERSION, InboundPeer, OutboundPeer
from softhca.runtime.same_host_process import PeerProcess
from softhca.runtime.same_host_ring import PacketSender
from softhca.wire.route import NATIVE, Route, is_multicast

if TYPE_CHECKING:
    from softhca.runtime.same_host_port import SameHostPort

MAX_PEERS = 1024

RETRY_NS = 10_000_000
"""Where nobody listens, or nobody answers, there is no other handshake for so long: many queue pairs to one
GID ask but once."""


def socket_name(gid: bytes) -> str:
    """The abstract name of the address that is this GID, for this user."""
    return f"\0softhca/same-host/{os.geteuid()}/{gid.hex()}"


class SameHostAddress:
    """The address of ``port`` that is ``gid``.  Everything under the engine's lock.

    ``senders`` (by GID) are the rings of packets to peers; those from peers are among the port's.  OSError
    when the name is taken, or where there is no descriptor for it.
    """

    def __init__(self, port: SameHostPort, gid: bytes) -> None:
        self.port = port
        self.same_host = port.same_host
        self.gid = gid
        self.senders: dict[bytes, PacketSender] = {}
        self._outbound: dict[bytes, OutboundPeer] = {}
        self._switching: list[OutboundPeer] = []
        self._retry_ns: dict[bytes, int] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            self._listener.bind(socket_name(gid))
            self._listener.listen(64)
        except BaseException:
            self._listener.close()
            raise

    def fileno(self) -> int:
        """Readable when there is somebody to `accept`."""
        return self._listener.fileno()

    # Paths and rings to others

    def path_to(self, gid: bytes) -> SharedPath | None:
        """The path to the address ``gid``; where there is none yet, begin the handshake.  None: it is not
        here."""
        peer = self._outbound.get(gid)
        if peer is not None:
            return peer.path
        if not self.same_host.may_reach(gid) or len(self._outbound) >= MAX_PEERS:
            return None
        if self._retry_ns:
            if now_ns() < self._retry_ns.get(gid, 0):
                return None
            self._retry_ns.pop(gid, None)
        peer = self._connect(gid)
        if peer is None:
            self._retry_later(gid)
            return None
        self._outbound[gid] = peer
        return peer.path

    def link_of(self, route: Route) -> PacketSender | None:
        """The ring to a route's destination; where there is no path yet, begin the handshake.  None: there is
        no ring."""
        gid = route.destination
        if route.framing == NATIVE or is_multicast(gid):
            return None
        sender = self.senders.get(gid)
        if sender is None:
            self.path_to(gid)
        return sender

    def _connect(self, gid: bytes) -> OutboundPeer | None:
        """Ask for the memory of the adapter that has ``gid``; None where nobody listens, or one that is not
        wanted."""
        with contextlib.ExitStack() as undone, contextlib.suppress(OSError):
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            undone.callback(channel.close)
            channel.connect(socket_name(gid))
            if not self.same_host.may_share_with(channel):
                return None
            messages.send(channel, {"connect": VERSION, "gid": self.gid.hex()})
            process = PeerProcess(channel, self.same_host.may_keep)
            undone.callback(process.close)
            peer = OutboundPeer(self, SharedPath(gid, self.gid), channel, process)
            self.same_host.watch(peer)
            undone.pop_all()
            return peer
        return None

    def _retry_later(self, gid: bytes) -> None:
        """No handshake with ``gid`` for a moment."""
        if len(self._retry_ns) >= MAX_PEERS:
            self._retry_ns.clear()
        self._retry_ns[gid] = now_ns() + RETRY_NS

    def take(self, peer: OutboundPeer, message: messages.Message, descriptors: list[int]) -> None:
        """A message of an outbound peer's.  OSError EPROTO for one that cannot be."""
        opened = peer.sender is not None
        peer.take(message, descriptors)
        if not opened and peer.sender is not None:
            self._switching.append(peer)

    @property
    def is_switching(self) -> bool:
        """Whether there are peers whose rings carry no packets yet."""
        return bool(self._switching)

    def switch(self) -> None:
        """Let packets go through the rings of new peers: where nothing is under way on the other way, so that
        none is overtaken, or after a while all the same, for PSNs put them in order again."""
        for peer in list(self._switching):
            peer.polls_before_switch -= 1
            gid = peer.path.gid
            if self.port.in_flight(gid) == 0 or peer.polls_before_switch <= 0:
                self._switching.remove(peer)
                if peer.sender is not None:
                    self.senders[gid] = peer.sender
                    self.port.changed()

    def drop_outbound(self, peer: OutboundPeer) -> None:
        """A peer has gone, or says what cannot be: its path ends."""
        self._outbound.pop(peer.path.gid, None)
        if not peer.path.alive:
            self._retry_later(peer.path.gid)
        if self.senders.pop(peer.path.gid, None) is not None:
            self.port.changed()
        if peer in self._switching:
            self._switching.remove(peer)
        peer.close()

    # Others that ask for memory

    def accept(self) -> bool:
        """Take one who has connected; False where there is no descriptor or no memory for it: then nobody is
        accepted any more, for who waits would be looked at in every round."""
        try:
            with contextlib.ExitStack() as undone:
                channel, _ = self._listener.accept()
                undone.callback(channel.close)
                channel.setblocking(False)
                if self.same_host.may_share_with(channel) and self.same_host.has_room:
                    process = PeerProcess(channel, self.same_host.may_keep)
                    undone.callback(process.close)
                    self.same_host.watch(InboundPeer(self, channel, process))
                    undone.pop_all()
        except (BlockingIOError, ConnectionError, InterruptedError):
            return True
        except OSError:
            return False
        return True

    def admit(self, peer: InboundPeer, message: messages.Message, descriptors: list[int]) -> None:
        """The handshake's first message.  OSError, ValueError or TypeError for one that cannot be."""
        if descriptors or message.get("connect") != VERSION:
            raise OSError(errno.EPROTO, "that is no handshake")
        gid = bytes.fromhex(message.get("gid", ""))
        if len(gid) != 16 or self.same_host.is_own(gid):
            raise OSError(errno.EPROTO, "that is no peer's GID")
        peer.admit(gid)
        assert peer.receiver is not None
        self.port.receivers.append(peer.receiver)
        self._retry_ns.pop(gid, None)
        self.port.changed()  # who connects here accepts, too

    def drop_inbound(self, peer: InboundPeer) -> None:
        """A peer has gone: what it has put into its ring is taken, and nothing any more."""
        if peer.receiver is not None:
            self.port.receivers.remove(peer.receiver)
            self.port.take_rest(self.port.number, peer.receiver)
        peer.channel.close()

    def close(self) -> None:
        """Listen no more; may be called again."""
        self._listener.close()
