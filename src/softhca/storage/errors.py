"""What a program that reads and writes a disk is told when it cannot be."""

from __future__ import annotations

import errno


class StorageError(OSError):
    """A command failed, or nothing reaches the controller.

    ``sense``: key, additional sense code and its qualifier where a SCSI command was refused, else None.
    """

    def __init__(self, code: int, message: str, sense: tuple[int, int, int] | None = None) -> None:
        super().__init__(code, message)
        self.sense = sense


class MessageError(ValueError):
    """A message of a peer that cannot be: one line that says why."""


def unreachable(message: str) -> StorageError:
    """No route leads to the controller any more."""
    return StorageError(errno.EHOSTUNREACH, message)
