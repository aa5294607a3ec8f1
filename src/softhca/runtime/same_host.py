"""Neighbours: adapters of the same user on the same host, met over a Unix socket (docs/same-host.md).

Every adapter that allows it listens on an abstract socket that its GID and the user name; abstract names
are a network namespace's own, so that only who shares the loopback device can meet.  Who connects a queue
pair to a GID knocks there.  The kernel says who the other side is (SO_PEERCRED): another user is refused, by
either side.  The one that is knocked at passes its directory, a lane and its arenas, and so gives the other
one its memory; the other direction takes a knock of its own.  Messages are those of `messages`:

* ``{"knock": VERSION, "gid": …}`` →  ``{"lane": VERSION, "fence": …, "probe": ADDRESS, "probe_bytes": HEX}``
  with the descriptors of directory and lane.  The probe stands in the process's own memory: who finds it
  there can reach that memory, and no other process's is meant.  ``fence`` (true or false): whether the owner
  has barriers that reach who has joined them (`primitives.barrier_everywhere`).
* ``{"arena": NUMBER, "bytes": SIZE}`` with its descriptor, at once and whenever there is a new one
* ``{"gone": NUMBER}``: an arena is not used any more
* one byte, to the one that was knocked at: wake up, there is something in the ring

Of the descriptors that cross, a directory cannot be written through, a lane is one neighbour's alone, and
none is such that one side could make the other wait.

A neighbour that ends is noticed by its process and by its sockets, and everything goes that was given or
taken.  Nothing here blocks; `SameHost.look` is one of the things that the engine's rounds do.  Withdrawing
waits for neighbours, `PATIENCE_NS` at most (`softhca.memory.shared_directory`).

Nobody has to ask for it, so it takes little of what belongs to the program and gives way before the program
runs out of it: descriptors (`spare`), address space (`MOST_MAPPED_BYTES`).  What it cannot have, it does
without; requests go by packets then.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import platform
import resource
import secrets
import select
import socket
import threading
from collections.abc import Callable
from typing import Any

from softhca.machine import primitives
from softhca.machine.primitives import address_of
from softhca.memory.host import HostMemory
from softhca.memory.shared_arena import SharedArena
from softhca.memory.shared_directory import Directory, Lane, Pause
from softhca.memory.shared_layout import DIRECTORY_BYTES, LANE_BYTES, MAGIC, MAX_ARENA_NUMBER, map_sealed
from softhca.memory.shared_path import MAX_ARENAS, SharedPath
from softhca.runtime import messages
from softhca.runtime.clock import now_ns
from softhca.runtime.processor import Readable, give_way
from softhca.runtime.same_host_process import PeerProcess
from softhca.runtime.same_host_ring import PacketReceiver, PacketSender
from softhca.transport.same_host_sharing import Sharing
from softhca.wire.route import NATIVE, Route

VERSION = 2
MULTICAST = 0xFF
"""The first byte of a multicast GID."""
MAX_NEIGHBOURS = 1024
MESSAGES_A_LOOK = 8
PROBE_BYTES = 16
WAKE = b"w"
PATIENCE_NS = 1_000_000
"""So long at most does a withdrawal wait for neighbours; then it takes away what they have in hand."""

LOOKS_FOR_QUIET = 50
"""How often at most a moment is waited for in which nothing is under way to a new neighbour."""
MOST_ARENA_BYTES = 1 << 40
MOST_MAPPED_BYTES = 16 << 40
"""Address space that neighbours' arenas take in this process at most, an eighth of what it has."""

LEAST_DESCRIPTORS = 256
"""A process that may have fewer has no paths unasked: two or three dozen are a good part of that."""

KNOCK_AGAIN_NS = 10_000_000
"""Where nobody was, or nobody opened, there is no knock for so long: many queue pairs to one GID ask but
once."""


def socket_name(gid: bytes) -> str:
    """The abstract name of the adapter with this GID, for this user."""
    return f"\0softhca/neighbour/{os.geteuid()}/{gid.hex()}"


