"""Ends and clears away what a ``softhca run`` that was killed has left.

``python -I -S keeper.py MARK FOLDER`` is started beside the copies, in a session of its own, and reads its
standard input, of which ``softhca run`` holds the other end.  Where that ends with `DONE` there is nothing to
do.  Where it just ends, ``softhca run`` has died, and every process that has ``SOFTHCA_RUN=MARK`` in its
environment is ended (what copies have started too), and ``FOLDER`` removed.  The end cannot be seen too
early: a copy that is just being started holds the pipe until it has its program and its environment.

It needs nothing but the standard library, so that it is there within milliseconds.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import time

DONE = b"done"
MARK_VARIABLE = "SOFTHCA_RUN"
GRACE_S = 5.0
KILL_ROUNDS = 100
_ROUND_S = 0.05


def main(mark: str, folder: str) -> None:
    """Wait for the end of ``softhca run``, then do what it could not do."""
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    said = b""
    while piece := os.read(0, len(DONE)):
        said += piece
    if said != DONE:
        end_marked(mark)
        shutil.rmtree(folder, ignore_errors=True)


def end_marked(mark: str, grace_s: float = GRACE_S) -> None:
    """Ask the marked processes to end; make those end that have not within ``grace_s``, or come later."""
    asked = marked(mark)
    _send(asked, signal.SIGTERM)
    until_s = time.monotonic() + grace_s
    for life in asked:
        _await_end(life, max(until_s - time.monotonic(), 0))
        os.close(life)
    for _ in range(KILL_ROUNDS):
        left = marked(mark)
        if not left:
            return
        _send(left, signal.SIGKILL)
        for life in left:
            _await_end(life, _ROUND_S)
            os.close(life)


def marked(mark: str) -> list[int]:
    """Process descriptors of the processes of this user that have the mark; the caller closes them."""
    word = b"\0" + f"{MARK_VARIABLE}={mark}".encode() + b"\0"
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            life = os.pidfd_open(int(name))  # first: from now on the number cannot become another's unseen
            try:
                with open(f"/proc/{name}/environ", "rb") as stream:
                    has_mark = word in b"\0" + stream.read() + b"\0"
            except OSError:
                has_mark = False
            if has_mark:
                found.append(life)
            else:
                os.close(life)
    return found


def _await_end(life: int, timeout_s: float) -> None:
    poll = select.poll()  # not select(): that knows no descriptor beyond 1023
    poll.register(life, select.POLLIN)
    poll.poll(timeout_s * 1000)


def _send(lives: list[int], number: int) -> None:
    for life in lives:
        with contextlib.suppress(OSError):  # it has ended already
            signal.pidfd_send_signal(life, number)


if __name__ == "__main__":
    main(*sys.argv[1:])
