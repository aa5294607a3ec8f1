"""What each side counts and refuses where the other one, or the program, does what is seldom done."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from channel_waits import LIMIT_S, SMALL, Full, until

from softhca.channels import (
    Channel,
    ChannelEnded,
    ChannelError,
    ChannelLost,
    ChannelViolation,
    endpoint,
    link,
    steps,
)
from softhca.channels import messages as m
from softhca.channels.accounts import SendAccount
from softhca.channels.messages import Control, End, Greeting
from softhca.driver.rdmacm import events, identifier
from softhca.verbs import enums as e
from softhca.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam

Later = Callable[..., Future[Any]]
Pair = tuple[Channel, Channel]


class Late(SendAccount):
    """Of messages that come once more, when they have come long ago."""

    __slots__ = ()

    def immediate(self, kind: int) -> int:
        return kind << 24 | self.sent - 1


def another(client: Channel, server: Channel, later: Later) -> Pair:
    opening = later(client.open, "more", timeout=LIMIT_S)
    accepted = server.accept(LIMIT_S)
    found = opening.result(LIMIT_S), accepted
    for each in found:
        each.timeout = LIMIT_S
    return found


def test_a_channel_that_the_peer_has_closed_takes_no_message(pair: Pair, later: Later) -> None:
    """Also a short one, which is sent without further questions; the connection lives."""
    client, server = pair
    opened, accepted = another(client, server, later)
    accepted.close()
    until(lambda: (client._link.poll(), opened._endpoint.peer_closed)[1])
    with opened, pytest.raises(ChannelEnded):
        opened.send(b"x")
    client.send(b"goes on")
    assert server.recv() == b"goes on"


def test_an_answer_that_opens_another_service_is_refused(pair: Pair, later: Later) -> None:
    client, server = pair
    opening = later(client.open, "more", acknowledged=False)
    until(lambda: (server._link.poll(), server._link.requests)[1])
    number = server._link.requests[0].channel
    end = server._endpoint.end
    with server._link.guard:
        server._link.send_control(
            Control(
                m.OPENED, number, length=end.largest_bytes, qp_num=end.qp_num, psn=end.psn,
                slot_bytes=end.slot_bytes, slots=end.slots, flags=m.ACKNOWLEDGED,
            )
        )  # fmt: skip
    with pytest.raises(ChannelViolation, match="another one"):
        opening.result(LIMIT_S)


def test_a_listener_that_answers_with_another_service_is_refused(later: Later) -> None:
    come = CMEventChannel()
    listener = CMID(creator=come)
    listener.bind_addr(AddrInfo(src="127.0.0.1", src_service="0", flags=1))
    listener.listen()
    connecting = later(Channel.connect, str(listener._identifier.source), timeout=LIMIT_S)
    request = CMID(creator=CMEvent(come), listen_id=listener)
    said = Greeting(End(m.UNACKNOWLEDGED, 17, 1, 4, 256, 256), 64).encode()
    parameters = ConnParam(1, 1, qp_num=17, data_len=len(said))
    parameters.set_private_data(said)
    request.accept(parameters)
    with pytest.raises(ChannelViolation, match="another service"):
        connecting.result(LIMIT_S)
    request.close()
    listener.close()
    come.close()


def test_messages_that_come_late_cost_no_receives(connected: Callable[..., Pair], later: Later) -> None:
    client, server = connected(SMALL, acknowledged=False)
    client.send(b"first")
    assert server.recv() == b"first"
    end, incoming = client._endpoint, server._endpoint.incoming
    account = end.outgoing
    late = Late(account.slots, account.staged)
    late.sent, late.taken, late.retired = account.sent, account.taken, account.retired
    for turn in range(1, SMALL.slots):
        free = len(server._endpoint._free)
        with client._link.guard:
            end.outgoing = late
            end.send(memoryview(b"late"))
            end.outgoing = account
        until(lambda: (server._link.poll(), incoming.late == turn)[1])  # noqa: B023
        assert len(server._endpoint._free) == free + 1
    receiving = later(lambda: [server.recv() for _ in range(3 * SMALL.slots)])
    while not receiving.done():  # some are lost before what was taken is told
        client.send(b"fresh")
    assert receiving.result() == [b"fresh"] * 3 * SMALL.slots
    assert len(server._endpoint._free) < SMALL.slots


def test_operations_in_pieces_leave_room_for_others(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    client, server = pair
    box = bytearray(4096)
    server.share("box", box, "rw")
    remote = client.remote("box")
    monkeypatch.setattr(steps, "OPERATION_BYTES", 1000)
    for turn in range(endpoint.OPERATIONS):
        data = bytes([turn]) * 4096
        remote.write(data)
        assert remote.read() == data == box
    assert client._endpoint._under_way == 0


def test_a_connection_has_so_many_channels_and_their_numbers_come_again(
    pair: Pair, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "MOST_CHANNELS", 3)
    client, server = pair
    client._link._next_channel = m.MOST_CHANNEL
    server._link._next_channel = m.MOST_CHANNEL - 1
    one = another(client, server, later)
    other = another(server, client, later)
    assert [each[0]._endpoint.number for each in (one, other)] == [m.MOST_CHANNEL, m.MOST_CHANNEL - 1]
    for each in pair:
        with pytest.raises(ChannelError, match="at most 3 channels"):
            each.open("too many")
    for each in (*one, *other):
        each.kill()
    for made, number in ((another(client, server, later), 1), (another(server, client, later), 2)):
        assert made[0]._endpoint.number == number
        made[0].kill()
        made[1].kill()
    with client._link.guard:
        client._link.channels[5] = client._endpoint  # one that lives since its number came last
        client._link._next_channel = 5
        assert client._link.next_number() == 7
        del client._link.channels[5]
    last = m.MOST_CHANNEL - 1
    with server._link.guard:  # whose first channel, number 0, was closed
        monkeypatch.setattr(server._link, "channels", {last: server._endpoint})
        server._link._next_channel = last
        assert server._link.next_number() == 2
        monkeypatch.undo()


def test_the_queue_pair_has_room_for_what_may_be_under_way(pair: Pair) -> None:
    """One operation is up to eight requests, and messages have places of their own."""
    end = pair[0]._endpoint
    for under_way, more in ((endpoint.OPERATIONS - 8, True), (endpoint.OPERATIONS - 7, False)):
        end._under_way = under_way
        assert end.has_operations == more
    end._under_way = 0


def test_requests_of_the_peer_count_as_channels(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "MOST_CHANNELS", 3)
    own = pair[1]._link
    fields = {"qp_num": 5, "psn": 1, "slot_bytes": 256, "slots": 4, "length": 256, "flags": 1, "name": "x"}
    with own.guard:
        for number in (1, 3, 5):
            own._asked(Control(m.OPEN, channel=number, **fields))
    assert [each.channel for each in own.requests] == [1, 3]


@pytest.mark.parametrize("closed", [False, True])
def test_a_peer_that_is_gone_is_gone_for_all_channels(pair: Pair, later: Later, closed: bool) -> None:
    """But of a channel that the peer has closed nobody need answer."""
    opened, accepted = another(*pair, later)
    opened._endpoint.peer_closed = closed
    with opened._link.guard:
        opened._endpoint._failed(int(e.IBV_WC_RETRY_EXC_ERR))
    assert (opened._link.error is None) == closed
    with pytest.raises(ChannelEnded if closed else ConnectionResetError):
        opened.recv()
    if closed:
        pair[0].send(b"goes on")
        assert pair[1].recv() == b"goes on"
    else:
        with pytest.raises(ConnectionResetError):
            pair[0].send(b"x")
    opened.kill()
    accepted.kill()


def test_a_request_that_is_given_up_is_accepted_by_nobody(pair: Pair, later: Later) -> None:
    client, server = pair
    opening = later(client.open, "given up")
    until(lambda: (server._link.poll(), server._link.requests)[1])
    with client._link.guard:
        client._link.channels[1].fail(ChannelLost("given up"))
    with pytest.raises(ChannelLost):
        opening.result(LIMIT_S)
    until(lambda: (server._link.poll(), not server._link.requests)[1])
    for each in another(client, server, later):
        each.kill()


def test_who_polls_before_it_sleeps_does_not_nap(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside busy programs an event loop would stand still for each of a task's polls."""
    looks: list[str] = []
    monkeypatch.setattr(pair[0]._link, "_driver", SimpleNamespace(look=lambda: looks.append("look")))
    pair[0]._link._progress()
    monkeypatch.undo()
    assert looks == ["look"]