def why_not() -> str:
    """Why this machine cannot have same-host paths; empty where it can."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"the order of memory on {platform.machine()} is not proven for it"
    if not primitives.ATOMIC_BETWEEN_PROCESSES:
        return "libatomic is missing"
    return ""


def why_not_unasked() -> str:
    """Why this process has no same-host paths unless it is told to; empty where it may have them."""
    reason = why_not()
    if not reason and os.geteuid() != os.getuid():
        reason = "the process acts for another user"
    if not reason and resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        reason = "its address space is limited"
    if not reason and _most_descriptors() < LEAST_DESCRIPTORS:
        reason = "it may have few descriptors"
    return reason


def _most_descriptors() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 31 if limit == resource.RLIM_INFINITY else limit


def spare(descriptor: int) -> bool:
    """Whether ``descriptor``, just made, leaves the program half of its descriptors: the kernel gives the
    lowest number that is free."""
    return descriptor < _most_descriptors() // 2


class _Mapped:
    """How much address space neighbours' arenas take in this process."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> bool:
        """Have so much more; False where that is too much."""
        with self._lock:
            if self.size_bytes + size_bytes > MOST_MAPPED_BYTES:
                return False
            self.size_bytes += size_bytes
            return True

    def give(self, size_bytes: int) -> None:
        """Have so much less."""
        with self._lock:
            self.size_bytes -= size_bytes


_mapped = _Mapped()


def patience() -> Pause:
    """For one withdrawal: lets others run, and tells whether it may be waited longer."""
    end_ns = now_ns() + PATIENCE_NS

    def pause() -> bool:
        give_way()
        return now_ns() < end_ns

    return pause


