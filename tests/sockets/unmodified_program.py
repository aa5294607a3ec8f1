"""A program that knows nothing of softhca: servers and clients of the standard library, in one process.

It prints, as JSON, what each of them got, and whether its connection was softhca's
stream (null: it does not know).
"""

import asyncio
import http.client
import http.server
import json
import multiprocessing.connection
import socket
import socketserver
import ssl
import threading
import urllib.request
import xmlrpc.client
import xmlrpc.server
from pathlib import Path

DATA = bytes(range(256)) * 2048


def by_rdma(connection):
    return getattr(connection, "stream", None) is not None


async def asyncio_echo():
    async def handle(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        connection = writer.get_extra_info("socket")._sock
        writer.write(DATA)
        writer.write_eof()
        same, found = await reader.read() == DATA, by_rdma(connection)
        writer.close()
        await writer.wait_closed()
        return same, found


async def asyncio_sendfile():
    got = asyncio.get_running_loop().create_future()

    async def handle(reader, writer):
        got.set_result(await reader.read())
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        _reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        with open(__file__, "rb") as file:
            await asyncio.get_running_loop().sendfile(writer.transport, file)
            file.seek(0)
            text = file.read()
        writer.write_eof()
        same = await got == text
        connection = writer.get_extra_info("socket")._sock
        writer.close()
        return same, by_rdma(connection)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()
        self.wfile.write(DATA)

    def log_message(self, *arguments):
        pass


def serving(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def http_server():
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        host, port = server.server_address
        with urllib.request.urlopen(f"http://{host}:{port}/") as answer:
            same = answer.read() == DATA
        client = http.client.HTTPConnection(host, port)
        for _ in range(3):
            client.request("GET", "/")
            same = same and client.getresponse().read() == DATA
        found = by_rdma(client.sock)
        client.close()
        server.shutdown()
    return same, found


def https_server():
    """A listening socket of TLS accepts sockets of its base class."""
    certificate = Path(__file__).with_name("tls_server.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=certificate)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        serving(server)
        host, port = server.server_address
        with urllib.request.urlopen(f"https://{host}:{port}/", context=trusting) as answer:
            same = answer.read() == DATA
        server.shutdown()
    return same, None


def xmlrpc_server():
    made = xmlrpc.server.SimpleXMLRPCServer(("127.0.0.1", 0), logRequests=False)
    with serving(made) as server:
        server.register_function(lambda one, other: one + other, "add")
        host, port = server.server_address
        with xmlrpc.client.ServerProxy(f"http://{host}:{port}") as proxy:
            same = proxy.add(20, 22) == 42
        server.shutdown()
    return same, None


def lines_of_socketserver():
    class Lines(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                self.wfile.write(line.upper())

    with serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Lines)) as server:
        with socket.create_connection(server.server_address) as client, client.makefile("rwb") as file:
            file.write(b"one\ntwo\n")
            file.flush()
            same = file.readline() + file.readline() == b"ONE\nTWO\n"
            found = by_rdma(client)
        server.shutdown()
    return same, found


def multiprocessing_connection():
    """It reads and writes the descriptor itself."""
    with multiprocessing.connection.Listener(("127.0.0.1", 0), authkey=b"secret") as listener:
        got = []
        thread = threading.Thread(target=lambda: got.append(listener.accept().recv()))
        thread.start()
        with multiprocessing.connection.Client(listener.address, authkey=b"secret") as client:
            client.send({"list": list(range(10_000))})
            thread.join()
    return got == [{"list": list(range(10_000))}], None


def main():
    results = {
        "asyncio echo": asyncio.run(asyncio_echo()),
        "asyncio sendfile": asyncio.run(asyncio_sendfile()),
        "http": http_server(),
        "https": https_server(),
        "xmlrpc": xmlrpc_server(),
        "socketserver": lines_of_socketserver(),
        "multiprocessing": multiprocessing_connection(),
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
