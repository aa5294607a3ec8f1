"""An adapter process whose last application ends: what is due is sent, and it does not sleep for ever."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading

import pytest
from fake_engine import FakeEngine, Wire
from runtime_served import BOUND_S

from softhca.runtime.assembly import assemble
from softhca.runtime.server import AdapterServer
from softhca.runtime.specification import parse_one
from softhca.runtime.transmitter import BURSTS


def test_who_lets_the_last_application_go_on_the_way_to_sleep_stays_awake(loopback_address):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    adapter, link = assemble(parse_one(f"here=udp:{loopback_address()}"))
    server = AdapterServer(adapter, (link,), theirs)
    application = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (known,) = server._applications.values()
        server._pidfds.unregister(known.pidfd)
        os.close(known.pidfd)
        known.pidfd = os.pidfd_open(application.pid)
        server._pidfds.register(known.pidfd)
        application.kill()
        application.wait(BOUND_S)
        sleeper = threading.Thread(target=server._sleep, daemon=True)
        sleeper.start()
        sleeper.join(BOUND_S)
        awake = not sleeper.is_alive()
        server.stop()
        sleeper.join(BOUND_S)
    finally:
        application.kill()
        application.wait(BOUND_S)
        application.stdin.close()
        server.close()
        ours.close()
    assert awake
    assert not server._applications


@pytest.mark.parametrize("which", ["_pidfds", "_epoll"])
def test_who_cannot_be_watched_is_refused_and_leaves_nothing(which, monkeypatch):
    """The kernel lets a user watch so many descriptors; the server goes on with those whom it has."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    opened, plain = [], os.pidfd_open
    monkeypatch.setattr(os, "pidfd_open", lambda pid: opened.append(plain(pid)) or opened[-1])
    server = AdapterServer(FakeEngine(), (Wire(),))
    watching = getattr(server, which)

    class Full:
        def register(self, descriptor, events):
            raise OSError(errno.ENOSPC, "No space left on device")

    setattr(server, which, Full())
    server._admit(theirs)
    setattr(server, which, watching)
    with ours:
        assert b"No space left" in ours.recv(4096)
        assert ours.recv(4096) == b""
    assert server._applications == {}
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])
    server.close()


@pytest.mark.parametrize("dead", [False, True])
def test_what_is_due_when_the_last_application_has_gone_is_sent(dead):
    """Connections of who goes leave disconnects behind; an engine that has failed leaves nothing."""
    engine, wire = FakeEngine(), Wire()
    due = list(range(1, 3 * BURSTS))
    engine.outgoing.extend(due)
    server = AdapterServer(engine, (wire,))
    server.loop.dead = dead
    server.serve()
    assert wire.sent == ([] if dead else due)
