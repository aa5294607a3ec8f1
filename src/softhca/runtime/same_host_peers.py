"""The adapters on this host with which one shares memory, each direction for itself (docs/same-host.md).

An *outbound* peer has given its memory: its grants are looked up and its arenas written to, by a
`SharedPath`.  An *inbound* peer was given this adapter's memory, and is watched by its `Reader`.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import socket
import threading
from typing import TYPE_CHECKING

from softhca.machine import primitives
from softhca.machine.primitives import address_of
from softhca.memory.shared_directory import Reader
from softhca.memory.shared_layout import DIRECTORY_BYTES, MAGIC, MAX_ARENA_NUMBER, READER_BYTES, map_sealed
from softhca.memory.shared_path import MAX_ARENAS, SharedPath
from softhca.runtime import messages
from softhca.runtime.same_host_limits import MAPPED
from softhca.runtime.same_host_process import PeerProcess
from softhca.runtime.same_host_ring import PacketReceiver, PacketSender

if TYPE_CHECKING:
    from softhca.runtime.same_host_address import SameHostAddress

VERSION = 6
"""Of the handshake and of all that is shared by it."""

PROBE_BYTES = 16
WAKE = b"w"
MAX_ARENA_BYTES = 1 << 40

POLLS_BEFORE_SWITCH = 50
"""How often at most a moment is waited for in which nothing is under way to a new peer."""


class OutboundPeer:
    """An adapter to whose memory ``address`` has, or is about to have, a ``path``; ``sender`` is the ring of
    packets to it, once the handshake is done."""

    def __init__(
        self, address: SameHostAddress, path: SharedPath, channel: socket.socket, process: PeerProcess
    ) -> None:
        self.address = address
        self.path = path
        self.channel = channel
        self.process = process
        self.sender: PacketSender | None = None
        self.polls_before_switch = POLLS_BEFORE_SWITCH
        self._mappings: dict[int, mmap.mmap] = {}
        self._arenas: dict[int, mmap.mmap | None] = {}

    def take(self, message: messages.Message, descriptors: list[int]) -> None:
        """A message of the peer's.  OSError EPROTO for one that cannot be; the caller closes the
        descriptors."""
        if message.get("reader") == VERSION and len(descriptors) == 2 and not self.path.alive:
            self._open(message, descriptors)
        elif "arena" in message and len(descriptors) == 1 and self.path.alive:
            number, size = message["arena"], message.get("bytes")
            if (
                not isinstance(number, int)
                or not isinstance(size, int)
                or not 0 < number <= MAX_ARENA_NUMBER
                or not 0 < size <= MAX_ARENA_BYTES
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

    def _open(self, message: messages.Message, descriptors: list[int]) -> None:
        """The handshake's answer: map directory and reader, and open the path."""
        directory = map_sealed(descriptors[0], DIRECTORY_BYTES, writable=False)
        reader = map_sealed(descriptors[1], READER_BYTES, writable=True)
        start = address_of(directory, writable=False)
        if primitives.load64(start) != MAGIC:
            raise OSError(errno.EPROTO, "that is no directory")
        self._mappings = {0: directory, 1: reader}
        self.sender = PacketSender(address_of(reader), self._wake)
        self.path.open(
            start, address_of(reader), self._process_in_reach(message), lambda: not self.process.has_ended(),
            primitives.join_barriers() != 0 or message.get("fence") is not True, threading.get_native_id,
            self._wake,
        )  # fmt: skip

    def _map(self, number: int, size: int, descriptor: int) -> None:
        """Map an arena, where that is not too much of this process's address space."""
        self._arenas[number] = None
        if not MAPPED.take(size):
            return
        try:
            mapping = map_sealed(descriptor, size, writable=True)
        except BaseException:
            MAPPED.give(size)
            raise
        self._arenas[number] = mapping
        self.path.set_arena(number, address_of(mapping), size)

    def _process_in_reach(self, message: messages.Message) -> int:
        """The peer's process if its own memory can be reached by that, 0: it is this one, −1: it cannot."""
        address, expected = message.get("probe"), message.get("probe_bytes")
        pid = self.process.pid
        if not isinstance(address, int) or not 0 < address < 1 << 63 or pid <= 0:
            return -1
        if pid == os.getpid():
            return 0
        seen = bytearray(PROBE_BYTES)
        moved = primitives.read_process(pid, address_of(seen), address, PROBE_BYTES)
        return pid if moved == PROBE_BYTES and seen.hex() == expected else -1

    def _wake(self) -> None:
        """Wake the peer, which sleeps."""
        # where there is no room it has messages to read anyway; that it has ended is noticed elsewhere
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


class InboundPeer:
    """An adapter that was given the memory of ``address``'s adapter, or has only connected so far (``reader``
    None); ``receiver`` is the ring of packets from it."""

    def __init__(self, address: SameHostAddress, channel: socket.socket, process: PeerProcess) -> None:
        self.address = address
        self.channel = channel
        self.process = process
        self.reader: Reader | None = None
        self.receiver: PacketReceiver | None = None

    def admit(self, gid: bytes) -> Reader:
        """The handshake of the peer with the address ``gid`` is good: give it its reader.  OSError."""
        self.reader = Reader(self.is_alive, gid, self.process.may_be_in_call)
        self.receiver = PacketReceiver(self.reader.address, gid, self.address.gid)
        return self.reader

    def send(self, message: messages.Message, descriptors: tuple[int, ...] = ()) -> None:
        """Send it a message; from one that does not read this side's end is taken."""
        try:
            messages.send(self.channel, message, descriptors)
        except OSError:
            # it sees the end; its reader is waited for until it has ended its side
            with contextlib.suppress(OSError):
                self.channel.shutdown(socket.SHUT_WR)

    def is_alive(self) -> bool:
        """Whether the peer has not ended."""
        return not self.process.has_ended()

    def is_inside(self) -> bool:
        """Whether the peer, alive, is in the middle of an access."""
        return self.reader is not None and self.reader.is_inside(self.reader.epoch() | 1)

    def close(self) -> None:
        """Nothing of the peer's is read any more."""
        self.channel.close()
        self.process.close()
        if self.reader is not None:
            self.reader.close()


def _unmap(mapping: mmap.mmap) -> None:
    with contextlib.suppress(BufferError):
        mapping.close()


def _unmap_arena(arena: mmap.mmap | None) -> None:
    if arena is not None:
        size = len(arena)
        _unmap(arena)
        MAPPED.give(size)
