"""Sockets of `softhca.sockets` beside the kernel's, in one run and in turns: latency and bandwidth of streams
and datagrams of 64 bytes … 4 MiB, quiet and beside a busy loop on every processor.

``python3 benchmarks/sockets.py [--rounds N] [--seconds T] [--sizes …] [--kinds …] [--beside quiet busy]
[--json]``.  Two processes each time.  Streams: ``tcp``, ``unix`` (the kernel's), and through shared memory
(``shm``) or over UDP (``udp``) ``map`` (`PageBuffer`), ``lend`` (`recv_view`), ``copy`` (``recv_into``, as
classic rsockets do); pools of 4 MiB, unless ``SOFTHCA_SOCKETS_POOL_BYTES`` says another size.  Datagrams:
``dgram-udp``, ``dgram-unix`` (the kernel's), ``dgram-rdma-shm``, ``dgram-rdma-udp``, of 65,000 bytes for
65,536.  Latency is half of a round trip, whose receives copy.  A datagram's bandwidth is what has arrived.
Ratios are medians of those within the rounds, to ``tcp``, or to ``dgram-udp``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket as kernel
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.load import CONDITIONS, beside

SIZES = (64, 1024, 4096, 16384, 65536, 262144, 1 << 20, 4 << 20)
STREAMS = ("tcp", "unix", "shm-map", "shm-lend", "shm-copy", "udp-map", "udp-lend", "udp-copy")
DATAGRAMS = ("dgram-udp", "dgram-unix", "dgram-rdma-shm", "dgram-rdma-udp")
KINDS = STREAMS + DATAGRAMS
POOL_BYTES = 4 << 20
LIMIT_S = 50
"""Either process of a transfer ends after so long, whatever the other one does."""
LONGEST_DATAGRAM = 65_000
PAGED_BYTES = 16 << 10
"""Above it receives map; up to it they copy, whatever they are asked."""
AGAIN_S = 0.25
"""A datagram that is not answered for so long is sent again."""
LAST, COUNT, END = 1, 2, 3
"""A message's first byte: the last one that is answered, one that is counted, and no more come."""


def module_of(kind: str) -> Any:
    """What a kind's sockets are made by."""
    if kind in ("tcp", "unix", "dgram-udp", "dgram-unix"):
        return kernel
    from softhca import sockets

    return sockets


def receiver(kind: str, size: int) -> None:
    """Serve one connection: answer messages, then count bytes; say what was counted."""
    signal.alarm(LIMIT_S)
    if kind.startswith("dgram"):
        datagram_receiver(kind, size)
        return
    module, path = module_of(kind), None
    if kind == "unix":
        path = tempfile.mkdtemp()
        server = kernel.socket(kernel.AF_UNIX)
        server.bind(f"{path}/s")
        server.listen()
        print(f"{path}/s", flush=True)
    else:
        server = module.create_server(("127.0.0.1", 0))
        print(server.getsockname()[1], flush=True)
    connection: Any = server.accept()[0]
    server.close()
    if path:
        Path(path, "s").unlink()
        Path(path).rmdir()
    else:
        connection.setsockopt(kernel.IPPROTO_TCP, kernel.TCP_NODELAY, 1)
    buffer = bytearray(size)
    while buffer[0] != LAST:
        fill(connection, buffer)
        connection.sendall(buffer)
    stream = getattr(connection, "stream", None)
    before = stream.receiver.copied_bytes if stream else 0
    total = 0
    if kind.endswith("lend"):
        while (view := connection.recv_view(size)).nbytes:
            total += view.nbytes
            view.release()
    else:
        target = module.PageBuffer(size) if kind.endswith("map") else buffer
        while count := connection.recv_into(target):
            total += count
    copied = stream.receiver.copied_bytes - before if stream else total
    connection.sendall(json.dumps({"total": total, "copied": copied}).encode())
    connection.close()


def fill(connection: Any, buffer: bytearray) -> None:
    """Receive as much as ``buffer`` holds; OSError where the peer has gone."""
    view = memoryview(buffer)
    while view.nbytes:
        count = connection.recv_into(view)
        if not count:
            raise OSError("the receiver has gone")
        view = view[count:]


