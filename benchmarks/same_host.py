"""Shared memory between two processes on this host, beside what the machine can do at best.

``python3 benchmarks/same_host.py [--runs N] [--seconds T]`` prints a markdown table: RDMA WRITE and READ over
the same-host path (a target process that sleeps), memcpy of as many bytes between such memory in the same
run, and, where mpi4py and mpiexec are there, MPI's put and flush between two processes.  Each row is the
median of N runs; in each the columns are measured one after another, so that their ratio bears a machine that
is busy.
"""

import argparse
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time

from bench.memory import memcpy
from bench.tables import markdown

SIZES = (65_536, 1 << 20)
SMALL_BYTES = 8
BATCH = 16
WARM_UP = 64
MPI = "--mpi-end"
TARGET = "--target-end"


def target_end():
    """The process whose memory is reached: says where it is, and sleeps until its input ends."""
    context, _, mr, _, qp = make_end("target")
    say(gid=str(context.query_gid(1, 0)), qpn=qp.qp_num, address=mr.buf, rkey=mr.rkey)
    connect(qp, json.loads(sys.stdin.readline()))
    say(ready=True)
    sys.stdin.read()
    context.close()


def say(**words):
    print(json.dumps(words), flush=True)


def make_end(name):
    """Device, domain, 2 MiB that peers may reach, queues."""
    from softhca.driver import registry
    from softhca.runtime import devices
    from softhca.verbs import enums
    from softhca.verbs.cq import CQ
    from softhca.verbs.device import Context
    from softhca.verbs.mr import MR
    from softhca.verbs.pd import PD
    from softhca.verbs.qp import QP, QPCap, QPInitAttr

    registry.names()
    devices.add(f"{name}=udp:*?same_host=1")
    context = Context(name=name)
    pd = PD(context)
    mr = MR(pd, 2 << 20, rights())
    cq = CQ(context, 256)
    init = QPInitAttr(enums.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(128, 1, 1, 1, 64), sq_sig_all=0)
    qp = QP(pd, init)
    return context, pd, mr, cq, qp


def rights():
    from softhca.verbs import enums

    return enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE | enums.IBV_ACCESS_REMOTE_READ


def connect(qp, peer):
    """Take a queue pair to RTS, towards the end that ``peer`` tells of."""
    from softhca.verbs.addr import GID, AHAttr, GlobalRoute
    from softhca.verbs.qp import QPAttr

    attr = QPAttr(port_num=1, path_mtu=5)
    attr.qp_access_flags, attr.dest_qp_num = rights(), peer["qpn"]
    attr.ah_attr = AHAttr(is_global=1, port_num=1, gr=GlobalRoute(dgid=GID(peer["gid"]), hop_limit=64))
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
    attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 1
    qp.to_rts(attr)


class Client:
    """This process's end, and the target's process."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), TARGET],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.there = json.loads(self.process.stdout.readline())
        self.context, self.pd, self.mr, self.cq, self.qp = make_end("client")
        here = {"gid": str(self.context.query_gid(1, 0)), "qpn": self.qp.qp_num}
        self.process.stdin.write(json.dumps(here) + "\n")
        self.process.stdin.flush()
        connect(self.qp, self.there)
        assert json.loads(self.process.stdout.readline())["ready"]

    def request(self, opcode, size_bytes, signaled=True, following=None):
        from softhca.verbs import enums
        from softhca.verbs.wr import SGE, SendWR

        flags = enums.IBV_SEND_SIGNALED if signaled else 0
        wr = SendWR(1, opcode, 1, 0, [SGE(self.mr.buf, size_bytes, self.mr.lkey)], flags, following)
        wr.set_wr_rdma(self.there["rkey"], self.there["address"])
        return wr

    def chain(self, opcode, size_bytes, count):
        """``count`` requests, the last one signaled."""
        wr = None
        for _ in range(count):
            wr = self.request(opcode, size_bytes, wr is None, wr)
        return wr

    def finish(self, wr):
        """Post, and poll until the completion is there."""
        self.qp.post_send(wr)
        while True:
            count, completions = self.cq.poll(1)
            if count:
                assert completions[0].status == 0, completions[0]
                return

    def bandwidth(self, opcode, size_bytes, seconds):
        """Bytes a second, by chains of 16."""
        wr = self.chain(opcode, size_bytes, BATCH)
        chains = time_of(lambda: self.finish(wr), seconds)
        return BATCH * size_bytes / chains

    def close(self):
        self.context.close()
        self.process.stdin.close()
        self.process.wait()


def time_of(step, seconds):
    """Mean seconds of ``step``."""
    for _ in range(WARM_UP):
        step()
    count, begin = 0, time.perf_counter()
    while True:
        step()
        count += 1
        elapsed = time.perf_counter() - begin
        if elapsed >= seconds:
            return elapsed / count


def median_latency(step, seconds):
    """Median seconds of ``step``, each timed by itself."""
    samples, end = [], time.perf_counter() + seconds
    while (before := time.perf_counter()) < end:
        step()
        samples.append(time.perf_counter() - before)
    return statistics.median(samples)


def memcpy_bandwidth(size_bytes, seconds):
    """Bytes a second of the same copy routine between two buffers of the same kind: shared memory, from a
    page's begin on."""
    return memcpy(size_bytes, seconds).bandwidth_bytes_per_s