def test_what_has_come_before_the_end_is_received(pair: Pair) -> None:
    """Also where the end of the connection is heard first."""
    client, server = pair
    client.send(b"last words")
    own = server._link
    until(lambda: (own._progress(), own._handle.waiting())[1])
    with own.guard:
        own.on_cm_event(cast(CMEvent, SimpleNamespace(event_type=events.DISCONNECTED, private_data=b"")))
    assert server.recv() == b"last words"
    with pytest.raises(ChannelLost):
        server.recv()


def test_all_channels_are_told_what_was_taken_when_there_is_room_again(pair: Pair, later: Later) -> None:
    client, server = pair
    pairs = (pair, another(client, server, later))
    for one, _ in pairs:
        for _ in range(SMALL.slots):
            one.send(b"x")
    for _, other in pairs:
        until(lambda: (server._link.poll(), len(other._endpoint.inbox) == SMALL.slots)[1])  # noqa: B023
    full = Full(server)
    for _, other in pairs:
        for _ in range(SMALL.slots):
            assert other.recv() == b"x"
    full.ends()
    for one, _ in reversed(pairs):
        one.send(b"more")
    for _, other in pairs:
        assert other.recv() == b"more"
    for each in pairs[1]:
        each.kill()


def test_what_is_said_has_arrived_when_it_was_acknowledged(pair: Pair) -> None:
    own = pair[0]._link
    with own.guard:
        own._pump()
        until(lambda: (own._progress(), own._pump(), own.quiet)[2])
        own.send_control(Control(m.NOTHING))
        assert not own.quiet
    until(lambda: (own.poll(), own.quiet)[1])


