"""Subnet administration by datagram: queries of all kinds, who may see what, bounds and hostile input."""

from __future__ import annotations

from random import Random

import pytest
from administration_tools import ALL, DELETE, GET, SET, TABLE, Asker, mask

from softhca.fabric.generators import fat_tree, torus
from softhca.fabric.manager import states
from softhca.fabric.manager.administration import MOST_TRANSFERS, MOST_TRANSFERS_TO_ONE
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.manager import FabricManager, ManagerConfig
from softhca.fabric.manager.partitions import Partition
from softhca.fabric.topology import Topology
from softhca.management import administration_attributes as a
from softhca.management import administration_tables as t
from softhca.management import constants as c
from softhca.management import rmpp
from softhca.management.attributes import ClassPortInfo, PortInfo
from softhca.management.subnet_attributes import TABLES, SMInfo

TREE = fat_tree(4, 2)
SECOND_NS = 1_000_000_000


def bring_up(
    topology: Topology = TREE, at: int = 3, **config: object
) -> tuple[ManagedFabric, FabricManager, Asker]:
    managed = ManagedFabric(topology)
    guid = topology.nodes[0].port_guid(1)
    manager = managed.add((0, 1), ManagerConfig(guid, **config))  # type: ignore[arg-type]
    managed.settle()
    assert manager.problems == []
    return managed, manager, Asker(managed, (at, 1))


def lids(managed: ManagedFabric) -> dict[int, int]:
    """By the node's index."""
    return {node.index: node.own_port(0 if node.is_switch else 1).info.lid for node in managed.plane.nodes}


