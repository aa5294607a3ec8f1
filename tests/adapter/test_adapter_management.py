"""Queue pairs 0 and 1 of every port: what is answered, in which packets, and what is dropped and counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from softhca.adapter import management_flow
from softhca.adapter.config import AdapterConfig
from softhca.adapter.engine import Adapter
from softhca.adapter.managed_node import DESCRIPTION
from softhca.adapter.management_flow import MAX_ROUTES, MAX_WAITING, MOST_AT_ONCE, PERIOD_NS
from softhca.management import constants as c
from softhca.management.agents import ServiceAgent
from softhca.management.attributes import ClassPortInfo, NodeInfo, PortInfo
from softhca.management.dispatcher import Client
from softhca.management.mad import Address, Mad, MadHeader
from softhca.queues.control_fields import EVENT_LID_CHANGE, EVENT_PORT_ACTIVE
from softhca.testing.addressing import gid as v4_gid
from softhca.testing.ends import End
from softhca.testing.network import Network
from softhca.wire import framing
from softhca.wire.bth import Bth
from softhca.wire.deth import Deth
from softhca.wire.packet import assemble
from softhca.wire.route import Route

LINKS = ("ipv4", "ipv6", "native")
UD_SEND_ONLY = 0x64
SOURCE_QP = 0x1234
every_link = pytest.mark.parametrize("link", LINKS)
native = pytest.mark.parametrize("link", ["native"])


class Asker:
    """Packets for a port of an adapter's queue pairs 0 and 1, and the packets that answer them."""

    def __init__(self, link, **options):
        self.network = Network(link=link)
        self.node = self.network.add(**options)
        self.peer = self.network.add()
        self.sent = self.network.record("sent")
        self.native = link == "native"

    def route(self, port_number=1, qpn=1, **changes):
        addressing, port = self.network.addressing, self.node.adapter.ports[port_number - 1]
        values = {
            "framing": addressing.framing,
            "source": self.peer.gid,
            "destination": port.gid_table[0],
        }
        if self.native:
            values |= {"slid": self.peer.lid, "dlid": port.lid, "has_grh": False}
        return Route(**{**values, **changes})

    def packet(
        self, mad, qpn=1, qkey=c.GENERAL_QKEY, pkey=0xFFFF, vl=None, port_number=1, source_qp=SOURCE_QP,
        **changes,
    ):  # fmt: skip
        data = mad if isinstance(mad, bytes) else mad.encode()
        bth = Bth(opcode=UD_SEND_ONLY, pkey=pkey, dest_qp=qpn, psn=77)
        route = self.route(port_number, **changes)
        lane = (15 if qpn == 0 else 0) if vl is None else vl
        packet = assemble(route, bth, (Deth(qkey=qkey, source_qp=source_qp),), data, lane)
        return packet.encode() if self.native else packet.transport.encode()

    def exchange(self, mad, port_number=1, **how):
        """Let a datagram arrive; the datagrams that the adapter sends then."""
        before = len(self.sent)
        destination = self.node.adapter.ports[port_number - 1].gid_table[0]
        self.network.inject(
            self.node,
            self.packet(mad, port_number=port_number, **how),
            self.peer.gid,
            destination=destination,
            port_number=port_number,
        )
        self.network.run()
        return self.sent[before:]

    def counters(self, port_number=1):
        return {
            name: count for name, count in self.node.adapter.port_counters(port_number).items() if count
        }


@pytest.fixture
def asker(link):
    made = Asker(link)
    yield made
    made.network.close()


def get(attribute, management_class=c.CLASS_PERF, method=c.METHOD_GET, modifier=0, data=b"", **others):
    header = MadHeader(
        management_class=management_class,
        method=method,
        transaction_id=0x1122334455667788,
        attribute_id=attribute,
        attribute_modifier=modifier,
        **others,
    )
    return Mad.make(header, data)


CPI = get(c.ATTRIBUTE_CLASS_PORT_INFO)
PORT_INFO = get(c.ATTRIBUTE_PORT_INFO, c.CLASS_SUBN_LID)


def answered(datagram):
    """The datagram's headers and the MAD in it."""
    packet = datagram.packet
    (deth,) = packet.transport.extensions
    return packet, packet.transport.bth, deth, Mad.decode(packet.transport.payload)


