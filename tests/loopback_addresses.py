"""Loopback addresses for devices of tests, each for one process of the tests alone: two that had the same
would share its adapter, and each find what the other has made there.
"""

import errno
import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROCE_PORT = 4791
ADDRESSES = 60_000


def claimed_addresses(start: int) -> Iterator[str]:
    """Addresses of 127/8, from number ``start`` on, that no other process has got here until it ends, and
    whose RoCE port is free.  Each is a byte of one file, which this process locks.
    """
    place = Path(tempfile.gettempdir()) / f"softhca-tests-{os.getuid()}-addresses"
    claims = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    for offset in range(ADDRESSES):
        number = (start + offset) % ADDRESSES
        try:
            fcntl.lockf(claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except BlockingIOError:
            continue
        high, low = divmod(number, 250)
        address = f"127.1{high % 10}.{high // 10 + 1}.{low + 2}"
        if _is_free(address):
            yield address


def _is_free(address: str) -> bool:
    """Whether nobody has the RoCE port of it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, ROCE_PORT))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True