def datagram_receiver(kind: str, size: int) -> None:
    """As `receiver`."""
    with datagram_socket(kind) as server:
        print(server.getsockname() if kind == "dgram-unix" else server.getsockname()[1], flush=True)
        buffer = bytearray(size)
        total, taken, begun = 0, 0.0, None
        while True:
            count, peer = server.recvfrom_into(buffer)
            if buffer[0] == END:
                server.sendto(json.dumps({"total": total, "taken": taken}).encode().ljust(64), peer)
                return
            elif buffer[0] == COUNT:
                now = time.perf_counter()
                begun = begun or now
                total, taken = total + count, now - begun
            else:
                server.sendto(buffer, peer)


@contextlib.contextmanager
def datagram_socket(kind: str) -> Iterator[Any]:
    """A bound one of a kind, with memory for 4 MiB."""
    module = module_of(kind)
    with contextlib.ExitStack() as stack:
        family = kernel.AF_UNIX if kind == "dgram-unix" else kernel.AF_INET
        made = stack.enter_context(module.socket(family, kernel.SOCK_DGRAM))
        for option in (kernel.SO_RCVBUF, kernel.SO_SNDBUF):
            made.setsockopt(kernel.SOL_SOCKET, option, POOL_BYTES)
        if family == kernel.AF_UNIX:
            made.bind(f"{stack.enter_context(tempfile.TemporaryDirectory())}/s")
        else:
            made.bind(("127.0.0.1", 0))
        yield made


def measure(kind: str, size: int, seconds: float) -> dict[str, float]:
    """One pair of processes: latency for half of ``seconds``, in µs, and then bandwidth for the other half.

    A receiver that dies is an error: what was sent to it is refused, or it does not say what it has got.
    """
    signal.alarm(LIMIT_S)
    variables = dict(os.environ, SOFTHCA_DEVICES=device(9, kind))
    command = [sys.executable, __file__, "--receive", kind, "--size", str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
        try:
            return (datagrams if kind.startswith("dgram") else transfer)(process, kind, size, seconds)
        except BaseException:
            process.kill()  # else it would be waited for, and it for this process
            raise


def device(number: int, kind: str) -> str:
    """Of one side of a transfer."""
    return f"softhca0=udp:127.0.{os.getpid() % 200}.{number}?same_host={int('shm' in kind)}"


def address_of(process: subprocess.Popen[str]) -> str:
    """Where a receiver is: what it says first; OSError."""
    assert process.stdout is not None
    found = process.stdout.readline().strip()
    if not found:
        raise OSError("the receiver has not begun")
    return found


def transfer(process: subprocess.Popen[str], kind: str, size: int, seconds: float) -> dict[str, float]:
    """`measure` a stream to the receiver ``process``."""
    address = address_of(process)
    if kind == "unix":
        connection = kernel.socket(kernel.AF_UNIX)
        connection.connect(address)
    else:
        connection = module_of(kind).create_connection(("127.0.0.1", int(address)))
        connection.setsockopt(kernel.IPPROTO_TCP, kernel.TCP_NODELAY, 1)
        if kind != "tcp":
            assert connection.stream is not None, "not by RDMA"
    data, answer, times = bytearray(size), bytearray(size), []
    end = time.perf_counter() + seconds / 2
    while data[0] != LAST:
        start = time.perf_counter()
        data[0] = LAST if start >= end else 0
        connection.sendall(data)
        fill(connection, answer)
        times.append(time.perf_counter() - start)
    sent, start = 0, time.perf_counter()
    while time.perf_counter() < start + seconds / 2:
        connection.sendall(data)
        sent += size
    connection.shutdown(kernel.SHUT_WR)
    said = connection.recv(1000)
    if not said:
        raise OSError("the receiver has gone")
    found = json.loads(said)
    taken = time.perf_counter() - start
    connection.close()
    assert found["total"] == sent
    return {"us": statistics.median(times) / 2 * 1e6, "rate": sent / taken, "copied": found["copied"] / sent}


def datagrams(process: subprocess.Popen[str], kind: str, size: int, seconds: float) -> dict[str, float]:
    """`measure` datagrams to the receiver ``process``; ``arrived`` is the share of them that has."""
    text = address_of(process)
    address = text if kind == "dgram-unix" else ("127.0.0.1", int(text))
    with datagram_socket(kind) as made:
        made.settimeout(AGAIN_S)
        data, times = bytearray(size), list[float]()

        def ask() -> bytes:
            while True:
                made.sendto(data, address)
                with contextlib.suppress(TimeoutError):
                    return bytes(made.recv(size))
                if process.poll() is not None:
                    raise OSError("the receiver has gone")

        end = time.perf_counter() + seconds / 2
        while (start := time.perf_counter()) < end or (
            "rdma" in kind and not made.datagrams.reaches(address)
        ):
            ask()
            times.append(time.perf_counter() - start)
        made.settimeout(LIMIT_S)
        data[0], sent, start = COUNT, 0, time.perf_counter()
        while time.perf_counter() < start + seconds / 2:
            made.sendto(data, address)
            sent += size
        made.settimeout(AGAIN_S)
        data[0] = END
        found = json.loads(ask())
    return {
        "us": statistics.median(times) / 2 * 1e6,
        "rate": found["total"] / max(found["taken"], seconds / 2),
        "arrived": found["total"] / sent,
    }


def fits(kind: str, size: int) -> bool:
    """Whether a kind has messages of ``size`` bytes, and they are another thing than its copies."""
    if kind.startswith("dgram"):
        return size <= LONGEST_DATAGRAM + 536
    return size > PAGED_BYTES or not kind.endswith(("map", "lend"))


def one(kind: str, size: int, seconds: float) -> dict[str, float]:
    """`measure` in a process of its own, whose device is its own."""
    if kind.startswith("dgram"):
        size = min(size, LONGEST_DATAGRAM)
    command = [sys.executable, __file__, "--one", kind, "--size", str(size), "--seconds", str(seconds)]
    variables = {
        "SOFTHCA_SOCKETS_POOL_BYTES": str(POOL_BYTES), **os.environ, "SOFTHCA_DEVICES": device(10, kind)
    }  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=variables, check=True, timeout=60)
    return dict(json.loads(done.stdout))