@every_link
def test_class_port_info_is_answered_on_queue_pair_1(asker, link):
    (sent,) = asker.exchange(CPI)
    packet, bth, deth, mad = answered(sent)
    assert (bth.opcode, bth.dest_qp, bth.pkey) == (UD_SEND_ONLY, SOURCE_QP, 0xFFFF)
    assert (deth.qkey, deth.source_qp) == (c.GENERAL_QKEY, 1)
    assert mad == CPI.response(c.STATUS_OK, ClassPortInfo())
    assert mad.header.transaction_id == 0x1122334455667788
    assert sent.route.destination == (bytes(16) if link == "native" else asker.peer.gid)
    if link == "native":
        lrh = packet.network[0]
        assert (lrh.vl, lrh.slid, lrh.dlid) == (0, asker.node.lid, asker.peer.lid)
    figures = asker.counters()
    assert figures["management1_received"] == figures["management1_answered"] == 1
    assert not any(name.startswith("drops") for name in figures)


@every_link
def test_each_port_answers_by_itself(link):
    asker = Asker(link, ports=3)
    for number in (3, 1, 2):
        (sent,) = asker.exchange(CPI, port_number=number)
        assert sent.route.port_number == number
        assert sent.route.source == asker.node.adapter.ports[number - 1].gid_table[0]
        assert asker.counters(number)["management1_sent"] == 1
    asker.network.close()


@native
def test_a_native_port_answers_with_the_header_that_was_asked_with(asker, link):
    sent = asker.exchange(CPI, has_grh=True, hop_limit=3)
    assert sent[0].route.has_grh
    assert (sent[0].route.source, sent[0].route.destination) == (asker.node.gid, asker.peer.gid)


@native
def test_port_info_is_answered_on_queue_pair_0(asker, link):
    (sent,) = asker.exchange(PORT_INFO, qpn=0, qkey=0)
    packet, bth, deth, mad = answered(sent)
    assert (bth.dest_qp, deth.qkey, deth.source_qp) == (SOURCE_QP, 0, 0)
    lrh = packet.network[0]
    assert (lrh.vl, lrh.slid, lrh.dlid) == (15, asker.node.lid, asker.peer.lid)
    told = PortInfo.decode(mad.data)
    port = asker.node.adapter.port
    assert (told.lid, told.sm_lid, told.state, told.lmc) == (port.lid, 1, 4, 0)
    assert told.gid_prefix.to_bytes(8, "big") == asker.node.gid[:8]
    assert (told.neighbor_mtu, told.mtu_cap, told.link_speed_ext_active) == (3, 5, 2)
    assert told.local_port_num == 1
    assert mad.header.status == c.STATUS_OK


@native
def test_node_info_and_description(link):
    asker = Asker(link, ports=2)
    (sent,) = asker.exchange(get(c.ATTRIBUTE_NODE_INFO, c.CLASS_SUBN_LID), port_number=2, qpn=0, qkey=0)
    info = NodeInfo.decode(answered(sent)[3].data)
    ports = asker.node.adapter.ports
    assert (info.num_ports, info.local_port_num) == (2, 2)
    assert info.node_guid.to_bytes(8, "big") == ports[0].gid_table[0][8:]
    assert info.port_guid.to_bytes(8, "big") == ports[1].gid_table[0][8:]
    (sent,) = asker.exchange(get(c.ATTRIBUTE_NODE_DESCRIPTION, c.CLASS_SUBN_LID), qpn=0, qkey=0)
    assert answered(sent)[3].data.rstrip(b"\0").decode() == DESCRIPTION
    for number, status in ((1, c.STATUS_OK), (2, c.STATUS_OK), (3, c.STATUS_BAD_VALUE)):
        asked = get(c.ATTRIBUTE_PORT_INFO, c.CLASS_SUBN_LID, modifier=number)
        (sent,) = asker.exchange(asked, qpn=0, qkey=0)
        mad = answered(sent)[3]
        assert mad.header.status == status
        if status == c.STATUS_OK:
            assert PortInfo.decode(mad.data).lid == ports[number - 1].lid
    asker.network.close()


