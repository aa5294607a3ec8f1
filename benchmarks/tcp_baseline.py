"""What a plain Python program gets from TCP between two processes on this machine, for comparison.

``python3 benchmarks/tcp_baseline.py {bw,lat} [--size BYTES] [--seconds T]`` prints one JSON document with the
fields of ``softhca perf``.  ``bw`` sends messages one after the other and counts what the other process has
received; ``lat`` sends one message to and fro, and half of a round trip is a sample.
"""

import argparse
import json
import multiprocessing
import socket
import time

TIMEOUT_S = 60.0
RECEIVE_BYTES = 1 << 20
COUNT_BYTES = 8


def percentile(ordered, percent):
    """Nearest rank."""
    return ordered[max(-(-len(ordered) * percent // 100), 1) - 1]


def receive_exactly(connection, view):
    """Fill ``view``; False when the other end has closed."""
    while view:
        count = connection.recv_into(view)
        if not count:
            return False
        view = view[count:]
    return True


def serve(kind, size_bytes, port_sender):
    """The other process: counts what comes, or returns each message."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port_sender.send(listener.getsockname()[1])
        connection, _ = listener.accept()
    with connection:
        connection.settimeout(TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if kind == "lat":
            message = memoryview(bytearray(size_bytes))
            while receive_exactly(connection, message):
                connection.sendall(message)
            return
        buffer = bytearray(max(RECEIVE_BYTES, size_bytes))
        total = 0
        while count := connection.recv_into(buffer):
            total += count
        connection.sendall(total.to_bytes(COUNT_BYTES, "big"))


def bandwidth(connection, size_bytes, seconds):
    """(messages, nanoseconds, no samples)"""
    message = bytes(size_bytes)
    start_ns = time.perf_counter_ns()
    deadline_ns = start_ns + int(seconds * 1e9)
    while time.perf_counter_ns() < deadline_ns:
        for _ in range(16):
            connection.sendall(message)
    connection.shutdown(socket.SHUT_WR)
    total = bytearray(COUNT_BYTES)
    receive_exactly(connection, memoryview(total))
    return int.from_bytes(total, "big") // size_bytes, time.perf_counter_ns() - start_ns, [0]


def latency(connection, size_bytes, seconds):
    """(messages, nanoseconds, half round trips in nanoseconds)"""
    message = memoryview(bytearray(size_bytes))
    samples = []
    start_ns = before_ns = time.perf_counter_ns()
    while before_ns < start_ns + seconds * 1e9:
        connection.sendall(message)
        receive_exactly(connection, message)
        now_ns = time.perf_counter_ns()
        samples.append((now_ns - before_ns) // 2)
        before_ns = now_ns
    return len(samples), before_ns - start_ns, sorted(samples)


def measure(kind, size_bytes, seconds):
    """One test, as ``softhca perf`` would describe it."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=serve, args=(kind, size_bytes, sender), daemon=True)
    process.start()
    if not receiver.poll(TIMEOUT_S):
        raise TimeoutError("the other process did not start")
    with socket.create_connection(("127.0.0.1", receiver.recv()), timeout=TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        work = {"bw": bandwidth, "lat": latency}[kind]
        messages, elapsed_ns, samples_ns = work(connection, size_bytes, seconds)
    process.join(TIMEOUT_S)
    rate = messages * 1e9 / elapsed_ns
    return {
        "test": f"tcp-{kind}",
        "size_bytes": size_bytes,
        "iterations": messages,
        "bandwidth_bytes_per_s": rate * size_bytes,
        "message_rate_per_s": rate,
        "latency_us": {
            "min": samples_ns[0] / 1000,
            "p50": percentile(samples_ns, 50) / 1000,
            "p99": percentile(samples_ns, 99) / 1000,
            "max": samples_ns[-1] / 1000,
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("bw", "lat"))
    parser.add_argument("--size", type=int, default=65536)
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    print(json.dumps(measure(args.kind, args.size, args.seconds), indent=2))


if __name__ == "__main__":
    main()
