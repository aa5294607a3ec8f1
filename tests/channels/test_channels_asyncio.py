"""Channels for coroutines: the same, awaited; cancellation, several loops, no switch for what is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from channel_waits import LIMIT_S, SMALL

from softhca.channels import (
    AsyncChannel,
    Channel,
    ChannelAccessError,
    ChannelClosed,
    ChannelEnded,
    ChannelLost,
    ChannelOptions,
    ChannelRefused,
    ChannelTimeout,
)

Later = Callable[..., Future[Any]]
Pair = tuple[AsyncChannel, AsyncChannel]
PATIENT = ChannelOptions(slots=4, slot_bytes=256, keepalive_s=3600.0)
"""So patient that nobody wakes by himself."""


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, LIMIT_S))


@asynccontextmanager
async def pair(options: ChannelOptions = SMALL) -> AsyncIterator[Pair]:
    async with Channel.listen("127.0.0.1:0", options=options) as listener:
        accepting = asyncio.create_task(listener.accept())
        connecting = Channel.connect(listener.address, options=options, timeout=LIMIT_S)
        async with connecting as client:
            server = await accepting
            try:
                yield client, server
            finally:
                server.kill()


def test_messages_of_all_sizes() -> None:
    async def main() -> None:
        async with pair() as (client, server):
            for size in (0, 1, 256, 257, 100_000):
                message = bytes(index & 0xFF for index in range(size))
                sending = asyncio.create_task(client.send(message))
                assert await server.recv() == message
                await sending
            target = np.zeros(5000, np.uint8)
            sending = asyncio.create_task(client.send(np.ones(5000, np.uint8)))
            assert await server.recv_into(target) == 5000
            assert target.all()
            await sending

    run(main())


def test_iteration_ends_when_the_peer_closes() -> None:
    async def main() -> None:
        async with pair() as (client, server):

            async def send_all() -> None:
                for index in range(50):
                    await client.send(b"%d" % index)
                await client.close()

            sending = asyncio.create_task(send_all())
            assert [message async for message in server] == [b"%d" % index for index in range(50)]
            await sending
            with pytest.raises(ChannelEnded):
                await server.recv()
            with pytest.raises(ChannelClosed):
                await client.recv()

    run(main())


def test_what_is_there_is_taken_without_giving_way() -> None:
    async def main() -> None:
        async with pair() as (client, server):
            for index in range(4):
                await client.send(b"%d" % index)
            while len(server._endpoint.inbox) < 4:
                server._link.poll()
            others: list[int] = []

            async def other() -> None:
                others.append(1)

            task = asyncio.create_task(other())
            assert [await server.recv() for _ in range(4)] == [b"0", b"1", b"2", b"3"]
            assert others == []
            await task

    run(main())


def test_a_task_sleeps_until_something_comes(later: Later) -> None:
    """The loop does other things, and nothing turns round meanwhile."""

    async def main() -> None:
        async with pair() as (client, server):
            for turn in range(5):
                waiting = asyncio.create_task(server.recv())
                while not any(each._entries for each in server._link.waiters.values()):
                    await asyncio.sleep(0)
                assert not waiting.done()
                await asyncio.get_running_loop().run_in_executor(None, client.sync.send, b"%d" % turn)
                assert await waiting == b"%d" % turn

    run(main())


def test_cancelling_loses_no_message() -> None:
    async def main() -> None:
        async with pair() as (client, server):
            for size in (10, 5000):
                for sleeps in (0, 1, 5, 40):
                    waiting = asyncio.create_task(server.recv())
                    for _ in range(sleeps):
                        await asyncio.sleep(0)
                    sending = asyncio.create_task(client.send(b"%d" % sleeps * size))
                    for _ in range(sleeps % 5):
                        await asyncio.sleep(0)
                    waiting.cancel()
                    try:
                        message = await waiting
                    except asyncio.CancelledError:
                        message = await server.recv()
                    assert message == b"%d" % sleeps * size
                    await sending

    run(main())


def test_cancelling_a_send_sends_all_or_nothing() -> None:
    async def main() -> None:
        async with pair() as (client, server):
            for index in range(SMALL.slots):
                await client.send(b"%d" % index)
            sending = asyncio.create_task(client.send(b"not sent"))
            await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await asyncio.sleep(0)
            for index in range(SMALL.slots):
                assert await server.recv() == b"%d" % index
            await client.send(b"sent")
            assert await server.recv() == b"sent"

    run(main())


def test_time_outs() -> None:
    async def main() -> None:
        async with pair() as (client, server):
            for timeout in (0, 0.01):
                with pytest.raises(ChannelTimeout):
                    await client.recv(timeout)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await client.recv()
            client.sync.timeout = 0.01
            with pytest.raises(ChannelTimeout):
                await client.remote("nothing")
            await server.send(b"x")
            assert await client.recv(LIMIT_S) == b"x"

    run(main())


def test_named_buffers_and_atomics() -> None:
    async def main() -> None:
        async with pair() as (client, server):
            box = bytearray(16)
            shared = await server.share("box", box, "rwa")
            remote = await client.remote("box")
            await remote.write(b"12345678", 8)
            assert box[8:] == b"12345678"
            assert await remote.read(8, 8) == b"12345678"
            target = bytearray(4)
            await remote.read_into(target, 9)
            assert target == b"2345"
            assert await remote.fetch_add(0, 7) == 0
            assert await remote.compare_swap(0, 7, 9) == 7
            assert await client.read("box", 1) == b"\x09"
            revoking = asyncio.create_task(server.unshare(shared))
            while not revoking.done():
                client.try_recv()
                await asyncio.sleep(0)
            with pytest.raises(ChannelAccessError):
                await remote.read()

    run(main())


def test_several_channels() -> None:
    async def main() -> None:
        async with pair() as (client, server):
            opening = asyncio.create_task(client.open("data", acknowledged=False))
            accepted = await server.accept()
            opened = await opening
            async with opened, accepted:
                assert (accepted.name, accepted.acknowledged) == ("data", False)
                await opened.send(b"x")
                assert await accepted.recv() == b"x"
            with pytest.raises(AttributeError):
                _ = opened.nothing

    run(main())


def test_many_tasks_wait_at_once() -> None:
    async def main() -> None:
        async with pair() as (client, server):
            waiting = [asyncio.create_task(server.recv()) for _ in range(20)]
            await asyncio.gather(*(client.send(b"%d" % index) for index in range(20)))
            found = await asyncio.gather(*waiting)
            assert sorted(found, key=int) == [b"%d" % index for index in range(20)]

    run(main())


@pytest.mark.parametrize("by_thread", [False, True])
def test_closing_ends_a_task_that_waits(by_thread: bool) -> None:
    async def main() -> None:
        async with pair() as (client, _):
            waiting = asyncio.create_task(client.recv())
            while not any(each._entries for each in client._link.waiters.values()):
                await asyncio.sleep(0)
            if by_thread:
                await asyncio.get_running_loop().run_in_executor(None, client.sync.close)
            else:
                await client.close()
            with pytest.raises(ChannelClosed):
                await waiting

    run(main())


def test_a_thread_that_closes_one_channel_of_several_wakes_the_tasks_of_it() -> None:
    async def main() -> None:
        async with pair(options=PATIENT) as (client, server):
            opening = asyncio.create_task(client.open("data"))
            accepted = await server.accept()
            opened = await opening
            waiting = asyncio.create_task(opened.recv())
            while not any(each._entries for each in client._link.waiters.values()):
                await asyncio.sleep(0)
            await asyncio.get_running_loop().run_in_executor(None, opened.sync.close)
            with pytest.raises(ChannelClosed):
                await waiting
            await accepted.close()

    run(main())


def test_a_kill_ends_the_peers_tasks() -> None:
    async def main() -> None:
        async with pair() as (client, server):
            waiting = asyncio.create_task(client.recv())
            await asyncio.sleep(0)
            server.kill()
            with pytest.raises(ChannelLost):
                await waiting

    run(main())


def test_nobody_listens_and_nobody_accepts() -> None:
    async def main() -> None:
        async with Channel.listen("127.0.0.1:0") as listener:
            address = listener.address
            with pytest.raises(ChannelTimeout, match="no answer of"):
                async with Channel.connect(address, timeout=0.02):
                    pass
        with pytest.raises(ChannelRefused):
            async with Channel.connect(address, timeout=LIMIT_S):
                pass

    run(main())


def test_a_listener_serves_and_ends(later: Later) -> None:
    def ask(address: str) -> list[bytes]:
        found = []
        for index in range(3):
            with Channel.connect(address, timeout=LIMIT_S) as channel:
                channel.send(b"%d" % index)
                found.append(channel.recv(LIMIT_S))
        return found

    async def main() -> None:
        listener = Channel.listen("127.0.0.1:0")
        asking = asyncio.get_running_loop().run_in_executor(None, ask, listener.address)
        served = 0
        async for channel in listener:
            async with channel:
                await channel.send(await channel.recv())
            served += 1
            if served == 3:
                break
        assert await asking == [b"0", b"1", b"2"]
        waiting = asyncio.create_task(listener.aio.accept())
        with pytest.raises(ChannelTimeout):
            await listener.aio.accept(0.01)
        listener.close()
        with pytest.raises(ChannelClosed):
            await waiting
        assert [channel async for channel in listener] == []

    run(main())


def test_one_channel_in_one_loop_after_the_other() -> None:
    with Channel.listen("127.0.0.1:0") as listener:

        async def both() -> Pair:
            accepting = asyncio.create_task(listener.aio.accept())
            client = await Channel.connect(listener.address, timeout=LIMIT_S).aio.__aenter__()
            return client, await accepting

        async def exchange(client: AsyncChannel, server: AsyncChannel) -> None:
            waiting = asyncio.create_task(server.recv())
            for _ in range(50):
                await asyncio.sleep(0)
            await client.send(b"x")
            assert await waiting == b"x"

        client, server = run(both())
        for _ in range(3):
            run(exchange(client, server))
        client.sync.send(b"and without one")
        assert server.sync.recv(LIMIT_S) == b"and without one"
        client.sync.close()
        server.sync.close()


def test_a_buffer_of_another_connection_is_refused_and_both_go_on() -> None:
    async def main() -> None:
        async with pair() as (client, server), pair() as (other, _):
            await server.share("box", bytearray(8), "rwa")
            remote = await client.remote("box")
            for call in (
                other.write(remote, b"x"), other.read(remote), other.read_into(remote, bytearray(1)),
                other.fetch_add(remote, 0, 1), other.compare_swap(remote, 0, 0, 1),
            ):  # fmt: skip
                with pytest.raises(ChannelAccessError, match="another connection's"):
                    await call
            await remote.write(b"box")
            assert await client.read(remote, 4) == b"box\0"

    run(main())
