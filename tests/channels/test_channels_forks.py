"""A forked child and the parent's channels: it is refused, and changes nothing of what both see."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest
from channel_waits import LIMIT_S, until

from softhca.channels import Channel, ChannelLost

Pair = tuple[Channel, Channel]
CALLS: dict[str, Callable[[Channel], object]] = {
    "send": lambda channel: channel.send(b"of the child"),
    "write": lambda channel: channel.write("box", b"of the child"),
    "read": lambda channel: channel.read("box"),
    "fetch_add": lambda channel: channel.fetch_add("box", 0, 1),
    "receive": lambda channel: channel.recv(),
    "receive without waiting": lambda channel: channel.try_recv(),
    "remote": lambda channel: channel.remote("nothing"),
    "share": lambda channel: channel.share("more", bytearray(8), "r"),
}


def _refused(channel: Channel, call: Callable[[Channel], object]) -> bool:
    """Whether a forked child is refused, and can close its copy."""
    child = os.fork()
    if not child:
        status = 1
        try:
            try:
                call(channel)
            except ChannelLost:
                channel.close()
                status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("what", CALLS)
def test_a_child_is_refused_and_changes_nothing(pair: Pair, what: str) -> None:
    client, server = pair
    client.share("box", bytearray(64), "rwa")
    server.remote("box").write(b"before")  # its memory for copies is there
    client.send(b"waits to be received")
    until(lambda: server._link.poll() or server._endpoint.inbox)
    memories = [server._endpoint._stage.view, server._link.memory.scratch(64).view]
    before = [bytes(each) for each in memories]
    assert _refused(server, CALLS[what])
    assert [bytes(each) for each in memories] == before
    server.send(b"of the parent")
    assert client.recv() == b"of the parent"
    assert server.recv() == b"waits to be received"
    assert server.read("box", 6) == b"before"


def test_a_child_needs_no_lock_that_a_thread_of_the_parent_has(pair: Pair) -> None:
    """What was put off is the parent's, too: here it would take a lock of registered memory."""
    link = pair[1]._link
    taken, over = threading.Event(), threading.Event()

    def hold() -> None:
        with link.memory._lock, link.windows._lock, link.lock:
            taken.set()
            assert over.wait(LIMIT_S)

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(LIMIT_S)
    link.later.append(lambda: link.memory.scratch(64))
    try:
        child = os.fork()
        if not child:
            status = 1
            signal.alarm(int(LIMIT_S))  # ends who waits for ever
            try:
                try:
                    pair[1].send(b"of the child")
                except ChannelLost:
                    link.memory.close()
                    link.windows.close()
                    status = len(link.later)
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        over.set()
        holder.join()
    link.later.clear()
