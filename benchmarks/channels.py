"""Channels beside Python's TCP sockets, in one run and in turns: latency and rate of messages of 64 bytes.

``python3 benchmarks/channels.py [--rounds N] [--seconds T] [--json]``.  Two processes each time.  Kinds:
``tcp`` (kernel sockets, TCP_NODELAY, messages of a fixed length), ``shm`` and ``udp`` (`softhca.Channel`
through shared memory and over UDP), each with ``-aio``: asyncio's streams, and `softhca.AsyncChannel`.
Latency is half a round trip; the rate is what the receiver has counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

KINDS = ("tcp", "shm", "udp", "tcp-aio", "shm-aio", "udp-aio")
SIZE = 64
ROUND = 1000
"""Messages between two looks at the clock, where the rate is measured."""
LAST = b"!" * SIZE


class Tcp:
    """A kernel socket with the calls of a channel."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send = connection.sendall
        self._receive = connection.recv
        self.close = connection.close

    def recv(self) -> bytes:
        return self._receive(SIZE, socket.MSG_WAITALL)


class AsyncTcp:
    """A stream of asyncio's with the calls of a channel."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def recv(self) -> bytes:
        return await self._reader.readexactly(SIZE)


def serve(kind: str) -> None:
    """Answer every message until ``LAST``, then count messages until ``LAST``, and tell how many."""
    if kind == "tcp":
        server: Any = socket.create_server(("127.0.0.1", 0))
        print(f"127.0.0.1:{server.getsockname()[1]}", flush=True)
        channel: Any = Tcp(server.accept()[0])
    else:
        import softhca

        server = softhca.Channel.listen("127.0.0.1:0")
        print(server.address, flush=True)
        channel = server.accept()
    while (message := channel.recv()) != LAST:
        channel.send(message)
    count = 0
    while channel.recv() != LAST:
        count += 1
    channel.send(b"%*d" % (SIZE, count))
    channel.close()
    server.close()


def measure(kind: str, address: str, seconds: float) -> dict[str, float]:
    """Latency one way in µs, and messages a second."""
    host, port = address.rsplit(":", 1)
    if kind == "tcp":
        channel: Any = Tcp(socket.create_connection((host, int(port))))
    else:
        import softhca

        channel = softhca.Channel.connect(address)
    times, message = [], b"x" * SIZE
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        channel.send(message)
        channel.recv()
        times.append(time.perf_counter() - start)
    channel.send(LAST)
    start = time.perf_counter()
    while time.perf_counter() < start + seconds:
        for _ in range(ROUND):
            channel.send(message)
    channel.send(LAST)
    count = int(channel.recv())
    rate = count / (time.perf_counter() - start)
    channel.close()
    return {"latency_us": statistics.median(times) / 2 * 1e6, "rate_per_s": rate}


async def serve_async(kind: str) -> None:
    """As `serve`."""
    ended = asyncio.Event()

    async def answer(channel: Any) -> None:
        while (message := await channel.recv()) != LAST:
            await channel.send(message)
        count = 0
        while await channel.recv() != LAST:
            count += 1
        await channel.send(b"%*d" % (SIZE, count))
        ended.set()

    if kind == "tcp-aio":
        server: Any = await asyncio.start_server(lambda *ends: answer(AsyncTcp(*ends)), "127.0.0.1", 0)
        print(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        await ended.wait()
        return
    import softhca

    async with softhca.Channel.listen("127.0.0.1:0") as listener:
        print(listener.address, flush=True)
        async with await listener.accept() as channel:
            await answer(channel)


async def measure_async(kind: str, address: str, seconds: float) -> dict[str, float]:
    """As `measure`."""
    host, port = address.rsplit(":", 1)
    if kind == "tcp-aio":
        channel: Any = AsyncTcp(*await asyncio.open_connection(host, int(port)))
    else:
        import softhca

        channel = await softhca.Channel.connect(address).aio.__aenter__()
    times, message = [], b"x" * SIZE
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        await channel.send(message)
        await channel.recv()
        times.append(time.perf_counter() - start)
    await channel.send(LAST)
    start = time.perf_counter()
    while time.perf_counter() < start + seconds:
        for _ in range(ROUND):
            await channel.send(message)
    await channel.send(LAST)
    count = int(await channel.recv())
    rate = count / (time.perf_counter() - start)
    if kind != "tcp-aio":
        await channel.close()
    return {"latency_us": statistics.median(times) / 2 * 1e6, "rate_per_s": rate}


def one(kind: str, seconds: float) -> dict[str, float]:
    """Two processes, each with a device of its own."""
    found = []
    for role, number in (("--serve", 9), ("--measure", 10)):
        same = int("shm" in kind)
        devices = f"softhca0=udp:127.0.{1 + os.getpid() % 200}.{number}?same_host={same}"
        words = [sys.executable, __file__, role, kind, "--seconds", str(seconds)]
        if found:
            assert found[0].stdout is not None
            words += ["--address", found[0].stdout.readline().strip()]
        environment = {**os.environ, "SOFTHCA_DEVICES": devices}
        found.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment))
    output = found[1].communicate(timeout=60 + 4 * seconds)[0]
    found[0].communicate(timeout=60)
    result: dict[str, float] = json.loads(output)
    return result


def main() -> None:
    """Measure all kinds in turn, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--measure", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--address", default="", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.serve:
        if options.serve.endswith("aio"):
            asyncio.run(serve_async(options.serve))
        else:
            serve(options.serve)
        return
    if options.measure:
        if options.measure.endswith("aio"):
            found = asyncio.run(measure_async(options.measure, options.address, options.seconds))
        else:
            found = measure(options.measure, options.address, options.seconds)
        print(json.dumps(found))
        return
    rounds: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for _ in range(options.rounds):
        for kind in KINDS:
            rounds[kind].append(one(kind, options.seconds))
    medians = {
        kind: {name: statistics.median(each[name] for each in results) for name in results[0]}
        for kind, results in rounds.items()
    }
    if options.json:
        print(json.dumps(medians))
        return
    for kind, values in medians.items():
        print(f"{kind:8} {values['latency_us']:8.1f} µs one way {values['rate_per_s']:12,.0f} messages/s")
    print("load", *(f"{value:.1f}" for value in os.getloadavg()))


if __name__ == "__main__":
    main()
