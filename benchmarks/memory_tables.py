"""What memory costs: registrations, copies by a plain and by a shared table, and the steps of the arbitrator.

``python3 benchmarks/memory_tables.py`` prints markdown tables: the time of a registration with more and more
regions there, and the memory of one; of 8 GiB at once; a copy into a region, pinned and pageable; and what
quiesce, migration and swap of pageable memory take.
"""

import random
import sys
import time

from bench.tables import markdown

from softhca.machine import primitives
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.host import HostMemory
from softhca.memory.paged import register_paged
from softhca.memory.paged_mapping import PagedMapping
from softhca.memory.paged_memory import PagedMemory
from softhca.memory.regions import RegionTable
from softhca.memory.tpt import TranslationTable

RIGHTS, PD, VA = 15, 5, 0x1000_0000
REGIONS, LARGE_BYTES, MOVED_BYTES = 10_000, 8 << 30, 64 << 20
REPEATS = 5


def main():
    host = HostMemory()
    sys.stdout.write(f"{primitives.BODY} modules\n\n")
    for head, rows in (
        (["registration", "takes"], [*registrations(host), *large(host)]),
        (["bytes", "into a pinned region", "into a pageable one"], copies(host)),
        ([f"step, {MOVED_BYTES >> 20} MiB of pageable memory", "takes"], steps()),
    ):
        sys.stdout.write(markdown(head, rows) + "\n\n")


def best(call, times, repeats=REPEATS):
    """Nanoseconds a call, in the fastest of some runs."""
    found = []
    for _ in range(repeats):
        begun = time.perf_counter_ns()
        for _ in range(times):
            call()
        found.append((time.perf_counter_ns() - begun) / times)
    return min(found)


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * PAGE_BYTES


def registrations(host):
    """Time of one with so many there, and the memory of one of one page."""
    table = RegionTable(TranslationTable(), random.Random(1))
    frame = host.allocate(1)
    before, rows = resident_bytes(), []
    for live in (0, REGIONS // 2, REGIONS):
        while len(table) < live:
            table.register(host.address_map, PD, VA, PAGE_BYTES, RIGHTS, frame, 0)
        if live == REGIONS:
            each = (resident_bytes() - before) / REGIONS

        def both():
            table.deregister(table.register(host.address_map, PD, VA, PAGE_BYTES, RIGHTS, frame, 0))

        rows.append([f"a page and its end, {live:,} regions there", f"{best(both, 2000) / 1000:.1f} µs"])
    return [*rows, ["memory of one of a page", f"{each:.0f} bytes"]]


def large(host):
    """One region of 8 GiB that nobody has touched."""
    frames = [(host.allocate(LARGE_BYTES // PAGE_BYTES, contiguous=True)[0], LARGE_BYTES // PAGE_BYTES)]
    table = RegionTable(TranslationTable(), random.Random(1))
    before = resident_bytes()
    begun = time.perf_counter()
    table.register(host.address_map, PD, VA, LARGE_BYTES, RIGHTS, frames, 0)
    took = time.perf_counter() - begun
    memory = (resident_bytes() - before) * PAGE_BYTES / LARGE_BYTES
    begun = time.perf_counter()
    PagedMemory(LARGE_BYTES, RIGHTS | 64).close()
    lazy = time.perf_counter() - begun
    return [["of 8 GiB, sparse", f"{took * 1000:.1f} ms, {memory:.1f} bytes a page"],
            ["pageable memory of 8 GiB, on demand", f"{lazy * 1000:.1f} ms"]]


def copies(host):
    """Nanoseconds of one copy."""
    table = RegionTable(TranslationTable(), random.Random(1))
    frames = [(host.allocate(256, contiguous=True)[0], 256)]
    pinned = table.register(host.address_map, PD, VA, 1 << 20, RIGHTS, frames, 0)
    memory = PagedMemory(1 << 20, RIGHTS)
    paged = register_paged(table, PagedMapping(memory.fd), PD, VA, RIGHTS)
    source = bytearray(1 << 16)
    address = primitives.address_of(source)
    rows = []
    for n in (64, 1024, 4096, 65536):
        times = [best(lambda to=to, n=n: to.write(VA, address, n), 20_000) for to in (pinned, paged)]
        rows.append([f"{n:,}", *(f"{ns:.0f} ns" for ns in times)])
    memory.close()
    return rows


def steps():
    """What the arbitrator's steps take."""
    memory = PagedMemory(MOVED_BYTES, RIGHTS)
    primitives.fill(memory.address, 7, MOVED_BYTES)
    rows = [["quiesce and resume", f"{best(lambda: (memory.quiesce(), memory.resume()), 100) / 1000:.0f} µs"]]
    for name in ("migrate", "swap_out", "swap_in"):
        begun = time.perf_counter()
        getattr(memory, name)()
        rows.append([name, f"{(time.perf_counter() - begun) * 1000:.0f} ms"])
    memory.close()
    return rows


if __name__ == "__main__":
    main()
