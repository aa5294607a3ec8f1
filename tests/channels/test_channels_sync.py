"""Channels for threads: messages of all sizes, order, flow control, time-outs, closing."""

from __future__ import annotations

import array
import copy
import errno
import os
import select
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from channel_waits import LIMIT_S, SMALL, until

import softhca
from softhca.channels import (
    Channel,
    ChannelClosed,
    ChannelEnded,
    ChannelError,
    ChannelOptions,
    ChannelRefused,
    ChannelTimeout,
    MessageTooLong,
    steps,
)
from softhca.verbs.cmid import CMEvent

Later = Callable[..., Future[Any]]
Pair = tuple[Channel, Channel]


def test_softhca_offers_channels_when_they_are_asked_for() -> None:
    assert softhca.Channel is Channel
    assert softhca.ChannelOptions is ChannelOptions
    with pytest.raises(AttributeError):
        _ = softhca.nothing


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 4096, 300_001])
def test_a_message_arrives_whole(pair: Pair, later: Later, size: int) -> None:
    client, server = pair
    message = bytes(index * 7 & 0xFF for index in range(size))
    for one, other in ((client, server), (server, client)):
        sending = later(one.send, message)
        assert other.recv() == message
        sending.result(LIMIT_S)


def test_messages_keep_their_order_across_sizes(pair: Pair, later: Later) -> None:
    client, server = pair
    messages = [bytes([index]) * (index * 97 % 700) for index in range(60)]

    def send_all() -> None:
        for message in messages:
            client.send(message)
        client.close()

    sending = later(send_all)
    assert list(server) == messages
    sending.result(LIMIT_S)
    with pytest.raises(ChannelEnded):
        server.recv()
    with pytest.raises(ChannelEnded):
        server.send(b"x")


@pytest.mark.parametrize(
    "buffer",
    [
        b"abc", bytearray(b"abc"), memoryview(b"abcdef")[:3], array.array("H", [1, 2, 3]),
        np.arange(12, dtype=np.float64).reshape(3, 4), np.zeros(0), np.arange(100_000),
        np.arange(12, dtype=">i4"), np.zeros(3, [("number", "<u2"), ("name", "S5")]), np.zeros((0, 3)),
        np.arange(3000, dtype=">i8"), memoryview(array.array("d", [1.5])).cast("B"),
        memoryview(bytes(1000)),
    ],
)  # fmt: skip
def test_any_buffer_can_be_sent(pair: Pair, later: Later, buffer: Any) -> None:
    client, server = pair
    sending = later(client.send, buffer)
    assert server.recv() == memoryview(buffer).tobytes()
    sending.result(LIMIT_S)
    if isinstance(buffer, np.ndarray) and buffer.size:
        target = np.zeros_like(buffer)
        sending = later(client.send, buffer)
        assert server.recv_into(target) == buffer.nbytes
        assert np.array_equal(target, buffer)
        sending.result(LIMIT_S)


def test_what_is_no_buffer_is_refused(pair: Pair) -> None:
    client, server = pair
    for wrong in ("text", 5, np.arange(10)[::2], None):
        with pytest.raises((TypeError, BufferError, ValueError)):
            client.send(wrong)
    client.send(b"still there")
    assert server.recv() == b"still there"


def test_an_array_is_registered_once(pair: Pair, later: Later) -> None:
    client, server = pair
    numbers = np.arange(5000)
    for turn in range(4):
        numbers[0] = turn
        sending = later(client.send, numbers)
        assert np.array_equal(np.frombuffer(server.recv(), numbers.dtype), numbers)
        sending.result(LIMIT_S)
    assert client.registrations == 1
    with pytest.raises(TimeoutError):  # of a view, too
        client.send(numbers[:], timeout=0)
    assert client.registrations == 1
    assert server.recv() == numbers.tobytes()


def test_a_cached_array_is_not_kept_alive_nor_mistaken(pair: Pair, later: Later) -> None:
    client, server = pair
    for turn in range(100):  # its memory comes again and again
        numbers = np.full(3000, turn)
        sending = later(client.send, numbers)
        assert server.recv() == numbers.tobytes()
        sending.result(LIMIT_S)
    assert len(client._link.memory._cache) <= 2