Rounds = dict[tuple[str, str, int], list[dict[str, float]]]


def rows(found: Rounds) -> list[dict[str, Any]]:
    """Medians of the rounds, and of the ratios within them: ``faster`` (latency) and ``wider`` (bandwidth)
    than the kernel's socket of the same size.
    """
    result: list[dict[str, Any]] = []
    for (condition, kind, size), rounds in found.items():
        row: dict[str, Any] = {"condition": condition, "kind": kind, "size": size}
        row |= {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
        others = found.get((condition, "dgram-udp" if kind.startswith("dgram") else "tcp", size))
        if others:
            pairs = list(zip(rounds, others, strict=True))
            row["faster"] = statistics.median(theirs["us"] / ours["us"] for ours, theirs in pairs)
            row["wider"] = statistics.median(
                ours["rate"] / theirs["rate"] if theirs["rate"] else 0.0 for ours, theirs in pairs
            )
        result.append(row)
    return result


def table(found: list[dict[str, Any]]) -> Iterator[str]:
    """As Markdown."""
    yield "| beside | socket | bytes | one way | × | bandwidth | × | copied, arrived |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for row in found:
        share = f"{row.get('copied', row.get('arrived', 0.0)):.0%}"
        yield (
            f"| {row['condition']} | {row['kind']} | {row['size']:,} | {row['us']:.1f} µs "
            f"| {row.get('faster', 0.0):.2f} | {row['rate'] / 1e9:.3f} GB/s | {row.get('wider', 0.0):.2f} "
            f"| {share} |"
        )


def main() -> None:
    """Measure all kinds in turn, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receive", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--one", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--kinds", choices=KINDS, nargs="+", default=KINDS)
    parser.add_argument("--beside", choices=CONDITIONS, nargs="+", default=CONDITIONS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.receive:
        receiver(options.receive, options.size)
        return
    if options.one:
        print(json.dumps(measure(options.one, options.size, options.seconds)))
        return
    found: Rounds = {}
    for _ in range(options.rounds):
        for condition in options.beside:
            with beside(condition):
                for size in options.sizes:
                    for kind in options.kinds:
                        if fits(kind, size):
                            taken = one(kind, size, options.seconds)
                            found.setdefault((condition, kind, size), []).append(taken)
    results = rows(found)
    print(json.dumps(results) if options.json else "\n".join(table(results)))


if __name__ == "__main__":
    main()
