"""Run by ``mpirun -n 2``: prints, from rank 0, one JSON document of figures (see `bench.mpi`).

``mpi_program.py SECONDS SIZE…``
"""

import json
import resource
import sys
import time

from mpi4py import MPI

BATCH_BYTES = 1 << 24
RATE_BATCH = 64


def cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def until(seconds, work):
    """(times done, seconds taken) of ``work()``, as often as fits."""
    count, start_s = 0, time.perf_counter()
    while time.perf_counter() - start_s < seconds:
        work()
        count += 1
    return count, time.perf_counter() - start_s


def percentiles(samples_ns):
    ordered = sorted(samples_ns)
    return {
        "min": ordered[0] / 1e3,
        "p50": ordered[len(ordered) // 2] / 1e3,
        "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] / 1e3,
        "max": ordered[-1] / 1e3,
    }


def timed(seconds, work, share):
    """Percentiles of single times, each divided by ``share``."""
    samples = []
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        before_ns = time.perf_counter_ns()
        work()
        samples.append((time.perf_counter_ns() - before_ns) / share)
    return percentiles(samples)


def puts(world, sizes, seconds):
    """Bandwidth of MPI_Put with a flush after each batch, by size; and the time of one put and flush."""
    found = {}
    room = bytearray(max(*sizes, 8))
    window = MPI.Win.Allocate(max(*sizes, 8), comm=world)
    window.Lock_all()
    if world.rank == 0:
        for size in sizes:
            data, batch = memoryview(room)[:size], max(1, BATCH_BYTES // size // 16)

            def some(data=data, batch=batch):
                for _ in range(batch):
                    window.Put([data, MPI.BYTE], 1)
                window.Flush(1)

            some()
            used_s = cpu_s()
            count, elapsed_s = until(seconds, some)
            moved = count * batch * size
            found[f"put {size}"] = {
                "bandwidth_bytes_per_s": moved / elapsed_s,
                "rate_per_s": count * batch / elapsed_s,
                "cpu_s_per_gb": (cpu_s() - used_s) * 1e9 / moved,
            }

        word = memoryview(room)[:8]

        def one():
            window.Put([word, MPI.BYTE], 1)
            window.Flush(1)

        found["put+flush"] = {"latency_us": timed(seconds, one, 1)}
    world.Barrier()
    window.Unlock_all()
    window.Free()
    return found


def ping_pong(world, seconds):
    """Half a round trip of 8 bytes."""
    room = bytearray(8)
    if world.rank == 1:
        while True:
            world.Recv([room, MPI.BYTE], 0)
            if room[0]:
                return {}
            world.Send([room, MPI.BYTE], 0)

    def turn():
        world.Send([room, MPI.BYTE], 1)
        world.Recv([room, MPI.BYTE], 1)

    found = timed(seconds, turn, 2)
    room[0] = 1
    world.Send([room, MPI.BYTE], 1)
    return {"ping-pong": {"latency_us": found}}


def messages(world, seconds):
    """Messages of 8 bytes a second, a batch under way at a time."""
    rooms = [bytearray(8) for _ in range(RATE_BATCH)]
    token = bytearray(1)
    if world.rank == 1:
        while True:
            MPI.Request.Waitall([world.Irecv([room, MPI.BYTE], 0) for room in rooms])
            world.Send([token, MPI.BYTE], 0)
            if rooms[-1][0]:
                return {}

    def batch():
        MPI.Request.Waitall([world.Isend([room, MPI.BYTE], 1) for room in rooms])
        world.Recv([token, MPI.BYTE], 1)

    count, elapsed_s = until(seconds, batch)
    rooms[-1][0] = 1
    batch()
    return {"messages": {"rate_per_s": count * RATE_BATCH / elapsed_s}}


def main():
    seconds, sizes = float(sys.argv[1]), [int(size) for size in sys.argv[2:]]
    world = MPI.COMM_WORLD
    found = puts(world, sizes, seconds) | ping_pong(world, seconds) | messages(world, seconds)
    if world.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