def test_a_buffer_is_free_when_send_returns(pair: Pair, later: Later) -> None:
    client, server = pair
    for size in (10, 5000):
        buffer = bytearray(size)
        sending = later(client.send, buffer)
        assert len(server.recv()) == size
        sending.result(LIMIT_S)
        until(lambda buffer=buffer: _resizes(buffer))


def _resizes(buffer: bytearray) -> bool:
    try:
        buffer.extend(b"more")
    except BufferError:
        return False
    return True


def test_a_fetch_that_is_given_up_leaves_the_message(pair: Pair, later: Later) -> None:
    client, server = pair
    sending = later(client.send, b"z" * 5000)
    until(lambda: (server._link.poll(), server._endpoint.inbox)[1])
    for buffer in (None, bytearray(5000)):
        until(lambda: server._endpoint.readable)
        todo = steps.receive(server._endpoint, buffer)
        next(todo)  # the READ is posted
        assert server._endpoint.fetching is not None
        todo.close()
        until(lambda: (server._link.poll(), server._endpoint.fetching is None)[1])
    assert server.recv() == b"z" * 5000
    sending.result(LIMIT_S)


@pytest.mark.parametrize("size", [100, 5000])
def test_recv_into_a_buffer(pair: Pair, later: Later, size: int) -> None:
    client, server = pair
    target = np.zeros(size + 10, np.uint8)
    sending = later(client.send, bytes([9]) * size)
    with pytest.raises(MessageTooLong):
        server.recv_into(bytearray(size - 1))
    with pytest.raises(TypeError):
        server.recv_into(bytes(size))
    assert server.recv_into(target) == size
    assert target.tolist() == [9] * size + [0] * 10
    sending.result(LIMIT_S)


def test_a_message_that_is_too_long_is_refused_and_nothing_else_happens(pair: Pair) -> None:
    client, server = pair
    assert (client.longest, client.longest_copied) == (1 << 20, 256)
    with pytest.raises(MessageTooLong) as caught:
        client.send(bytes((1 << 20) + 1))
    assert caught.value.errno == errno.EMSGSIZE
    client.send(b"next")
    assert server.recv() == b"next"


def test_a_fast_sender_waits_for_the_receiver_and_never_finds_it_unready(
    pair: Pair, later: Later, device: Any
) -> None:
    client, server = pair
    counters = device.engine.adapter.counters
    before = counters.rnr_naks_sent
    sent: list[int] = []

    def send_all() -> None:
        for index in range(200):
            client.send(b"%d" % index)
            sent.append(index)

    sending = later(send_all)
    until(lambda: len(sent) == SMALL.slots)
    with pytest.raises(ChannelTimeout):
        client.send(b"no room", timeout=0)
    for index in range(200):
        assert server.recv() == b"%d" % index
        assert len(sent) <= index + 1 + SMALL.slots
    sending.result(LIMIT_S)
    assert counters.rnr_naks_sent == before


def test_time_outs(pair: Pair, later: Later) -> None:
    client, server = pair
    with pytest.raises(ChannelTimeout) as caught:
        client.recv(0)
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, ChannelError)
    assert isinstance(caught.value, OSError)
    with pytest.raises(ChannelTimeout):
        client.recv(0.01)
    client.timeout = 0.01
    with pytest.raises(ChannelTimeout):
        client.recv()
    with pytest.raises(ChannelTimeout):
        client.remote("nothing")
    with pytest.raises(ChannelTimeout):
        client.accept()
    with pytest.raises(ChannelTimeout):
        client.send(bytes(5000))  # on offer, and delivered when the peer wants it
    assert server.recv() == bytes(5000)
    server.send(b"x")
    assert client.recv(LIMIT_S) == b"x"


def test_try_recv_takes_what_is_there(pair: Pair) -> None:
    client, server = pair
    assert client.try_recv() is None
    server.send(b"1")
    server.send(b"2")
    found: list[bytes] = []
    until(lambda: (message := client.try_recv()) is not None and not found.append(message))
    until(lambda: (message := client.try_recv()) is not None and not found.append(message))
    assert found == [b"1", b"2"]
    server.close()
    with pytest.raises(ChannelEnded):
        until(lambda: client.try_recv() and False)


def test_the_descriptor_is_readable_when_there_is_something(pair: Pair) -> None:
    client, server = pair
    poll = select.epoll()
    poll.register(client.fileno(), select.EPOLLIN)
    for turn in range(5):
        assert client.try_recv() is None
        server.send(b"%d" % turn)
        message = None
        while message is None:
            assert poll.poll(LIMIT_S)
            message = client.try_recv()
        assert message == b"%d" % turn
    poll.close()


