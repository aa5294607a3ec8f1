"""The adapter inside the application's process: one engine a device, shared by all contexts that open it,
and by other processes that open the same device (`clients`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading

from softhca.driver.channels import EmbeddedChannel
from softhca.memory.host import HostMemory
from softhca.runtime import fork
from softhca.runtime.assembly import assemble_ports, descriptors_of, same_host_of
from softhca.runtime.clients import Clients
from softhca.runtime.loop import EngineLoop
from softhca.runtime.progress_thread import Progress
from softhca.runtime.specification import DeviceSpecification

LOOK_AGAIN_S = 0.01

_log = logging.getLogger("softhca.runtime")


class EmbeddedAdapter:
    """A running engine: adapter, link, loop and background thread, from the first host's opening to the
    last's end, of this process or of another one.

    ``bound``: a socket that has the name by which other processes find this adapter; without one it is this
    process's own, until `listen` is called.

    Making one opens the link; errors are those of ``assembly.assemble``, and OSError for want of descriptors
    or of a thread.  Nothing is left open then, but ``bound``.
    """

    def __init__(
        self, specification: DeviceSpecification, name: str = "", bound: socket.socket | None = None
    ) -> None:
        with contextlib.ExitStack() as undo:
            self.adapter, self.links = assemble_ports(specification)
            self.link = self.links[0]
            for link in self.links:
                undo.callback(link.close)
            self.same_host = same_host_of(specification, self.adapter, self.links)
            if self.same_host is not None:
                undo.callback(self.same_host.close)
            descriptors = [fd for link in self.links for fd in descriptors_of(link)]
            if self.same_host is not None:
                descriptors.append(self.same_host.fileno())
            self.progress = Progress(descriptors)
            undo.callback(self.progress.forget)
            self.loop = EngineLoop(self.adapter, self.links, self.progress.wake)
            if self.same_host is not None:
                self.loop.share(self.same_host)
            self.channels: dict[int, EngineChannel] = {}
            self._coming_and_going = threading.RLock()
            self._closed = self._ended = False
            self.clients: Clients | None = None
            self.progress.between, self.progress.ended = self._close_unused, self._forsake_clients
            if bound is not None:
                self.listen(name, bound)
            undo.callback(self._close_clients)
            fork.watch(self)
            undo.callback(fork.unwatch, self)
            self.progress.start(self.loop, f"softhca-{specification.name}")
            undo.pop_all()

    def listen(self, name: str, bound: socket.socket) -> None:
        """Serve other processes at ``name``, which ``bound`` has; nobody, where there is no descriptor left,
        or no more can be watched: then the name is free again.
        """
        with contextlib.ExitStack() as undo:
            undo.callback(bound.close)
            try:
                clients = Clients(self.adapter, self.loop, name, bound)
                undo.callback(clients.close)
                self.progress.watch(clients.fileno())
            except OSError as error:
                _log.debug("%s is this process's own: %s", name, error)
                return
            undo.pop_all()
        self.clients = clients

    @property
    def alive(self) -> bool:
        """Whether the engine is still driven."""
        return not self.loop.dead

    @property
    def meeting_place(self) -> str:
        """The name at which other processes attach; empty: they cannot."""
        return "" if self.clients is None else self.clients.path

    def attach(self) -> EngineChannel | None:
        """A new host of this adapter; None when its last host has left meanwhile and the engine has ended.
        OSError when it serves too many hosts, or there is no memory.
        """
        memory = HostMemory()
        try:
            with self._coming_and_going:
                if self._closed:
                    memory.close()
                    return None
                channel = EngineChannel(self, memory)
                with self.loop.lock:
                    channel.number = self.adapter.attach_host(channel)
                    try:
                        if self.same_host is not None:
                            channel.arena = self.same_host.add_memory(memory)
                    except BaseException:
                        self.adapter.detach_host(channel.number)
                        raise
                self.channels[channel.number] = channel
        except BaseException:
            memory.close()
            raise
        return channel

    def detach(self, number: int) -> None:
        """A host leaves; with the last one the engine ends.  May be called again."""
        with self._coming_and_going:
            channel = self.channels.get(number)
            if channel is None:
                return
            with self.loop.lock:
                if not self.loop.dead:  # an engine that has failed is not asked for anything any more
                    self._free(channel)
                    self.loop.settle(self.loop.clock())
            self.channels.pop(number, None)
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        """Nobody is left, here or elsewhere; the caller has the lock of those who come and go."""
        if not self.channels and (self.loop.dead or self.clients is None or not self.clients.present):
            self.close()

    def _close_unused(self) -> None:
        """For the background thread: the last client may have been the last user."""
        clients = self.clients
        while clients is not None and clients.unused and not self.progress.stopping:
            # whoever has the lock may wait for this thread to end
            if self._coming_and_going.acquire(timeout=LOOK_AGAIN_S):
                try:
                    clients.unused = False
                    self._close_if_unused()
                finally:
                    self._coming_and_going.release()

    def _forsake_clients(self) -> None:
        """The engine is not driven any more: other processes must not wait for it."""
        with self.loop.lock:
            if self.loop.dead:
                self._close_clients()

    def _close_clients(self) -> None:
        if self.clients is not None:
            self.clients.close()

    def linger(self, limit_s: float) -> bool:
        """Go on for clients, up to ``limit_s``, when this process is about to end; whether none is left."""
        return self.clients is None or self.clients.wait_left(limit_s)

    def _free(self, channel: EngineChannel) -> None:
        """Free everything that a host owned, unless that has been done."""
        if channel.number in self.adapter.hosts:
            self.loop.flush(self.loop.clock())
            self.adapter.detach_host(channel.number)
        arena, channel.arena = channel.arena, 0
        if self.same_host is not None:
            self.same_host.remove_arena(arena)

    def close(self) -> None:
        """Stop the engine and close everything; may be called again, and waits for a call in progress."""
        with self._coming_and_going:
            if self._ended:
                return
            held = None
            try:
                with self.loop.lock:
                    if self.clients is not None:  # who finds the name free takes the addresses
                        held = self.clients.hold_name()
                    self._close_clients()
                    self.loop.send_rest()
                    self._closed = self.loop.dead = True
                    if self.same_host is not None:
                        self.same_host.close()
                self.progress.close()
                with self.loop.lock:  # no fork in between: the child would keep what is closed here
                    for link in self.links:
                        link.close()
                    fork.unwatch(self)
            finally:
                if held is not None:
                    held.close()
            self._ended = True

    # fork.ForkAware

    fork_rank = 1

    def before_fork(self) -> None:
        """No round is under way while the process is copied."""
        self.loop.lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self.loop.lock.release()

    def after_fork_in_child(self) -> None:
        """The engine is the parent's."""
        self._closed = self.loop.dead = True
        self.loop.lock.release()
        if self.clients is not None:
            self.clients.forget()
        self.adapter.resources.contexts.abandon()
        self.progress.forget()
        for link in self.links:
            link.close()
        if self.same_host is not None:
            self.same_host.forget()
        for channel in self.channels.values():
            channel.abandon()


