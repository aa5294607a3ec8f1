"""How fast a stream is, told as iperf tells it; it knows nothing of RDMA, and takes what its sockets are.

``python stream_speed.py --server`` waits for one client, ``python stream_speed.py --client ADDRESS`` sends
for ``--seconds``.  Alone that is TCP; behind ``softhca run --sockets --`` on both sides it is RDMA.
"""
import argparse
import socket
import time

PORT, ANSWER_BYTES = 5201, 16


def serve(address, port):
    """Take one client's stream; tell it, and say, how many bytes came."""
    with socket.create_server((address, port)) as server:
        print(f"listening at {address} port {server.getsockname()[1]}", flush=True)
        connection, peer = server.accept()
    with connection:
        buffer, total, began = bytearray(1 << 20), 0, time.perf_counter()
        while count := connection.recv_into(buffer):
            total += count
        report(f"from {peer[0]}", total, time.perf_counter() - began)
        connection.sendall(total.to_bytes(ANSWER_BYTES, "big"))


def send(address, port, seconds, length):
    """Send so long, so many bytes a call; end when the server has all of it."""
    with socket.create_connection((address, port)) as connection:
        data, total, began = bytes(length), 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            connection.sendall(data)
            total += length
        connection.shutdown(socket.SHUT_WR)
        arrived = int.from_bytes(connection.recv(ANSWER_BYTES, socket.MSG_WAITALL), "big")
        report(f"to {address}", arrived, time.perf_counter() - began)
    if arrived != total:
        raise SystemExit(f"{total} bytes were sent, {arrived} arrived")


def report(whom, total, taken):
    print(f"{whom}: {total / 1e6:.0f} MB in {taken:.2f} s, {total * 8 / taken / 1e9:.2f} Gbit/s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", action="store_true")
    parser.add_argument("--client", metavar="ADDRESS")
    parser.add_argument("--bind", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--length", type=int, default=1 << 20, help="bytes a call")
    options = parser.parse_args()
    if options.server:
        serve(options.bind, options.port)
    elif options.client:
        send(options.client, options.port, options.seconds, options.length)
    else:
        parser.error("--server or --client ADDRESS")


if __name__ == "__main__":
    main()
