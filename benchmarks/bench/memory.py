"""What a plain copy gives: the limit of everything that moves bytes once."""

from __future__ import annotations

import mmap
import time

from bench.measure import Figure, own_cpu_s

MOST_S = 0.25


def memcpy(size_bytes: int, seconds: float) -> Figure:
    """memcpy between two buffers of ``size_bytes``, in cache where they fit.

    They are what the same-host path copies between: shared memory, each from a page's begin on.  A copy
    between such buffers is faster than one between two bytearrays, which `malloc` places anywhere.
    """
    from softhca.machine.primitives import address_of, copy, fill

    pages = -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    buffers = [mmap.mmap(-1, pages, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS) for _ in range(2)]
    begin, end = (address_of(buffer) for buffer in buffers)
    for number, address in enumerate((begin, end)):
        fill(address, number, size_bytes)
    batch = max(1, (1 << 24) // size_bytes)
    for _ in range(batch):
        copy(end, begin, size_bytes)
    count, used_s, start_s = 0, own_cpu_s(), time.perf_counter()
    deadline_s = start_s + min(seconds, MOST_S)
    while time.perf_counter() < deadline_s:
        for _ in range(batch):
            copy(end, begin, size_bytes)
        count += batch
    elapsed_s = time.perf_counter() - start_s
    moved = count * size_bytes
    return Figure(moved / elapsed_s, count / elapsed_s, cpu_s_per_gb=(own_cpu_s() - used_s) * 1e9 / moved)
