"""Descriptors that another process passed, to be written to."""

import errno
import fcntl
import os
from pathlib import Path


def check_eventfd(descriptor: int) -> None:
    """EPROTO unless it is an eventfd; a write to it never blocks from now on."""
    if os.readlink(Path("/proc/self/fd") / str(descriptor)) != "anon_inode:[eventfd]":
        raise OSError(errno.EPROTO, "what wakes somebody must be an eventfd")
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_NONBLOCK)
