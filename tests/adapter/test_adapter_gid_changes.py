"""The addresses of a RoCE port that change while the adapter runs."""

from __future__ import annotations

import errno

import pytest

from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.driver.services import Path
from softhca.management.mad import Address
from softhca.queues import control_fields as events
from softhca.testing.ends import QKEY, RC, SEND, UD, WRITE, End, pair, post
from softhca.testing.network import Network
from softhca.transport.loopback import Loopback, LoopbackExecutor
from softhca.wire.route import V4_MAPPED_PREFIX

RETRY_EXCEEDED = 12
NEW, OTHER = (V4_MAPPED_PREFIX + bytes((10, 7, 0, number)) for number in (1, 2))
SIX = bytes.fromhex("20010db8" + "00" * 11 + "01")
NONE = bytes(16)


@pytest.fixture
def end():
    with Network() as network:
        yield End(network.add())


def told(device):
    found = []
    while (event := device.next_event(0)) is not None:
        found.append(event)
    return found


def table_of(device):
    return [device.query_gid(1, index) for index in range(device.query_port(1)["gid_tbl_len"])]


def change(end, *gids):
    return end.node.adapter.set_gids(1, gids)


def test_hosts_see_the_table_and_are_told_once(end):
    first = end.device.query_gid(1, 0)
    change(end, first, NEW, SIX)
    assert table_of(end.device) == [first] * 4 + [NEW, SIX] + [NONE] * 10
    assert told(end.device) == [(events.EVENT_GID_CHANGE, 1)]
    assert end.device.events.gid_changes() == 1
    change(end, SIX, first, NEW)
    assert told(end.device) == []
    end.node.adapter.set_link(1, False)
    assert told(end.device) == [(events.EVENT_PORT_ERR, 1)]
    assert end.device.events.gid_changes() == 1
    change(end, SIX)
    assert table_of(end.device) == [NONE] * 5 + [SIX] + [NONE] * 10
    assert end.device.events.gid_changes() == 2  # whether or not the event has been taken
    assert told(end.device) == [(events.EVENT_GID_CHANGE, 1)]
    change(end)
    assert table_of(end.device) == [NONE] * 16
    assert end.node.adapter.port.gids == frozenset()
    assert change(end, NEW, first).added == (NEW, first)
    assert table_of(end.device)[:5] == [first] * 4 + [NEW]


def test_what_cannot_be_changes_and_tells_nothing():
    with Network() as network:
        end = End(network.add(ports=2))
        before = table_of(end.device)
        other = end.device.query_gid(2, 0)
        for wrong in (NEW[:-1], NONE, b"\xff" + NEW[1:]):
            with pytest.raises(ValueError, match="GID"):
                change(end, NEW, wrong)
        with pytest.raises(ValueError, match="port 2"):
            change(end, NEW, other)
        with pytest.raises(ValueError, match="ports 1…2"):
            end.node.adapter.set_gids(3, [NEW])
        assert table_of(end.device) == before
        assert told(end.device) == []
    with Network(link="native") as network, pytest.raises(ValueError, match="native"):
        change(End(network.add()), NEW)


def test_an_entry_that_is_empty_begins_no_path(end):
    gid = end.device.query_gid(1, 0)
    peer = gid[:-1] + b"\x77"
    change(end, gid, NEW)
    vector = {"dgid": peer, "is_global": 1, "sgid_index": 4, "port_num": 1}
    handle = end.device.create_ah(end.pd, vector)
    change(end, gid)
    for make in (
        lambda: end.device.create_ah(end.pd, vector),
        lambda: services.connect(end.qp(), Path(peer, sgid_index=4), 5, 1, 1),
    ):
        with pytest.raises(DriverError, match="sgid_index = 4") as refused:
            make()
        assert refused.value.errno == errno.EINVAL
    change(end, gid, NEW, SIX)
    change(end, gid, SIX)  # where the table goes on behind it, and whatever the version
    with pytest.raises(DriverError, match="entry is empty"):
        end.device.create_ah(end.pd, {**vector, "dgid": SIX[:-1] + b"\x77"})
    change(end, gid, OTHER, NEW)  # the place is NEW's, which had it
    assert end.device.query_gid(1, 4) == NEW
    end.device.destroy_ah(handle)


def test_connections_and_handles_keep_their_address_and_go_on_when_it_is_back():
    network, left, qp, right, _ = pair(RC)
    with network:
        port = left.node.adapter.port
        own = left.device.query_gid(1, 0)
        route = left.node.adapter.queue_pairs[qp.number].flow.route
        change(left, NEW)
        assert left.node.adapter.queue_pairs[qp.number].flow.route is route
        post(qp, WRITE, [left.sge(0, 4)], va=right.va, rkey=right.key.rkey)
        network.run(limit_ns=1_000_000)  # the first packet has gone nowhere
        port.source_port_for = lambda entropy, destination, source: 0xC123
        change(left, own, NEW)
        renewed = left.node.adapter.queue_pairs[qp.number].flow.route
        assert (renewed.source, renewed.destination) == (own, route.destination)
        assert (route.source_port, renewed.source_port) != (0xC123, route.source_port)
        assert renewed.source_port == 0xC123
        assert [done.status for done in left.poll(1)] == [0]


