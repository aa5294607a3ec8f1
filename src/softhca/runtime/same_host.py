"""What an adapter shares with adapters of the same user on the same host (docs/same-host.md).

A `SameHost` is the adapter's: its directory, its arenas, and the peers of all addresses of its ports, each of
which its own `SameHostAddress` has met.  A peer that ends is noticed by its process and by its sockets, and
everything goes that was given or taken.  Nothing here blocks; `SameHost.poll` is one of the things that the
engine's rounds do.  Withdrawing waits for peers, `SYNCHRONIZE_LIMIT_NS` at most
(`softhca.memory.shared_directory`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import select
import socket
from collections.abc import Callable, Iterable

from softhca.machine import primitives
from softhca.machine.primitives import address_of
from softhca.machine.processor import Readable, yield_processor
from softhca.memory.host import HostMemory
from softhca.memory.shared_arena import SharedArena
from softhca.memory.shared_directory import Directory, Pause
from softhca.memory.shared_layout import MAX_ARENA_NUMBER
from softhca.memory.shared_path import MAX_ARENAS, SharedPath
from softhca.runtime import messages
from softhca.runtime.clock import now_ns
from softhca.runtime.same_host_address import MAX_PEERS, SameHostAddress
from softhca.runtime.same_host_limits import may_keep
from softhca.runtime.same_host_peers import PROBE_BYTES, VERSION, WAKE, InboundPeer, OutboundPeer
from softhca.runtime.same_host_port import SameHostPort
from softhca.runtime.same_host_ring import PacketReceiver
from softhca.transport.same_host_sharing import Sharing

MESSAGES_A_POLL = 8

SYNCHRONIZE_LIMIT_NS = 1_000_000
"""So long at most does a withdrawal wait for peers; then it revokes what they claim."""


def bounded_pauses() -> Pause:
    """For one withdrawal: lets others run, and says whether it may be waited longer."""
    end_ns = now_ns() + SYNCHRONIZE_LIMIT_NS

    def pause() -> bool:
        yield_processor()
        return now_ns() < end_ns

    return pause


class SameHost:
    """What an adapter with ``own_gids`` shares.  Everything under the engine's lock.

    ``automatic``: nobody asked for it, so it keeps to peers in the same PID namespace and leaves the program
    half of its descriptors.  ``ports`` are those that were added, by number.  OSError where there is no
    memory or no descriptor for it.
    """

    def __init__(self, own_gids: Iterable[bytes] = (), automatic: bool = False) -> None:
        self.automatic = automatic
        self.ports: dict[int, SameHostPort] = {}
        self._own = set(own_gids)
        self._sleepers = 0
        self._by_descriptor: dict[int, OutboundPeer | InboundPeer] = {}
        self._by_process: dict[int, OutboundPeer | InboundPeer] = {}
        self._listeners: dict[int, SameHostAddress] = {}
        self._departing: list[InboundPeer] = []
        self._fences = primitives.join_barriers() == 0 and primitives.barrier_everywhere() == 0
        self._next_arena = 1
        self._probe = bytearray(secrets.token_bytes(PROBE_BYTES))
        self._closing = self._closed = False
        with contextlib.ExitStack() as undone:
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            undone.callback(os.close, self._wake)
            self._epoll = select.epoll()
            undone.callback(self._epoll.close)
            self._anything = Readable(self._epoll.fileno())
            self._epoll.register(self._wake, select.EPOLLIN)
            directory = Directory(bounded_pauses)
            undone.callback(directory.close)
            self.sharing = Sharing(directory, self.path_to)
            if not self.may_keep(directory.fd):
                raise OSError(errno.EMFILE, "the program has few descriptors")
            undone.pop_all()

    def add_address(
        self, number: int, gid: bytes, in_flight: Callable[[bytes], int] = lambda gid: 0
    ) -> SameHostAddress:
        """Have the address ``gid`` of port ``number`` share too.  ``in_flight`` as in `SameHostPort`, said
        with its first one.  The errors of `SameHostAddress`."""
        self._own.add(gid)
        port = self.ports.get(number) or SameHostPort(self, number, in_flight)
        address = SameHostAddress(port, gid)
        try:
            self._epoll.register(address.fileno(), select.EPOLLIN)
        except BaseException:
            address.close()
            raise
        self.ports[number] = port
        port.addresses[gid] = address
        self._listeners[address.fileno()] = address
        return address

    def remove_address(self, number: int, gid: bytes) -> None:
        """A port has lost the address ``gid``, or there was no such one: its peers are left, and what they
        were given is withdrawn."""
        self._own.discard(gid)
        port = self.ports.get(number)
        address = None if port is None else port.addresses.pop(gid, None)
        if port is None or address is None:
            return
        descriptor = address.fileno()
        if descriptor in self._listeners:
            self._stop_listening(descriptor)
        for peer in list(self._by_descriptor.values()):
            if peer.address is address:
                self._drop(peer)
        port.changed()

    def fileno(self) -> int:
        """Readable when there is something to `poll`."""
        return self._epoll.fileno()

    @property
    def receivers(self) -> list[PacketReceiver]:
        """The rings of packets from all peers."""
        return [receiver for port in self.ports.values() for receiver in port.receivers]

    def path_to(self, port_number: int, source: bytes, gid: bytes) -> SharedPath | None:
        """The path from a port's address ``source`` to ``gid``; None where there can be none."""
        port = self.ports.get(port_number)
        return None if port is None else port.path_to(source, gid)

    # Memory that peers may map

    def add_memory(self, memory: HostMemory) -> int:
        """Let peers map what a host shares; the arena's number, 0 where there is no room for it.  OSError
        where it was asked for."""
        if len(self.sharing.directory.arenas) >= MAX_ARENAS or self._next_arena > MAX_ARENA_NUMBER:
            return 0
        try:
            return self.add_arena(memory.share())
        except OSError:
            if not self.automatic:
                raise
            return 0

    def add_arena(self, arena: SharedArena) -> int:
        """Let peers map an arena; its number."""
        number = self._next_arena
        self._next_arena += 1
        self.sharing.directory.arenas[number] = arena
        for peer in self._admitted():
            peer.send({"arena": number, "bytes": arena.size_bytes}, (arena.fd,))
        return number

    def remove_arena(self, number: int) -> None:
        """An arena is not used any more: no region stands on it.  0 is none."""
        if not number:
            return
        del self.sharing.directory.arenas[number]
        for peer in self._admitted():
            peer.send({"gone": number})

    def _admitted(self) -> list[InboundPeer]:
        peers = self._by_descriptor.values()
        return [peer for peer in peers if isinstance(peer, InboundPeer) and peer.reader]

    # Whom to share with

    def is_own(self, gid: bytes) -> bool:
        """Whether a GID is this adapter's."""
        return gid in self._own

    def may_reach(self, gid: bytes) -> bool:
        """Whether a handshake with a GID makes sense."""
        return not self._closing and gid not in self._own

    def may_keep(self, descriptor: int) -> bool:
        """Whether a descriptor is not one that the program had better have."""
        return not self.automatic or may_keep(descriptor)

    def may_share_with(self, channel: socket.socket) -> bool:
        """Whether the other side is this user's; automatically, also of this PID namespace: from elsewhere
        the kernel gives 0 for its number, to one of both at least."""
        pid, uid = messages.peer_of(channel)
        return uid == os.geteuid() and (pid > 0 or not self.automatic) and self.may_keep(channel.fileno())

    @property
    def has_room(self) -> bool:
        """Whether another peer may connect; one that has left in the middle of an access keeps its place."""
        return len(self._by_descriptor) + len(self._departing) < 2 * MAX_PEERS

    def watch(self, peer: OutboundPeer | InboundPeer) -> None:
        """Notice what a new peer sends, and when it ends.  OSError."""
        self._epoll.register(peer.channel.fileno(), select.EPOLLIN)
        self._by_descriptor[peer.channel.fileno()] = peer
        if peer.process.descriptor >= 0:
            self._epoll.register(peer.process.descriptor, select.EPOLLIN)
            self._by_process[peer.process.descriptor] = peer

    # Events

    def poll(self) -> bool:
        """Go on with whatever has come; whether there was anything."""
        if self._closing:
            return False
        # asked in most rounds, so it keeps the interpreter lock
        found = self._epoll.poll(0, 64) if self._anything() else []
        for descriptor, _ in found:
            self._handle(descriptor)
        for port in self.ports.values():
            if port.is_switching:
                port.switch()
        if self._departing:
            self._release_departed()
        if self.sharing.directory.holds:
            self.sharing.directory.settle()
        return bool(found)

    def _handle(self, descriptor: int) -> None:
        """A descriptor is readable."""
        peer = self._by_descriptor.get(descriptor)
        if peer is not None:
            self._receive(peer)
        elif descriptor in self._by_process:
            peer = self._by_process[descriptor]
            if peer.process.has_ended():  # else the descriptor was another's a moment ago
                self._drop(peer)
        elif descriptor in self._listeners:
            if not self._listeners[descriptor].accept():
                self._stop_listening(descriptor)
        elif descriptor == self._wake:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
            self._rearm_wakeup()  # if it was for a thread that still sleeps, that one is to be woken again

    def _stop_listening(self, descriptor: int) -> None:
        self._epoll.unregister(descriptor)
        self._listeners.pop(descriptor).close()

    def _receive(self, peer: OutboundPeer | InboundPeer) -> None:
        """A peer has sent something, or has gone."""
        for _ in range(MESSAGES_A_POLL):
            if isinstance(peer, InboundPeer) and peer.reader is not None:
                self._receive_wake(peer)  # from its handshake on it says no more than that
                return
            try:
                received = messages.receive(peer.channel)
            except BlockingIOError:
                return
            except OSError:
                received = None
            if received is None:
                self._drop(peer)
                return
            message, descriptors = received
            try:
                if isinstance(peer, InboundPeer):
                    self._admit(peer, message, descriptors)
                else:
                    peer.address.take(peer, message, descriptors)
            except (OSError, ValueError, TypeError, OverflowError):
                self._drop(peer)
                return
            finally:
                messages.close_all(descriptors)

    def _receive_wake(self, peer: InboundPeer) -> None:
        """A peer that has its reader wakes this side, or leaves."""
        try:
            said = peer.channel.recv(2)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if said == WAKE:
            self._rearm_wakeup()
        else:
            self._drop(peer)

    def _admit(self, peer: InboundPeer, message: messages.Message, descriptors: list[int]) -> None:
        """Answer a handshake: give the peer the directory, its reader and the arenas."""
        peer.address.admit(peer, message, descriptors)
        assert peer.reader is not None
        self._rearm_wakeup()
        directory = self.sharing.directory
        directory.readers.add(peer.reader)
        probe = {"probe": address_of(self._probe), "probe_bytes": self._probe.hex()}
        peer.send({"reader": VERSION, "fence": self._fences, **probe}, (directory.fd, peer.reader.fd))
        for number, arena in directory.arenas.items():
            peer.send({"arena": number, "bytes": arena.size_bytes}, (arena.fd,))

    def _drop(self, peer: OutboundPeer | InboundPeer) -> None:
        """A peer has gone, or says what cannot be."""
        descriptor = peer.channel.fileno()
        del self._by_descriptor[descriptor]
        self._epoll.unregister(descriptor)
        if self._by_process.pop(peer.process.descriptor, None) is not None:
            self._epoll.unregister(peer.process.descriptor)
        if isinstance(peer, OutboundPeer):
            peer.address.drop_outbound(peer)
            return
        peer.address.drop_inbound(peer)
        self._departing.append(peer)
        self._release_departed()

    def _release_departed(self) -> None:
        """Close the readers of peers that have gone, but for those that live and are inside still."""
        for peer in [peer for peer in self._departing if not peer.is_inside()]:
            self._departing.remove(peer)
            if peer.reader is not None:
                self.sharing.directory.readers.discard(peer.reader)
                self.sharing.directory.settle(peer.reader)
            peer.close()

    # Sleeping

    def arm_wakeup(self) -> bool:
        """A thread is about to sleep in charge of the engine: have peers wake it.  False, and it must not,
        where there is something already."""
        self._sleepers += 1
        if self._arm_rings():
            return True
        self.disarm_wakeup()
        return False

    def disarm_wakeup(self) -> None:
        """That thread is awake.  Another one may still sleep: then it is the one to be woken."""
        self._sleepers -= 1
        if self._sleepers:
            self._rearm_wakeup()
        else:
            for receiver in self.receivers:
                receiver.disarm_wakeup()

    def _rearm_wakeup(self) -> None:
        """Where a thread sleeps, have it woken by what comes, and now if something is there."""
        if self._sleepers and not self._arm_rings():
            with contextlib.suppress(BlockingIOError):  # it is readable, then
                os.eventfd_write(self._wake, 1)

    def _arm_rings(self) -> bool:
        """Have peers wake a sleeper; False where one has put something into its ring already."""
        # all flags first: each ring is looked at behind its own full barrier
        return all([receiver.arm_wakeup() for receiver in self.receivers])

    # The end

    def close(self) -> None:
        """Leave every peer; may be called again."""
        if self._closed:
            return
        self._closing = True
        for peer in list(self._by_descriptor.values()):
            if isinstance(peer, OutboundPeer):
                self._drop(peer)
        self.sharing.directory.set_gate(False)
        self._closed = True  # what is left does not wait
        for peer in list(self._by_descriptor.values()):
            self._drop(peer)
        for departing in self._departing:
            departing.process.close()
        self.sharing.directory.close()
        self._close_own()

    def forget(self) -> None:
        """In a forked child: close what is this process's, touch nothing that is shared.  What peers have
        given is unmapped, or it would last as long as the child."""
        if self._closed:
            return
        self._closing = self._closed = True
        for peer in [*self._by_descriptor.values(), *self._departing]:
            if isinstance(peer, OutboundPeer):
                peer.close()
            peer.channel.close()
            peer.process.close()
        directory = self.sharing.directory
        messages.close_all((directory.fd, *(reader.fd for reader in directory.readers)))
        self._close_own()

    def _close_own(self) -> None:
        """Close what is no peer's."""
        for port in self.ports.values():
            port.close()
        self._epoll.close()
        os.close(self._wake)
