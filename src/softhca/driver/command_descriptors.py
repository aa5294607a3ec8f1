"""The descriptor that stands for an open device, by which other processes import its objects.

It is a sealed memfd that says where the adapter is met: the first line is `FIRST_LINE`, the second the
device's name, the third the name of the socket at which other processes reach the adapter, empty where none
can.  That it was made by who exported the context is told by its inode alone (``adapter.context_sharing``).
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import NamedTuple

FIRST_LINE = "softhca device 1"
MOST_BYTES = 1024
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class MeetingPlace(NamedTuple):
    """The device's name where it was opened, and the socket of its adapter."""

    name: str
    socket: str


def make(place: MeetingPlace) -> int:
    """A new descriptor; OSError EMFILE, or EINVAL for names that are none."""
    text = "\n".join((FIRST_LINE, *place, "")).encode()
    if len(text) > MOST_BYTES or text.count(b"\n") != 3:
        raise OSError(errno.EINVAL, f"{place} cannot be told")
    descriptor = os.memfd_create(f"{place.name}-commands", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.write(descriptor, text)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read(descriptor: int) -> MeetingPlace:
    """What a descriptor from anybody says.  OSError: EBADF; EOPNOTSUPP: it is none of these, or its adapter
    is met by nobody else."""
    refusal = OSError(errno.EOPNOTSUPP, "the descriptor stands for no open device")
    if descriptor < 0:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    try:
        if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise refusal
        text = os.pread(descriptor, MOST_BYTES + 1, 0).decode()
    except UnicodeDecodeError:
        raise refusal from None
    except OSError as error:
        if error.errno == errno.EBADF:
            raise
        raise refusal from None
    lines = text.split("\n")
    if len(text) > MOST_BYTES or len(lines) != 4 or lines[0] != FIRST_LINE or not lines[1]:
        raise refusal
    if not lines[2]:
        raise OSError(errno.EOPNOTSUPP, f"the adapter of {lines[1]} serves its own process alone")
    return MeetingPlace(lines[1], lines[2])
