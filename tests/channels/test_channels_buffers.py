"""Named buffers: READ, WRITE and atomics, rights, ranges, revocation."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from channel_waits import LIMIT_S, SMALL, until

from softhca.channels import Channel, ChannelAccessError, ChannelEnded, ChannelError, ChannelLost, Rights
from softhca.channels.endpoint import Operation
from softhca.verbs import enums as e

Later = Callable[..., Future[Any]]
Pair = tuple[Channel, Channel]


def test_write_and_read_of_a_shared_array(pair: Pair) -> None:
    client, server = pair
    numbers = np.arange(1000, dtype=np.int64)
    server.share("numbers", numbers, "rw")
    remote = client.remote("numbers")
    assert (remote.name, remote.length, len(remote), remote.rights) == (
        "numbers", 8000, 8000, Rights.READ | Rights.WRITE,
    )  # fmt: skip
    assert remote.read() == numbers.tobytes()
    assert remote.read(16, 80) == numbers[10:12].tobytes()
    remote.write(np.array([-1, -2]), 8)
    assert numbers[:4].tolist() == [0, -1, -2, 3]
    target = np.zeros(500, np.int64)
    client.read_into("numbers", target, 4000)
    assert np.array_equal(target, numbers[500:])
    client.write("numbers", target, 0)  # more than is copied
    assert np.array_equal(numbers[:500], target)
    assert (remote.read(0, 5), remote.write(b"", 5)) == (b"", None)


def test_atomics(pair: Pair) -> None:
    client, server = pair
    words = np.array([5, 0, 1 << 63], np.uint64)
    server.share("words", words, Rights.ATOMIC)
    remote = client.remote("words")
    assert remote.fetch_add(0, 3) == 5
    assert remote.fetch_add(0, -1) == 8
    assert remote.compare_swap(0, 7, 100) == 7
    assert remote.compare_swap(0, 7, 200) == 100
    assert client.fetch_add("words", 16, 1 << 63) == 1 << 63
    assert words.tolist() == [100, 0, 0]
    with pytest.raises(ValueError, match="64 bits"):
        remote.compare_swap(0, -1, 0)


def test_atomics_of_many_threads_add_up(pair: Pair, later: Later) -> None:
    client, server = pair
    words = np.zeros(1, np.uint64)
    server.share("words", words, "a")
    remote = client.remote("words")

    def add() -> list[int]:
        return [remote.fetch_add(0, 1) for _ in range(25)]

    found = [value for each in [later(add) for _ in range(4)] for value in each.result(LIMIT_S)]
    assert sorted(found) == list(range(100))
    assert words[0] == 100


def test_rights_and_ranges_are_held(pair: Pair) -> None:
    client, server = pair
    for name, rights in (("r", "r"), ("w", "w"), ("a", "a")):
        server.share(name, bytearray(64), rights)
    calls: dict[str, Callable[[str], object]] = {
        "r": lambda name: client.read(name, 8),
        "w": lambda name: client.write(name, b"12345678"),
        "a": lambda name: client.fetch_add(name, 0, 1),
    }
    for name in calls:
        for right, call in calls.items():
            if name == right:
                call(name)
                continue
            with pytest.raises(ChannelAccessError) as caught:
                call(name)
            assert isinstance(caught.value, PermissionError)
    for offset, length in ((0, 65), (64, 1), (-1, 2), (60, 5)):
        with pytest.raises(ChannelAccessError):
            client.read("r", length, offset)
    with pytest.raises(ChannelAccessError):
        client.write("w", bytes(65))
    for offset in (57, 64, -8, 4):
        with pytest.raises(ChannelAccessError):
            client.fetch_add("a", offset, 1)
    client.read("r", 64)  # and nothing is broken


def test_what_cannot_be_shared(pair: Pair) -> None:
    client, _ = pair
    with pytest.raises(TypeError):
        client.share("x", b"cannot be written", "w")
    for name in ("", "x" * 65):
        with pytest.raises(ValueError, match="name"):
            client.share(name, bytearray(8))
    for rights in ("", "rx", 0, 8):
        with pytest.raises(ValueError, match="right"):
            client.share("x", bytearray(8), rights)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="bytes"):
        client.share("x", b"")
    client.share("x", bytearray(8))
    with pytest.raises(ChannelError, match="already"):
        client.share("x", bytearray(8))


def test_a_buffer_that_is_waited_for(pair: Pair, later: Later) -> None:
    client, server = pair
    waiting = later(client.remote, "late")
    until(lambda: client._link._sync_waiters)
    server.share("late", b"here it is")
    assert waiting.result(LIMIT_S).read() == b"here it is"


def test_a_buffer_is_shared_no_more(pair: Pair, later: Later) -> None:
    client, server = pair
    buffer = bytearray(b"12345678")
    with server.share("box", buffer, "rw") as shared:
        remote = client.remote("box")
        assert remote.read() == buffer
        closing = later(shared.close)
        until(lambda: client.try_recv() is None and closing.done())
    shared.close()
    buffer.extend(b"it is this program's alone")
    with pytest.raises(ChannelAccessError, match="any more"):
        remote.read()
    server.share("box", buffer, "r")  # the name is free again
    assert client.remote("box").read() == buffer


def test_a_peer_that_does_not_let_go_is_not_waited_for(pair: Pair) -> None:
    client, server = pair
    buffer = bytearray(8)
    shared = server.share("box", buffer, "r")
    remote = client.remote("box")
    shared.close(0.01)  # the client is in no call, and says nothing
    buffer.extend(b"x")
    grant = remote.grant
    grant.revoked = False  # as a client that does not listen
    with pytest.raises(ChannelAccessError, match="refuses"):
        client.read(remote, 8)
    with pytest.raises(ChannelError):  # its queue pair is in error: the standard has it so
        client.send(b"x")


def test_buffers_of_another_connection_are_refused(connected: Callable[..., Pair]) -> None:
    one, other = connected(SMALL), connected(SMALL)
    shared = one[1].share("box", bytearray(8), "rw")
    remote = one[0].remote("box")
    with pytest.raises(ChannelAccessError, match="another"):
        other[0].read(remote)
    with pytest.raises(ChannelAccessError, match="another"):
        other[1].unshare(shared)
    assert remote.read() == bytes(8)


def test_a_key_of_one_connection_is_no_good_on_another(connected: Callable[..., Pair]) -> None:
    one, other = connected(SMALL), connected(SMALL)
    one[1].share("box", bytearray(8), "rw")
    stolen = one[0].remote("box").grant
    other[1].share("box", bytearray(8), "rw")
    grant = other[0].remote("box").grant
    grant.key, grant.address = stolen.key, stolen.address
    with pytest.raises(ChannelAccessError, match="refuses"):
        other[0].read("box")
    assert one[0].read("box") == bytes(8)


def test_remote_of_a_closed_channel(pair: Pair) -> None:
    client, server = pair
    server.close()
    with pytest.raises(ChannelEnded):
        client.remote("box")


def test_more_names_than_there_is_room_to_tell_wait(pair: Pair, later: Later) -> None:
    client, server = pair
    done: list[int] = []

    def share_all() -> None:
        for index in range(150):
            server.share(f"box {index}", bytearray(8), "r")
            done.append(index)

    sharing = later(share_all)
    until(lambda: len(done) > 50)
    assert client.remote("box 149").length == 8
    sharing.result(LIMIT_S)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (e.IBV_WC_REM_ACCESS_ERR, ChannelAccessError),
        (e.IBV_WC_REM_INV_REQ_ERR, ChannelAccessError),
        (e.IBV_WC_REM_OP_ERR, ChannelLost),
        (e.IBV_WC_RETRY_EXC_ERR, ChannelLost),
    ],
)
def test_who_refuses_is_told_from_who_has_died(pair: Pair, status: int, kind: type[ChannelError]) -> None:
    """An adapter process answers for a killed program until it knows; its memory is gone, nobody refuses."""
    client, server = pair
    client.share("box", bytearray(8), "rw")
    remote = server.remote("box")
    endpoint, end = server._endpoint, server._endpoint._end_operation

    def fails(number: int, operation: Operation, _: int) -> None:
        end(number, operation, status)
        endpoint._failed(status)

    endpoint._end_operation = fails  # type: ignore[method-assign]
    with pytest.raises(kind):
        remote.read()
    with pytest.raises(ChannelLost):
        server.recv()


def test_a_close_ends_operations_and_refuses_none(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shared goes behind the queue pair by which the peer uses it."""
    client, server = pair
    client.share("box", bytearray(8), "rw")
    server.remote("box").read()
    closed: list[str] = []
    for name, one in (("memory", client._link.named), ("queue pair", client._endpoint.wire)):

        def close(name: str = name, plain: Callable[[], None] = one.close) -> None:
            closed.append(name)
            plain()

        monkeypatch.setattr(one, "close", close)
    client.close()
    assert closed == ["queue pair", "memory"]
    with pytest.raises(ChannelEnded):
        server.read("box")
