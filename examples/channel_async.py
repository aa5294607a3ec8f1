"""The same with asyncio: softhca run -n 2 -- python examples/channel_async.py"""

import asyncio
import os

import softhca


async def main(address: str) -> None:
    if os.environ["SOFTHCA_RANK"] == "0":
        async with softhca.Channel.listen(address) as listener, await listener.accept() as channel:
            async for message in channel:
                await channel.send(message.upper())
    else:
        async with softhca.Channel.connect(address, patient=True) as channel:
            await channel.send(b"hello")
            print((await channel.recv(timeout=60)).decode(), "is what came back from hello")


asyncio.run(main(os.environ["SOFTHCA_PEERS"].split(",")[0] + ":7501"))