@native
def test_a_manager_brings_a_new_port_up_by_directed_route(link):
    asker = Asker(link, lid=0)
    end = End(asker.node)
    directed = {"management_class": c.CLASS_SUBN_DIRECTED, "class_specific": 1 << 8 | 1}

    def ask(method, data=b""):
        mad = get(c.ATTRIBUTE_PORT_INFO, method=method, data=data, **directed)
        body = bytearray(mad.body)
        body[8:12] = b"\xff" * 4
        (sent,) = asker.exchange(
            replace(mad, body=bytes(body)), qpn=0, qkey=0, slid=c.LID_PERMISSIVE, dlid=c.LID_PERMISSIVE
        )
        packet, _, _, answer = answered(sent)
        assert answer.header.status == c.DIRECTION
        assert packet.network[0].dlid == c.LID_PERMISSIVE
        return packet.network[0].slid, PortInfo.decode(answer.data)

    slid, info = ask(c.METHOD_GET)
    assert (slid, info.lid, info.state) == (c.LID_PERMISSIVE, 0, 2)
    _, info = ask(c.METHOD_SET, replace(info, lid=0x55, sm_lid=7, state=0).encode())
    assert (info.lid, info.state) == (0x55, 2)
    assert end.device.next_event(0) == (EVENT_LID_CHANGE, 1)
    _, info = ask(c.METHOD_SET, replace(info, state=3).encode())
    slid, info = ask(c.METHOD_SET, replace(info, state=4).encode())
    assert (slid, info.lid, info.state) == (0x55, 0x55, 4)
    told = list(iter(lambda: end.device.next_event(0), None))
    assert (EVENT_PORT_ACTIVE, 1) in told
    assert asker.node.lid == 0x55
    asker.network.close()


@every_link
@pytest.mark.parametrize(
    ("how", "counter"),
    [
        ({"qkey": 0}, "management1_drops_qkey"),
        ({"qkey": 0x80010001}, "management1_drops_qkey"),
        ({"pkey": 0x1234}, "drops_pkey"),
        ({"mad": CPI.encode()[:252]}, "management1_drops_length"),
        ({"mad": CPI.encode() + bytes(4)}, "management1_drops_length"),
        ({"mad": b""}, "management1_drops_length"),
        ({"mad": CPI.response()}, "management1_drops_unmatched"),
        ({"mad": get(1, 0x32, c.METHOD_TRAP)}, "management1_drops_class"),
    ],
)
def test_what_is_not_for_queue_pair_1_is_dropped_and_counted(asker, link, how, counter):
    assert asker.exchange(**{"mad": CPI, **how}) == []
    assert asker.counters()[counter] == 1


@every_link
def test_queue_pair_1_takes_datagrams_alone(asker, link):
    packet = bytearray(asker.packet(CPI))
    route = asker.route()
    made = assemble(route, Bth(opcode=4, dest_qp=1), (), CPI.encode(), 0)
    data = made.encode() if link == "native" else made.transport.encode()
    asker.network.inject(asker.node, data, asker.peer.gid)
    packet[-8] ^= 1
    asker.network.inject(asker.node, bytes(packet), asker.peer.gid)
    asker.network.run()
    assert asker.sent == []
    figures = asker.counters()
    assert figures["drops_service"] == 1
    assert figures.get("drops_icrc", 0) + figures.get("drops_vcrc", 0) == 1
    assert "management1_received" not in figures


@every_link
def test_queue_pair_1_takes_every_key_of_its_ports_table(link):
    asker = Asker(link, pkeys=(0xFFFF, 0x8123))
    for pkey in (0xFFFF, 0x7FFF, 0x8123, 0x0123):
        assert len(asker.exchange(CPI, pkey=pkey)) == 1
    for pkey in (0x8122, 0x8000, 0, 0x0122):
        assert asker.exchange(CPI, pkey=pkey) == []
    assert asker.counters()["drops_pkey"] == 4
    asker.network.close()


@native
def test_queue_pair_0_has_no_partition(asker, link):
    assert len(asker.exchange(PORT_INFO, qpn=0, qkey=0, pkey=0x1234)) == 1


@pytest.mark.parametrize("link", ["ipv4", "ipv6"])
def test_a_datagram_for_another_address_is_not_queue_pair_1s(asker, link):
    elsewhere = asker.peer.gid
    packet = asker.packet(CPI, destination=elsewhere, source=elsewhere[:-1] + b"\x99")
    asker.network.inject(asker.node, packet, elsewhere[:-1] + b"\x99", destination=elsewhere)
    asker.network.run()
    assert asker.sent == []
    assert asker.counters()["drops_destination"] == 1


@pytest.mark.parametrize("link", ["ipv4", "ipv6"])
def test_a_roce_port_has_no_queue_pair_0(asker, link):
    assert asker.exchange(PORT_INFO, qpn=0, qkey=0) == []
    assert asker.counters()["drops_unknown_qp"] == 1
    assert asker.exchange(get(c.ATTRIBUTE_PORT_INFO, c.CLASS_SUBN_LID)) != []  # refused on queue pair 1
    assert asker.counters()["management1_drops_class"] == 1


