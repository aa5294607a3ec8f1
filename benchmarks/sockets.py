"""Streams of `softhca.sockets` beside Python's TCP sockets, in one run and in turns: bandwidth at 64 KiB and
1 MiB, latency at 64 bytes, bytes that the receiver's CPU has copied.

``python3 benchmarks/sockets.py [--rounds N] [--seconds T] [--json]``.  Two processes each time.  Kinds:
``tcp`` (kernel, ``recv_into``), ``map`` (`PageBuffer`), ``lend`` (`recv_view`), ``copy`` (``recv_into``, as
classic rsockets do), each of the last three through shared memory and over UDP.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket as kernel
import statistics
import subprocess
import sys
import time

SIZES = (65536, 1 << 20)
KINDS = ("tcp", "shm-map", "shm-lend", "shm-copy", "udp-map", "udp-lend", "udp-copy")
POOL_BYTES = 4 << 20
LIMIT_S = 50
"""Either process of a transfer ends after so long, whatever the other one does."""


def receiver(kind: str, size: int) -> None:
    """Serve one connection: count bytes, answer small messages; print what was measured."""
    signal.alarm(LIMIT_S)
    if kind == "tcp":
        server = kernel.create_server(("127.0.0.1", 0))
    else:
        from softhca import sockets

        server = sockets.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    server.close()
    connection.setsockopt(kernel.IPPROTO_TCP, kernel.TCP_NODELAY, 1)
    if size <= 4096:
        while data := connection.recv(size):
            connection.sendall(data)
        return
    total = 0
    if kind.endswith("lend"):
        while (view := connection.recv_view(size)).nbytes:
            total += view.nbytes
            view.release()
    else:
        if kind.endswith("map"):
            buffer = sockets.PageBuffer(size)
        else:
            buffer = bytearray(size)
        while count := connection.recv_into(buffer):
            total += count
    stream = getattr(connection, "stream", None)
    copied = total if stream is None else stream.receiver.copied_bytes
    connection.sendall(json.dumps({"total": total, "copied": copied}).encode())
    connection.close()


def measure(kind: str, size: int, seconds: float) -> dict[str, float]:
    """One transfer for ``seconds``: bytes a second and copied share; or the latency one way in µs.

    A receiver that dies is an error: what was sent to it is refused, or it does not say what it has got.
    """
    signal.alarm(LIMIT_S)
    variables = dict(os.environ, SOFTHCA_SOCKETS_POOL_BYTES=str(POOL_BYTES))
    variables["SOFTHCA_DEVICES"] = f"softhca0=udp:127.0.{os.getpid() % 200}.9?same_host={int('shm' in kind)}"
    command = [sys.executable, __file__, "--receive", kind, "--size", str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
        try:
            return transfer(process, kind, size, seconds)
        except BaseException:
            process.kill()  # else it would be waited for, and it for this process
            raise


def transfer(process: subprocess.Popen[str], kind: str, size: int, seconds: float) -> dict[str, float]:
    """`measure`, to the receiver ``process``."""
    assert process.stdout is not None
    port = int(process.stdout.readline() or "0")
    if not port:
        raise OSError("the receiver has not begun")
    if kind == "tcp":
        connection = kernel.create_connection(("127.0.0.1", port))
    else:
        from softhca import sockets

        connection = sockets.create_connection(("127.0.0.1", port))
        assert connection.stream is not None, "not by RDMA"
    connection.setsockopt(kernel.IPPROTO_TCP, kernel.TCP_NODELAY, 1)
    data = bytearray(size)
    times = []
    end = time.perf_counter() + seconds
    sent, start = 0, time.perf_counter()
    while (now := time.perf_counter()) < end:
        connection.sendall(data)
        if size <= 4096:
            if len(connection.recv(size, kernel.MSG_WAITALL)) < size:
                raise OSError("the receiver has gone")
            times.append(time.perf_counter() - now)
        sent += size
    connection.shutdown(kernel.SHUT_WR)
    if size <= 4096:
        connection.close()
        return {"latency_us": statistics.median(times) / 2 * 1e6}
    answer = connection.recv(1000)
    if not answer:
        raise OSError("the receiver has gone")
    found = json.loads(answer)
    taken = time.perf_counter() - start
    connection.close()
    assert found["total"] == sent
    return {"bandwidth_bytes_per_s": sent / taken, "copied": found["copied"] / sent}


def main() -> None:
    """Measure all kinds in turn, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receive", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--one", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.receive:
        receiver(options.receive, options.size)
        return
    if options.one:
        print(json.dumps(measure(options.one, options.size, options.seconds)))
        return
    found: dict[str, dict[int, list[dict[str, float]]]] = {kind: {} for kind in KINDS}
    for _ in range(options.rounds):
        for size in (64, *SIZES):
            for kind in KINDS:
                if size == 64 and kind.endswith(("map", "lend")):
                    continue
                found[kind].setdefault(size, []).append(one(kind, size, options.seconds))
    medians = {
        kind: {
            size: {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
            for size, rounds in sizes.items()
        }
        for kind, sizes in found.items()
    }
    if options.json:
        print(json.dumps(medians))
        return
    for kind, sizes in medians.items():
        for size, values in sizes.items():
            print(f"{kind:9} {size:8}", *(f"{name} {value:.4g}" for name, value in values.items()))


def one(kind: str, size: int, seconds: float) -> dict[str, float]:
    """`measure` in a process of its own, whose device is its own."""
    command = [sys.executable, __file__, "--one", kind, "--size", str(size), "--seconds", str(seconds)]
    address = f"127.0.{os.getpid() % 200}.10"
    variables = dict(
        os.environ,
        SOFTHCA_SOCKETS_POOL_BYTES=str(POOL_BYTES),
        SOFTHCA_DEVICES=f"softhca0=udp:{address}?same_host={int('shm' in kind)}",
    )
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=variables, check=True, timeout=60)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