def test_one_descriptor_tells_of_an_end(pair: Pair) -> None:
    client, server = pair
    poll = select.poll()
    poll.register(client.fileno(), select.POLLIN)
    assert client.try_recv() is None
    server.close()

    def look() -> bool:
        assert poll.poll(LIMIT_S * 1000)
        return client.try_recv() is not None

    with pytest.raises(ChannelEnded):
        until(look)


@pytest.mark.parametrize("what", ["recv", "send", "large", "remote", "accept"])
def test_close_from_another_thread_ends_a_call(pair: Pair, later: Later, what: str) -> None:
    client, _ = pair
    if what == "send":
        for _ in range(SMALL.slots):
            client.send(b"x")
    calls: dict[str, Callable[[], object]] = {
        "recv": client.recv,
        "send": lambda: client.send(b"x"),
        "large": lambda: client.send(bytes(5000)),
        "remote": lambda: client.remote("nothing"),
        "accept": client.accept,
    }
    waiting = later(calls[what])
    until(lambda: client._link._sync_waiters)
    closing = later(client.kill if what == "large" else client.close)
    with pytest.raises(ChannelClosed):
        waiting.result(LIMIT_S)
    closing.result(LIMIT_S)
    for call in calls.values():
        with pytest.raises(ChannelClosed):
            call()
    client.close()
    assert client.closed


def test_what_was_sent_arrives_before_the_end(pair: Pair) -> None:
    client, server = pair
    for index in range(SMALL.slots):
        client.send(b"%d" % index)
    client.close()
    assert list(server) == [b"%d" % index for index in range(SMALL.slots)]


def test_a_close_waits_for_a_large_message(connected: Callable[..., Pair], later: Later) -> None:
    client, server = connected(SMALL)
    with pytest.raises(ChannelTimeout):
        client.send(b"y" * 5000, timeout=0.01)
    closing = later(client.close)
    assert server.recv() == b"y" * 5000
    closing.result(LIMIT_S)
    assert list(server) == []


def test_a_kill_is_told_the_peer(pair: Pair, later: Later) -> None:
    client, server = pair
    waiting = later(server.recv)
    client.kill()
    with pytest.raises(ConnectionResetError):
        waiting.result(LIMIT_S)
    with pytest.raises(ConnectionResetError):
        server.send(b"x")


def test_nobody_listens() -> None:
    with Channel.listen("127.0.0.1:0") as listener:
        address = listener.address
    with pytest.raises(ChannelRefused) as caught:
        Channel.connect(address, timeout=LIMIT_S)
    assert isinstance(caught.value, ConnectionRefusedError)


def test_nobody_accepts() -> None:
    with Channel.listen("127.0.0.1:0") as listener, pytest.raises(ChannelTimeout, match="no answer of"):
        Channel.connect(listener.address, timeout=0.05)


def test_who_has_asked_again_and_again_is_told_the_whole_time() -> None:
    """The last attempt had what was left of it, at worst nothing: 0 s."""
    with Channel.listen("127.0.0.1:0") as listener, pytest.raises(ChannelTimeout, match=r"in 0\.05 s$"):
        Channel.connect(listener.address, timeout=0.05, patient=True)


