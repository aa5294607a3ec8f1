"""The dispatcher: every verdict, clients that share a queue pair, and its bounds."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterable
from dataclasses import replace

import pytest
from management_node import OTHER, PEER, Node, request

from softhca.management import constants as c
from softhca.management import dispatcher as d
from softhca.management.agents import Agent, ServiceAgent, SubnetManagementAgent
from softhca.management.attributes import ClassPortInfo
from softhca.management.directed_route import RETURN_PATH, DirectedRoute, hops
from softhca.management.dispatcher import Client, Dispatcher
from softhca.management.mad import Address, Mad

PERF = c.CLASS_PERF
CPI = c.ATTRIBUTE_CLASS_PORT_INFO
Registered = tuple[Client, list[Mad]]


class Wire:
    """A dispatcher, and what it sends."""

    def __init__(self, qpn: int = c.GENERAL_QPN, room: int = 1000) -> None:
        self.sent: list[tuple[Mad, Address]] = []
        self.room = room
        self.dispatcher = Dispatcher(1, qpn, self.transmit)

    def transmit(self, data: bytes, address: Address) -> bool:
        if len(self.sent) >= self.room:
            return False
        self.sent.append((Mad.decode(data), address))
        return True

    def receive(self, mad: Mad, source: Address = PEER) -> None:
        self.dispatcher.receive(mad.encode(), source)

    def counted(self) -> dict[str, int]:
        return {name: count for name, count in self.dispatcher.counters.items() if count}

    def client(self, methods: Iterable[int] = (), room: int = 1000, **others: int) -> Registered:
        got: list[Mad] = []

        def deliver(data: bytes, address: Address) -> bool:
            if len(got) >= room:
                return False
            got.append(Mad.decode(data))
            return True

        client = Client(others.get("management_class", PERF), others.get("version", 1), methods, deliver)
        self.dispatcher.register(client)
        return client, got


def test_the_verdicts_have_every_cell() -> None:
    assert set(d.VERDICTS) == set(itertools.product((False, True), repeat=4))
    for (_, _, _, answered), (verdict, status, counter) in d.VERDICTS.items():
        assert verdict in (d.DISPATCH, d.REFUSE, d.DROP)
        assert (verdict == d.REFUSE) == bool(status)
        assert (verdict == d.DISPATCH) != bool(counter)
        assert counter in ("", *d.COUNTERS)
        assert answered or verdict != d.REFUSE


@pytest.mark.parametrize(
    ("changed", "status", "counter"),
    [
        ({}, c.STATUS_OK, ""),
        ({"base_version": 2}, c.STATUS_BAD_VERSION, "drops_version"),
        ({"base_version": 0, "method": c.METHOD_SEND}, None, "drops_version"),
        ({"class_version": 2}, c.STATUS_BAD_VERSION, "drops_version"),
        ({"class_version": 9, "method": c.METHOD_TRAP}, None, "drops_version"),
        ({"management_class": 0x32}, c.STATUS_BAD_VERSION, "drops_class"),
        ({"management_class": 0x32, "method": c.METHOD_SET}, c.STATUS_BAD_VERSION, "drops_class"),
        ({"management_class": 0x32, "method": c.METHOD_TRAP}, None, "drops_class"),
        ({"method": c.METHOD_GET_TABLE}, None, "drops_method"),
        ({"method": c.METHOD_REPORT}, None, "drops_method"),
        ({"method": 0}, None, "drops_method"),
        ({"method": c.METHOD_GET_RESPONSE}, None, "drops_unmatched"),
        ({"method": 0xFF, "base_version": 77}, None, "drops_unmatched"),
    ],
)
def test_a_request_is_answered_refused_or_dropped(
    changed: dict[str, int], status: int | None, counter: str
) -> None:
    wire = Wire()
    wire.dispatcher.register(ServiceAgent(PERF))
    mad = request(CPI, management_class=PERF)
    mad = replace(mad, header=replace(mad.header, **changed))
    wire.receive(mad)
    expected = {"received": 1}
    if counter:
        expected[counter] = 1
    if status is not None:
        expected |= {"answered": 1, "sent": 1}
        ((answer, where),) = wire.sent
        assert where == PEER
        assert answer.header.status == status
        assert answer.header.method == mad.response().header.method
        assert answer.header.transaction_id == mad.header.transaction_id
    else:
        assert wire.sent == []
    assert wire.counted() == expected


def test_what_a_client_is_registered_for_goes_to_it_in_the_base_version_that_there_is() -> None:
    wire = Wire()
    _, got = wire.client({c.METHOD_SEND}, management_class=c.CLASS_COMM_MGT, version=2)
    mad = request(0x10, management_class=c.CLASS_COMM_MGT, class_version=2, method=c.METHOD_SEND)
    for version in (0, 2, 255):
        wire.receive(replace(mad, header=replace(mad.header, base_version=version)))
    wire.receive(replace(mad, header=replace(mad.header, class_version=1)))
    assert got == []
    wire.receive(mad)
    assert got == [mad]
    assert wire.counted() == {"received": 5, "drops_version": 4, "delivered": 1}


def test_a_method_of_a_class_that_only_takes_others_is_refused() -> None:
    wire = Wire()
    wire.client({c.METHOD_GET_TABLE}, management_class=c.CLASS_SUBN_ADM)
    wire.receive(request(0x35, management_class=c.CLASS_SUBN_ADM))
    assert wire.sent[0][0].header.status == c.STATUS_BAD_METHOD
    assert wire.counted() == {"received": 1, "drops_method": 1, "answered": 1, "sent": 1}


def test_the_port_answers_class_port_info_for_a_client_that_does_not_take_get() -> None:
    wire = Wire()
    client, got = wire.client({c.METHOD_SEND}, management_class=c.CLASS_COMM_MGT, version=2)
    asked = request(CPI, management_class=c.CLASS_COMM_MGT, class_version=2)
    wire.receive(asked)
    assert wire.sent == [(asked.response(c.STATUS_OK, ClassPortInfo(class_version=2)), PEER)]
    wire.receive(request(CPI, management_class=c.CLASS_COMM_MGT, class_version=1))
    assert wire.sent[1][0].header.status == c.STATUS_BAD_VERSION
    wire.receive(replace(asked, header=replace(asked.header, base_version=2)))
    assert wire.sent[2][0].header.status == c.STATUS_BAD_VERSION
    wire.receive(replace(asked, header=replace(asked.header, attribute_id=CPI + 1)))
    assert wire.sent[3][0].header.status == c.STATUS_BAD_METHOD
    wire.dispatcher.unregister(client)
    own, own_got = wire.client({c.METHOD_GET}, management_class=c.CLASS_COMM_MGT, version=2)
    wire.receive(asked)
    assert (got, own_got) == ([], [asked])
    wire.dispatcher.unregister(own)


@pytest.mark.parametrize("length", [0, 23, 24, 255, 257, 4096])
def test_a_datagram_of_another_length_is_dropped(length: int) -> None:
    wire = Wire()
    wire.dispatcher.receive(bytes(length), PEER)
    assert wire.counted() == {"received": 1, "drops_length": 1}


def test_clients_with_equal_transaction_ids_get_their_own_responses() -> None:
    wire = Wire()
    first, first_got = wire.client()
    second, second_got = wire.client()
    asked = request(CPI, management_class=PERF)
    for client in (first, second):
        wire.dispatcher.send(client, asked.encode(), PEER)
    ids = [mad.header.transaction_id for mad, _ in wire.sent]
    assert len(set(ids)) == 2
    assert {number & 0xFFFFFFFF for number in ids} == {1}
    assert [number >> 32 for number in ids] == [first.number, second.number]
    for mad, _ in reversed(wire.sent):
        wire.receive(mad.response())
    assert first_got == second_got == [asked.response()]
    assert wire.dispatcher.outstanding() == 0


def test_a_response_comes_once_and_from_whom_was_asked() -> None:
    wire = Wire()
    client, got = wire.client()
    wire.dispatcher.send(client, request(CPI, management_class=PERF).encode(), PEER)
    response = wire.sent[0][0].response()
    wire.receive(response, OTHER)
    wrong_class = replace(response, header=replace(response.header, management_class=c.CLASS_SUBN_ADM))
    wire.receive(wrong_class)
    wire.receive(replace(response, header=replace(response.header, transaction_id=1 << 63 | 1)))
    assert got == []
    wire.receive(response)
    wire.receive(response)
    assert len(got) == 1
    assert wire.dispatcher.counters["drops_unmatched"] == 4


@pytest.mark.parametrize("asked", ["by LID", "by GID"])
def test_who_gives_no_gid_on_one_of_the_two_ways_is_known_by_its_lid(asked: str) -> None:
    """A peer that was asked without a GRH may answer with one, and the other way round."""
    wire = Wire()
    client, got = wire.client()
    local = Address(lid=7, qpn=1, qkey=c.GENERAL_QKEY)
    routed = replace(local, gid=PEER.gid)
    destination, source = (local, routed) if asked == "by LID" else (routed, local)
    wire.dispatcher.send(client, request(CPI, management_class=PERF).encode(), destination)
    response = wire.sent[0][0].response()
    wire.receive(response, replace(source, lid=8))
    assert got == []
    wire.receive(response, source)
    assert len(got) == 1


def test_the_numbers_of_clients_begin_anew_where_they_would_fit_no_transaction_id() -> None:
    wire = Wire()
    wire.dispatcher._next_number = 0xFFFFFFFE
    for _ in range(3):
        client, got = wire.client()
        wire.dispatcher.send(client, request(CPI, management_class=PERF).encode(), PEER)
        mad, _ = wire.sent[-1]
        assert 0 < mad.header.transaction_id >> 32 == client.number
        wire.receive(mad.response())
        assert len(got) == 1


def test_a_request_that_is_sent_again_has_one_response() -> None:
    wire = Wire()
    client, got = wire.client()
    for _ in range(3):
        wire.dispatcher.send(client, request(CPI, management_class=PERF).encode(), PEER)
    assert wire.dispatcher.outstanding() == 1
    for mad, _ in wire.sent:
        wire.receive(mad.response())
    assert len(got) == 1


@pytest.mark.parametrize("method", [*sorted(c.UNANSWERED_METHODS), c.METHOD_GET_RESPONSE])
def test_what_has_no_response_keeps_its_transaction_id(method: int) -> None:
    wire = Wire()
    client, _ = wire.client()
    mad = request(CPI, method, management_class=PERF)
    wire.dispatcher.send(client, mad.encode(), PEER)
    assert wire.sent == [(mad, PEER)]
    assert wire.dispatcher.outstanding() == 0


def test_a_client_gets_the_requests_that_it_is_registered_for() -> None:
    wire = Wire()
    client, got = wire.client({c.METHOD_SEND}, management_class=c.CLASS_COMM_MGT)
    mad = request(0x10, c.METHOD_SEND, management_class=c.CLASS_COMM_MGT)
    wire.receive(mad)
    assert got == [mad]
    wire.dispatcher.unregister(client)
    wire.receive(mad)
    assert got == [mad]
    assert wire.counted() == {"received": 2, "delivered": 1, "drops_class": 1}


def test_a_client_without_room_loses_what_comes() -> None:
    wire = Wire()
    _, got = wire.client({c.METHOD_TRAP}, room=2)
    for _ in range(5):
        wire.receive(request(1, c.METHOD_TRAP, management_class=PERF))
    assert len(got) == 2
    assert wire.dispatcher.counters["drops_client_full"] == 3


def test_one_taker_has_a_method() -> None:
    wire = Wire()
    wire.client({c.METHOD_GET_TABLE, c.METHOD_TRAP}, management_class=c.CLASS_SUBN_ADM)
    with pytest.raises(OSError, match="has an agent") as refusal:
        wire.client({c.METHOD_TRAP}, management_class=c.CLASS_SUBN_ADM)
    assert refusal.value.errno == errno.EBUSY
    wire.client({c.METHOD_TRAP}, management_class=c.CLASS_SUBN_ADM, version=2)
    wire.client({c.METHOD_GET}, management_class=c.CLASS_SUBN_ADM)
    wire.client((), management_class=c.CLASS_SUBN_ADM)


@pytest.mark.parametrize(
    ("qpn", "management_class", "refused"),
    [
        (c.SUBNET_QPN, c.CLASS_SUBN_LID, False),
        (c.SUBNET_QPN, c.CLASS_SUBN_DIRECTED, False),
        (c.SUBNET_QPN, PERF, True),
        (c.GENERAL_QPN, c.CLASS_SUBN_LID, True),
        (c.GENERAL_QPN, c.CLASS_SUBN_DIRECTED, True),
        (c.GENERAL_QPN, PERF, False),
    ],
)
def test_a_class_belongs_to_one_queue_pair(qpn: int, management_class: int, refused: bool) -> None:
    wire = Wire(qpn)
    agent = Agent(management_class, frozenset({c.METHOD_GET}))
    if not refused:
        wire.dispatcher.register(agent)
        return
    with pytest.raises(OSError, match="is not queue pair") as refusal:
        wire.dispatcher.register(agent)
    assert refusal.value.errno == errno.EINVAL


@pytest.mark.parametrize("method", [0, 0x80, 0x81, 0x100, -1])
def test_nobody_registers_for_responses(method: int) -> None:
    with pytest.raises(OSError, match="methods_low, methods_high: expected 1…0x7f,") as refusal:
        Wire().client({method})
    assert refusal.value.errno == errno.EINVAL


def test_clients_are_bounded() -> None:
    wire = Wire()
    clients = [wire.client()[0] for _ in range(d.MAX_CLIENTS)]
    with pytest.raises(OSError, match="clients at most") as refusal:
        wire.client()
    assert refusal.value.errno == errno.ENOMEM
    wire.dispatcher.unregister(clients[3])
    newest = wire.client()[0]
    assert newest.number not in {client.number for client in clients}


def test_requests_under_way_are_bounded_and_the_oldest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d, "MAX_OUTSTANDING", 3)
    wire = Wire()
    client, got = wire.client()
    for number in range(5):
        asked = request(CPI, management_class=PERF, transaction_id=number)
        wire.dispatcher.send(client, asked.encode(), PEER)
    assert wire.dispatcher.outstanding() == 3
    for mad, _ in list(wire.sent):
        wire.receive(mad.response())
    assert [mad.header.transaction_id for mad in got] == [2, 3, 4]


def test_a_request_that_is_asked_again_is_the_youngest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d, "MAX_OUTSTANDING", 3)
    wire = Wire()
    client, got = wire.client()
    for number, peer in ((0, PEER), (1, PEER), (0, OTHER), (2, PEER)):
        asked = request(CPI, management_class=PERF, transaction_id=number)
        wire.dispatcher.send(client, asked.encode(), peer)
    for mad, to in list(wire.sent):
        wire.receive(mad.response(), to)
    assert [mad.header.transaction_id for mad in got] == [0, 0, 2]


def test_the_same_transaction_is_asked_of_two_ports_at_once() -> None:
    wire = Wire()
    client, got = wire.client()
    asked = request(CPI, management_class=PERF)
    for peer, high in ((PEER, 5), (OTHER, 6)):
        header = replace(asked.header, transaction_id=high << 32 | 1)
        wire.dispatcher.send(client, replace(asked, header=header).encode(), peer)
    assert wire.dispatcher.outstanding() == 2
    response = wire.sent[0][0].response()
    for source in (PEER, PEER, OTHER, OTHER):
        wire.receive(response, source)
    assert [mad.header.transaction_id for mad in got] == [5 << 32 | 1, 6 << 32 | 1]
    assert wire.dispatcher.outstanding() == 0
    for peer in (PEER, OTHER):
        wire.dispatcher.send(client, asked.encode(), peer)
    wire.dispatcher.cancel(client, asked.header, PEER)
    for source in (PEER, OTHER):
        wire.receive(response, source)
    assert len(got) == 3
    wire.dispatcher.send(client, asked.encode(), PEER)
    wire.dispatcher.send(client, asked.encode(), OTHER)
    wire.dispatcher.unregister(client)
    assert wire.dispatcher.outstanding() == 0


def test_of_one_transaction_at_many_ports_the_oldest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d, "MAX_OUTSTANDING", 2)
    wire = Wire()
    client, got = wire.client()
    peers = [Address(lid=lid, qpn=1, qkey=c.GENERAL_QKEY) for lid in (7, 8, 9)]
    for peer in peers:
        wire.dispatcher.send(client, request(CPI, management_class=PERF).encode(), peer)
    assert wire.dispatcher.outstanding() == 2
    for peer in peers:
        wire.receive(wire.sent[0][0].response(), peer)
    assert len(got) == 2


def test_a_client_that_goes_takes_its_requests_with_it() -> None:
    wire = Wire()
    client, got = wire.client()
    other, other_got = wire.client()
    for each in (client, other):
        wire.dispatcher.send(each, request(CPI, management_class=PERF).encode(), PEER)
    wire.dispatcher.unregister(client)
    assert wire.dispatcher.outstanding() == 1
    for mad, _ in wire.sent:
        wire.receive(mad.response())
    assert (len(got), len(other_got)) == (0, 1)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (bytes(255), errno.EINVAL),
        (bytes(257), errno.EINVAL),
        (request(CPI, management_class=PERF, base_version=2).encode(), errno.EINVAL),
        (request(CPI, management_class=c.CLASS_SUBN_ADM).encode(), errno.EINVAL),
        (request(CPI, management_class=c.CLASS_SUBN_LID).encode(), errno.EINVAL),
    ],
)
def test_a_client_sends_whole_datagrams_of_its_class(data: bytes, code: int) -> None:
    wire = Wire()
    client, _ = wire.client()
    with pytest.raises(OSError, match=r"mad: |version|class") as refusal:
        wire.dispatcher.send(client, data, PEER)
    assert refusal.value.errno == code
    assert wire.sent == []
    assert wire.dispatcher.outstanding() == 0


def test_a_full_queue_is_told_to_the_client_and_counted() -> None:
    wire = Wire(room=0)
    client, _ = wire.client()
    with pytest.raises(OSError, match="too many") as refusal:
        wire.dispatcher.send(client, request(CPI, management_class=PERF).encode(), PEER)
    assert refusal.value.errno == errno.ENOBUFS
    wire.dispatcher.register(ServiceAgent(c.CLASS_SUBN_ADM, 2))
    wire.receive(request(CPI, management_class=c.CLASS_SUBN_ADM, class_version=2))
    assert wire.dispatcher.counters["drops_queue_full"] == 2


def directed(pointer: int, count: int, path: bytes = b"\0\1") -> Mad:
    mad = request(
        c.ATTRIBUTE_NODE_INFO,
        management_class=c.CLASS_SUBN_DIRECTED,
        class_specific=pointer << 8 | count,
    )
    body = bytearray(mad.body)
    body[:12] = DirectedRoute().encode()
    body[104 : 104 + len(path)] = path
    return replace(mad, body=bytes(body))


def test_a_directed_route_ends_at_the_agent_and_goes_back() -> None:
    wire = Wire(c.SUBNET_QPN)
    wire.dispatcher.register(SubnetManagementAgent(c.CLASS_SUBN_DIRECTED, Node()))
    wire.receive(directed(2, 2))
    ((answer, _),) = wire.sent
    assert hops(answer) == (2, 2)
    assert answer.header.status == c.DIRECTION
    assert answer.body[RETURN_PATH + 2] == 1
    wire.receive(directed(1, 2))
    assert wire.dispatcher.counters["drops_route"] == 1
    assert len(wire.sent) == 1


def test_a_manager_asks_its_own_port_by_a_way_of_no_hops() -> None:
    wire = Wire(c.SUBNET_QPN)
    wire.dispatcher.register(SubnetManagementAgent(c.CLASS_SUBN_DIRECTED, Node()))
    client, got = wire.client(management_class=c.CLASS_SUBN_LID)
    wire.dispatcher.send(client, directed(0, 0).encode(), PEER)
    assert wire.sent == []
    (answer,) = got
    assert answer.header.status == c.DIRECTION
    assert answer.header.transaction_id == 0xAAAA_BBBB_0000_0001
    # the request comes in, and so does its answer, which nobody has passed on
    assert wire.counted() == {"received": 2, "answered": 1, "sent": 2, "delivered": 1}


def test_a_client_gets_a_directed_request_as_it_has_arrived() -> None:
    wire = Wire(c.SUBNET_QPN)
    _, got = wire.client({c.METHOD_GET}, management_class=c.CLASS_SUBN_DIRECTED)
    wire.receive(directed(2, 2))
    wire.receive(directed(1, 2))  # which is not at its end
    (asked,) = got
    assert (hops(asked), asked.body[RETURN_PATH + 2]) == ((3, 2), 1)
    assert wire.counted() == {"received": 2, "delivered": 1, "drops_route": 1}


def test_a_directed_route_by_another_port_is_refused() -> None:
    wire = Wire(c.SUBNET_QPN)
    client, _ = wire.client(management_class=c.CLASS_SUBN_DIRECTED)
    wire.dispatcher.send(client, directed(0, 1).encode(), PEER)
    assert hops(wire.sent[0][0]) == (1, 1)
    with pytest.raises(OSError, match="leads nowhere") as refusal:
        wire.dispatcher.send(client, directed(0, 1, b"\0\2").encode(), PEER)
    assert refusal.value.errno == errno.ENOBUFS


def test_what_is_asked_again_is_the_youngest_and_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d, "MAX_OUTSTANDING", 3)
    wire = Wire()
    client, got = wire.client()
    for count, number in ((1, 0), (2, 1), (3, 2), (3, 0), (3, 0), (3, 3)):
        asked = request(CPI, management_class=PERF, transaction_id=number)
        wire.dispatcher.send(client, asked.encode(), PEER)
        assert wire.dispatcher.outstanding() == count
    for mad, _ in list(wire.sent):
        wire.receive(mad.response())
    assert [mad.header.transaction_id for mad in got] == [0, 2, 3]


def test_where_one_transaction_is_asked_at_many_ports_the_first_gives_way_to_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(d, "MAX_OUTSTANDING", 2)
    wire = Wire()
    client, got = wire.client()
    for number, where in ((1, PEER), (1, OTHER), (2, PEER)):
        asked = request(CPI, management_class=PERF, transaction_id=number)
        wire.dispatcher.send(client, asked.encode(), where)
    counts = []
    for mad, where in list(wire.sent):
        wire.receive(mad.response(), where)
        counts.append(len(got))
    assert counts == [0, 1, 2]  # of the first port's nothing is known any more
    assert [mad.header.transaction_id for mad in got] == [1, 2]


def test_a_client_may_take_the_last_method() -> None:
    wire = Wire()
    _, got = wire.client(methods=(0x7F,))
    asked = request(CPI, management_class=PERF)
    wire.receive(replace(asked, header=replace(asked.header, method=0x7F)))
    assert len(got) == 1
