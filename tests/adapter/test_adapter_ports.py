"""Adapters with several ports: each has its own tables, turns, counters and events, and what lives on one
port is not there for packets of another one.
"""

from __future__ import annotations

import pytest

from softhca.adapter.config import AdapterConfig, PortConfig
from softhca.adapter.engine import NEVER, Adapter
from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.queues.control_fields import EVENT_LID_CHANGE, EVENT_PORT_ACTIVE, EVENT_PORT_ERR
from softhca.testing.addressing import gid
from softhca.testing.ends import ALL_RIGHTS, QKEY, RC, SEND, UC, UD, WRITE, End, connect, post
from softhca.testing.network import Network
from softhca.transport.flow import Flow
from softhca.transport.states import INIT, RESET, RTR
from softhca.wire.burst import Burst
from softhca.wire.route import V4_MAPPED_PREFIX

LINKS = ("ipv4", "ipv6", "native")
QP_OPERATION_ERROR = 2
every_link = pytest.mark.parametrize("link", LINKS)


@pytest.fixture
def network(link):
    with Network(link=link) as made:
        yield made


def two_ports(network):
    """An end with two ports, and a peer with one."""
    return End(network.add(ports=2)), End(network.add())


def connected(end, peer, port_number, kind=RC):
    """A queue pair of ``end`` on a port, connected with one of ``peer``."""
    qp, peer_qp = end.qp(kind), peer.qp(kind)
    connect(
        (end, qp), (peer, peer_qp), kind, there={"port_num": port_number}, back={"port_number": port_number}
    )
    return qp, peer_qp


@every_link
def test_each_port_tells_its_own_tables(network, link):
    end, _ = two_ports(network)
    assert end.device.query_device()["phys_port_cnt"] == 2
    first, second = (end.device.query_port(number) for number in (1, 2))
    assert {**second, "lid": 0} == {**first, "lid": 0}
    gids = [end.device.query_gid(number, 0) for number in (1, 2)]
    assert gids == [network.addressing.gid(1, number) for number in (1, 2)]
    assert gids[0] != gids[1]
    if link == "native":
        assert [first["lid"], second["lid"]] == [0x11, 0x111]
    for number in (0, 3, 255):
        for ask in (
            lambda number=number: end.device.query_port(number),
            lambda number=number: end.device.query_gid(number, 0),
            lambda number=number: end.device.query_pkey(number, 0),
        ):
            with pytest.raises(DriverError, match="Invalid"):
                ask()
    with pytest.raises(DriverError):
        end.device.query_counters(port=3)


@every_link
@pytest.mark.parametrize("kind", [RC, UC])
def test_a_queue_pair_sends_and_receives_by_the_port_that_it_lives_on(network, kind):
    end, peer = two_ports(network)
    pairs = [connected(end, peer, number, kind) for number in (1, 2)]
    assert [qp.query()["port_num"] for qp, _ in pairs] == [1, 2]
    for number, (qp, peer_qp) in enumerate(pairs, 1):
        end.memory[:4] = b"out%d" % number
        post(qp, WRITE, [end.sge(0, 4)], va=peer.va + 64 * number, rkey=peer.key.rkey)
        peer.memory[:4] = b"in %d" % number
        post(peer_qp, WRITE, [peer.sge(0, 4)], va=end.va + 64 * number, rkey=end.key.rkey)
        assert [done.status for done in end.poll(1) + peer.poll(1)] == [0, 0]
        network.run()
        assert peer.memory[64 * number :][:4] == b"out%d" % number
        assert end.memory[64 * number :][:4] == b"in %d" % number
    first, second = (end.device.query_counters(port=number) for number in (1, 2))
    for name in ("packets_sent", "packets_received", "bytes_sent", "bytes_received"):
        assert first[name] == second[name] > 0
    assert not any(count for name, count in {**first, **second}.items() if name.startswith("drops"))


@every_link
def test_ports_of_one_adapter_reach_each_other_by_their_links(network):
    end = End(network.add(ports=2))
    sent = network.record("sent")
    one, two = end.qp(), end.qp()
    for qp, peer_qp, number in ((one, two, 1), (two, one, 2)):
        path = network.addressing.path(end.node, 3 - number, port_num=number)
        services.connect(qp, path, peer_qp.number, 1, 1, ALL_RIGHTS, services.Reliability())
    end.memory[:5] = b"hello"
    post(one, WRITE, [end.sge(0, 5)], va=end.va + 500, rkey=end.key.rkey)
    assert [done.status for done in end.poll(1)] == [0]
    assert end.memory[500:505] == b"hello"
    assert [datagram.route.port_number for datagram in sent] == [1, 2]
    figures = [end.device.query_counters(port=number) for number in (1, 2)]
    assert [figure["packets_sent"] for figure in figures] == [1, 1]
    assert [figure["packets_received"] for figure in figures] == [1, 1]
    assert [figure["loopback_packets"] for figure in figures] == [0, 0]


