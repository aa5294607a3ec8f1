"""How fast two copies of a verbs program exchange small messages and much data, beside TCP between the same
two processes and a copy in memory.

Latency is that of one operation with nothing else under way, the median of many.  One that only one side sees
(RDMA WRITE and READ, atomics) is timed from its posting to its completion, one that the other side answers as
half of the way there and back.  Nothing looks at packets meanwhile: no capture is in the way.
"""

import hashlib
import random
import socket
import statistics
import time

from pyverbs import enums as e

SMALL_BYTES = 8
MOST_SAMPLES, LEAST_SAMPLES = 2000, 20
SAMPLE_S = 0.25
CHUNK_BYTES = 1 << 20
CHUNKS = 16
BULK_S = 0.5
MEMORY_BYTES = CHUNKS * CHUNK_BYTES
TCP_ROUNDS, TCP_CHUNKS = 1000, 256
RECEIVES = 16
GRH_BYTES = 40
POLLS_BETWEEN_LOOKS = 64

ONE_SIDED = {
    "RC RDMA write": e.IBV_WR_RDMA_WRITE,
    "RC RDMA read": e.IBV_WR_RDMA_READ,
    "RC compare and swap": e.IBV_WR_ATOMIC_CMP_AND_SWP,
    "RC fetch and add": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}
ANSWERED = {
    "RC send": ("rc", e.IBV_WR_SEND),
    "RC RDMA write with immediate": ("rc", e.IBV_WR_RDMA_WRITE_WITH_IMM),
    "UC send": ("uc", e.IBV_WR_SEND),
    "UD send": ("ud", e.IBV_WR_SEND),
}


def sampled(operation, share):
    """The median time of ``operation`` in microseconds, times ``share``, and of how many it is."""
    samples, until_s = [], time.perf_counter() + SAMPLE_S
    while len(samples) < MOST_SAMPLES and (len(samples) < LEAST_SAMPLES or time.perf_counter() < until_s):
        start_ns = time.perf_counter_ns()
        operation()
        samples.append(time.perf_counter_ns() - start_ns)
    return {"latency_us": statistics.median(samples) * share / 1000, "samples": len(samples)}


def one_sided(side, opcode):
    """One operation after the other, each to its completion."""

    post, request = side.qps["rc"].post_send, side.request("rc", opcode, SMALL_BYTES)

    def once():
        post(request)
        side.completion()

    once()  # the first one finds its way
    figures = sampled(once, 1)
    side.partner.say("done")
    return figures


def stand_by(side):
    """Drive the adapter until the partner says that it is done."""
    while not side.partner.has_spoken():
        for _ in range(POLLS_BETWEEN_LOOKS):
            side.context.progress()
    side.partner.hear()


def ready(side, name, opcode):
    """What posts a message, and what posts the receive of one, behind what is sent from."""
    queue_pair = side.qps[name]
    message = side.request(name, opcode, SMALL_BYTES)
    receive = side.receive(SMALL_BYTES + GRH_BYTES, CHUNK_BYTES)
    for _ in range(RECEIVES):
        queue_pair.post_recv(receive)
    side.partner.swap("ready")
    return lambda: queue_pair.post_send(message), lambda: queue_pair.post_recv(receive)


def get_message(side):
    """Wait for a message; own sends may complete before it does."""
    while not side.completion().opcode & e.IBV_WC_RECV:
        pass


def asking(side, name, opcode):
    """A message there, its answer back."""
    post, receive = ready(side, name, opcode)

    def once():
        post()
        get_message(side)
        receive()

    once()
    figures = sampled(once, 0.5)
    side.partner.say("done")
    drain(side)
    return figures


def answering(side, name, opcode):
    """The partner's half: each message is answered by one."""
    post, receive = ready(side, name, opcode)
    while not side.partner.has_spoken():
        for _ in range(POLLS_BETWEEN_LOOKS):
            completion = side.polled()
            if completion and completion.opcode & e.IBV_WC_RECV:
                post()
                receive()
    side.partner.hear()
    drain(side)


