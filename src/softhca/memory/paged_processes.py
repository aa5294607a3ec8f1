"""Which process holds an attachment, and whether it still lives: read from ``/proc``.

A process number is given again after its process has ended, so the moment of its start belongs to it; and it
means something only in its own PID namespace.
"""

import os
from typing import NamedTuple


class Holder(NamedTuple):
    """A process as the kernel knows it; ``started`` is in clock ticks since the machine's start."""

    pid: int
    started: int
    namespace: int

    def is_dead(self) -> bool:
        """Whether it has certainly ended; a process of another PID namespace is never called dead."""
        if self.namespace != _namespace():
            return False
        fields = _stat(self.pid)
        # fields[0] is the state; a thread group whose leader has ended is not dead while threads are left
        return fields is None or int(fields[19]) != self.started or (
            fields[0] in ("Z", "X", "x") and int(fields[17]) <= 1)


def this_process() -> Holder:
    """The calling process."""
    pid = os.getpid()
    fields = _stat(pid)
    assert fields is not None
    return Holder(pid, int(fields[19]), _namespace())


def _stat(pid: int) -> list[str] | None:
    """``/proc/PID/stat`` from the state on (field 3); None where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
