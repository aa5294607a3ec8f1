"""The adapter inside the application's process: one engine a device, shared by all contexts that open it."""

from __future__ import annotations

import contextlib
import os
import threading

from softhca.driver.channels import EmbeddedChannel
from softhca.memory.host import HostMemory
from softhca.runtime import fork
from softhca.runtime.assembly import assemble_ports, descriptors_of, same_host_of
from softhca.runtime.loop import EngineLoop
from softhca.runtime.progress_thread import Progress
from softhca.runtime.specification import DeviceSpecification


class EmbeddedAdapter:
    """A running engine: adapter, link, loop and background thread, from the first host's opening to the
    last's end.

    Making one opens the link; errors are those of ``assembly.assemble``, and OSError for want of descriptors
    or of a thread.  Nothing is left open then.
    """

    def __init__(self, specification: DeviceSpecification) -> None:
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
            fork.watch(self)
            undo.callback(fork.unwatch, self)
            self.progress.start(self.loop, f"softhca-{specification.name}")
            undo.pop_all()

    @property
    def alive(self) -> bool:
        """Whether the engine is still driven."""
        return not self.loop.dead

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
            self.channels.pop(number, None)
            if not self.channels:
                self.close()

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
            with self.loop.lock:
                self.loop.send_rest()
                self._closed = self.loop.dead = True
                if self.same_host is not None:
                    self.same_host.close()
            fork.unwatch(self)
            self.progress.close()
            for link in self.links:
                link.close()
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
        super().__init__(memory, engine.loop.kick, engine.loop.poll, engine.progress.wait, lambda: None)
        self.number = -1
        self.arena = 0
        self._engine = engine
        self.closed = False

    @property
    def alive(self) -> bool:
        """Whether the engine still serves this host."""
        return self._engine.alive and not self.closed

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