def test_a_route_whose_place_another_address_has_stays_as_it_is():
    with Network() as network:
        left, right = End(network.add(gid_table_length=5)), End(network.add())
        own, peer = left.device.query_gid(1, 0), right.device.query_gid(1, 0)
        qp = left.qp(UD)
        services.start_datagrams(qp, QKEY)
        number = left.device.create_ah(left.pd, {"dgid": peer, "is_global": 1, "port_num": 1})
        handle = left.node.adapter.handles[number]
        route = handle.route
        change(left, NEW)
        change(left, NEW, own)
        assert handle.route is not route
        route = handle.route
        change(left, NEW, OTHER)
        change(left, OTHER, own)
        assert table_of(left.device) == [OTHER] * 4 + [own]
        assert handle.route is route
        post(qp, SEND, [left.sge(0, 4)], ah=number, qpn=9, qkey=QKEY)
        assert left.poll(1)[0].status == 0


def test_a_link_without_sockets_leaves_a_route_as_it_is():
    network, left, qp, _, _ = pair(RC)
    with network:
        port = left.node.adapter.port
        route = left.node.adapter.queue_pairs[qp.number].flow.route
        own = left.device.query_gid(1, 0)
        peer = {"dgid": route.destination, "is_global": 1, "port_num": 1}
        handle = left.node.adapter.handles[left.device.create_ah(left.pd, peer)]
        kept = handle.route

        def exhausted(entropy, destination, source):
            raise OSError(errno.EMFILE, "no descriptor is left")

        change(left)
        port.source_port_for = exhausted
        change(left, own)
        assert left.node.adapter.queue_pairs[qp.number].flow.route is route
        assert handle.route is kept


@pytest.mark.parametrize("gone", ["left", "right"])
def test_what_begins_or_ends_at_an_address_that_has_gone_is_not_answered(gone):
    network, left, qp, right, _ = pair(RC, timeout=10, retry_cnt=1)
    with network:
        change(left if gone == "left" else right)
        post(qp, WRITE, [left.sge(0, 4)], va=right.va, rkey=right.key.rkey)
        assert [done.status for done in left.poll(1)] == [RETRY_EXCEEDED]


def test_queue_pairs_of_one_adapter_reach_each_other_by_its_present_addresses():
    with Network() as network:
        end = End(network.add())
        adapter = end.node.adapter
        own = end.device.query_gid(1, 0)
        adapter.same_host = Loopback(adapter.port.gids)
        one, other = end.qp(), end.qp()
        for qp, peer in ((one, other), (other, one)):
            services.connect(qp, Path(own), peer.number, 1, 1, 15, services.Reliability(10, 1))
        context = adapter.queue_pairs[one.number]
        assert isinstance(context.executor, LoopbackExecutor)
        change(end, NEW)
        assert context.executor is None
        assert not adapter.port.is_own(context.flow.route)
        change(end, own)
        assert isinstance(context.executor, LoopbackExecutor)
        change(end, own, NEW)
        handle = end.device.create_ah(end.pd, {"dgid": NEW, "is_global": 1, "sgid_index": 0, "port_num": 1})
        route = adapter.handles[handle].route
        assert adapter.port.is_own(route)
        change(end, NEW)
        assert not adapter.port.is_own(route)
        change(end, own)
        change(end)
        post(one, WRITE, [end.sge(0, 4)], va=end.va, rkey=end.key.rkey)
        assert [done.status for done in end.poll(1)] == [RETRY_EXCEEDED]


def test_datagrams_of_management_begin_at_an_address_that_is_there(end):
    flow = end.node.adapter.port.management[1]
    own = end.device.query_gid(1, 0)
    four, six = Address(1, gid=OTHER), Address(1, gid=SIX)
    change(end, NEW, SIX)
    assert (flow.own_gid(four), flow.own_gid(six)) == (NEW, SIX)
    assert flow.own_gid(Address(1, gid=OTHER, own_gid=own)) == NEW
    change(end, NEW)
    assert flow.own_gid(six) == NEW
    change(end)
    assert flow.own_gid(four) == NONE


def test_frames_stay_those_of_the_station_that_the_first_address_names(end):
    segment = end.node.adapter.port.segment
    own = end.device.query_gid(1, 0)
    there = b"\2" + bytes(5)
    segment.learn(there, OTHER, 0)
    before = segment.destinations(there, 0)[0][0]
    change(end, NEW)
    after = segment.destinations(there, 0)[0][0]
    assert before.source == after.source == own
    assert after is not before
