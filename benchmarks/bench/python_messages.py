"""What messages between two processes cost without RDMA: pyzmq over ipc, and multiprocessing's queue."""

import multiprocessing
import tempfile
import time
from pathlib import Path

_FORK = multiprocessing.get_context("fork")


def _zmq_pair(kind, kind_of_peer, path, serve):
    """A socket here, and one in a second process in which ``serve(socket)`` runs."""
    import zmq

    def run():
        with zmq.Context() as context, context.socket(kind_of_peer) as peer:
            peer.connect(path)
            serve(peer)

    process = _FORK.Process(target=run)
    process.start()
    context = zmq.Context()
    socket = context.socket(kind)
    socket.bind(path)
    return context, socket, process


def zmq_rate(size_bytes, seconds):
    """Messages a second through PUSH and PULL."""
    import zmq

    message = bytes(size_bytes)

    def serve(peer):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(256):
                peer.send(message)
        peer.send(b"")

    with tempfile.TemporaryDirectory() as folder:
        path = f"ipc://{Path(folder, 'rate')}"
        context, socket, process = _zmq_pair(zmq.PULL, zmq.PUSH, path, serve)
        socket.recv()
        begin, count = time.perf_counter(), 0
        while socket.recv():
            count += 1
        rate = count / (time.perf_counter() - begin)
        process.join()
        socket.close()
        context.term()
    return rate


def zmq_latency_us(size_bytes, seconds):
    """Half of a round trip, the median, between two PAIR sockets."""
    import zmq

    message = bytes(size_bytes)

    def serve(peer):
        while data := peer.recv():
            peer.send(data)

    with tempfile.TemporaryDirectory() as folder:
        path = f"ipc://{Path(folder, 'latency')}"
        context, socket, process = _zmq_pair(zmq.PAIR, zmq.PAIR, path, serve)

        def turn():
            socket.send(message)
            socket.recv()

        found = _median_half_us(turn, seconds)
        socket.send(b"")
        process.join()
        socket.close()
        context.term()
    return found


def queue_rate(size_bytes, seconds):
    """Messages a second through a multiprocessing.Queue."""
    queue, message = _FORK.Queue(), bytes(size_bytes)

    def serve():
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(256):
                queue.put(message)
        queue.put(b"")

    process = _FORK.Process(target=serve)
    process.start()
    queue.get()
    begin, count = time.perf_counter(), 0
    while queue.get():
        count += 1
    rate = count / (time.perf_counter() - begin)
    process.join()
    return rate


def queue_latency_us(size_bytes, seconds):
    """Half of a round trip, the median, through two multiprocessing queues."""
    there, back, message = _FORK.Queue(), _FORK.Queue(), bytes(size_bytes)

    def serve():
        while data := there.get():
            back.put(data)

    process = _FORK.Process(target=serve)
    process.start()

    def turn():
        there.put(message)
        back.get()

    found = _median_half_us(turn, seconds)
    there.put(b"")
    process.join()
    return found


def _median_half_us(turn, seconds):
    samples = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        before_ns = time.perf_counter_ns()
        turn()
        samples.append(time.perf_counter_ns() - before_ns)
    return sorted(samples)[len(samples) // 2] / 2000
