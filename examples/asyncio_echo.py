"""An asyncio echo server and a client, as in asyncio's manual; they know nothing of RDMA.

``python asyncio_echo.py server`` and ``python asyncio_echo.py client TEXT``: TCP; each behind ``softhca run
--sockets --``: RDMA.
"""
import asyncio
import sys

ADDRESS, PORT = "127.0.0.1", 8888


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def serve(port):
    server = await asyncio.start_server(echo, ADDRESS, port)
    print(f"serving at {ADDRESS} port {server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await server.serve_forever()


async def ask(text, port):
    reader, writer = await asyncio.open_connection(ADDRESS, port)
    writer.write(text.encode())
    writer.write_eof()
    print((await reader.read()).decode())
    writer.close()
    await writer.wait_closed()


if __name__ == "__main__":
    role, *words = sys.argv[1:]
    port = int(words.pop(0)) if words and words[0].isdigit() else PORT
    asyncio.run(serve(port) if role == "server" else ask(" ".join(words), port))
