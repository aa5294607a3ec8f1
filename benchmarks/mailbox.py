"""Mailboxes against send/receive on the same link, pyzmq over ipc, and multiprocessing's queue.

``python3 benchmarks/mailbox.py [--rounds N] [--seconds T] [--json]``.  Every round runs all of them in turn;
a table shows the medians, and the medians of the ratios within each round.  A second table shows what sealing
and verifying a message costs under each hash, on one core.  pyzmq comes with ``pip install softhca[bench]``.
"""

import argparse
import importlib.util
import json
import statistics
import sys
import time

from bench.python_messages import queue_latency_us, queue_rate, zmq_latency_us, zmq_rate
from bench.softhca_perf import perf
from bench.tables import markdown

from softhca.mailbox.blocks import DATA, TAKEN
from softhca.mailbox.hashes import ALGORITHMS
from softhca.mailbox.terms import Terms

SIZE_BYTES = 64
COST_SIZES_BYTES = (64, 1024, 65536)
KEY = b"a key for keyed hashes"
REPEATS = 7


def measured(test, seconds, key):
    """One figure of ``softhca perf``; a failed run ends the benchmark."""
    result = perf(sys.executable, test, SIZE_BYTES, seconds)
    if result is None:
        sys.exit(1)
    return result["latency_us"]["p50"] if key == "p50" else result[key]


def contenders():
    """What is measured: name → (latency in µs, messages a second), each a function of seconds."""
    found = {
        name: (
            lambda seconds, name=name: measured(f"{name}-lat", seconds, "p50"),
            lambda seconds, name=name: measured(f"{name}-bw", seconds, "message_rate_per_s"),
        )
        for name in ("mailbox", "send", "write")
    }
    if importlib.util.find_spec("zmq"):
        found["pyzmq ipc"] = (
            lambda seconds: zmq_latency_us(SIZE_BYTES, seconds),
            lambda seconds: zmq_rate(SIZE_BYTES, seconds),
        )
    found["multiprocessing.Queue"] = (
        lambda seconds: queue_latency_us(SIZE_BYTES, seconds),
        lambda seconds: queue_rate(SIZE_BYTES, seconds),
    )
    return found


def comparison(rounds, seconds):
    """Medians and ratios to the mailbox's figures, by contender."""
    runs = []
    for at in range(rounds):
        runs.append({name: [one(seconds) for one in both] for name, both in contenders().items()})
        print(f"round {at + 1} of {rounds} is done", file=sys.stderr)
    found = {}
    for name in runs[0]:
        latencies, rates = ([run[name][which] for run in runs] for which in (0, 1))
        found[name] = {
            "latency_us": statistics.median(latencies),
            "rate_per_s": statistics.median(rates),
            "mailbox_latency_ratio": statistics.median(
                run["mailbox"][0] / own for run, own in zip(runs, latencies, strict=True)
            ),
            "mailbox_rate_ratio": statistics.median(
                run["mailbox"][1] / own for run, own in zip(runs, rates, strict=True)
            ),
        }
    return found


def cost_us(action, count):
    """The least of several means."""
    best = float("inf")
    for _ in range(REPEATS):
        begin_ns = time.thread_time_ns()
        for _ in range(count):
            action()
        best = min(best, (time.thread_time_ns() - begin_ns) / count / 1000)
    return best


def costs():
    """Sealing and verifying, in µs a message: (hash, size) → (seal, verify)."""
    found = {}
    for name, algorithm in ALGORITHMS.items():
        for size_bytes in COST_SIZES_BYTES:
            terms = Terms(2, -(-(size_bytes + 64) // 8) * 8, name)
            digest = terms.digest(bytes(8), KEY if algorithm.keyed else b"")
            sealer, opener = terms.sealer(digest), terms.opener(digest)
            parts = (bytes(size_bytes),)
            sealer.seal(5, DATA, parts)
            assert opener.open(sealer.address, sealer.room, 5) == TAKEN
            count = 2_000 if size_bytes < 10_000 else 100
            found[name, size_bytes] = (
                cost_us(lambda seal=sealer.seal, parts=parts: seal(5, DATA, parts), count),
                cost_us(lambda one=opener, made=sealer: one.open(made.address, made.room, 5), count),
            )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each test (default %(default)s)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    compared, spent = comparison(args.rounds, args.seconds), costs()
    if args.json:
        print(json.dumps({"compared": compared, "costs_us": {f"{k[0]}/{k[1]}": v for k, v in spent.items()}}))
        return
    rows = [
        [
            name, f"{one['latency_us']:.1f} µs", f"{one['mailbox_latency_ratio']:.2f}",
            f"{one['rate_per_s'] / 1000:,.0f} k/s", f"{one['mailbox_rate_ratio']:.2f}",
        ]
        for name, one in compared.items()
    ]  # fmt: skip
    columns = ["64 bytes", "latency p50", "mailbox's / this", "messages", "mailbox's / this"]
    print(markdown(columns, rows), end="\n\n")
    rows = [
        [name, *(f"{spent[name, size][0]:.2f} / {spent[name, size][1]:.2f} µs" for size in COST_SIZES_BYTES)]
        for name in ALGORITHMS
    ]
    print(markdown(["seal / verify", *(f"{size:,} B" for size in COST_SIZES_BYTES)], rows))


if __name__ == "__main__":
    main()