@native
@pytest.mark.parametrize(
    ("how", "counter"),
    [
        ({"vl": 0}, "drops_lane"),
        ({"qpn": 1, "vl": 15}, "drops_lane"),
        ({"has_grh": True}, "drops_link_header"),
        ({"dlid": 0x999}, "drops_destination"),
    ],
)
def test_queue_pair_0_has_its_own_lane_and_no_global_route(asker, link, how, counter):
    assert asker.exchange(PORT_INFO, **{"qpn": 0, "qkey": 0, **how}) == []
    assert asker.counters()[counter] == 1


@every_link
def test_what_waits_to_be_sent_is_bounded(asker, link):
    data = asker.packet(CPI)
    for _ in range(MAX_WAITING + 10):
        asker.network.inject(asker.node, data, asker.peer.gid)
    asker.network.run()
    assert len(asker.sent) == MAX_WAITING
    assert asker.counters()["management1_drops_queue_full"] == 10


@every_link
def test_a_flood_of_datagrams_is_taken_at_a_bounded_rate(asker, link):
    """What is answered costs more than what it takes to ask, and anybody may ask."""
    data = asker.packet(CPI)

    def flood(datagrams):
        for _ in range(datagrams):
            asker.network.inject(asker.node, data, asker.peer.gid)

    flood(MOST_AT_ONCE + 5)
    assert asker.counters()["management1_received"] == MOST_AT_ONCE
    assert asker.counters()["management1_drops_rate"] == 5
    asker.network.elapse(3 * PERIOD_NS)
    flood(10)
    assert asker.counters()["management1_received"] == MOST_AT_ONCE + 3
    asker.network.elapse(10 * MOST_AT_ONCE * PERIOD_NS)  # a silence gives no more than it gave at first
    flood(2 * MOST_AT_ONCE)
    assert asker.counters()["management1_received"] == 2 * MOST_AT_ONCE + 3


def test_a_datagram_goes_from_the_address_that_was_asked_or_the_first_of_its_kind():
    v4, v6 = [v4_gid(1), v4_gid(2)], [bytes.fromhex(f"fd{number:030x}") for number in (1, 2)]
    _, flow = Adapter(AdapterConfig(gids=(v6[0], v4[0], v4[1], v6[1]))).ports[0].management
    for to, own, source in (
        (v4_gid(9), None, v4[0]), (v6[1], None, v6[0]), (v4_gid(9), v4[1], v4[1]), (v6[1], v6[1], v6[1]),
        (v4_gid(9), v4_gid(8), v4[0]),
    ):  # fmt: skip
        assert flow.own_gid(Address(qpn=1, qkey=0, pkey=0xFFFF, gid=to, own_gid=own)) == source


@every_link
def test_clients_of_two_adapters_ask_each_other(asker, link):
    """Both clients of one port use the same transaction ID; the ICRCs and all else are the adapters'."""
    got = []
    port = asker.peer.adapter.port
    flow = port.management[1]
    target = asker.node.adapter.port
    target.management[1].dispatcher.register(ServiceAgent(c.CLASS_SUBN_ADM, 2))
    to = Address(qpn=1, qkey=c.GENERAL_QKEY)
    if link == "native":
        to = replace(to, lid=asker.node.lid)
    else:
        to = replace(to, gid=asker.node.gid)
    clients = []
    for number in range(2):

        def deliver(data, source, number=number):
            got.append((number, data, source))
            return True

        client = Client(c.CLASS_SUBN_ADM, 2, (), deliver)
        flow.dispatcher.register(client)
        clients.append(client)
    asked = get(c.ATTRIBUTE_CLASS_PORT_INFO, c.CLASS_SUBN_ADM, class_version=2)
    for client in clients:
        flow.dispatcher.send(client, asked.encode(), to)
    asker.network.run()
    assert [number for number, _, _ in got] == [0, 1]
    for _, data, source in got:
        assert Mad.decode(data) == asked.response(c.STATUS_OK, ClassPortInfo(class_version=2))
        assert source.qpn == 1
        assert source.port == ((asker.node.lid, None) if link == "native" else (0, asker.node.gid))


@every_link
def test_a_client_asks_its_own_port(asker, link):
    got = []
    adapter = asker.node.adapter
    dispatcher = adapter.port.management[1].dispatcher
    client = Client(c.CLASS_PERF, 1, (), lambda data, source: not got.append(Mad.decode(data)))
    dispatcher.register(client)
    to = Address(qpn=1, qkey=c.GENERAL_QKEY)
    to = replace(to, lid=asker.node.lid) if link == "native" else replace(to, gid=asker.node.gid)
    dispatcher.send(client, CPI.encode(), to)
    asker.network.run()
    assert got == [CPI.response(c.STATUS_OK, ClassPortInfo())]
    assert asker.sent == []
    assert asker.counters()["loopback_packets"] == 2


