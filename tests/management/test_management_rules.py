"""Rules of the management room at the edges: who is registered, whose a message is, what a field may say."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest
from connection_peers import GIDS, REPLY, REQUEST, SERVICE, Network

from softhca.management import address_queries, group_queries, path_queries, rmpp
from softhca.management import constants as c
from softhca.management import directed_route as d
from softhca.management.administration_attributes import AdministrationHeader
from softhca.management.agents import Agent
from softhca.management.cm import elements as e
from softhca.management.cm import instances
from softhca.management.cm import messages as m
from softhca.management.cm import states as s
from softhca.management.dispatcher import MAX_CLIENTS, Client, Dispatcher
from softhca.management.mad import Address, Mad, MadHeader

PEER = Address(qpn=1, lid=7)


class Port:
    """A dispatcher, and what it sends."""

    def __init__(self, qpn: int = c.GENERAL_QPN) -> None:
        self.sent: list[Mad] = []
        self.dispatcher = Dispatcher(1, qpn, self._transmit)

    def _transmit(self, data: bytes, address: Address) -> bool:
        self.sent.append(Mad.decode(data))
        return True

    def client(self, management_class: int, *methods: int) -> tuple[Client, list[bytes]]:
        got: list[bytes] = []

        def deliver(data: bytes, address: Address) -> bool:
            got.append(data)
            return True

        return Client(management_class, 1, methods, deliver), got

    def receive(self, **header: int) -> None:
        self.dispatcher.receive(Mad(MadHeader(**header), bytes(232)).encode(), PEER)


def test_a_client_that_there_is_no_room_for_has_none_of_its_methods() -> None:
    port = Port()
    for _ in range(MAX_CLIENTS):
        port.dispatcher.register(port.client(c.CLASS_PERF)[0])
    late, got = port.client(c.CLASS_PERF, c.METHOD_SET)
    with pytest.raises(OSError, match="at most") as refused:
        port.dispatcher.register(late)
    assert refused.value.errno == errno.ENOMEM
    port.receive(management_class=c.CLASS_PERF, method=c.METHOD_SET)
    assert got == []
    port.dispatcher.register(Agent(c.CLASS_PERF, frozenset({c.METHOD_SET})))


def test_a_response_that_is_waited_for_no_longer_is_dropped() -> None:
    port = Port()
    client, got = port.client(c.CLASS_PERF)
    port.dispatcher.register(client)
    asked = Mad(MadHeader(management_class=c.CLASS_PERF, method=c.METHOD_GET, transaction_id=5), bytes(232))
    for cancelled in (False, True):
        got.clear()
        port.dispatcher.send(client, asked.encode(), PEER)
        if cancelled:
            port.dispatcher.cancel(client, asked.header, PEER)
        sent = port.sent[-1].header
        port.receive(
            management_class=c.CLASS_PERF, method=c.METHOD_GET_RESPONSE, transaction_id=sent.transaction_id
        )
        assert bool(got) is not cancelled
    assert port.dispatcher.counters["drops_unmatched"] == 1
    assert port.dispatcher.outstanding() == 0


def test_who_waits_no_longer_for_one_response_gets_the_others() -> None:
    port = Port()
    client, got = port.client(c.CLASS_PERF)
    port.dispatcher.register(client)
    header = MadHeader(management_class=c.CLASS_PERF, method=c.METHOD_GET)
    for number in (5, 6):
        asked = replace(header, transaction_id=number)
        port.dispatcher.send(client, Mad(asked, bytes(232)).encode(), PEER)
    port.dispatcher.cancel(client, replace(header, transaction_id=5), PEER)
    for sent in list(port.sent):
        port.receive(
            management_class=c.CLASS_PERF,
            method=c.METHOD_GET_RESPONSE,
            transaction_id=sent.header.transaction_id,
        )
    assert [MadHeader.decode(each).transaction_id for each in got] == [6]


def test_the_port_answers_no_class_port_info_for_subnet_management() -> None:
    port = Port(c.SUBNET_QPN)
    port.dispatcher.register(port.client(c.CLASS_SUBN_LID, c.METHOD_TRAP)[0])
    port.receive(
        management_class=c.CLASS_SUBN_LID, method=c.METHOD_GET, attribute_id=c.ATTRIBUTE_CLASS_PORT_INFO
    )
    assert [each.header.status for each in port.sent] == [c.STATUS_BAD_METHOD]


def test_a_subnet_manager_sends_subnet_management_alone() -> None:
    port = Port(c.SUBNET_QPN)
    client, _ = port.client(c.CLASS_SUBN_LID)
    port.dispatcher.register(client)
    wrong = Mad(MadHeader(management_class=c.CLASS_PERF, method=c.METHOD_GET), bytes(232))
    with pytest.raises(OSError, match="mgmt_class") as refused:
        port.dispatcher.send(client, wrong.encode(), PEER)
    assert refused.value.errno == errno.EINVAL
    assert port.sent == []


# directed routes


def packet(pointer: int, count: int, path: bytes = b"", back: bytes = b"") -> bytearray:
    header = MadHeader(management_class=c.CLASS_SUBN_DIRECTED, class_specific=pointer << 8 | count)
    body = bytearray(232)
    body[:12] = d.DirectedRoute().encode()
    body[d.INITIAL_PATH : d.INITIAL_PATH + len(path)] = path
    body[d.RETURN_PATH : d.RETURN_PATH + len(back)] = back
    return bytearray(Mad(header, bytes(body)).encode())


def test_a_way_by_port_0_leads_nowhere() -> None:
    assert d.enter(packet(1, 3, b"\0\1\2\3"), 4, is_switch=True) == 2
    assert d.enter(packet(1, 3, b"\0\1\0\3"), 4, is_switch=True) == d.LOST
    assert d.begin(packet(0, 3, b"\0\0\2\3")) == d.LOST


def test_a_packet_beyond_its_end_keeps_the_port_by_which_it_came() -> None:
    beyond = packet(4, 3, b"\0\1\2\3", b"\0\5\6\7")
    assert d.enter(beyond, 9, is_switch=True) == d.TAKEN
    return_path = 24 + d.RETURN_PATH
    assert beyond[return_path : return_path + 4] == b"\0\5\6\7"
    end = packet(3, 3, b"\0\1\2\3", b"\0\5\6\7")
    assert d.enter(end, 9, is_switch=True) == d.TAKEN
    assert end[return_path : return_path + 4] == b"\0\5\6\x09"


def test_a_way_that_goes_on_by_lid_goes_on_at_a_switch_alone() -> None:
    for is_switch, found in ((True, d.BY_LID), (False, d.LOST)):
        way = packet(3, 3, b"\0\1\2\3")
        way[24:36] = d.DirectedRoute(dr_dlid=5).encode()
        assert d.enter(way, 4, is_switch) == found


# subnet administration, as bytes


def test_an_answer_of_one_segment_is_complete_when_it_is_sent() -> None:
    header = MadHeader(management_class=c.CLASS_SUBN_ADM, class_version=2)
    sender = rmpp.Sender(header, AdministrationHeader(), b"short")
    assert len(sender.start(0)) == 1
    assert (sender.done, sender.complete) == (True, True)
    long = rmpp.Sender(header, AdministrationHeader(), bytes(1000))
    long.start(0)
    assert (long.done, long.complete) == (False, False)


def test_an_ipv6_address_with_zeros_in_front_stands_whole() -> None:
    address = bytes(10) + b"\x12\x34" + bytes(range(4))
    assert address_queries.service_data(address) == address
    mapped = address_queries.V4_MAPPED_PREFIX + b"\x0a\0\0\1"
    assert address_queries.service_data(mapped) == bytes(12) + b"\x0a\0\0\1"


def test_the_mgid_of_an_ip_group_has_28_bits_of_it_and_its_partition_as_a_full_member() -> None:
    group = address_queries.V4_MAPPED_PREFIX + bytes([239, 1, 2, 3])
    expected = b"\xff\x12\x40\x01\x80\x12" + bytes(6) + bytes([15, 1, 2, 3])
    assert group_queries.mgid_of(group, 0x0012) == group_queries.mgid_of(group, 0x8012) == expected
    asked = group_queries.question(expected, bytes(16), 7, 0x0012, group_queries.FULL_MEMBER, 1)
    assert expected in asked
    assert asked == group_queries.question(expected, bytes(16), 7, 0x8012, group_queries.FULL_MEMBER, 1)


def test_answers_are_read_field_by_field() -> None:
    way = 9 << 28 | 0xABCDE << 8 | 64
    data = bytearray(256)
    data[56:72] = bytes(range(16))
    data[88:92] = (0x0B1B).to_bytes(4, "big")
    data[92:94] = b"\xc0\x05"
    data[100:104] = way.to_bytes(4, "big")
    assert group_queries.answer(bytes(data)) == (0, bytes(range(16)), 0x0B1B, 0xC005, 9, 0xABCDE, 64)
    data = bytearray(256)
    data[96:98] = b"\0\7"
    data[106:111] = b"\x80\x12\xf5\xff\x84"  # P_Key, service level below its class, then selector and MTU
    found = path_queries.answer(bytes(data))
    assert (found.dlid, found.pkey, found.sl, found.mtu) == (7, 0x8012, 15, 4)


# the connection manager


def test_a_message_without_an_id_of_its_sender_is_nobody_s() -> None:
    network = Network()
    network.listen()
    active, passive = network.establish()
    manager = network.managers[0]
    for nameless in (m.Dreq(0, active, REQUEST.local_qpn), m.Drep(0, active), m.Rtu(0, active)):
        manager.receive(m.encode(nameless, 1), network.address(1), network.now)
    assert network.state(0, active) == s.ESTABLISHED
    assert manager.counters["drops_unmatched"] == 3
    manager.receive(m.encode(m.Rej(0, active), 1), network.address(1), network.now)
    assert network.state(0, active) == s.TIMEWAIT
    assert network.state(1, passive) == s.ESTABLISHED


@pytest.mark.parametrize("said", [m.FAILOVER_ACCEPTED, m.FAILOVER_UNSUPPORTED, m.FAILOVER_REJECTED])
def test_an_alternate_path_is_the_peer_s_only_where_the_reply_accepts_it(said: int) -> None:
    network = Network()
    network.listen()
    request = replace(
        REQUEST, alternate_local_gid=GIDS[0], alternate_remote_gid=GIDS[1], alternate_hop_limit=3
    )
    active = network.connect(request)
    network.arrive()
    passive = network.programs[1].take().number
    accepted = said == m.FAILOVER_ACCEPTED
    network.reply(passive, replace(REPLY, failover_accepted=said))
    network.arrive()
    for own, number in enumerate((active, passive)):
        connection = network.managers[own]._tables.find(number)
        assert connection.proposed is not None
        assert (connection.other is not None) is accepted


@pytest.mark.parametrize("own", [False, True])
def test_the_other_end_of_an_alternate_path_is_named_by_lids_where_there_is_no_gid(own: bool) -> None:
    peer = Address(qpn=1, lid=7, path_bits=1, gid=None)
    request = replace(REQUEST, alternate_local_lid=11, alternate_remote_lid=12, alternate_sl=3)
    there = e.by_alternate(peer, request, own)
    assert there is not None
    assert (there.lid, there.own_lid) == ((12, 11) if own else (11, 12))
    assert (there.gid, there.sl, there.path_bits) == (None, 3, 0)  # the bits were of the former LID
    assert e.by_alternate(peer, REQUEST, own) is None


def test_a_disconnect_is_answered_within_its_own_transaction() -> None:
    network = Network()
    network.listen()
    active, passive = network.establish()
    network.managers[0].receive(
        m.encode(m.Dreq(passive, active, REQUEST.local_qpn), 4711), network.address(1), network.now
    )
    network.managers[0].disconnect(network.programs[0], active, b"", network.now)
    transaction_id, drep = m.decode(network.sent[-1][1])
    assert (type(drep), transaction_id) == (m.Drep, 4711)


def test_a_rejection_that_does_not_fit_changes_nothing() -> None:
    network = Network()
    network.listen()
    network.connect()
    network.arrive()
    number, manager = network.programs[1].take().number, network.managers[1]
    with pytest.raises(OSError, match="72 bytes") as refused:
        manager.reject(network.programs[1], number, 28, bytes(73), b"", network.now)
    assert refused.value.errno == errno.EINVAL
    assert network.state(1, number) == s.REQ_RCVD
    manager.reject(network.programs[1], number, 28, bytes(range(72)), b"", network.now)
    rej = m.decode(network.sent[-1][1])[1]
    assert (rej.reject_info_length, rej.ari) == (72, bytes(range(72)))


def test_who_asks_for_a_service_that_nobody_has_is_told_which() -> None:
    network = Network()
    asked = m.SidrReq(77, service_id=SERVICE)
    network.managers[1].receive(m.encode(asked, 9), network.address(0), network.now)
    transaction_id, answer = m.decode(network.sent[-1][1])
    assert transaction_id == 9
    assert answer == m.SidrRep(77, m.SIDR_UNSUPPORTED, service_id=SERVICE)


def test_no_time_out_is_longer_than_its_five_bits_say() -> None:
    assert e.response_ns(0xFF) == e.response_ns(31) == (4096 << 31) + 2 * (4096 << 16)


def test_a_queue_pair_that_migrates_to_the_same_port_keeps_the_other_one() -> None:
    network = Network()
    network.listen()
    active, _ = network.establish()
    manager = network.managers[0]
    connection = manager._tables.find(active)
    there = connection.peer
    third = Address(qpn=1, gid=bytes(15) + b"\x09", own_gid=GIDS[0])
    connection.other = third
    manager._by_local[connection.local_end] = connection
    manager.migrated(REQUEST.local_qpn, there.gid, there.own_gid, there.lid, 0, 3, 5)
    assert connection.other == third
    assert connection.peer.gid == there.gid


def test_the_last_number_of_connection_instances_is_one() -> None:
    for number in (1, instances.INSTANCES):
        data = instances.with_offer(bytes(92), number)
        assert data is not None
        assert instances.offer_of(data) == number
        assert instances.answer_of(data) == 0
    forged = bytes(84) + data[84:91] + bytes([instances.INSTANCES + 1])
    assert instances.offer_of(forged) == 0


def test_the_peer_that_was_used_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "MAX_PEERS", 2)
    known = instances.Instances(random.Random(1))
    first = known.next(1)
    known.next(2)
    assert known.next(1) == first % instances.INSTANCES + 1
    known.next(3)
    assert set(known._last) == {1, 3}