class EngineChannel(EmbeddedChannel):
    """A host's channel to an engine in this process."""

    wakes = True

    def __init__(self, engine: EmbeddedAdapter, memory: HostMemory) -> None:
        loop = engine.loop
        super().__init__(memory, loop.kick, loop.poll, engine.progress.wait, lambda: None, look=loop.look)
        self.number = -1
        self.arena = 0
        self._engine = engine
        self.closed = False

    @property
    def alive(self) -> bool:
        """Whether the engine still serves this host."""
        return not (self.closed or self._engine.loop.dead)

    @property
    def meeting_place(self) -> str:
        """`HostChannel.meeting_place`."""
        return self._engine.meeting_place

    @property
    def kick_receives(self) -> bool:
        """While threads wait, the leader may sleep and needs a kick; a poll finds the doorbell by itself."""
        return self._engine.loop.sleeper.waiters > 0

    def wake_waiters(self) -> None:
        """`HostChannel.wake_waiters`."""
        self._engine.progress.wake_waiters()

    def detach(self) -> None:
        """Leave the adapter; may be called again."""
        self._engine.detach(self.number)

    def close(self) -> None:
        """Leave the adapter and free the memory; may be called again.  Threads that wait return False."""
        self.closed = True
        self.wake_waiters()
        super().close()

    def abandon(self) -> None:
        """In a forked child: close the descriptor; what it mapped stays mapped, shared with the parent."""
        if not self.closed:
            self.closed = True
            os.close(self.memory.fd)
            if self.memory.shared is not None:
                os.close(self.memory.shared.fd)
