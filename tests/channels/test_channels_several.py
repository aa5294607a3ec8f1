"""Several channels of one connection, and unacknowledged ones."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from channel_waits import LIMIT_S, SMALL, until

from softhca.channels import Channel, ChannelAccessError, ChannelEnded, ChannelRefused, MessageTooLong, steps
from softhca.channels import messages as m
from softhca.channels.errors import ChannelClosed, ChannelLost
from softhca.channels.link import MOST_REQUESTS
from softhca.channels.messages import Control

Later = Callable[..., Future[Any]]
Pair = tuple[Channel, Channel]


def another(client: Channel, server: Channel, later: Later, **how: Any) -> Pair:
    opening = later(client.open, "data", timeout=LIMIT_S, **how)
    accepted = server.accept(LIMIT_S)
    opened = opening.result(LIMIT_S)
    for each in (opened, accepted):
        each.timeout = LIMIT_S
    return opened, accepted


@pytest.mark.parametrize("acknowledged", [True, False])
@pytest.mark.parametrize("by_client", [True, False])
def test_one_more_channel(pair: Pair, later: Later, acknowledged: bool, by_client: bool) -> None:
    one, other = pair if by_client else pair[::-1]
    opened, accepted = another(one, other, later, acknowledged=acknowledged)
    assert opened.name == accepted.name == "data"
    assert opened.acknowledged == accepted.acknowledged == acknowledged
    for index in range(20):
        opened.send(b"%d" % index)
        accepted.send(b"-%d" % index)
        one.send(b"first %d" % index)
        assert opened.recv() == b"-%d" % index
        assert accepted.recv() == b"%d" % index
        assert other.recv() == b"first %d" % index
    opened.close()
    with pytest.raises(ChannelEnded):
        accepted.recv()
    accepted.close()
    one.send(b"goes on")
    assert other.recv() == b"goes on"


def test_a_connection_ends_with_a_channel_that_does_not_come_about(pair: Pair) -> None:
    """All others were closed meanwhile."""
    client, _ = pair
    link = client._link
    opening = steps.open_channel(client._endpoint, "more", True)
    assert next(opening)()  # established
    answered = next(opening)
    assert not answered()
    client.close()
    assert not link.closed  # there is the one that is being opened
    assert answered()
    with pytest.raises(ChannelClosed):
        next(opening)
    assert link.closed


def test_a_connection_lives_as_long_as_one_of_its_channels(pair: Pair, later: Later) -> None:
    client, server = pair
    opened, accepted = another(client, server, later)
    client.close()
    with pytest.raises(ChannelEnded):
        server.recv()
    server.close()
    later(opened.send, b"x" * 5000)
    assert accepted.recv() == b"x" * 5000
    opened.close()
    accepted.close()


def test_a_full_channel_does_not_hold_up_another_one(pair: Pair, later: Later) -> None:
    client, server = pair
    opened, accepted = another(client, server, later)
    for _ in range(SMALL.slots):
        client.send(b"nobody takes it")
    with pytest.raises(TimeoutError):
        client.send(b"x", timeout=0)
    for index in range(50):
        opened.send(b"%d" % index)
        assert accepted.recv() == b"%d" % index
    opened.close()
    accepted.close()


def test_a_channel_that_fails_leaves_the_others(pair: Pair, later: Later) -> None:
    client, server = pair
    opened, accepted = another(client, server, later)
    server.share("box", bytearray(8), "r")
    remote = client.remote("box")
    remote.grant.key ^= 0xFF00
    with pytest.raises(ChannelAccessError):
        opened.read(remote)
    with pytest.raises(ChannelLost):
        opened.send(b"x")
    with pytest.raises(ChannelLost):
        accepted.recv()
    client.send(b"control and data are apart")
    assert server.recv() == b"control and data are apart"
    opened.close()
    accepted.close()


def test_a_channel_that_has_failed_posts_nothing_when_it_closes(pair: Pair, later: Later) -> None:
    """Nothing can be on its way that the end would have to wait for."""
    opened, accepted = another(*pair, later)
    endpoint = opened._endpoint
    with endpoint.link.guard:
        endpoint.fail(ChannelLost("for this test"))
    posted = endpoint._operation_count
    opened.close()
    assert endpoint._operation_count == posted
    accepted.close()


def test_channels_that_nobody_accepts(pair: Pair, later: Later) -> None:
    client, server = pair
    opening = [later(client.open, f"{index}", timeout=LIMIT_S) for index in range(MOST_REQUESTS + 1)]

    def refused() -> list[Any]:
        server.try_recv()
        return [each for each in opening if each.done()]

    until(refused)
    (found,) = refused()
    with pytest.raises(ChannelRefused):
        found.result()
    server.close()
    for each in opening:
        if each is not found:
            with pytest.raises((ChannelEnded, ChannelLost)):
                each.result(LIMIT_S)


def test_an_opening_that_is_given_up(pair: Pair, later: Later) -> None:
    client, server = pair
    with pytest.raises(TimeoutError):
        client.open("in vain", timeout=0.01)
    opened, accepted = another(client, server, later)
    assert accepted.name == "data"
    opened.close()
    accepted.close()
    with pytest.raises(ValueError, match="name"):
        client.open("")
    client.close()
    with pytest.raises(ChannelClosed):
        client.open("late")


def test_an_unacknowledged_channel_carries_what_fits_a_slot(
    connected: Callable[..., Pair], later: Later
) -> None:
    client, server = connected(SMALL, acknowledged=False)
    assert client.longest == client.longest_copied == 256
    with pytest.raises(MessageTooLong):
        client.send(bytes(257))
    server.share("box", bytearray(8), "rwa")
    client.write("box", b"12345678")
    for call in (lambda: client.read("box"), lambda: client.fetch_add("box", 0, 1)):
        with pytest.raises(ChannelAccessError, match="acknowledged"):
            call()

    def send_all() -> None:
        for index in range(300):
            client.send(b"%d" % index)

    sending = later(send_all)
    assert [server.recv() for _ in range(300)] == [b"%d" % index for index in range(300)]
    assert server.lost == 0
    sending.result(LIMIT_S)


def test_what_is_lost_is_counted_and_holds_no_room(connected: Callable[..., Pair], later: Later) -> None:
    client, server = connected(SMALL, acknowledged=False)
    client.send(b"before")
    assert server.recv() == b"before"
    outgoing = client._endpoint.outgoing
    for turn in range(1, 4):
        until(lambda: (client._link.poll(), outgoing.room > 1)[1])
        while outgoing.room:
            outgoing.immediate(0)  # counted, and never on its way
            outgoing.retired = outgoing.sent
        lost = outgoing.sent - turn
        assert lost > server.lost
        sending = later(client.send, b"after")
        assert server.recv() == b"after"
        assert server.lost == lost
        sending.result(LIMIT_S)
    client.close()
    assert list(server) == []


def test_the_last_messages_that_are_lost_are_counted_at_the_end(connected: Callable[..., Pair]) -> None:
    client, server = connected(SMALL, acknowledged=False)
    client.send(b"arrives")
    client._endpoint.outgoing.immediate(0)
    client.close()
    assert list(server) == [b"arrives"]
    assert server.lost == 1


def test_a_question_behind_later_messages_ends_nothing(connected: Callable[..., Pair]) -> None:
    """It goes by another queue pair than they do, whose packet may be lost and sent again."""
    client, server = connected(SMALL, acknowledged=False)
    for number in range(3):
        client.send(b"%d" % number)
        assert server.recv() == b"%d" % number
    with server._link.guard:
        server._endpoint.on_control(Control(m.SYNC, server._endpoint.number, 1))
    for number in range(9):
        client.send(b"%d" % number)
        assert server.recv() == b"%d" % number
    assert server.lost == 0