@every_link
def test_what_a_port_sends_to_itself_comes_to_no_other_port(network):
    end = End(network.add(ports=2))
    one, two = end.qp(), end.qp()
    for qp, peer_qp in ((one, two), (two, one)):
        path = network.addressing.path(end.node, 2, port_num=2)
        services.connect(qp, path, peer_qp.number, 1, 1, ALL_RIGHTS, services.Reliability())
    end.memory[:5] = b"hello"
    post(one, WRITE, [end.sge(0, 5)], va=end.va + 500, rkey=end.key.rkey)
    assert [done.status for done in end.poll(1)] == [0]
    assert end.memory[500:505] == b"hello"
    figures = [end.device.query_counters(port=number) for number in (1, 2)]
    assert [figure["loopback_packets"] for figure in figures] == [0, 2]
    assert figures[0]["packets_received"] == 0


@every_link
def test_a_packet_that_comes_by_another_port_is_for_nobody(network, link):
    """Its addresses are port 2's, and it names a queue pair of port 1."""
    end, peer = two_ports(network)
    qp, _ = connected(end, peer, 1)
    third = peer.qp()
    path = network.addressing.path(end.node, 2)
    services.connect(third, path, qp.number, 100, 100, ALL_RIGHTS, services.Reliability(retry_cnt=0))
    before = bytes(end.memory)
    post(third, WRITE, [peer.sge(0, 8)], va=end.va, rkey=end.key.rkey)
    network.run()
    assert end.device.query_counters(port=2)["drops_unknown_qp"] >= 1
    assert bytes(end.memory) == before


@every_link
def test_a_datagram_goes_by_its_queue_pairs_port_alone(network, link):
    end, peer = two_ports(network)
    target = peer.qp(UD)
    services.start_datagrams(target, QKEY)
    target.post_recv(1, [peer.sge(0, 100)])
    target.post_recv(2, [peer.sge(0, 100)])
    sent = network.record("sent")
    for number in (1, 2):
        qp = end.qp(UD)
        services.start_datagrams(qp, QKEY, port_num=number)
        for port in (1, 2):
            vector = network.addressing.path(peer.node, port_num=port).vector()
            ah = end.device.create_ah(end.pd, vector)
            post(qp, SEND, [end.sge(0, 8)], ah=ah, qpn=target.number, qkey=QKEY, wr_id=port)
            (done,) = end.poll(1)
            assert done.status == (0 if port == number else QP_OPERATION_ERROR)
            if done.status:
                qp.modify({"qp_state": 3, "cur_qp_state": 5})
    assert [datagram.route.port_number for datagram in sent] == [1, 2]
    assert [done.wr_id for done in peer.poll(2)] == [1, 2]


@every_link
def test_addresses_of_other_ports_are_refused(network, link):
    end, peer = two_ports(network)
    path = network.addressing.path(peer.node, port_num=2)
    with pytest.raises(DriverError):
        end.device.create_ah(end.pd, {**path.vector(), "port_num": 3})
    qp = end.qp()
    for port_number in (0, 3, 255):
        with pytest.raises(DriverError):
            qp.modify({"qp_state": INIT, "pkey_index": 0, "port_num": port_number, "qp_access_flags": 0})
    qp.modify({"qp_state": INIT, "pkey_index": 0, "port_num": 1, "qp_access_flags": 0})
    ready = {"qp_state": RTR, "ah_attr": path.vector(), "path_mtu": 3, "dest_qp_num": 5, "rq_psn": 1}
    ready |= {"max_dest_rd_atomic": 1, "min_rnr_timer": 12}
    with pytest.raises(DriverError):
        qp.modify(ready)
    qp.modify({**ready, "ah_attr": {**path.vector(), "port_num": 1}})


@every_link
def test_a_queue_pair_that_was_reset_may_live_on_another_port(network):
    end, peer = two_ports(network)
    qp, peer_qp = connected(end, peer, 1)
    for number in (2, 1):
        qp.modify({"qp_state": RESET})
        peer_qp.modify({"qp_state": RESET})
        connect(
            (end, qp), (peer, peer_qp), there={"port_num": number}, back={"port_number": number}
        )
        before = end.device.query_counters(port=number)["packets_sent"]
        post(qp, WRITE, [end.sge(0, 4)], va=peer.va, rkey=peer.key.rkey)
        assert [done.status for done in end.poll(1)] == [0]
        assert end.device.query_counters(port=number)["packets_sent"] == before + 1


@pytest.mark.parametrize("link", ["ipv4"])
def test_a_turn_that_was_asked_for_on_another_port_is_taken_on_the_own_one(network):
    end, peer = two_ports(network)
    qp, _ = connected(end, peer, 2)
    adapter = end.node.adapter
    flow = adapter.queue_pairs[qp.number].flow
    post(qp, WRITE, [end.sge(0, 4)], va=peer.va, rkey=peer.key.rkey, ring=False)
    adapter.ports[0].scheduler.put(flow)
    burst = Burst()
    qp.ring()
    assert not adapter.transmit(1, burst, network.now)
    assert adapter.next_deadline() == 0
    assert adapter.transmit(2, burst, network.now)
    assert burst.route.port_number == 2