@pytest.mark.parametrize("address", ["", "host", "1.2.3.4", "::1:5", "1.2.3.4:"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ValueError, match="address"):
        Channel.connect(address)


def test_an_address_in_use_and_one_of_no_device() -> None:
    with Channel.listen("127.0.0.1:0") as listener:
        with pytest.raises(ChannelError) as caught:
            Channel.listen(listener.address)
        assert caught.value.errno == errno.EADDRINUSE
    with pytest.raises(ChannelError):
        Channel.listen("192.0.2.77:5000")
    with pytest.raises(ChannelError):
        Channel.connect("no-such-name.invalid:5000", timeout=LIMIT_S)


def test_a_listener_takes_many_and_ends(later: Later) -> None:
    def serve(listener: Any) -> list[bytes]:
        found = []
        for channel in listener:
            with channel:
                found.append(channel.recv(LIMIT_S))
        return found

    with Channel.listen(":0") as listener:
        serving = later(serve, listener)
        port = listener.address.rsplit(":", 1)[1]
        for index in range(5):
            with Channel.connect(("127.0.0.1", int(port)), timeout=LIMIT_S) as channel:
                channel.send(b"%d" % index)
                assert not list(channel)
    assert serving.result(LIMIT_S) == [b"0", b"1", b"2", b"3", b"4"]
    with pytest.raises(ChannelClosed):
        listener.accept()
    with pytest.raises(ChannelClosed):
        listener.fileno()


def test_a_listener_that_waits_in_vain() -> None:
    with Channel.listen("127.0.0.1:0") as listener, pytest.raises(ChannelTimeout):
        listener.accept(0.01)


def test_closing_a_listener_ends_an_accept(later: Later) -> None:
    listener = Channel.listen("127.0.0.1:0")
    waiting = later(listener.accept)
    listener.close()
    with pytest.raises(ChannelClosed):
        waiting.result(LIMIT_S)


def test_many_threads_send_and_receive(connected: Callable[..., Pair], later: Later) -> None:
    client, server = connected(SMALL)
    got: list[bytes] = []
    lock = threading.Lock()

    def send(who: int) -> None:
        for index in range(40):
            size = 400 if index % 10 == 9 else 20
            client.send(b"%d %d".ljust(size) % (who, index))

    def receive() -> None:
        for message in server:
            with lock:
                got.append(message.strip())

    receiving = [later(receive) for _ in range(3)]
    sending = [later(send, who) for who in range(4)]
    for each in sending:
        each.result(LIMIT_S)
    client.close()
    for each in receiving:
        each.result(LIMIT_S)
    assert sorted(got) == sorted(b"%d %d" % (who, index) for who in range(4) for index in range(40))


def test_connections_leave_nothing(connected: Callable[..., Pair], device: Any) -> None:
    one = connected(SMALL)
    kept = connected(SMALL)
    counts, descriptors = device.resources(), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        client, server = connected(SMALL)
        client.share("box", bytearray(8), "rwa")
        server.write("box", b"12345678")
        client.close()
        assert list(server) == []
        server.close()
    assert device.resources() == counts
    assert len(os.listdir("/proc/self/fd")) <= descriptors  # fewer: what earlier tests left has ended
    for client, server in (one, kept):
        client.send(b"x")
        assert server.recv() == b"x"


def test_what_a_channel_says_of_itself(pair: Pair) -> None:
    client, server = pair
    assert client.local_address == server.peer_address
    assert client.peer_address == server.local_address
    assert (client.name, client.acknowledged, client.closed, client.lost) == ("", True, False, 0)
    assert "open" in repr(client)
    client.close()
    assert "closed" in repr(client)


def test_a_channel_that_is_dropped_is_closed(connected: Callable[..., Pair]) -> None:
    client, server = connected(SMALL)
    dropped = Channel(client._endpoint)
    with pytest.warns(ResourceWarning, match="not closed"):
        del dropped
    with pytest.raises(ChannelEnded):
        server.recv()


def test_a_request_that_was_taken_when_its_listener_closed_is_refused(later: Later) -> None:
    """By a thread that is in `accept`; else the peer waited, and the connection stayed."""
    listener = Channel.listen("127.0.0.1:0")
    asking = later(Channel.connect, listener.address, timeout=LIMIT_S)
    event = listener._requests.channel.channel.next_event(LIMIT_S)
    listener.close()
    assert listener._requests.accept(CMEvent.of(event)) is None
    with pytest.raises(ChannelRefused):
        asking.result(LIMIT_S)


@pytest.mark.parametrize("wrong", [None, 3, b"box", ()], ids=repr)
def test_what_has_the_wrong_type_is_told_so(pair: Pair, wrong: Any) -> None:
    one, _ = pair
    for call in (
        lambda: one.read(wrong, 1),
        lambda: one.write(wrong, b"a"),
        lambda: one.fetch_add(wrong, 0, 1),
        lambda: one.remote(wrong),
        lambda: one.share(wrong, bytearray(8)),
        lambda: one.unshare(wrong),
        lambda: one.open(wrong),
        lambda: Channel.connect(wrong),
        lambda: Channel.listen(wrong),
    ):
        with pytest.raises(TypeError):
            call()


def test_a_channel_has_one_owner(pair: Pair) -> None:
    one, _ = pair
    with pytest.raises(TypeError, match="copy 'Channel'"):
        copy.copy(one)
    assert not one.closed
