"""A connected RC queue pair between two open devices, at the driver's level: memory, queues, operations."""

from __future__ import annotations

import contextlib
import enum
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from softhca.driver.services import Reliability, connect, path_to
from softhca.machine.primitives import address_of

REMOTE_EVERYTHING = 1 | 2 | 4 | 8  # ibv_access_flags: local write, remote write, read, atomic
RC = 2  # ibv_qp_type
SIGNALED = 2  # ibv_send_flags
POLLS_LIMIT = 2_000_000


class RemoteOperation(enum.IntEnum):
    """``ibv_wr_opcode`` of the operations in which the target's application takes no part."""

    WRITE = 0
    READ = 4
    COMPARE_AND_SWAP = 5
    FETCH_AND_ADD = 6


class End:
    """One side: protection domain, completion queue, queue pair, one registered buffer."""

    def __init__(self, driver, length_bytes, cq=None):
        self.driver = driver
        self.pd = driver.alloc_pd()
        self.cq = cq or driver.create_cq(1024)
        self.qp = driver.create_qp(self.pd, RC, self.cq, self.cq, None, 128, 128, 4, 4, 0, True)
        self.memory = bytearray(length_bytes)
        self.address = address_of(self.memory)
        self.key = driver.reg_mr(self.pd, self.address, length_bytes, REMOTE_EVERYTHING, None, self.memory)

    def element(self, length_bytes):
        return [(self.address, length_bytes, self.key.lkey)] if length_bytes else []

    def close(self):
        self.qp.destroy()
        self.cq.destroy()
        self.driver.dereg_mr(self.key.handle)
        self.driver.dealloc_pd(self.pd)


def join(here, there):
    """Connect two ends to each other."""
    for end, peer in ((here, there), (there, here)):
        path = path_to(end.driver, peer.driver.query_gid(1, 0))
        connect(end.qp, path, peer.qp.number, 1, 1, REMOTE_EVERYTHING, Reliability())


def take(cq, count):
    """``count`` completions, by polling; a bounded number of polls."""
    found = []
    for _ in range(POLLS_LIMIT):
        found += cq.poll(count - len(found))
        if len(found) == count:
            return found
    raise AssertionError(f"{len(found)} of {count} completions came: {found}")


def lets_others_run(call, engine=None, times=50_000):
    """Whether ``call``, again and again, lets the interpreter lock go.

    ``engine`` is what it drives: no other thread has its lock meanwhile, and what peers have begun is
    served before, for both would be waited for.
    """
    start, taken = threading.Lock(), []
    start.acquire()

    def other():
        with start:
            taken.append(True)

    thread = threading.Thread(target=other)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(100)
    thread.start()  # comes back when the other one waits, for nothing else takes the interpreter lock from it
    try:
        with contextlib.nullcontext() if engine is None else engine.loop.lock:
            while engine is not None and engine.same_host.poll():
                pass
            settled_s = time.monotonic() + 10 * interval_s
            while time.monotonic() < settled_s:  # who waited with the former interval has its turn
                call()
            start.release()  # from now on the other thread runs as soon as this one lets the lock go
            for _ in range(times):
                call()
                if taken:
                    return True
            return False
    finally:
        sys.setswitchinterval(interval_s)
        thread.join()


class Link:
    """Two connected ends: the client asks, the server is asked."""

    def __init__(self, client, server):
        self.client, self.server = client, server
        self.client_cq, self.server_cq = client.cq, server.cq
        self.source, self.target = client.memory, server.memory

    def post_receive(self, wr_id, length_bytes):
        self.server.qp.post_recv(wr_id, self.server.element(length_bytes))

    def send(self, wr_id, length_bytes):
        element = self.client.element(length_bytes)
        self.client.qp.post_send(2, SIGNALED, 0, wr_id, 0, 0, 0, 0, 0, 0, 0, element, None)
        self.client.qp.ring()

    def one_sided(self, operation, wr_id, length_bytes=8):
        there = self.server
        self.client.qp.post_send(int(operation), SIGNALED, 0, wr_id, there.address, there.key.rkey,
                                 10, 77, 0, 0, 0, self.client.element(length_bytes), None)
        self.client.qp.ring()

    def prepare(self, operation):
        self.source[:8] = b"12345678"
        self.target[:8] = (10).to_bytes(8, "little")

    def check(self, operation):
        """What an operation with compare_add 10 and swap 77 leaves behind on both sides."""
        ten = (10).to_bytes(8, "little")
        expected = {
            RemoteOperation.WRITE: (b"12345678", b"12345678"),
            RemoteOperation.READ: (ten, ten),
            RemoteOperation.COMPARE_AND_SWAP: (ten, (77).to_bytes(8, "little")),
            RemoteOperation.FETCH_AND_ADD: (ten, (20).to_bytes(8, "little")),
        }
        assert (bytes(self.source[:8]), bytes(self.target[:8])) == expected[operation]


@contextmanager
def connected(pair, length_bytes, server_cq=None) -> Iterator[Link]:
    """Two ends on the devices of ``pair``, connected; closed at the end."""
    client, server = End(pair.client.driver, length_bytes), End(pair.server.driver, length_bytes, server_cq)
    join(client, server)
    yield Link(client, server)
    client.close()
    server.close()