class Neighbour:
    """A neighbour to whose memory this adapter has, or is about to have, a ``path``."""

    def __init__(self, path: SharedPath, channel: socket.socket, process: PeerProcess) -> None:
        self.path = path
        self.channel = channel
        self.process = process
        self.sender: PacketSender | None = None
        self.looks_until_sent = LOOKS_FOR_QUIET
        self._mappings: dict[int, mmap.mmap] = {}
        self._arenas: dict[int, mmap.mmap | None] = {}

    def take(self, message: messages.Message, descriptors: list[int]) -> None:
        """A message of the neighbour's.  OSError EPROTO for one that cannot be; the caller closes the
        descriptors."""
        if message.get("lane") == VERSION and len(descriptors) == 2 and not self.path.alive:
            directory = map_sealed(descriptors[0], DIRECTORY_BYTES, writable=False)
            lane = map_sealed(descriptors[1], LANE_BYTES, writable=True)
            start = address_of(directory, writable=False)
            if primitives.load64(start) != MAGIC:
                raise OSError(errno.EPROTO, "that is no directory")
            self._mappings = {0: directory, 1: lane}
            self.sender = PacketSender(address_of(lane), self._rouse)
            self.path.open(
                start, address_of(lane), self._reachable(message), lambda: not self.process.has_ended(),
                primitives.join_barriers() != 0 or message.get("fence") is not True, threading.get_native_id,
            )  # fmt: skip
        elif "arena" in message and len(descriptors) == 1 and self.path.alive:
            number, size = message["arena"], message.get("bytes")
            if (
                not isinstance(number, int)
                or not isinstance(size, int)
                or not 0 < number <= MAX_ARENA_NUMBER
                or not 0 < size <= MOST_ARENA_BYTES
                or number in self._arenas
                or len(self._arenas) >= MAX_ARENAS
            ):
                raise OSError(errno.EPROTO, "an arena that cannot be")
            self._map(number, size, descriptors[0])
        elif message.get("gone") in self._arenas and not descriptors:
            number = message["gone"]
            self.path.set_arena(number, 0, 0)
            _unmap_arena(self._arenas.pop(number))
        else:
            raise OSError(errno.EPROTO, "a message that means nothing here")

    def _map(self, number: int, size: int, descriptor: int) -> None:
        """Map an arena, where that is not too much of this process's address space."""
        self._arenas[number] = None
        if not _mapped.take(size):
            return
        try:
            mapping = map_sealed(descriptor, size, writable=True)
        except BaseException:
            _mapped.give(size)
            raise
        self._arenas[number] = mapping
        mapping.madvise(mmap.MADV_DONTDUMP)  # a core file is this process's
        self.path.set_arena(number, address_of(mapping), size)

    def _reachable(self, message: messages.Message) -> int:
        """The neighbour's process if its own memory can be reached by that, 0: it is this one, −1: it
        cannot."""
        address, expected = message.get("probe"), message.get("probe_bytes")
        pid = self.process.pid
        if not isinstance(address, int) or not 0 < address < 1 << 63 or pid <= 0:
            return -1
        if pid == os.getpid():
            return 0
        seen = bytearray(PROBE_BYTES)
        moved = primitives.read_process(pid, address_of(seen), address, PROBE_BYTES)
        return pid if moved == PROBE_BYTES and seen.hex() == expected else -1

    def _rouse(self) -> None:
        """Wake the neighbour."""
        # where there is no room it has messages to read anyway; one that has gone is noticed elsewhere
        with contextlib.suppress(OSError):
            self.channel.send(WAKE, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """The path ends; its requests go by packets."""
        self.path.close()
        for mapping in self._mappings.values():
            _unmap(mapping)
        for arena in self._arenas.values():
            _unmap_arena(arena)
        self._mappings, self._arenas = {}, {}
        self.channel.close()
        self.process.close()


class Guest:
    """A neighbour that was given this adapter's memory, or has only connected so far (``lane`` None)."""

    def __init__(self, channel: socket.socket, process: PeerProcess) -> None:
        self.channel = channel
        self.process = process
        self.lane: Lane | None = None
        self.receiver: PacketReceiver | None = None

    def is_alive(self) -> bool:
        """Whether the neighbour has not ended."""
        return not self.process.has_ended()

    def is_inside(self) -> bool:
        """Whether the neighbour, alive, is within its lane."""
        return self.lane is not None and self.lane.is_inside(self.lane.turn() | 1)

    def close(self) -> None:
        """Nothing of the neighbour's is looked at any more."""
        self.channel.close()
        self.process.close()
        if self.lane is not None:
            self.lane.close()


class SameHost:
    """The neighbours of the adapter that has ``gid``.  Everything under the engine's lock.

    ``senders`` (by GID) and ``receivers`` are the rings of packets to and from neighbours; ``changed`` is
    called when `link_of` may give another answer than before.  ``in_flight`` tells how much is under way to a
    GID by other ways.  ``unasked``: it is there by itself, so it keeps to neighbours in the same PID
    namespace and leaves the program half of its descriptors.  OSError when the name is taken, or where there
    is no memory or no descriptor for it.
    """

    def __init__(
        self,
        gid: bytes,
        own_gids: Any = (),
        in_flight: Callable[[bytes], int] = lambda gid: 0,
        unasked: bool = False,
    ) -> None:
        self.gid = gid
        self.unasked = unasked
        self.senders: dict[bytes, PacketSender] = {}
        self.changed: Callable[[], object] = lambda: None
        self.receivers: list[PacketReceiver] = []
        self._in_flight = in_flight
        self._changing: list[Neighbour] = []
        self._resting = 0
        self._own = {gid, *own_gids}
        self._neighbours: dict[bytes, Neighbour] = {}
        self._knock_again_ns: dict[bytes, int] = {}
        self._by_descriptor: dict[int, Neighbour | Guest] = {}
        self._by_process: dict[int, Neighbour | Guest] = {}
        self._lingering: list[Guest] = []
        self._fences = primitives.join_barriers() == 0 and primitives.barrier_everywhere() == 0
        self._next_arena = 1
        self._probe = bytearray(secrets.token_bytes(PROBE_BYTES))
        self._closing = self._closed = False
        with contextlib.ExitStack() as undone:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            undone.callback(self._listener.close)
            self._listener.bind(socket_name(gid))
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            undone.callback(os.close, self._wake)
            self._epoll = select.epoll()
            undone.callback(self._epoll.close)
            self._anything = Readable(self._epoll.fileno())
            self._epoll.register(self._wake, select.EPOLLIN)
            directory = Directory(patience)
            undone.callback(directory.close)
            self.sharing = Sharing(directory, self.reach)
            if not self._may_have(directory.fd):
                raise OSError(errno.EMFILE, "the program has few descriptors")
            self._listener.listen(64)
            self._epoll.register(self._listener.fileno(), select.EPOLLIN)
            undone.pop_all()

    def fileno(self) -> int:
        """Readable when there is something to look at."""
        return self._epoll.fileno()

    # Memory that neighbours may map

    def add_memory(self, memory: HostMemory) -> int:
        """Let neighbours map what a host shares; the arena's number, 0 where there is no room for it.
        OSError where it was asked for."""
        if len(self.sharing.directory.arenas) >= MAX_ARENAS or self._next_arena > MAX_ARENA_NUMBER:
            return 0
        try:
            return self.add_arena(memory.share())
        except OSError:
            if not self.unasked:
                raise
            return 0

    def add_arena(self, arena: SharedArena) -> int:
        """Let neighbours map an arena; its number."""
        number = self._next_arena
        self._next_arena += 1
        self.sharing.directory.arenas[number] = arena
        for guest in self._guests():
            self._send(guest, {"arena": number, "bytes": arena.size_bytes}, (arena.fd,))
        return number

    def remove_arena(self, number: int) -> None:
        """An arena is not used any more: no region stands on it.  0 is none."""
        if not number:
            return
        del self.sharing.directory.arenas[number]
        for guest in self._guests():
            self._send(guest, {"gone": number})

    def _guests(self) -> list[Guest]:
        return [each for each in self._by_descriptor.values() if isinstance(each, Guest) and each.lane]

    # Meeting

    def reach(self, gid: bytes) -> SharedPath | None:
        """The path to the adapter with ``gid``; where there is none yet, knock.  None: it is not here."""
        neighbour = self._neighbours.get(gid)
        if neighbour is not None:
            return neighbour.path
        if self._closing or gid in self._own or len(self._neighbours) >= MAX_NEIGHBOURS:
            return None
        if self._knock_again_ns:
            if now_ns() < self._knock_again_ns.get(gid, 0):
                return None
            self._knock_again_ns.pop(gid, None)
        neighbour = self._knock(gid)
        if neighbour is None:
            self._leave_alone(gid)
            return None
        self._neighbours[gid] = neighbour
        return neighbour.path

    def link_of(self, route: Route) -> PacketSender | None:
        """The ring to a route's destination; where there is no path yet, knock.  None: there is no ring."""
        gid = route.destination
        if route.framing == NATIVE or gid[0] == MULTICAST:
            return None
        sender = self.senders.get(gid)
        if sender is None:
            self.reach(gid)
        return sender

    def _knock(self, gid: bytes) -> Neighbour | None:
        """Ask for the memory of the adapter with ``gid``; None where nobody is, or one that is not wanted."""
        with contextlib.ExitStack() as undone, contextlib.suppress(OSError):
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            undone.callback(channel.close)
            channel.connect(socket_name(gid))
            if not self._may_meet(channel):
                return None
            messages.send(channel, {"knock": VERSION, "gid": self.gid.hex()})
            process = PeerProcess(channel, self._may_have)
            undone.callback(process.close)
            neighbour = Neighbour(SharedPath(gid, self.gid), channel, process)
            self._watch(neighbour)
            undone.pop_all()
            return neighbour
        return None

    def _leave_alone(self, gid: bytes) -> None:
        """Do not knock there for a moment."""
        if len(self._knock_again_ns) >= MAX_NEIGHBOURS:
            self._knock_again_ns.clear()
        self._knock_again_ns[gid] = now_ns() + KNOCK_AGAIN_NS

    def _may_have(self, descriptor: int) -> bool:
        """Whether a descriptor is not one that the program had better have."""
        return not self.unasked or spare(descriptor)

    def _may_meet(self, channel: socket.socket) -> bool:
        """Whether the other side is this user's; unasked, also of this PID namespace: from elsewhere the
        kernel gives 0 for its number, to one of both at least."""
        pid, uid = messages.peer_of(channel)
        return uid == os.geteuid() and (pid > 0 or not self.unasked) and self._may_have(channel.fileno())

    def _watch(self, party: Neighbour | Guest) -> None:
        self._epoll.register(party.channel.fileno(), select.EPOLLIN)
        self._by_descriptor[party.channel.fileno()] = party
        if party.process.descriptor >= 0:
            self._epoll.register(party.process.descriptor, select.EPOLLIN)
            self._by_process[party.process.descriptor] = party

    def look(self) -> bool:
        """Go on with whatever has come; whether there was anything."""
        if self._closing:
            return False
        # asked in most rounds, so it keeps the interpreter lock
        found = self._epoll.poll(0, 64) if self._anything() else []
        for descriptor, _ in found:
            party = self._by_descriptor.get(descriptor)
            if party is not None:
                self._hear(party)
            elif descriptor in self._by_process:
                self._mourn(self._by_process[descriptor])
            elif descriptor == self._listener.fileno():
                self._accept()
            elif descriptor == self._wake:
                self._woken()
        if self._changing:
            self._change_over()
        if self._lingering:
            self._let_go()
        if self.sharing.directory.holds:
            self.sharing.directory.settle()
        return bool(found)

    def _mourn(self, party: Neighbour | Guest) -> None:
        """A party's process has ended; where the descriptor was another's a moment ago it has not."""
        if party.process.has_ended():
            self._drop(party)

    def _change_over(self) -> None:
        """Let packets go through the rings of new neighbours: where nothing is under way on the other way,
        so that none is overtaken, or after a while all the same, for PSNs put them in order again."""
        for neighbour in list(self._changing):
            neighbour.looks_until_sent -= 1
            gid = neighbour.path.gid
            if self._in_flight(gid) == 0 or neighbour.looks_until_sent <= 0:
                self._changing.remove(neighbour)
                if neighbour.sender is not None:
                    self.senders[gid] = neighbour.sender
                    self.changed()

    def _woken(self) -> None:
        """A neighbour has called.  If it called a thread that still sleeps, that one is to be called
        again."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        self._guard_sleepers()

    def _guard_sleepers(self) -> None:
        """Where a thread sleeps, have it called at what comes, and now if something is there."""
        # all flags first: each ring is looked at behind its own full barrier
        if self._resting and not all([receiver.rest() for receiver in self.receivers]):
            with contextlib.suppress(BlockingIOError):  # it is readable, then
                os.eventfd_write(self._wake, 1)

    def rest(self) -> bool:
        """A thread is about to sleep in charge of the engine: have neighbours wake it.  False, and it must
        not, where there is something already."""
        self._resting += 1
        # all flags first: each ring is looked at behind its own full barrier
        if all([receiver.rest() for receiver in self.receivers]):
            return True
        self.rise()
        return False

    def rise(self) -> None:
        """That thread is awake.  Another one may still sleep: then it is the one to be woken."""
        self._resting -= 1
        if self._resting:
            self._guard_sleepers()
        else:
            for receiver in self.receivers:
                receiver.rise()

    def _accept(self) -> None:
        with contextlib.ExitStack() as undone:
            try:
                channel, _ = self._listener.accept()
                undone.callback(channel.close)
                channel.setblocking(False)
                if self._may_meet(channel) and len(self._by_descriptor) < 2 * MAX_NEIGHBOURS:
                    process = PeerProcess(channel, self._may_have)
                    undone.callback(process.close)
                    self._watch(Guest(channel, process))
                    undone.pop_all()
            except (BlockingIOError, ConnectionError, InterruptedError):
                return
            except OSError:
                # No descriptor, or no memory.  Who knocks would stay in the queue, and be looked at in
                # every round: nobody is let in any more.
                self._epoll.unregister(self._listener.fileno())
                self._listener.close()

    def _hear(self, party: Neighbour | Guest) -> None:
        if isinstance(party, Guest) and party.lane is not None:
            self._answer(party)
            return
        for _ in range(MESSAGES_A_LOOK):
            try:
                received = messages.receive(party.channel)
            except BlockingIOError:
                return
            except OSError:
                received = None
            if received is None:
                self._drop(party)
                return
            message, descriptors = received
            try:
                if isinstance(party, Guest):
                    self._welcome(party, message, descriptors)
                else:
                    self._take(party, message, descriptors)
            except (OSError, ValueError, TypeError, OverflowError):
                self._drop(party)
                return
            finally:
                messages.close_all(descriptors)

    def _answer(self, guest: Guest) -> None:
        """A neighbour that has its lane calls, or leaves."""
        try:
            said = guest.channel.recv(2)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if said == WAKE:
            self._guard_sleepers()
        else:
            self._drop(guest)

    def _take(self, neighbour: Neighbour, message: messages.Message, descriptors: list[int]) -> None:
        known = neighbour.sender
        neighbour.take(message, descriptors)
        if known is None and neighbour.sender is not None:
            self._changing.append(neighbour)

    def _welcome(self, guest: Guest, message: messages.Message, descriptors: list[int]) -> None:
        """A neighbour has knocked: give it the directory, a lane and the arenas."""
        if descriptors or message.get("knock") != VERSION:
            raise OSError(errno.EPROTO, "that is no knock")
        gid = bytes.fromhex(message.get("gid", ""))
        if len(gid) != 16 or gid in self._own:
            raise OSError(errno.EPROTO, "that is no neighbour's GID")
        guest.lane = Lane(guest.is_alive, gid, guest.process.may_be_in_call)
        guest.receiver = PacketReceiver(guest.lane.address, gid, self.gid)
        self.receivers.append(guest.receiver)
        self._knock_again_ns.pop(gid, None)
        self.changed()  # who knocks here opens to a knock
        self._guard_sleepers()
        self.sharing.directory.lanes.add(guest.lane)
        probe = {"probe": address_of(self._probe), "probe_bytes": self._probe.hex()}
        greeting = {"lane": VERSION, "fence": self._fences, **probe}
        self._send(guest, greeting, (self.sharing.directory.fd, guest.lane.fd))
        for number, arena in self.sharing.directory.arenas.items():
            self._send(guest, {"arena": number, "bytes": arena.size_bytes}, (arena.fd,))

    def _send(self, guest: Guest, message: messages.Message, descriptors: Any = ()) -> None:
        """Tell a guest; one that does not listen is let go of."""
        try:
            messages.send(guest.channel, message, descriptors)
        except OSError:
            # it sees the end; its lane is waited for until it has ended its side
            with contextlib.suppress(OSError):
                guest.channel.shutdown(socket.SHUT_WR)

    def _drop(self, party: Neighbour | Guest) -> None:
        """A party has gone, or says what cannot be."""
        descriptor = party.channel.fileno()
        del self._by_descriptor[descriptor]
        self._epoll.unregister(descriptor)
        if self._by_process.pop(party.process.descriptor, None) is not None:
            self._epoll.unregister(party.process.descriptor)
        if isinstance(party, Neighbour):
            self._neighbours.pop(party.path.gid, None)
            if not party.path.alive:
                self._leave_alone(party.path.gid)
            if self.senders.pop(party.path.gid, None) is not None:
                self.changed()
            if party in self._changing:
                self._changing.remove(party)
            party.close()
            return
        if party.receiver is not None:
            self.receivers.remove(party.receiver)
        party.channel.close()
        self._lingering.append(party)
        self._let_go()

    def _let_go(self) -> None:
        """Close the lanes of guests that have gone, but for those that live and are inside still."""
        for guest in [guest for guest in self._lingering if not guest.is_inside()]:
            self._lingering.remove(guest)
            if guest.lane is not None:
                self.sharing.directory.lanes.discard(guest.lane)
                self.sharing.directory.settle(guest.lane)
            guest.close()

    def close(self) -> None:
        """Leave every neighbour; may be called again."""
        if self._closed:
            return
        self._closing = True
        for party in list(self._by_descriptor.values()):
            if isinstance(party, Neighbour):
                self._drop(party)
        self.sharing.directory.set_gate(False)
        self._closed = True  # what is left does not wait
        for party in list(self._by_descriptor.values()):
            self._drop(party)
        for guest in self._lingering:
            guest.process.close()
        self.sharing.directory.close()
        self._listener.close()
        self._epoll.close()
        os.close(self._wake)

    def forget(self) -> None:
        """In a forked child: close what is this process's, touch nothing that is shared.  What neighbours
        have given is unmapped, or it would last as long as the child."""
        if self._closed:
            return
        self._closing = self._closed = True
        for party in [*self._by_descriptor.values(), *self._lingering]:
            if isinstance(party, Neighbour):
                party.close()
            party.channel.close()
            party.process.close()
        directory = self.sharing.directory
        messages.close_all((self._wake, directory.fd, *(lane.fd for lane in directory.lanes)))
        self._listener.close()
        self._epoll.close()


def _unmap(mapping: mmap.mmap) -> None:
    with contextlib.suppress(BufferError):
        mapping.close()


def _unmap_arena(arena: mmap.mmap | None) -> None:
    if arena is not None:
        size = len(arena)
        _unmap(arena)
        _mapped.give(size)