@every_link
def test_a_group_is_heard_by_each_port_for_its_own_queue_pairs(network, link):
    group = {
        "ipv4": gid(1)[:12] + b"\xe0\x01\x02\x03",
        "ipv6": bytes.fromhex("ff0e0000000000000000000000000042"),
        "native": bytes.fromhex("ff12401bffff000000000000deadbeef"),
    }[link]
    lid = 0xC007 if link == "native" else 0
    end, peer = two_ports(network)
    members = []
    for number in (1, 2):
        qp = end.qp(UD)
        services.start_datagrams(qp, QKEY, port_num=number)
        qp.post_recv(number, [end.sge(0, 100)])
        end.device.attach_mcast(qp.number, group, lid)
        members.append(qp)
    sender = peer.qp(UD)
    services.start_datagrams(sender, QKEY)
    vector = {"dgid": group, "is_global": 1, "port_num": 1, "hop_limit": 1, "dlid": lid}
    ah = peer.device.create_ah(peer.pd, vector)
    post(sender, SEND, [peer.sge(0, 8)], ah=ah, qpn=0xFFFFFF, qkey=QKEY)
    assert sorted(done.wr_id for done in end.poll(2)) == [1, 2]
    network.run()
    figures = [end.device.query_counters(port=number) for number in (1, 2)]
    assert [figure["multicast_copies"] for figure in figures] == [1, 1]


@pytest.mark.parametrize("link", ["native"])
def test_events_and_routes_of_a_port_that_a_manager_configures(network):
    end, peer = two_ports(network)
    pairs = [connected(end, peer, number) for number in (1, 2)]
    adapter = end.node.adapter
    adapter.set_port_info(2, lid=0x222)
    assert end.device.next_event(0) == (EVENT_LID_CHANGE, 2)
    assert adapter.port.lid == 0x11
    slids = [adapter.queue_pairs[qp.number].flow.route.slid for qp, _ in pairs]
    assert slids == [0x11, 0x222]
    adapter.set_port_info(2, state=2)
    assert end.device.next_event(0) == (EVENT_PORT_ERR, 2)
    assert [end.device.query_port(number)["state"] for number in (1, 2)] == [4, 2]
    adapter.set_port_info(2, state=4)
    assert end.device.next_event(0) == (EVENT_PORT_ACTIVE, 2)
    for number in (0, 3):
        with pytest.raises(ValueError, match="port_num = "):
            adapter.set_port_info(number, lid=5)


def port(number, **others):
    return PortConfig(gids=(V4_MAPPED_PREFIX + (10 << 24 | number).to_bytes(4, "big"),), **others)


@pytest.mark.parametrize(
    ("further", "message"),
    [
        ((port(1),), "a GID is given to two ports"),
        ((port(2), port(2)), "a GID is given to two ports"),
        (tuple(port(number) for number in range(2, 257)), "255 ports at most"),
    ],
)
def test_ports_that_cannot_be_are_refused(further, message):
    with pytest.raises(ValueError, match=message):
        AdapterConfig(gids=port(1).gids, further_ports=further)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gids": ()}, "GIDs"),
        ({"gids": (bytes(16),)}, "unicast"),
        ({"pkeys": ()}, "P_Keys"),
        ({"pkeys": (0,)}, "P_Key"),
        ({"active_mtu": 6}, "active_mtu"),
        ({"framing": "other"}, "framing"),
        ({"lid": 1}, "RoCE port has no LIDs"),
    ],
)
def test_a_port_that_cannot_be_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        PortConfig(**{"gids": (gid(1, port_number=2),), **values})


def test_an_adapter_has_up_to_255_ports():
    last = port(255, active_mtu=5, pkeys=(0xFFFF, 0x8001))
    further = (*map(port, range(2, 255)), last)
    adapter = Adapter(AdapterConfig(gids=port(1).gids, further_ports=further))
    assert adapter.device_attributes["phys_port_cnt"] == 255
    assert adapter.port_of(255).own.active_mtu == 5
    assert adapter.port_of(255).pkey(1) == 0x8001
    assert adapter.next_deadline() == NEVER
    burst = Burst()
    assert not any(adapter.transmit(number, burst, 0) for number in range(1, 256))
    with pytest.raises(OSError, match="port_num = 256: "):
        adapter.port_of(256)


class Acknowledging(Flow):
    """A flow that would send nothing but an acknowledgement."""

    def may_delay_ack(self):
        return True


def test_an_acknowledgement_is_delayed_where_nothing_else_waits_at_any_port():
    with Network() as network:
        adapter = network.add(ports=2).adapter
        flows = [Acknowledging(adapter, number) for number in (1, 2)]
        for flow, port in zip(flows, adapter.ports, strict=True):
            flow.port_number = port.number
        adapter.schedule(flows[1])
        assert adapter.flow_delaying_ack() is flows[1]
        assert [adapter.next_deadline(number) == 0 for number in (0, 1, 2)] == [True, False, True]
        adapter.schedule(flows[0])
        assert adapter.flow_delaying_ack() is None