@native
def test_a_class_whose_agents_are_at_the_link_leaves_by_it_to_the_own_port_too(asker, link):
    flow = asker.node.adapter.port.management[1]
    flow.agents_at_link = c.FABRIC_CLASSES
    got = []
    client = Client(c.CLASS_PERF, 1, (), lambda data, source: not got.append(Mad.decode(data)))
    vendor = Client(c.VENDOR_FIRST, 1, (), lambda data, source: not got.append(Mad.decode(data)))
    to = Address(qpn=1, qkey=c.GENERAL_QKEY, lid=asker.node.lid)
    for each in (client, vendor):
        flow.dispatcher.register(each)
    flow.dispatcher.send(client, CPI.encode(), to)
    asker.network.run()
    sent = [answered(each) for each in asker.sent]  # this link leads back to where it begins
    assert [mad.header.method for _, _, _, mad in sent] == [c.METHOD_GET, c.METHOD_GET_RESPONSE]
    for packet, bth, _, _ in sent:
        assert (packet.network[0].slid, packet.network[0].dlid, bth.dest_qp) == (*[asker.node.lid] * 2, 1)
    assert got == [CPI.response(c.STATUS_OK, ClassPortInfo())]
    assert "loopback_packets" not in asker.counters()
    flow.dispatcher.send(vendor, get(c.ATTRIBUTE_CLASS_PORT_INFO, c.VENDOR_FIRST).encode(), to)
    asker.network.run()
    assert len(asker.sent) == 2
    assert asker.counters()["loopback_packets"] == 2


def test_the_framings_are_what_the_tests_mean():
    assert {framing.NATIVE, framing.ROCE_V4, framing.ROCE_V6} == {
        Network(link=link).addressing.framing for link in LINKS
    }


@every_link
def test_the_communication_manager_is_made_when_something_needs_it(asker, link):
    """Most programs need none: a device opens sooner without what it is made of."""
    flow = asker.node.adapter.port.management[1]
    assert not flow.has_connections
    version = {"class_version": c.COMM_MGT_VERSION}
    asker.exchange(get(c.ATTRIBUTE_CLASS_PORT_INFO, c.CLASS_COMM_MGT, c.METHOD_SEND, **version))
    assert flow.has_connections
    assert flow.connections is flow.connections


@every_link
def test_a_way_to_a_peer_is_laid_out_once(asker, monkeypatch):
    made = []

    def counted(*arguments, **options):
        made.append(arguments)
        return Route(*arguments, **options)

    monkeypatch.setattr(management_flow, "Route", counted)
    mad = Mad.make(MadHeader(management_class=c.CLASS_PERF, attribute_id=1, method=c.METHOD_GET))
    answers = [asker.exchange(mad) for _ in range(3)]
    assert [len(each) for each in answers] == [1, 1, 1]
    assert len(made) == 1
    flow = asker.node.adapter.ports[0].management[1]
    for level in range(MAX_ROUTES + 5):
        flow._route_to(Address(1, gid=asker.peer.gid, lid=asker.peer.lid, traffic_class=level))
    assert len(flow._routes) <= MAX_ROUTES


@every_link
def test_where_datagrams_come_from_is_remembered_for_so_many(asker, link):
    """Each answer goes to the queue pair that has asked, also when others have meanwhile."""
    flow = asker.node.adapter.ports[0].management[1]
    for source_qp in (*range(2, MAX_ROUTES + 10), 2, 2):
        (sent,) = asker.exchange(CPI, source_qp=source_qp)
        _, bth, _, _ = answered(sent)
        assert bth.dest_qp == source_qp
        assert len(flow._sources) <= MAX_ROUTES


@native
def test_a_way_that_is_kept_does_not_outlive_the_own_lid_or_prefix(asker):
    port = asker.node.adapter.ports[0]
    flow = port.management[1]
    there = Address(1, gid=asker.peer.gid, lid=asker.peer.lid)
    first = flow._route_to(there)
    assert (first.slid, flow._route_to(there)) == (port.lid, first)
    port.set_info(lid=port.lid + 0x100)
    assert flow._route_to(there).slid == port.lid == first.slid + 0x100
    port.set_info(gid_prefix=0xFE80_0000_0000_1234)
    assert flow._route_to(there).source == port.gid_table[0] != first.source
