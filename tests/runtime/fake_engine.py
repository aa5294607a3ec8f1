"""An engine of wood in place of the adapter, a descriptor in place of the link: so every rule of turns is
seen by itself.
"""

import collections
import contextlib
import os
import threading

from softhca.adapter.config import AdapterConfig
from softhca.adapter.engine import Adapter
from softhca.links.link import Link
from softhca.runtime.loop import NEVER, EngineLoop
from softhca.runtime.progress_thread import Progress


class Wire(Link):
    """A link whose arrivals a test puts in; it refuses to send as often as ``refusals`` says."""

    def __init__(self):
        super().__init__()
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.arrivals = collections.deque()
        self.sent = []
        self.refusals = 0

    def put(self, word):
        self.arrivals.append(word)
        os.eventfd_write(self.fd, 1)

    def receive(self, arrival):
        if not self.arrivals:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.fd)
            if not self.arrivals:
                return False
        arrival.source = self.arrivals.popleft()
        return True

    def send(self, burst):
        if self.refusals:
            self.refusals -= 1
            return 0
        self.sent.append(burst.length)
        return 1


class FakeEngine(Adapter):
    """Notes what it was asked; tells the host of every arrival, sends what ``outgoing`` holds."""

    def __init__(self, **config):
        super().__init__(AdapterConfig(gids=(bytes(15) + b"\1",), **config))
        self.received = []
        self.threads = []
        self.outgoing = collections.deque()
        self.deadline_ns = NEVER
        self.expired = []
        self.kicks = 0
        self.ringing = 0
        self.commands = 0
        self.sole = None

    def receive(self, port_number, arrival, now):
        self.received.append(arrival.source)
        self.threads.append(threading.current_thread().name)
        self.notify()

    def expire(self, now):
        if now >= self.deadline_ns:
            self.expired.append(now - self.deadline_ns)
            self.deadline_ns = NEVER
            self.notify()

    def ring(self, now):
        self.kicks += 1
        self.commanded = self.commands
        if not self.ringing:
            return False
        self.last_doorbell, self.ringing = self.ringing, 0
        return True

    def command(self, now):
        self.commanded = self.commands = 0
        return True

    def flow_delaying_ack(self):
        return self.sole

    def transmit(self, port_number, burst, now):
        if not self.outgoing:
            return False
        burst.length = self.outgoing.popleft()
        return True

    def next_deadline(self, port_number=0):
        return self.deadline_ns


class Bench:
    def __init__(self):
        self.wire = Wire()
        self.engine = FakeEngine()
        self.progress = Progress([self.wire.fd])
        self.loop = EngineLoop(self.engine, (self.wire,), self.progress.wake)
        self.progress.loop = self.loop

    def start(self):
        self.progress.start(self.loop, "background")

    def close(self):
        with self.loop.lock:
            self.loop.dead = True
        self.progress.close()
        os.close(self.wire.fd)
