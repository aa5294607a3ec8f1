"""What a sanitizer reports (``beyond`` a buffer, ``unordered``) and does not (``inside``, ``ordered``)."""

from __future__ import annotations

import ctypes
import sys
import threading

from softhca.machine import primitives

ROUNDS = 20_000


def access(offset: int) -> None:
    """A word of 8 bytes, by a compiled module, at ``offset`` in 64 bytes of malloc's."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    place = libc.malloc(64)
    primitives.store64(place + offset, 1)
    libc.free(place)


def write_from_two_threads(kept: bool) -> None:
    """ctypes writes without the interpreter lock, a compiled module with it; a lock orders them if asked."""
    buffer = bytearray(64)
    place = primitives.address_of(buffer)
    lock = threading.Lock() if kept else None

    def foreign() -> None:
        for _ in range(ROUNDS):
            if lock is None:
                ctypes.memset(place, 1, 64)
                continue
            with lock:
                ctypes.memset(place, 1, 64)

    thread = threading.Thread(target=foreign)
    thread.start()
    for _ in range(ROUNDS):
        if lock is None:
            primitives.store64(place, 2)
            continue
        with lock:
            primitives.store64(place, 2)
    thread.join()


if __name__ == "__main__":
    if sys.argv[1] in ("inside", "beyond"):
        access(56 if sys.argv[1] == "inside" else 64)
    else:
        write_from_two_threads(sys.argv[1] == "ordered")