def test_node_records_are_the_fabric_s_nodes_segment_by_segment() -> None:
    managed, manager, asker = bring_up()
    found = asker.records(a.NodeRecord)
    assert {(each.lid, each.node_guid, each.port_guid) for each in found} == {
        (lids(managed)[index], node.guid, node.port_guid(0 if node.is_switch else 1))
        for index, node in enumerate(TREE.nodes)
    }
    names = {each.node_description.rstrip(b"\0").decode() for each in found}
    assert names == {node.name for node in TREE.nodes}
    assert {each.local_port_num for each in found} == {0, 1}
    assert manager.administration.counters["segments"] == -(-len(found) * 112 // 200)
    assert manager.administration.counters["transfers_failed"] == 0


@pytest.mark.parametrize("number", [0, 3, 7])
def test_one_record_is_got_by_what_it_has(number: int) -> None:
    managed, _, asker = bring_up()
    node = TREE.nodes[number]
    answer = asker.ask(GET, a.ATTRIBUTE_NODE_RECORD, a.NodeRecord(node_guid=node.guid),
                       mask(a.NodeRecord, "node_guid"))  # fmt: skip
    assert answer is not None
    assert (answer.status, answer.method) == (0, c.METHOD_GET_RESPONSE)
    record = a.NodeRecord.decode(answer.data[0])
    assert (record.lid, record.node_guid) == (lids(managed)[number], node.guid)
    wrong = a.NodeRecord(node_guid=node.guid, lid=77)
    assert asker.status(GET, a.ATTRIBUTE_NODE_RECORD, wrong, ALL) == a.STATUS_NO_RECORDS
    assert asker.status(GET, a.ATTRIBUTE_NODE_RECORD) == a.STATUS_TOO_MANY_RECORDS
    assert asker.records(a.NodeRecord, wrong, mask(a.NodeRecord, "lid")) == []


def test_port_info_records_are_those_of_the_ports_and_hide_keys() -> None:
    managed, _, asker = bring_up(m_key=0x77)
    assert {node.own_port(1).info.m_key_protect_bits for node in managed.plane.nodes} == {1}
    found = asker.records(a.PortInfoRecord)
    count = sum(node.port_count + 1 if node.is_switch else 1 for node in TREE.nodes)
    assert len(found) == count
    by_place = {(each.endport_lid, each.port_num): PortInfo.decode(each.port_info) for each in found}
    for node in managed.plane.nodes:
        for port in node.ports:
            if port is not None:
                said = by_place[lids(managed)[node.index], port.number]
                assert (said.state, said.lid, said.m_key) == (port.info.state, port.info.lid, 0)
    trusted = asker.records(a.PortInfoRecord, a.PortInfoRecord(asker.lid), 1, key=1)
    assert [PortInfo.decode(each.port_info).m_key for each in trusted] == [0x77]


@pytest.mark.parametrize(
    ("component", "field", "value", "count"),
    [
        (5, "lid", 1, 1),
        (15, "state", 4, 38),
        (23, "neighbor_mtu", 5, 38),
        (23, "neighbor_mtu", 4, 0),
        (34, "operational_vls", 1, 32),
        (44, "subnet_timeout", 18, 14),
    ],
)
def test_components_of_port_info_records_stand_where_others_have_them(
    component: int, field: str, value: int, count: int
) -> None:
    _, _, asker = bring_up()
    wanted = a.PortInfoRecord(port_info=PortInfo(**{"local_port_num": 0, field: value}).encode())
    found = asker.records(a.PortInfoRecord, wanted, 1 << component)
    assert all(getattr(PortInfo.decode(each.port_info), field) == value for each in found)
    assert len(found) == count


def test_capabilities_are_matched_bit_by_bit_where_that_is_asked_for() -> None:
    _, manager, asker = bring_up()
    wanted = a.PortInfoRecord(port_info=PortInfo(local_port_num=0, capability_mask=2).encode())
    assert asker.records(a.PortInfoRecord, wanted, 1 << t.PORT_CAPABILITIES) == []
    found = asker.records(a.PortInfoRecord, wanted, 1 << t.PORT_CAPABILITIES, modifier=1 << 31)
    assert [each.endport_lid for each in found] == [manager.own_lid]


def test_links_switches_and_managers_have_records() -> None:
    managed, manager, asker = bring_up()
    known = lids(managed)
    links = {
        (known[one.node], one.port, other.port, known[other.node])
        for link in TREE.links
        for one, other in ((link.end_a, link.end_b), (link.end_b, link.end_a))
    }
    found = asker.records(a.LinkRecord)
    assert {(each.from_lid, each.from_port, each.to_port, each.to_lid) for each in found} == links
    assert len(found) == len(links)
    some = asker.records(a.LinkRecord, a.LinkRecord(known[8], 1), mask(a.LinkRecord, "from_lid", "from_port"))
    assert [(each.from_lid, each.from_port) for each in some] == [(known[8], 1)]
    switches = asker.records(a.SwitchInfoRecord)
    assert {each.lid for each in switches} == {known[index] for index in TREE.switches}
    other = managed.add((5, 1), ManagerConfig(TREE.nodes[5].port_guid(1), sm_key=0))
    managed.run_until(managed.now + SECOND_NS)
    manager.sweep(managed.now)
    managed.settle()
    said = [SMInfo.decode(each.sm_info) for each in asker.records(a.SMInfoRecord)]
    assert {(each.guid, each.sm_state) for each in said} == {
        (manager.config.guid, states.MASTER), (other.config.guid, states.STANDBY),
    }  # fmt: skip


def test_sm_keys_are_for_who_is_trusted() -> None:
    _, _, asker = bring_up(sm_key=5)
    assert [SMInfo.decode(each.sm_info).sm_key for each in asker.records(a.SMInfoRecord)] == [0]
    assert [SMInfo.decode(each.sm_info).sm_key for each in asker.records(a.SMInfoRecord, key=1)] == [5]


@pytest.mark.parametrize("fabric", [fat_tree(4, 3), torus([3], 20)], ids=["narrow", "more than 16 ports"])
def test_forwarding_tables_are_as_they_stand_in_the_switches(fabric: Topology) -> None:
    managed, manager, asker = bring_up(fabric)
    hosts = [node for node in fabric.nodes if not node.is_switch]
    members = [node.port_guid(1) for node in hosts[::5]]
    manager.set_group(0xC005, frozenset(members), managed.now)
    managed.settle()
    blocks = asker.records(t.LinearForwardingRecord)
    by_lid = {node.own_port(0).info.lid: node for node in managed.plane.nodes if node.is_switch}
    assert {each.lid for each in blocks} == set(by_lid)
    for each in blocks:
        assert each.table == by_lid[each.lid].linear_block(each.block)
    positions = set()
    for each in asker.records(t.MulticastForwardingRecord):
        positions.add(each.position)
        assert each.table == by_lid[each.lid].multicast[each.position << 28 | each.block]
        by_lid[each.lid].multicast.pop(each.position << 28 | each.block)
    assert not any(any(data) for node in by_lid.values() for data in node.multicast.values())
    assert positions == {0, 1} if len(fabric.nodes) > 40 else {0}


def test_tables_that_the_manager_does_not_keep_are_read_when_somebody_asks() -> None:
    fabric = torus([4, 3], 2)
    managed, manager, asker = bring_up(fabric)
    switch = managed.plane.nodes[fabric.switches[3]]
    lid, sent = switch.own_port(0).info.lid, manager.administration.lookups._requests.counters
    found = asker.records(t.SlToVlRecord, t.SlToVlRecord(lid), 1)
    assert len(found) == len(switch.ports) ** 2
    for each in found:
        port = switch.ports[each.output_port]
        assert port is not None
        assert each.table == port.sl_to_vl.get(each.input_port, bytes(8))
    assert any(any(each.table) for each in found)
    before = sent["sent"]
    named = mask(t.SlToVlRecord, "lid", "input_port", "output_port")
    one = asker.records(t.SlToVlRecord, t.SlToVlRecord(lid, 1, 2), named)
    assert [(each.input_port, each.output_port) for each in one] == [(1, 2)]
    assert sent["sent"] == before  # it is known until the next sweep
    manager.sweep(managed.now)
    managed.settle()
    assert asker.records(t.SlToVlRecord, t.SlToVlRecord(lid, 1, 2), named) == one
    assert sent["sent"] == before + 1
    lanes = asker.records(t.VlArbitrationRecord, t.VlArbitrationRecord(lid), 1)
    assert {(each.output_port, each.block) for each in lanes} == {
        (port, block) for port in range(len(switch.ports)) for block in (1, 3)
    }
    for each in lanes:
        port = switch.ports[each.output_port]
        assert port is not None
        assert each.table == port.arbitration.get(each.block, bytes(64))
    guids = asker.records(t.GuidInfoRecord)
    assert {int.from_bytes(each.table[:8], "big") for each in guids} == {
        node.port_guid(0 if node.is_switch else 1) for node in fabric.nodes
    }
    assert asker.records(t.GuidInfoRecord, t.GuidInfoRecord(block=1), mask(t.GuidInfoRecord, "block")) == []
    everything = asker.status(TABLE, t.ATTRIBUTE_SL_TO_VL_RECORD)
    assert everything == 0


def test_nodes_that_do_not_answer_have_no_records() -> None:
    managed, manager, asker = bring_up()
    lost = manager.fabric.nodes[TREE.nodes[5].guid].paths[1]
    managed.loses = lambda datagram: (
        datagram.data[1] == c.CLASS_SUBN_DIRECTED
        and bytes(datagram.data[129 : 129 + datagram.data[7]]) == lost
    )
    asker.send(asker.datagram(TABLE, t.ATTRIBUTE_GUID_INFO_RECORD))
    managed.run_until(managed.now + SECOND_NS)
    answer = asker.take()
    assert answer is not None
    assert len(answer.data) == len(TREE.nodes) - 1


def test_class_port_info_says_what_there_is() -> None:
    _, _, asker = bring_up()
    answer = asker.ask(GET, c.ATTRIBUTE_CLASS_PORT_INFO)
    assert answer is not None
    info = ClassPortInfo.decode(answer.data[0])
    assert (info.class_version, info.capability_mask, info.capability_mask2) == (2, 0x2602, 0x28)


def test_p_key_tables_are_for_who_is_trusted_and_have_as_many_blocks_as_it_needs() -> None:
    partitions = tuple(Partition(number) for number in range(1, 41))
    managed, _, asker = bring_up(partitions=partitions, at=2)
    assert asker.status(TABLE, t.ATTRIBUTE_PKEY_TABLE_RECORD) == a.STATUS_REQUEST_INVALID
    found = asker.records(t.PKeyTableRecord, t.PKeyTableRecord(asker.lid), 1, key=1)
    keys = [0xFFFF, *(0x8000 | number for number in range(1, 41))]
    table = TABLES[c.ATTRIBUTE_PKEY_TABLE]
    assert [key for each in found for key in table.decode(each.table) if key] == keys
    port = managed.plane.nodes[2].ports[1]
    assert port is not None
    assert [port.pkey_block(block) for block in (0, 1)] == [each.table for each in found]


@pytest.mark.parametrize(
    ("more", "attribute", "method", "status"),
    [
        ({"class_version": 1}, a.ATTRIBUTE_NODE_RECORD, TABLE, c.STATUS_BAD_VERSION),
        ({"base_version": 2}, a.ATTRIBUTE_NODE_RECORD, TABLE, c.STATUS_BAD_VERSION),
        ({}, a.ATTRIBUTE_NODE_RECORD, 0x13, c.STATUS_BAD_METHOD),
        ({}, 0x0077, TABLE, c.STATUS_BAD_ATTRIBUTE),
        ({}, a.ATTRIBUTE_NODE_RECORD, SET, c.STATUS_BAD_ATTRIBUTE),
        ({}, a.ATTRIBUTE_NODE_RECORD, DELETE, c.STATUS_BAD_ATTRIBUTE),
        ({}, c.ATTRIBUTE_CLASS_PORT_INFO, SET, c.STATUS_BAD_ATTRIBUTE),
        ({}, a.ATTRIBUTE_INFORM_INFO, GET, c.STATUS_BAD_ATTRIBUTE),
    ],
)
def test_what_cannot_be_asked_has_a_status(
    more: dict[str, int], attribute: int, method: int, status: int
) -> None:
    _, manager, asker = bring_up()
    assert asker.status(method, attribute, **more) == status
    assert manager.administration.counters["refused"] == 1


def test_what_is_no_question_is_dropped_and_counted() -> None:
    managed, manager, asker = bring_up()
    counters = manager.administration.counters
    assert asker.ask(TABLE, a.ATTRIBUTE_NODE_RECORD, key=9) is None
    assert counters["drops_key"] == 1
    for method in (c.METHOD_SEND, c.METHOD_TRAP):
        assert asker.ask(method, a.ATTRIBUTE_NODE_RECORD) is None
    assert counters["drops_form"] == 2
    data = asker.datagram(GET, c.ATTRIBUTE_CLASS_PORT_INFO)
    manager.receive(data, 999, managed.now)
    assert counters["drops_source"] == 1
    manager.receive(data[:3] + b"\x86" + data[4:], asker.lid, managed.now)
    assert counters["drops_form"] == 3
    manager.state = states.STANDBY
    manager.receive(data, asker.lid, managed.now)
    assert counters["drops_state"] == 1
    assert not list(manager.transmit())


def test_nobody_is_trusted_where_there_is_no_key() -> None:
    _, manager, asker = bring_up(administration_key=0)
    assert asker.ask(TABLE, a.ATTRIBUTE_NODE_RECORD, key=1) is None
    assert manager.administration.counters["drops_key"] == 1
    assert asker.status(TABLE, t.ATTRIBUTE_PKEY_TABLE_RECORD) == a.STATUS_REQUEST_INVALID


def test_a_table_that_is_not_acknowledged_is_sent_again_and_given_up() -> None:
    managed, manager, asker = bring_up()
    request = asker.datagram(TABLE, a.ATTRIBUTE_NODE_RECORD)
    asker.send(request)
    managed.step()
    managed.step()
    asker.send(request)  # asked again: the answer is under way
    managed.run_until(managed.now + 5 * SECOND_NS)
    kinds = [data[rmpp.HEADER_AT + 1] for data in asker.arrived]
    assert kinds == [rmpp.DATA] * 4 + [rmpp.ABORT]
    counters = manager.administration.counters
    assert (counters["transfers"], counters["transfers_failed"], counters["drops_transfer"]) == (1, 1, 1)
    assert len(asker.records(a.NodeRecord)) == len(TREE.nodes)


def test_tables_under_way_are_bounded() -> None:
    managed, manager, asker = bring_up()
    requests = ((asker, MOST_TRANSFERS_TO_ONE + 2, 2),)
    requests += ((Asker(managed, (4, 1)), MOST_TRANSFERS_TO_ONE - 1, 0), (Asker(managed, (5, 1)), 3, 2))
    for each, asked, refused in requests:
        for _ in range(asked):
            each.send(each.datagram(TABLE, a.ATTRIBUTE_NODE_RECORD))
        each._turn()
        statuses = [int.from_bytes(data[4:6], "big") for data in each.arrived]
        assert statuses.count(c.STATUS_BUSY) == refused
    counters = manager.administration.counters
    assert (counters["transfers"], counters["busy"]) == (MOST_TRANSFERS, 4)
    managed.run_until(managed.now + 5 * SECOND_NS)
    asker.arrived.clear()
    assert len(asker.records(a.NodeRecord)) == len(TREE.nodes)


def test_a_flood_costs_little_and_keeps_no_other_waiting() -> None:
    managed, manager, asker = bring_up(queries_per_second=400)
    other = Asker(managed, (5, 1))
    for _ in range(2000):
        asker.send(asker.datagram(GET, c.ATTRIBUTE_CLASS_PORT_INFO))
    link = TREE.link_at(TREE.index("s1-2"), 3)
    assert link is not None
    managed.plane.fail(link, managed.now)
    managed.run_until(managed.now + SECOND_NS // 4)
    assert manager.sweeps == 2  # the sweep has gone on
    counters = manager.administration.counters
    assert (counters["answered"], counters["drops_rate"]) == (200, 1800)
    answer = other.ask(GET, c.ATTRIBUTE_CLASS_PORT_INFO)
    assert answer is not None
    managed.run_until(managed.now + SECOND_NS)
    assert asker.ask(GET, c.ATTRIBUTE_CLASS_PORT_INFO) is not None


def test_large_queries_are_paid_for_by_who_asks() -> None:
    managed, manager, asker = bring_up(queries_per_second=4)
    assert asker.ask(TABLE, a.ATTRIBUTE_PATH_RECORD) is not None  # all pairs: worth many queries
    assert asker.ask(GET, c.ATTRIBUTE_CLASS_PORT_INFO) is None
    assert manager.administration.counters["drops_rate"] >= 1
    managed.run_until(managed.now + 60 * SECOND_NS)
    assert asker.ask(GET, c.ATTRIBUTE_CLASS_PORT_INFO) is not None


def test_hostile_datagrams_have_one_fate_each_and_change_nothing() -> None:
    managed, manager, asker = bring_up()
    dice = Random(4)
    attributes = [*t.RECORDS, a.ATTRIBUTE_INFORM_INFO, c.ATTRIBUTE_CLASS_PORT_INFO, 0x99]
    count = 4000
    for _ in range(count):
        data = bytearray(dice.randbytes(256))
        data[0], data[1], data[2] = dice.choice((1, 1, 1, 9)), c.CLASS_SUBN_ADM, dice.choice((2, 2, 2, 1))
        data[3] = dice.choice((GET, TABLE, SET, DELETE, TABLE, data[3]))
        data[16:18] = dice.choice(attributes).to_bytes(2, "big")
        data[26] &= dice.choice((0xFE, 0xFF))
        data[36:44] = bytes(7) + bytes([dice.choice((0, 1, 7))])
        data[48:56] = dice.getrandbits(64).to_bytes(8, "big") if dice.random() < 0.5 else bytes(8)
        managed.now += SECOND_NS // 500
        manager.receive(bytes(data), asker.lid, managed.now)
        if dice.random() < 0.1:
            managed.step()
    counters = manager.administration.counters
    assert counters["drops_key"] > 500
    assert counters["drops_transfer"] > 100
    fates = sum(count for name, count in counters.items() if name.startswith("drops_"))
    assert counters["queries"] <= counters["answered"] + counters["refused"] + counters["drops_transfer"]
    assert fates + counters["answered"] + counters["refused"] >= count
    managed.settle()
    assert (manager.state, manager.problems) == (states.MASTER, [])
    asker.arrived.clear()
    managed.run_until(managed.now + 30 * SECOND_NS)
    assert len(asker.records(a.NodeRecord)) == len(TREE.nodes)
