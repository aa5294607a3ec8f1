"""What a plain Python program gets from sockets between two processes on this machine.

Bandwidth: messages one after the other over TCP, counted where they arrive.  Latency: one message to and fro,
half of a round trip is a sample; blocking, or with both ends spinning on sockets that do not block.
"""

from __future__ import annotations

import multiprocessing
import socket
import time

from bench.measure import Figure, children_cpu_s, own_cpu_s

TIMEOUT_S = 60.0
RECEIVE_BYTES = 1 << 20
COUNT_BYTES = 8
_FORK = multiprocessing.get_context("fork")


def percentile(ordered, percent):
    """Nearest rank."""
    return ordered[max(-(-len(ordered) * percent // 100), 1) - 1]


def latency_us(samples_ns):
    """``min p50 p99 max`` in microseconds."""
    ordered = sorted(samples_ns)
    return {
        "min": ordered[0] / 1000,
        "p50": percentile(ordered, 50) / 1000,
        "p99": percentile(ordered, 99) / 1000,
        "max": ordered[-1] / 1000,
    }


def receive_exactly(connection, view):
    """Fill ``view``, spinning where the socket does not block; False when the other end has closed."""
    while view:
        try:
            count = connection.recv_into(view)
        except BlockingIOError:
            continue
        if not count:
            return False
        view = view[count:]
    return True


def _tcp_pair():
    """A connection between this process and one that it forks: (ours, theirs)."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname(), timeout=TIMEOUT_S)
        far, _ = listener.accept()
    for end in (near, far):
        end.settimeout(TIMEOUT_S)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, far


def _udp_pair():
    near, far = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    for end in (near, far):
        end.bind(("127.0.0.1", 0))
    near.connect(far.getsockname())
    far.connect(near.getsockname())
    return near, far


def _other_process(work, far, near, size_bytes):
    """``work(far, size_bytes)`` in a process that holds no other end."""

    def run():
        near.close()
        work(far, size_bytes)

    process = _FORK.Process(target=run, daemon=True)
    process.start()
    far.close()
    return process


def _swallow(connection, size_bytes):
    """The other process: counts what comes, and tells it at last."""
    buffer = bytearray(max(RECEIVE_BYTES, size_bytes))
    total = 0
    while count := connection.recv_into(buffer):
        total += count
    connection.sendall(total.to_bytes(COUNT_BYTES, "big"))


def bandwidth(size_bytes, seconds):
    """TCP, ``sendall`` of one message after the other."""
    used_s = own_cpu_s() + children_cpu_s()
    near, far = _tcp_pair()
    process = _other_process(_swallow, far, near, size_bytes)
    message = bytes(size_bytes)
    start_ns = time.perf_counter_ns()
    deadline_ns = start_ns + int(seconds * 1e9)
    with near:
        while time.perf_counter_ns() < deadline_ns:
            for _ in range(16):
                near.sendall(message)
        near.shutdown(socket.SHUT_WR)
        total = bytearray(COUNT_BYTES)
        receive_exactly(near, memoryview(total))
    elapsed_ns = time.perf_counter_ns() - start_ns
    process.join(TIMEOUT_S)
    moved = int.from_bytes(total, "big")
    rate = moved * 1e9 / elapsed_ns
    used_s = own_cpu_s() + children_cpu_s() - used_s
    return Figure(rate, rate / size_bytes, cpu_s_per_gb=used_s * 1e9 / moved)


def _echo_stream(connection, size_bytes):
    message = memoryview(bytearray(size_bytes))
    while receive_exactly(connection, message):
        while True:
            try:
                connection.sendall(message)
                break
            except BlockingIOError:
                continue


def _echo_datagrams(connection, size_bytes):
    """Until an empty one comes."""
    message = bytearray(size_bytes)
    while True:
        try:
            if not connection.recv_into(message):
                return
        except BlockingIOError:
            continue
        connection.send(message)


def latency(protocol, size_bytes, seconds, spinning):
    """Half a round trip over ``protocol`` tcp or udp."""
    near, far = _tcp_pair() if protocol == "tcp" else _udp_pair()
    for end in (near, far):
        end.settimeout(0.0 if spinning else TIMEOUT_S)
    echo = _echo_stream if protocol == "tcp" else _echo_datagrams
    process = _other_process(echo, far, near, size_bytes)
    message = memoryview(bytearray(size_bytes))
    samples_ns = []
    start_ns = before_ns = time.perf_counter_ns()
    with near:
        while before_ns < start_ns + seconds * 1e9:
            near.send(message)
            receive_exactly(near, message)
            now_ns = time.perf_counter_ns()
            samples_ns.append((now_ns - before_ns) / 2)
            before_ns = now_ns
        if protocol == "udp":
            near.send(b"")
    process.join(TIMEOUT_S)
    # the first ones pay for the other process's start
    return Figure(latency_us=latency_us(samples_ns[len(samples_ns) // 20 :]))
