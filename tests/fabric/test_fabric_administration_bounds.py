"""Subnet administration where values meet their bounds: budgets, members, narrow links, empty tables."""

from __future__ import annotations

import pytest
from administration_tools import DELETE, GET, SET, TABLE, Asker, mask

from softhca.fabric.generators import fat_tree
from softhca.fabric.manager import lookups, membership
from softhca.fabric.manager.budget import Bucket, Budget
from softhca.fabric.manager.configuration import Shadow, partition_writes
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.manager import ManagerConfig
from softhca.fabric.manager.membership import FULL, NON_MEMBER
from softhca.fabric.manager.partitions import Partition, Partitions
from softhca.fabric.topology import End, Link, LinkSpeed, LinkWidth, NodeKind, Topology, make_node
from softhca.management import administration_attributes as a
from softhca.management import administration_tables as t
from softhca.management import constants as c
from softhca.management import rmpp

SECOND_NS = 1_000_000_000
TREE = fat_tree(4, 2)
MCM = a.ATTRIBUTE_MC_MEMBER_RECORD
WHO = ("mgid", "port_gid", "join_state")
CREATE = (*WHO, "qkey", "traffic_class", "pkey", "sl", "flow_label")


def uneven() -> Topology:
    """A switch with a host behind 12x EDR, and another one behind 1x SDR."""
    switch = make_node("switch", NodeKind.SWITCH, 2, 0x100)
    hosts = [make_node(f"h{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x200 + 16 * n) for n in range(2)]
    links = (
        Link(End(0, 1), End(1, 1), LinkWidth.X12, LinkSpeed.EDR),
        Link(End(0, 2), End(2, 1), LinkWidth.X1, LinkSpeed.SDR),
    )
    return Topology((switch, *hosts), links)


def bring_up(topology: Topology = TREE, **config: object) -> tuple[ManagedFabric, list[Asker]]:
    managed = ManagedFabric(topology)
    first = topology.end_nodes[0]
    managed.add((first, 1), ManagerConfig(topology.nodes[first].port_guid(1), **config))  # type: ignore[arg-type]
    managed.settle()
    return managed, [Asker(managed, (node, 1)) for node in topology.end_nodes]


def join(asker: Asker, names: tuple[str, ...], state: int = FULL, method: int = SET, **values: object) -> int:
    facts = {"mgid": b"\xff\x12" + bytes(14), "port_gid": asker.gid, "join_state": state, "pkey": 0xFFFF}
    return asker.status(method, MCM, a.MCMemberRecord(**{**facts, **values}), mask(a.MCMemberRecord, *names))  # type: ignore[arg-type]


def test_a_bucket_holds_no_more_than_its_burst() -> None:
    bucket = Bucket(10, 20, 0)
    assert bucket.has_some(100 * SECOND_NS)
    assert bucket.left == 20
    bucket.take(25)
    assert not bucket.has_some(100 * SECOND_NS)
    assert not bucket.has_some(100 * SECOND_NS + SECOND_NS // 2)  # the debt is just paid
    assert bucket.has_some(100 * SECOND_NS + SECOND_NS // 2 + 1)
    assert bucket.has_some(0)  # time that goes back gives nothing, and takes nothing
    assert 0 < bucket.left < 1


def test_all_sources_together_have_their_bound() -> None:
    budget = Budget(4)
    taken = 0
    for source in range(20):
        if budget.allows(source, 0):
            budget.charge(source, 1)
            taken += 1
    assert taken == 8
    assert budget.allows(99, SECOND_NS)


def test_a_source_has_a_share_and_old_sources_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget(40)
    taken = 0
    while budget.allows(7, 0):
        budget.charge(7, 1)
        taken += 1
    assert taken == 20
    assert budget.allows(8, 0)
    monkeypatch.setattr("softhca.fabric.manager.budget.MOST_SOURCES", 2)
    assert budget.allows(9, 0)
    assert len(budget._sources) == 2


def test_an_answer_of_one_datagram_has_no_rmpp_whatever_the_question_says() -> None:
    managed, askers = bring_up()
    request = bytearray(askers[2].datagram(GET, c.ATTRIBUTE_CLASS_PORT_INFO))
    front = a.AdministrationHeader(1, rmpp.DATA, 3, 7, 0, 1, 220)
    request[rmpp.HEADER_AT : rmpp.HEADER_AT + 12] = front.encode()[:12]
    askers[2].send(bytes(request))
    while managed.step():
        pass
    (answer,) = askers[2].arrived
    assert answer[rmpp.HEADER_AT : rmpp.HEADER_AT + 12] == bytes(12)
    assert int.from_bytes(answer[4:6], "big") == 0


def test_a_table_that_holds_no_group_any_more_has_no_record() -> None:
    managed, askers = bring_up()
    for asker in (askers[1], askers[6]):
        assert join(asker, CREATE) == 0
    managed.settle()
    assert len(askers[2].records(t.MulticastForwardingRecord)) > 2
    for asker in (askers[1], askers[6]):
        assert join(asker, WHO, method=DELETE) == 0
    managed.settle()
    assert askers[2].records(t.MulticastForwardingRecord) == []


def test_a_switch_s_own_port_makes_no_path_narrower() -> None:
    managed, askers = bring_up(uneven())
    switch = managed.plane.nodes[0].own_port(0).info.lid
    for slid, dlid in ((switch, askers[0].lid), (askers[0].lid, switch)):
        wanted = a.PathRecord(slid=slid, dlid=dlid)
        answer = askers[1].ask(GET, a.ATTRIBUTE_PATH_RECORD, wanted, mask(a.PathRecord, "slid", "dlid"))
        assert answer is not None
        assert a.PathRecord.decode(answer.data[0]).rate == 18  # 300 Gb/s


def test_a_slow_port_cannot_join_a_fast_group() -> None:
    _, askers = bring_up(uneven())
    names = (*CREATE, "rate_selector", "rate")
    assert join(askers[0], names, rate_selector=2, rate=17) == 0
    assert join(askers[1], WHO) == a.STATUS_REQUEST_INVALID
    other = b"\xff\x12" + bytes(13) + b"\x01"
    assert join(askers[0], names, mgid=other, rate_selector=2, rate=2) == 0
    assert join(askers[1], WHO, mgid=other) == 0


def test_who_lets_another_port_create_a_group_is_in_its_partition_too() -> None:
    guids = [node.port_guid(1) for node in TREE.nodes[:8]]
    _, askers = bring_up(partitions=(Partition(0x12, frozenset(guids[1:3])),))
    assert join(askers[4], CREATE, pkey=0x8012, port_gid=askers[1].gid) == a.STATUS_REQUEST_INVALID
    assert join(askers[2], CREATE, pkey=0x8012, port_gid=askers[1].gid) == 0


def test_members_of_all_groups_are_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    _, askers = bring_up()
    monkeypatch.setattr(membership, "MOST_MEMBERS", 2)
    assert join(askers[1], CREATE) == 0
    assert join(askers[2], WHO, NON_MEMBER) == 0
    assert join(askers[3], WHO) == a.STATUS_NO_RESOURCES
    assert join(askers[2], WHO, FULL) == 0  # it is one already
    assert join(askers[2], WHO, FULL, DELETE) == 0
    assert join(askers[1], WHO, FULL, DELETE) == 0  # the last full member, and the group with the other one
    assert join(askers[3], CREATE) == 0
    assert join(askers[4], WHO) == 0
    assert join(askers[5], WHO) == a.STATUS_NO_RESOURCES


def test_lookups_under_way_and_their_reads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    managed, askers = bring_up()
    monkeypatch.setattr(lookups, "MOST_LOOKUPS", 1)
    for asker in askers[1:3]:
        asker.send(asker.datagram(GET, t.ATTRIBUTE_GUID_INFO_RECORD, t.GuidInfoRecord(asker.lid), 1))
    while managed.step():
        pass
    statuses = [int.from_bytes(data[4:6], "big") for asker in askers[1:3] for data in asker.arrived]
    assert statuses == [0, c.STATUS_BUSY]
    monkeypatch.setattr(lookups, "MOST_READS", len(TREE.nodes) - 1)
    assert askers[4].status(TABLE, t.ATTRIBUTE_GUID_INFO_RECORD) == a.STATUS_NO_RESOURCES
    monkeypatch.setattr(lookups, "MOST_READS", len(TREE.nodes))
    assert askers[4].status(TABLE, t.ATTRIBUTE_GUID_INFO_RECORD) == 0


def test_records_that_come_late_stand_where_they_belong() -> None:
    managed, askers = bring_up()
    lost = []

    def loses(datagram) -> bool:  # type: ignore[no-untyped-def]
        is_first = datagram.data[3] == GET and datagram.data[16:18] == b"\0\x14" and not lost
        lost.extend([datagram] if is_first else [])
        return is_first

    managed.loses = loses
    askers[2].send(askers[2].datagram(TABLE, t.ATTRIBUTE_GUID_INFO_RECORD))
    managed.run_until(managed.now + SECOND_NS // 4)  # one was asked for again
    answer = askers[2].take()
    assert answer is not None
    (manager,) = managed.managers
    known = manager.administration.inventory
    assert known is not None
    assert len(lost) == 1
    found = [t.GuidInfoRecord.decode(each).lid for each in answer.data]
    assert found == [port.lid for port in known.ports]


def test_a_manager_s_own_port_is_a_full_member_of_the_default_partition() -> None:
    guids = [node.port_guid(1) for node in TREE.nodes[:8]]
    for limited, key in ((None, [0x7FFF]), (frozenset(), [])):
        partitions = Partitions((Partition(0x7FFF, frozenset(guids[3:4]), limited), Partition(0x12)))
        assert partitions.keys_of(guids[1]) == [*key, 0x8012]
        assert partitions.keys_of(guids[1], is_manager=True) == [0xFFFF, 0x8012]
        assert partitions.keys_of(guids[3]) == [0xFFFF, 0x8012]
    with pytest.raises(ValueError, match="twice"):
        Partitions((Partition(0x12), Partition(0x12)))
    for pkey in (0, 0x8000):
        with pytest.raises(ValueError, match="P_Key"):
            Partition(pkey)


def test_blocks_of_p_keys_that_hold_none_any_more_are_emptied() -> None:
    managed, _ = bring_up()
    (manager,) = managed.managers
    guid = TREE.nodes[2].guid
    nodes = {guid: manager.fabric.nodes[guid]}
    shadow: Shadow = {}
    problems: list[str] = []

    def written(count: int) -> list[tuple[int, int]]:
        keys = [0x8000 | number for number in range(1, count + 1)]
        writes = list(partition_writes(nodes, lambda port: keys, shadow, problems.append))
        for write in writes:
            write.done(write.data)
        return [(write.modifier, sum(map(bool, write.data[::2]))) for write in writes]

    assert written(40) == [(0, 32), (1, 8)]
    assert written(40) == []
    assert written(33) == [(1, 1)]
    assert written(5) == [(0, 5), (1, 0)]
    assert written(5) == []
    assert problems == []
    assert written(70) == [(0, 32), (1, 32)]
    assert problems == [f"70 P_Keys for port 1 of {guid:#018x}, which has room for 64"]
