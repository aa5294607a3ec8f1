"""An engine that has nothing to do and a link that holds one packet, for tests of loops and turns."""

import os
import threading

from softhca.adapter.config import AdapterConfig
from softhca.adapter.engine import Adapter
from softhca.links.link import Link
from softhca.runtime.loop import NEVER


class QuietEngine(Adapter):
    """Has nothing to do until ``deadline_ns``."""

    def __init__(self):
        super().__init__(AdapterConfig(gids=(bytes(15) + b"\1",)))
        self.deadline_ns = NEVER

    def next_deadline(self, port_number=0):
        return self.deadline_ns


class HoldingLink(Link):
    """Holds one packet until ``due_ns``; sets ``sent`` when it has left."""

    def __init__(self, due_ns=NEVER):
        super().__init__()
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.due_ns = due_ns
        self.expired = []
        self.sent = threading.Event()

    def fileno(self):
        return self.fd

    def receive(self, arrival):
        return False

    def send(self, burst):
        return 1

    def next_deadline(self):
        return self.due_ns

    def expire(self, now):
        self.expired.append(now)
        if now < self.due_ns:
            return False
        self.due_ns = NEVER
        self.sent.set()
        return True

    def close(self):
        os.close(self.fd)
