"""What wakes a thread of this process that polls descriptors."""

from __future__ import annotations

import contextlib
import os
import threading


class Recall:
    """A descriptor that any thread may make readable, and close while others are about to."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """The descriptor; −1 once it is closed."""
        return self._fd

    def ring(self) -> None:
        """Wake who polls it, or will."""
        with self._lock:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def drain(self) -> None:
        """Who polls is awake."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._fd >= 0:
                os.eventfd_read(self._fd)

    def close(self) -> None:
        """Close it; may be called again."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)
