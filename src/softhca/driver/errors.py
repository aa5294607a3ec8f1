"""The one error of the driver: what is refused here or by the adapter, with its errno."""

from __future__ import annotations

import os

from softhca.machine.signals import raised_by_handler


class DriverError(Exception):
    """A refusal.  ``errno`` says what kind, ``message`` says why, for people.  Nothing has changed."""

    def __init__(self, errno: int, message: str = "") -> None:
        self.errno = errno
        self.message = message or os.strerror(errno)
        super().__init__(errno, self.message)

    def __str__(self) -> str:
        return f"{self.message} ({os.strerror(self.errno)})"


class PostError(DriverError):
    """A request of a chain is refused: ``request``.  Those before it are posted, and have been rung for."""

    def __init__(self, errno: int, message: str, request: object) -> None:
        super().__init__(errno, message)
        self.request = request


def refusal(error: OSError, doing: str = "") -> DriverError:
    """The driver's error for an OSError from below; ``doing`` says what was attempted.  One that a signal
    handler has raised meanwhile (TimeoutError is an OSError) is nobody's refusal, and raised on.
    """
    if raised_by_handler(error):
        raise error
    text = error.strerror or str(error)
    return DriverError(error.errno or 5, f"{doing}: {text}" if doing else text)