def test_what_waits_for_room_is_said_though_the_program_does_nothing(pair: Pair) -> None:
    client, server = pair
    with client._link.guard:
        for _ in range(2 * link.CONTROL_SLOTS):
            client._link.send_control(Control(m.NOTHING))
    assert client._link._pending
    until(lambda: (server._link.poll(), not client._link._pending)[1])


def test_a_peer_that_has_answered_is_asked_again(pair: Pair) -> None:
    own = pair[0]._link
    for _ in range(2):
        own.keep_alive()
        assert own._probing
        until(lambda: (own.poll(), not own._probing)[1])


def test_a_read_without_a_length_goes_to_the_end(pair: Pair) -> None:
    client, server = pair
    server.share("box", bytearray(b"0123456789"), "r")
    remote = client.remote("box")
    assert [remote.read(offset=offset) for offset in (0, 7, 10)] == [b"0123456789", b"789", b""]


def test_a_large_message_that_finds_no_room_gives_its_window_back(pair: Pair, later: Later) -> None:
    client, server = pair
    for _ in range(SMALL.slots):
        client.send(b"x")
    for _ in range(3):
        with pytest.raises(TimeoutError):
            client.send(bytes(5000), timeout=0)
    assert client._link.windows._made == len(client._link.windows._unused) == 1
    sending = later(client.send, bytes(5000))
    for _ in range(SMALL.slots):
        assert server.recv() == b"x"
    assert server.recv() == bytes(5000)
    sending.result(LIMIT_S)


def test_a_channel_that_is_closed_before_it_opens_sends_nothing_quickly(pair: Pair) -> None:
    end = pair[0]._endpoint
    for closed, quick in ((True, 0), (False, end.longest_copied)):
        end.closed, end.quick = closed, 0
        end.open_for_sending()
        assert end.quick == quick


def test_who_waits_for_room_sees_that_the_peer_has_closed(pair: Pair) -> None:
    end = pair[0]._endpoint
    end.outgoing.staged -= SMALL.slots
    assert not end.writable
    end.peer_closed = True
    assert end.writable
    end.peer_closed = False
    end.outgoing.staged += SMALL.slots


def test_messages_under_way_have_places_of_their_own(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    end = pair[0]._endpoint
    places: list[int] = []
    post = end.post
    monkeypatch.setattr(end, "post", lambda request: (places.append(request.sges[0][0]), post(request)))
    for _ in range(SMALL.slots):
        pair[0].send(b"x")
    assert len(set(places)) == SMALL.slots


def test_a_question_is_answered_once(connected: Callable[..., Pair]) -> None:
    end = connected(SMALL, acknowledged=False)[0]._endpoint
    with end.link.guard:
        end.on_control(Control(m.SYNC, 0, end.incoming.expected))
        answer = end.next_credit()
        assert answer is not None
        assert answer.flags == m.ANSWER
        assert end.next_credit() is None


def test_a_port_at_which_another_program_listens_is_not_given_to_who_names_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Programs that share an adapter do not know of each other's ports."""
    with Channel.listen("127.0.0.1:0") as other:
        port = int(other.address.rpartition(":")[2])
        found, free = [port], identifier.PORT_NUMBERS._free
        monkeypatch.setattr(identifier.PORT_NUMBERS, "_bound", {})
        monkeypatch.setattr(
            identifier.PORT_NUMBERS, "_free", lambda *where: found.pop() if found else free(*where)
        )
        with Channel.listen("127.0.0.1:0") as listener:
            assert int(listener.address.rpartition(":")[2]) != port
            assert not found
        with pytest.raises(ChannelError) as refused:
            Channel.listen(f"127.0.0.1:{port}")
        assert refused.value.errno == errno.EADDRINUSE
