"""Processes of a round as the director sees them: started, ordered, killed, stopped, and what they leave."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from chaos_actor import Actor, end_as_told
from chaos_ledger import Ledger

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
HERE = Path(__file__).parent
CLONE_NEWNET = 0x4000_0000
ANSWER_S = 30.0

_isolated = False


class Broken(Exception):
    """A promise is broken: what, in words."""


def _control(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def become_reaper() -> None:
    """Orphans of this process's children become its own: nothing that they leave is lost sight of."""
    _control(PR_SET_CHILD_SUBREAPER, 1)


def isolate() -> None:
    """Have a network of its own for the campaign: its addresses are nobody else's, its loopback device can be
    switched off.  Where that is not allowed (it takes root) it goes without."""
    global _isolated
    if os.geteuid() == 0 and ctypes.CDLL(None).unshare(CLONE_NEWNET) == 0:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        _isolated = True


def is_isolated() -> bool:
    """Whether `isolate` has worked."""
    return _isolated


def run_child(call: Any) -> int:
    """Fork a child that does ``call`` and ends with it; dies with this process."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _control(PR_SET_PDEATHSIG, signal.SIGKILL)
            call()
            status = 0
        except BaseException:
            faulthandler.dump_traceback()
            raise
        finally:
            os._exit(status)
    return child


class Process:
    """A running actor.  ``fresh``: a program of its own rather than a fork, behind the words
    ``prefix``; ``tells``: what it writes to stderr is to be seen."""

    def __init__(
        self,
        ledgers: dict[int, Ledger],
        number: int,
        seed: int,
        fresh: bool = False,
        prefix: tuple[str, ...] = (),
        tells: bool = True,
    ) -> None:
        self.number = number
        self.ledger = ledgers[number]
        self.status: int | None = None
        self.ended_ns = 0
        self.adapter = 0
        self._program: subprocess.Popen[bytes] | None = None
        self._line = b""
        self.channel, theirs = socket.socketpair()
        if fresh:
            pairs = [word for each, ledger in ledgers.items() for word in (each, ledger.descriptor)]
            command = [
                *prefix,
                sys.executable,
                str(HERE / "chaos_actor.py"),
                *map(str, (theirs.fileno(), number, seed, *pairs)),
            ]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])}
            descriptors = (theirs.fileno(), *(ledger.descriptor for ledger in ledgers.values()))
            self._program = subprocess.Popen(
                command,
                pass_fds=descriptors,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if tells else subprocess.DEVNULL,
            )
            self.pid = self._program.pid
        else:
            self.pid = run_child(lambda: self._act(theirs, ledgers, number, seed))
        theirs.close()

    @staticmethod
    def _act(channel: socket.socket, ledgers: dict[int, Ledger], number: int, seed: int) -> None:
        held = channel.fileno()
        os.closerange(3, held)
        os.closerange(held + 1, 1 << 16)
        faulthandler.register(signal.SIGUSR1)
        end_as_told(Actor(channel, ledgers, number, seed))

    # Orders

    def tell(self, do: str, **fields: Any) -> None:
        """Give an order; `hear` brings the answer."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.channel.sendall(json.dumps({"do": do, **fields}).encode() + b"\n")

    def hear(self, what: str = "", limit_s: float = ANSWER_S) -> dict[str, Any]:
        """The next answer; `Broken` where none comes, or it tells of something wrong."""
        end = time.monotonic() + limit_s
        while b"\n" not in self._line:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.channel], [], [], left)[0]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGUSR1)
                    time.sleep(0.2)
                raise Broken(f"process {self.number} does not answer {what!r} within {limit_s} s")
            data = b""
            with contextlib.suppress(ConnectionResetError):
                data = self.channel.recv(1 << 20)
            if not data:
                raise Broken(f"process {self.number} ended at {what!r} with status {self.wait()}")
            self._line += data
        line, _, self._line = self._line.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if answer.get("failed"):
            raise Broken(f"process {self.number} at {what!r}: {answer['failed']}")
        if answer["wrong"]:
            raise Broken(f"process {self.number} at {what!r}: " + "; ".join(answer["wrong"]))
        return answer

    def ask(self, do: str, patience_s: float = ANSWER_S, **fields: Any) -> dict[str, Any]:
        """Give an order and wait for the answer."""
        self.tell(do, **fields)
        return self.hear(do, patience_s)

    # Life and death

    def signal(self, number: int, adapter: bool = False) -> None:
        """Send a signal to it, or to its adapter's process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.adapter if adapter else self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait; may be called again."""
        if self.status is None:
            self.signal(signal.SIGKILL)
            self.wait()

    def wait(self, limit_s: float = ANSWER_S) -> int:
        """Its end: an exit status, or −signal."""
        end = time.monotonic() + limit_s
        while self.status is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self.status = os.waitstatus_to_exitcode(status)
                self.ended_ns = time.monotonic_ns()
                if self._program is not None:
                    self._program.returncode = self.status  # it has been waited for
            elif time.monotonic() > end:
                self.signal(signal.SIGUSR1)
                time.sleep(0.2)
                raise Broken(f"process {self.number} does not end within {limit_s} s")
            else:
                time.sleep(0.002)
        return self.status

    def close(self) -> None:
        """Let it go, whatever it does."""
        self.kill()
        self.channel.close()


def children() -> set[int]:
    """Processes whose parent is this one, zombies reaped where they are nobody's."""
    mine = str(os.getpid())
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as stat:
                words = stat.read().rpartition(")")[2].split()
                if words[1] == mine:
                    found.add(int(name))
    return found


def reap(known: set[int]) -> set[int]:
    """Children that are not ``known`` and live; what has ended is waited for."""
    living = set()
    for child in children() - known:
        with contextlib.suppress(ChildProcessError):
            if not os.waitpid(child, os.WNOHANG)[0]:
                living.add(child)
    return living


def has_ended(pid: int) -> bool:
    """Whether an orphan that became this process's child, or will, has ended; it is waited for."""
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    return not os.path.exists(f"/proc/{pid}")


def state_of(pid: int) -> str:
    """What a process does, for who wonders: its state, and where in the kernel it waits."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as stat, open(f"/proc/{pid}/wchan") as wchan:
        words = stat.read().rpartition(")")[2].split()
        where, ticks = wchan.read(), words[11]
        return f"process {pid}, parent {words[1]}, state {words[0]} in {where}, {ticks} ticks of user time"
    return f"process {pid} is gone"


def waited_ns(pid: int) -> int:
    """How long the threads of a process have waited for a processor, the one that has most; 0 where nobody
    says so (``pid`` 0: there is no such process)."""
    most = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task") if pid else ():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/schedstat") as words:
                most = max(most, int(words.read().split()[1]))
    return most
