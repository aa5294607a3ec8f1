"""What shared memory between adapters takes of the program that it is in, and where it cannot be had.

Nobody has to ask for it, so it takes little of what belongs to the program, and gives way before the program
runs out of it: descriptors (`may_keep`) and address space (`MappedArenas`).
"""

from __future__ import annotations

import os
import resource
import threading

from softhca.machine import primitives

MAX_MAPPED_BYTES = 16 << 40
"""Address space that peers' arenas take in this process at most, an eighth of what it has."""

PROCESSOR = os.uname().machine
"""What kind of processor this is, in the kernel's word."""

LEAST_DESCRIPTORS = 256
"""A process that may have fewer has no automatic paths: two or three dozen are a good part of that."""


def unsupported() -> str:
    """Why this machine cannot share memory between adapters; empty where it can."""
    if PROCESSOR not in ("x86_64", "AMD64"):
        return f"the order of memory on {PROCESSOR} is not proven for it"
    if not primitives.ATOMIC_BETWEEN_PROCESSES:
        return "libatomic is missing"
    return ""


def not_automatic() -> str:
    """Why this process shares memory only where it is asked to; empty where it may do so by itself."""
    reason = unsupported()
    if not reason and os.geteuid() != os.getuid():
        reason = "the process acts for another user"
    if not reason and resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        reason = "its address space is limited"
    if not reason and _max_descriptors() < LEAST_DESCRIPTORS:
        reason = "it may have few descriptors"
    return reason


def may_keep(descriptor: int) -> bool:
    """Whether ``descriptor``, just made, leaves the program half of its descriptors: the kernel gives the
    lowest number that is free."""
    return descriptor < _max_descriptors() // 2


def _max_descriptors() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 31 if limit == resource.RLIM_INFINITY else limit


class MappedArenas:
    """How much address space peers' arenas take in this process.  Any thread."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> bool:
        """Have so much more; False where that is more than `MAX_MAPPED_BYTES`."""
        with self._lock:
            if self.size_bytes + size_bytes > MAX_MAPPED_BYTES:
                return False
            self.size_bytes += size_bytes
            return True

    def give(self, size_bytes: int) -> None:
        """Have so much less."""
        with self._lock:
            self.size_bytes -= size_bytes


MAPPED = MappedArenas()
"""That of this process."""
