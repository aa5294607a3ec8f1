"""An event by which any thread of this process wakes the one that polls descriptors."""

from __future__ import annotations

import contextlib
import os
import threading


class WakeEvent:
    """An eventfd that any thread may set; one may close it while others are about to set it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """The descriptor; −1 once it is closed."""
        return self._fd

    def set(self) -> None:
        """Make the descriptor readable: whoever polls it wakes up, now or at its next poll."""
        with self._lock:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def drain(self) -> None:
        """Make it unreadable again: the poller is awake."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._fd >= 0:
                os.eventfd_read(self._fd)

    def close(self) -> None:
        """Close it; may be called again."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    def abandon(self) -> None:
        """In a forked child: close it, whichever of the parent's threads was about to use it."""
        self._lock = threading.RLock()
        self.close()
