"""A hostile peer: what it says is refused, and ends its own connection alone, in bounded time and memory."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from channel_waits import LIMIT_S, SMALL, Full, until

from softhca.channels import Channel, ChannelLost, ChannelRefused, ChannelViolation
from softhca.channels import messages as m
from softhca.channels.accounts import SendAccount
from softhca.channels.link import MOST_PENDING
from softhca.channels.messages import Control
from softhca.channels.named import MOST_NAMES
from softhca.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam

Later = Callable[..., Future[Any]]
Pair = tuple[Channel, Channel]
OPEN = {"qp_num": 5, "psn": 1, "slot_bytes": 256, "slots": 4, "length": 256, "flags": 1, "name": "x"}
SHARE = {"number": 1, "address": 4096, "length": 8, "key": 1, "flags": 1, "name": "box"}


def control(kind: int, **fields: Any) -> bytes:
    return Control(kind, **fields).encode(0)


def say(channel: Channel, data: bytes) -> None:
    """Have the peer told these bytes as a control message."""
    link = channel._link

    class Forged(Control):
        def encode(self, taken: int) -> bytes:
            return data

    with link.guard:
        link._post(Forged(m.NOTHING))


class Liar(SendAccount):
    """One whose messages are what it likes."""

    said = 0

    def immediate(self, kind: int) -> int:
        super().immediate(kind)
        return self.said


FORGED = {
    "no message": b"",
    "noise": bytes(range(100)),
    "an unknown kind": control(m.NOTHING).replace(bytes([m.NOTHING]), b"\x63", 1),
    "a field too many": control(m.READY, number=1),
    "a count that cannot be": Control(m.NOTHING).encode(5000),
    "ready twice": control(m.READY),
    "credit for nothing": control(m.CREDIT, number=1),
    "credit with flags": control(m.CREDIT, flags=2),
    "losses of an acknowledged channel": control(m.SYNC),
    "an end with more messages": control(m.CLOSE, number=2),
    "an answer to nothing": control(m.OPENED, **{**OPEN, "name": ""}),
    "a refusal of nothing": control(m.REFUSED),
    "a buffer without rights": control(m.SHARE, **{**SHARE, "flags": 0}),
    "a buffer with other rights": control(m.SHARE, **{**SHARE, "flags": 8}),
    "a buffer of no bytes": control(m.SHARE, **{**SHARE, "length": 0}),
    "a buffer beyond all memory": control(m.SHARE, **{**SHARE, "address": (1 << 64) - 7}),
    "a buffer that is not there goes": control(m.UNSHARE, number=1),
    "a buffer that was not revoked": control(m.UNSHARED, number=1),
    "channel 0 again": control(m.OPEN, channel=0, **OPEN),
    "a channel of the other side": control(m.OPEN, channel=2, **OPEN),
    "a channel without slots": control(m.OPEN, channel=1, **{**OPEN, "slots": 0}),
    "a channel of no service": control(m.OPEN, channel=1, **{**OPEN, "flags": 0}),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_cannot_be_ends_the_connection_of_who_says_it(
    connected: Callable[..., Pair], later: Later, name: str
) -> None:
    client, server = connected(SMALL)
    other = connected(SMALL)
    client.send(b"before")
    assert server.recv() == b"before"
    waiting = later(server.recv)
    say(client, FORGED[name])
    with pytest.raises(ChannelViolation, match="cannot be"):
        waiting.result(LIMIT_S)
    with pytest.raises(ConnectionAbortedError):
        server.send(b"x")
    other[0].send(b"others go on")
    assert other[1].recv() == b"others go on"
    with pytest.raises(ChannelLost):  # without a close
        client.recv()


@pytest.mark.parametrize(
    "twice",
    [control(m.SHARE, **SHARE), control(m.OPEN, channel=1, **OPEN), control(m.CLOSE)],
)
def test_what_is_said_twice(pair: Pair, later: Later, twice: bytes) -> None:
    client, server = pair
    say(client, twice)
    say(client, twice)
    with pytest.raises((ChannelViolation, EOFError)):
        server.recv()
    until(lambda: _violated(server))


def _violated(channel: Channel) -> bool:
    channel._link.poll()
    return isinstance(channel._link.error, ChannelViolation)


def test_a_flood_of_buffers_is_bounded(pair: Pair) -> None:
    client, server = pair
    link = server._link
    with link.guard:
        for index in range(MOST_NAMES):
            link.named.on_control(Control(m.SHARE, **{**SHARE, "number": index + 1, "name": f"{index}"}))
        with pytest.raises(m.ProtocolError):
            link.named.on_control(Control(m.SHARE, **{**SHARE, "number": 5000, "name": "one more"}))
    assert len(link.named.peers) == MOST_NAMES
    client.close()


def test_who_revokes_all_buffers_while_the_peer_takes_nothing_goes_on(pair: Pair, later: Later) -> None:
    """They are revoked as soon as the peer has room, before one of their names is shared again."""
    client, server = pair
    opening = later(client.open, "second")
    accepted, second = server.accept(), opening.result(LIMIT_S)
    shared = []
    for index in range(MOST_NAMES):
        shared.append(client.share(f"{index}", bytearray(8)))
        server.remote(f"{index}")
    full = Full(client)
    for each in shared:
        each.close(timeout=0)
    closing = later(second.close)
    until(lambda: len(full.link._pending) > MOST_NAMES or full.link.error is not None)
    assert full.link.error is None
    full.ends()
    receiving = later(server.recv)
    client.share("0", bytearray(8))
    client.send(b"still there")
    assert receiving.result(LIMIT_S) == b"still there"
    assert list(server._link.named.peers) == ["0"]
    with accepted, pytest.raises(EOFError):
        accepted.recv()
    closing.result(LIMIT_S)


def test_a_channel_is_asked_for_when_the_peer_has_room(pair: Pair, later: Later) -> None:
    """Who gives up before says nothing, however often."""
    client, server = pair
    full = Full(client)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            client.open("given up", timeout=0)
    assert not full.link._pending
    opening = later(client.open, "more")
    until(lambda: len(full.link.channels) > 1)
    assert not opening.done()
    full.ends()
    with server.accept() as accepted, opening.result(LIMIT_S) as opened:
        opened.send(b"there")
        assert (accepted.name, accepted.recv()) == ("more", b"there")


def test_a_peer_that_asks_and_takes_no_answer_is_not_remembered_for_ever(pair: Pair) -> None:
    client, server = pair
    link = server._link
    link.poll()
    with link.guard:
        assert link._account is not None
        link._account.peer_slots = 1  # there is no room to answer, ever
        for index in range(MOST_PENDING + 1):
            link.named.on_control(Control(m.SHARE, **{**SHARE, "number": index + 1}))
            link.named.on_control(Control(m.UNSHARE, number=index + 1))
        assert len(link._pending) == MOST_PENDING
    assert isinstance(link.error, ChannelViolation)
    client.close()


@pytest.mark.parametrize(
    ("immediate", "data"),
    [
        (5, b"a number too far"), (2 << 24, b"an unknown kind"), (1 << 24, b"no place"),
        (1 << 24, m.encode_large(4096, 1, 1 << 21)), (1 << 24, m.encode_large(4096, 1, 0)),
    ],
)  # fmt: skip
def test_forged_messages_end_the_connection(
    pair: Pair, later: Later, immediate: int, data: bytes
) -> None:
    client, server = pair
    endpoint = client._endpoint
    waiting = later(server.recv)
    with client._link.guard:
        endpoint.outgoing = Liar(4, 4)
        endpoint.outgoing.said = immediate
        endpoint.send(memoryview(data))
    with pytest.raises(ChannelViolation):
        waiting.result(LIMIT_S)


def test_a_large_message_that_is_not_there_breaks_its_channel_alone(pair: Pair, later: Later) -> None:
    client, server = pair
    waiting = later(server.recv)
    endpoint = client._endpoint
    with client._link.guard:
        start = 0
        data = m.encode_large(4096, 0x1234, 5000)
        endpoint._stage.view[start : start + len(data)] = data
        endpoint._post_message(1, start, len(data))
    with pytest.raises(ChannelLost):
        waiting.result(LIMIT_S)
    with pytest.raises(ChannelLost):
        client.recv()
    assert server._link.error is None


def test_a_window_is_closed_when_the_message_was_fetched(pair: Pair, later: Later) -> None:
    """The peer may read the message, and nothing of that memory later."""
    client, server = pair
    secret = bytearray(5000)
    sending = later(client.send, secret)
    link = server._link
    until(lambda: (link.poll(), server._endpoint.inbox)[1])
    place = server._endpoint.place_of(server._endpoint.inbox[0])
    assert server.recv() == bytes(5000)
    sending.result(LIMIT_S)
    client.share("box", secret, "r")
    remote = server.remote("box")
    assert remote.read(8) == bytes(8)
    remote.grant.address, remote.grant.key = place[0], place[1]
    with pytest.raises(PermissionError, match="refuses"):
        remote.read(8)


def test_a_window_has_another_key_for_each_message(pair: Pair, later: Later) -> None:
    client, server = pair
    keys = []
    for _ in range(5):
        sending = later(client.send, bytearray(5000))
        until(lambda: (server._link.poll(), server._endpoint.inbox)[1])
        keys.append(server._endpoint.place_of(server._endpoint.inbox[0])[1])
        server.recv()
        sending.result(LIMIT_S)
    assert client._link.windows._made == 1
    assert len(set(keys)) == 5


def test_a_buffer_in_use_is_let_go_when_the_operation_has_ended(pair: Pair) -> None:
    client, server = pair
    server.share("box", bytearray(8), "r")
    remote = client.remote("box")
    link = client._link
    remote.grant.users += 1  # an operation is under way
    said: list[Control] = []
    link.send_control = said.append  # type: ignore[method-assign]
    with link.guard:
        link.named.on_control(Control(m.UNSHARE, number=remote.grant.identity))
        assert said == []
        link.named.leave(remote.grant)
    assert [each.kind for each in said] == [m.UNSHARED]
    del link.send_control


@pytest.mark.parametrize("hello", [b"", b"noise", b"shch" + bytes(26)])
def test_a_request_without_a_greeting_is_refused(hello: bytes, later: Later) -> None:
    with Channel.listen("127.0.0.1:0") as listener:
        accepting = later(listener.accept, LIMIT_S)
        host, port = listener.address.rsplit(":", 1)
        events = CMEventChannel()
        cmid = CMID(creator=events)
        cmid.resolve_addr(AddrInfo(dst=host, dst_service=port))
        cmid.resolve_route()
        for _ in range(2):
            CMEvent(events)
        parameters = ConnParam(qp_num=17, data_len=len(hello))
        parameters.set_private_data(hello)
        cmid.connect(parameters)
        event = CMEvent(events)
        assert event.event_str() == "RDMA_CM_EVENT_REJECTED"
        cmid.close()
        events.close()
        with Channel.connect(listener.address, timeout=LIMIT_S) as channel:
            accepting.result(LIMIT_S).close()
            assert list(channel) == []


def test_a_listener_that_answers_nonsense(later: Later) -> None:
    events = CMEventChannel()
    listener = CMID(creator=events)
    listener.bind_addr(AddrInfo(src="127.0.0.1", src_service="0", flags=1))
    listener.listen()
    address = str(listener._identifier.source)
    for answer in ("accept", "reject"):
        connecting = later(Channel.connect, address, timeout=LIMIT_S)
        request = CMID(creator=CMEvent(events), listen_id=listener)
        if answer == "reject":
            request.reject(b"go away")
        else:
            request.accept(ConnParam(1, 1, qp_num=17))
        with pytest.raises(
            ChannelRefused if answer == "reject" else ChannelViolation,
            match="go away" if answer == "reject" else "no channels",
        ):
            connecting.result(LIMIT_S)
        request.close()
    listener.close()
    events.close()
