"""Programs whose adapter, a process of its own, is gone: those that wait in a call, and those that wait for
descriptors, whom nothing else would tell."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from machine_speed import limit_s

PROGRAM = """
import os, select, signal, sys, threading
from softhca import sockets
from softhca.runtime import devices

def kill():
    process = devices.find("softhca0").process
    os.kill(process.pid, signal.SIGKILL)
    return process

def pair():
    with sockets.create_server(("127.0.0.1", 0)) as server:
        client = sockets.create_connection(server.getsockname())
        accepted = server.accept()[0]
    assert client.stream is not None and accepted.stream is not None
    return client, accepted

def told(call):
    try:
        return call()
    except OSError as error:
        return type(error).__name__

def datagrams():
    found = [sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) for _ in range(2)]
    for each in found:
        each.bind(("127.0.0.1", 0))
    one, other = found
    one.sendto(b"first", other.getsockname())
    assert other.recv(10) == b"first"
    assert one.datagrams.reaches(other.getsockname())
    return one, other
"""

STREAMS_BY_DESCRIPTOR = """
one, other = pair()
looking = select.epoll()
looking.register(one, select.EPOLLIN)
waits = threading.Thread(target=select.select, args=[[other], [], []])
waits.start()
kill()
assert looking.poll() == [(one.fileno(), select.EPOLLIN)]
waits.join()
print(told(lambda: one.recv(1)), told(lambda: one.send(b"x")), told(lambda: other.recv(1)))
one.close(); other.close()
"""

STREAMS_IN_CALLS = """
one, other = pair()
found = []
waits = threading.Thread(target=lambda: found.append(told(lambda: one.recv(1))))
waits.start()
while not one.stream._sleeping:
    pass
kill()
waits.join()
print(*found, told(lambda: other.send(b"x")), told(lambda: other.recv(1)))
"""

DATAGRAMS = """
one, other = datagrams()
found = []
waits = threading.Thread(target=lambda: found.append(other.recv(10)))
waits.start()
kill()
while one.datagrams.reaches(other.getsockname()):
    pass
one.sendto(b"second", other.getsockname())
waits.join()
one.sendto(b"third", other.getsockname())
assert select.select([other], [], [])[0] == [other]
print(*found, other.recv(10), one.datagrams.reaches(other.getsockname()))
other.settimeout(0.01)
print(told(lambda: other.recv(10)))
"""


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        (STREAMS_BY_DESCRIPTOR, "ConnectionResetError ConnectionResetError ConnectionResetError\n"),
        (STREAMS_IN_CALLS, "ConnectionResetError ConnectionResetError ConnectionResetError\n"),
        (DATAGRAMS, "b'second' b'third' False\nTimeoutError\n"),
    ],
    ids=["streams by descriptor", "streams in calls", "datagrams"],
)  # fmt: skip
def test_all_that_wait_are_told(monkeypatch: pytest.MonkeyPatch, code: str, printed: str) -> None:
    address = f"127.{sys.version_info.minor}.{random.Random(code).randrange(1, 250)}.3"
    monkeypatch.setenv("SOFTHCA_DEVICES", f"softhca0=udp:{address}")
    monkeypatch.setenv("SOFTHCA_ADAPTER", "process")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + code], capture_output=True, text=True, timeout=limit_s(60)
    )
    assert (done.stdout, done.stderr, done.returncode) == (printed, "", 0)
