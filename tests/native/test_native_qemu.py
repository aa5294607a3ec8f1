"""QEMU, unmodified: a guest moves to another QEMU by RDMA, its memory by RDMA WRITEs."""

import contextlib
import json
import shutil
import socket

import pytest
from native_world import LIMIT_S

QEMU = ("qemu-system-x86_64", "-M", "pc,accel=tcg", "-m", "64", "-display", "none", "-nodefaults")


class Monitor:
    """The control connection of a QEMU (QMP)."""

    def __init__(self, connection):
        connection.settimeout(LIMIT_S)
        self._socket = connection
        self._lines = connection.makefile("rw")

    def begin(self):
        """It is there."""
        assert "QMP" in self._next()
        self.ask("qmp_capabilities")

    def _next(self):
        return json.loads(self._lines.readline())

    def ask(self, command, **arguments):
        """What a command returns."""
        self._lines.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._lines.flush()
        while "event" in (said := self._next()):
            pass
        assert "return" in said, said
        return said["return"]

    def migrated(self):
        """How a migration has ended."""
        while (said := self._next()).get("event") != "MIGRATION" or said["data"]["status"] not in {
            "completed", "failed",
        }:  # fmt: skip
            pass
        return said["data"]["status"]

    def close(self):
        self._lines.close()
        self._socket.close()


@pytest.fixture
def qemu(tmp_path):
    """A function that starts a QEMU in a world, with its monitor."""
    with contextlib.ExitStack() as stack:

        def start(world, *words):
            ours, its = socket.socketpair()
            monitor = stack.enter_context(contextlib.closing(Monitor(ours)))
            with its:
                connection = ("-chardev", f"socket,id=qmp,fd={its.fileno()}", "-mon", "qmp,mode=control")
                program = world.start(*QEMU, *connection, *words, pass_fds=(its.fileno(),))
            stack.enter_context(program)
            stack.callback(program.kill)
            monitor.begin()
            return monitor

        yield start


@pytest.mark.parametrize("pinned", [False, True], ids=["written", "pinned"])
def test_a_guest_moves_by_rdma(world, other, qemu, pinned):
    """Pinned, all of its memory is registered at once; else piece by piece, when it is written."""
    if shutil.which(QEMU[0]) is None:
        pytest.skip(f"{QEMU[0]} is not installed (Debian's qemu-system-x86)")
    ends = qemu(other), qemu(world, "-incoming", "defer")
    for each in ends:
        states = [{"capability": "events", "state": True}, {"capability": "rdma-pin-all", "state": pinned}]
        each.ask("migrate-set-capabilities", capabilities=states)
    source, destination = ends
    place = f"rdma:{world.address}:4444"
    destination.ask("migrate-incoming", uri=place)
    source.ask("migrate", uri=place)
    assert [each.migrated() for each in ends] == ["completed"] * 2
    moved = source.ask("query-migrate")["ram"]
    assert moved["remaining"] == 0
    assert moved["transferred"] > (60 << 20 if pinned else 1 << 20)
    assert destination.ask("query-status")["status"] == "running"
    assert not source.ask("query-status")["running"]