def mpi_end(seconds):
    """One rank of two: rank 0 prints bandwidth by size and the latency of put and flush."""
    from mpi4py import MPI as mpi

    world = mpi.COMM_WORLD
    window = mpi.Win.Allocate(max(SIZES), comm=world)
    source = bytearray(max(SIZES))
    window.Lock_all()
    world.Barrier()
    if world.rank == 0:

        def put(size_bytes):
            view = memoryview(source)[:size_bytes]
            window.Put([view, mpi.BYTE], 1)
            window.Flush(1)

        found = {str(size): size / time_of(lambda size=size: put(size), seconds) for size in SIZES}
        found["latency"] = median_latency(lambda: put(SMALL_BYTES), seconds)
        say(**found)
    world.Barrier()
    window.Unlock_all()


def mpi_figures(seconds):
    """What MPI does, or None where it is not there."""
    launcher = shutil.which("mpiexec.openmpi") or shutil.which("mpiexec")
    if importlib.util.find_spec("mpi4py") is None or launcher is None:
        return None
    command = [launcher, "-n", "2", sys.executable, __file__, MPI, "--seconds", str(seconds)]
    variables = {
        **os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "MPI4PY_MPIABI": "openmpi", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, env=variables, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def one_run(client, seconds):
    """All figures once: bytes a second by name and size, seconds for latencies."""
    from softhca.verbs import enums

    found = {}
    for size in SIZES:
        found["memcpy", size] = memcpy_bandwidth(size, seconds)
        found["WRITE", size] = client.bandwidth(enums.IBV_WR_RDMA_WRITE, size, seconds)
        found["READ", size] = client.bandwidth(enums.IBV_WR_RDMA_READ, size, seconds)
    small = client.request(enums.IBV_WR_RDMA_WRITE, SMALL_BYTES)
    found["latency", 1] = median_latency(lambda: client.finish(small), seconds)
    chain = client.chain(enums.IBV_WR_RDMA_WRITE, SMALL_BYTES, BATCH)
    found["latency", BATCH] = median_latency(lambda: client.finish(chain), seconds) / BATCH
    mpi = mpi_figures(seconds) or {}
    for size in SIZES:
        found["MPI", size] = mpi.get(str(size))
    found["MPI", "latency"] = mpi.get("latency")
    return found


def table(runs):
    """Rows of the markdown table: medians, and medians of the ratios within a run."""

    def median(key):
        values = [run[key] for run in runs if run[key] is not None]
        return statistics.median(values) if values else None

    def gigabytes(value):
        return f"{value / 1e9:.1f} GB/s" if value else "not here"

    rows = []
    for size in SIZES:
        ratio = statistics.median(run["WRITE", size] / run["memcpy", size] for run in runs)
        rows.append([
            f"{size >> 10} KiB", gigabytes(median(("WRITE", size))), gigabytes(median(("READ", size))),
            gigabytes(median(("memcpy", size))), f"{ratio:.2f}", gigabytes(median(("MPI", size))),
        ])  # fmt: skip
    mpi = median(("MPI", "latency"))
    rows.append([
        "8 B, posted to polled", f"{median(('latency', 1)) * 1e6:.2f} µs", "", "", "",
        f"{mpi * 1e6:.2f} µs" if mpi else "not here",
    ])  # fmt: skip
    rows.append(["8 B, each of a chain of 16", f"{median(('latency', BATCH)) * 1e6:.2f} µs", "", "", "", ""])
    return markdown(["size", "WRITE", "READ", "memcpy", "WRITE : memcpy", "MPI put + flush"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.5, help="a figure's time (default %(default)s)")
    parser.add_argument(MPI, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(TARGET, action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.mpi_end:
        mpi_end(args.seconds)
        return
    if args.target_end:
        target_end()
        return
    from softhca.machine import primitives

    client = Client()
    runs = [one_run(client, args.seconds) for _ in range(args.runs)]
    client.close()
    print(table(runs))
    print(f"\nPython {platform.python_version()}, {platform.machine()}, {primitives.BODY}, {args.runs} runs")


if __name__ == "__main__":
    main()