def drain(side):
    """Take what has completed meanwhile; receives that are left serve the queue pair's next messages."""
    side.partner.swap("drained")
    while side.polled():
        pass


def bulk(side):
    """RDMA WRITE of 1 MiB, so many at a time, again and again; the partner tells the digest of what came."""
    side.memory[:] = random.Random(1).randbytes(CHUNK_BYTES) * CHUNKS
    places = [index * CHUNK_BYTES for index in range(CHUNKS)]
    requests = [side.request("rc", e.IBV_WR_RDMA_WRITE, CHUNK_BYTES, place, place) for place in places]
    rates, until_s = [], time.perf_counter() + BULK_S
    while not rates or time.perf_counter() < until_s:
        start_ns = time.perf_counter_ns()
        for request in requests:
            side.qps["rc"].post_send(request)
        for _ in requests:
            side.completion()
        rates.append(MEMORY_BYTES / (time.perf_counter_ns() - start_ns) * 1e9)
    side.partner.say("done")
    right = side.partner.hear() == hashlib.sha256(side.memory).hexdigest()
    return {"bandwidth_bytes_per_s": statistics.median(rates), "samples": len(rates), "right": right}


def serve_bulk(side):
    """The partner's half."""
    stand_by(side)
    side.partner.say(hashlib.sha256(side.memory).hexdigest())


def copying():
    """The machine's memcpy, in the same pieces."""
    source, target = bytearray(MEMORY_BYTES), bytearray(MEMORY_BYTES)
    pieces = [slice(at, at + CHUNK_BYTES) for at in range(0, MEMORY_BYTES, CHUNK_BYTES)]
    views, rates = (memoryview(source), memoryview(target)), []
    for _ in range(20):
        start_ns = time.perf_counter_ns()
        for piece in pieces:
            views[1][piece] = views[0][piece]
        rates.append(MEMORY_BYTES / (time.perf_counter_ns() - start_ns) * 1e9)
    return {"bandwidth_bytes_per_s": statistics.median(rates), "samples": len(rates)}


def tcp(side, rank):
    """The connection of the two copies itself: small messages there and back, then much data one way."""
    connection = side.partner.connection
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    small, chunk = bytearray(SMALL_BYTES), bytearray(CHUNK_BYTES)
    if rank == 0:
        side.partner.say("tcp")
    side.partner.hear()
    if rank:
        side.partner.say("tcp")  # its line has been read: what follows is no line
    samples = []
    for _ in range(TCP_ROUNDS):
        start_ns = time.perf_counter_ns()
        if rank == 0:
            connection.sendall(small)
        fill(connection, small)
        if rank:
            connection.sendall(small)
        samples.append(time.perf_counter_ns() - start_ns)
    start_ns = time.perf_counter_ns()
    for _ in range(TCP_CHUNKS):
        if rank:
            fill(connection, chunk)
        else:
            connection.sendall(chunk)
    if rank:
        connection.sendall(small)
        return {}
    fill(connection, small)  # all has been received
    return {
        "latency_us": statistics.median(samples) / 2000,
        "bandwidth_bytes_per_s": TCP_CHUNKS * CHUNK_BYTES / (time.perf_counter_ns() - start_ns) * 1e9,
        "samples": TCP_ROUNDS,
    }


def fill(connection, buffer):
    """Receive exactly as much as the buffer holds."""
    view = memoryview(buffer)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionError("the other copy has gone")
        view = view[count:]


def measure(side, rank):
    """All of it; what copy 0 saw."""
    steps = {
        **{name: (one_sided, stand_by, opcode) for name, opcode in ONE_SIDED.items()},
        **{name: (asking, answering, *kind) for name, kind in ANSWERED.items()},
        "bulk": (bulk, serve_bulk),
    }
    results = []
    for name, (ask, serve, *arguments) in steps.items():
        side.partner.swap(name)
        if rank == 0:
            results.append({"operation": name, **ask(side, *arguments)})
        elif serve is answering:
            serve(side, *arguments)
        else:
            serve(side)
    beside = tcp(side, rank)
    if rank == 0:
        results += [{"operation": "TCP", **beside}, {"operation": "memcpy", **copying()}]
    return results
