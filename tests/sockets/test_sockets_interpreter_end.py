"""Sockets that are left open when the interpreter ends, while a thread that ended with it has their locks."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from machine_speed import limit_s

LIMIT_S = limit_s(60)
"""Of a program: it ends at once, or never."""

HOLDER = """
import threading
to_be_held, held, locks = threading.Event(), threading.Event(), []

def hold():
    to_be_held.wait()
    for each in locks:
        each.__enter__()
    held.set()
    threading.Event().wait()

def last():  # behind all that the sockets do at exit, and before threads end
    to_be_held.set()
    held.wait()
"""
"""A module of its own: one whose function a thread runs is not cleared."""

PROGRAM = """
import atexit, os, sys, threading
holder = {{}}
exec({holder!r}, holder)
locks = holder["locks"]
threading.Thread(target=holder["hold"], daemon=True).start()
atexit.register(holder["last"])
from softhca import sockets

class Closes:
    def __del__(self, write=os.write, finalizing=sys.is_finalizing):
        {end}
        if finalizing():
            write(1, b"ended")

left = Closes()  # the interpreter clears that when all threads are gone
if {kind!r} == "datagram":
    left.one = sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM)
    left.one.bind(("127.0.0.1", 0))
    locks.append(left.one._end._guard)
else:
    server = sockets.create_server(("127.0.0.1", 0))
    left.one = sockets.create_connection(server.getsockname())
    assert left.one.stream is not None
    left.other = server.accept()[0]
    server.close()
    del server
    locks += [left.one.stream._guard, left.one._upgrade._lock]
"""


@pytest.mark.parametrize("end", ["self.one.close()", "self.one.fileno()", "self.__dict__.clear()"])
@pytest.mark.parametrize("kind", ["datagram", "stream"])
def test_what_is_left_open_waits_for_no_thread_that_has_ended_with_the_interpreter(
    kind: str, end: str, loopback_address: Callable[[], str]
) -> None:
    program = [sys.executable, "-W", "always", "-c", PROGRAM.format(kind=kind, end=end, holder=HOLDER)]
    environment = os.environ | {"SOFTHCA_DEVICES": f"softhca0=udp:{loopback_address()}"}
    ran = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ran.returncode, ran.stdout) == (0, "ended"), ran.stderr
