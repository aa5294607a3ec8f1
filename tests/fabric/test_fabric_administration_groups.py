"""Multicast groups by datagram: who creates them, joins and leaves, and what switches forward then."""

from __future__ import annotations

import pytest
from administration_tools import DELETE, GET, SET, TABLE, Asker, mask

from softhca.fabric.generators import fat_tree
from softhca.fabric.mad_plane import Datagram
from softhca.fabric.manager import states
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.manager import FabricManager, ManagerConfig
from softhca.fabric.manager.membership import FULL, NON_MEMBER, SEND_ONLY
from softhca.fabric.manager.partitions import Partition
from softhca.management import administration_attributes as a
from softhca.management import constants as c
from softhca.management.subnet_attributes import TABLES

M = a.MCMemberRecord
MCM = a.ATTRIBUTE_MC_MEMBER_RECORD
TREE = fat_tree(4, 2)
MGID = bytes.fromhex("ff12401bffff000000000000ffffffff")
SECOND_NS = 1_000_000_000
WHO = ("mgid", "port_gid", "join_state")
CREATE = (*WHO, "qkey", "traffic_class", "pkey", "sl", "flow_label")
FACTS = {"qkey": 0xB1B, "traffic_class": 3, "pkey": 0xFFFF, "sl": 0, "flow_label": 7}


def bring_up(**config: object) -> tuple[ManagedFabric, FabricManager, list[Asker]]:
    managed = ManagedFabric(TREE)
    manager = managed.add((0, 1), ManagerConfig(TREE.nodes[0].port_guid(1), **config))  # type: ignore[arg-type]
    managed.settle()
    return managed, manager, [Asker(managed, (node, 1)) for node in range(8)]


def join(asker: Asker, names: tuple[str, ...] = CREATE, method: int = SET, **values: object) -> M | int:
    """Join or leave; what the answer says, or its status."""
    facts = {"mgid": MGID, "port_gid": asker.gid, "join_state": FULL, **FACTS, **values}
    answer = asker.ask(method, MCM, M(**facts), mask(M, *names))  # type: ignore[arg-type]
    assert answer is not None
    assert answer.method == (c.METHOD_GET_RESPONSE if method == SET else DELETE | c.RESPONSE)
    return answer.status or M.decode(answer.data[0])


def leave(asker: Asker, state: int = FULL, **values: object) -> M | int:
    return join(asker, WHO, DELETE, join_state=state, **values)


def reached(managed: ManagedFabric, start: int, mlid: int) -> set[int]:
    """The hosts that get a copy of what a host sends to a group, by the switches' own tables."""
    topology = managed.plane.topology
    block, place = divmod(mlid - 0xC000, 32)
    table = TABLES[c.ATTRIBUTE_MULTICAST_FORWARDING]
    found: set[int] = set()
    waiting = [(topology.peer(start, 1), 0)]
    while waiting:
        end, hops = waiting.pop()
        assert end is not None
        assert hops < 8, "a copy goes in a circle"
        node = managed.plane.nodes[end.node]
        if not node.is_switch:
            assert end.node not in found, "two copies"
            found.add(end.node)
            continue
        mask_ = table.decode(node.multicast.get(block, bytes(64)))[place]
        assert mlid <= node.switch_info.multicast_fdb_top or not mask_
        waiting += [
            (topology.peer(end.node, port), hops + 1)
            for port in range(1, 16)
            if mask_ >> port & 1 and port != end.port
        ]
    return found


def test_a_group_is_created_joined_and_forwarded_and_goes_with_its_last_member() -> None:
    managed, manager, askers = bring_up()
    made = join(askers[2])
    assert made == M(
        mgid=MGID, port_gid=askers[2].gid, mlid=0xC000, mtu_selector=2, mtu=4, rate_selector=2, rate=3,
        packet_lifetime_selector=2, packet_lifetime=18, scope=2, join_state=FULL, **FACTS,  # type: ignore[arg-type]
    )  # fmt: skip
    sweeps = manager.sweeps
    for number in (5, 7):
        found = join(askers[number], WHO)
        assert isinstance(found, M)
        assert (found.mlid, found.qkey, found.join_state) == (0xC000, 0xB1B, FULL)
    managed.settle()
    assert manager.sweeps == sweeps
    for start in (2, 5, 7):
        assert reached(managed, start, 0xC000) == {2, 5, 7} - {start}
    left = leave(askers[5])
    assert isinstance(left, M)
    managed.settle()
    assert reached(managed, 2, 0xC000) == {7}
    assert isinstance(leave(askers[2]), M)
    assert isinstance(leave(askers[7]), M)
    managed.settle()
    assert manager.groups == {}
    assert manager.administration.groups.groups == {}
    assert all(not any(data) for node in managed.plane.nodes for data in node.multicast.values())
    assert leave(askers[7]) == a.STATUS_REQUEST_INVALID
    assert manager.problems == []


def test_who_only_sends_gets_no_copies() -> None:
    managed, _, askers = bring_up()
    join(askers[1])
    join(askers[6])
    found = join(askers[4], WHO, join_state=SEND_ONLY)
    assert isinstance(found, M)
    managed.settle()
    assert reached(managed, 4, found.mlid) == {1, 6}
    assert reached(managed, 1, found.mlid) == {6}
    join(askers[4], WHO, join_state=NON_MEMBER)
    managed.settle()
    assert reached(managed, 1, found.mlid) == {4, 6}
    assert isinstance(leave(askers[4], NON_MEMBER), M)
    managed.settle()
    assert reached(managed, 1, found.mlid) == {6}
    assert leave(askers[4], FULL) == a.STATUS_REQUEST_INVALID
    leave(askers[1])
    leave(askers[6])  # the last full member: the group goes, whoever else is in it
    assert leave(askers[4], SEND_ONLY) == a.STATUS_REQUEST_INVALID


def test_a_join_that_lacks_something_creates_nothing() -> None:
    managed, manager, askers = bring_up()
    asker = askers[3]
    for name in ("qkey", "traffic_class", "pkey", "sl", "flow_label"):
        names = tuple(each for each in CREATE if each != name)
        assert join(asker, names) == a.STATUS_INSUFFICIENT_COMPONENTS
    for name in ("port_gid", "join_state"):
        names = tuple(each for each in CREATE if each != name)
        assert join(asker, names) == a.STATUS_INSUFFICIENT_COMPONENTS
    assert join(asker, join_state=0) == a.STATUS_REQUEST_INVALID
    assert join(asker, join_state=SEND_ONLY) == a.STATUS_REQUEST_INVALID
    assert join(asker, join_state=8) == a.STATUS_REQUEST_INVALID
    assert join(asker, mgid=b"\xfe" + bytes(15)) == a.STATUS_INVALID_GID
    assert join(asker, port_gid=asker.gid[:8] + bytes(8)) == a.STATUS_INVALID_GID
    assert join(asker, pkey=0x8012) == a.STATUS_REQUEST_INVALID
    assert join(asker, (*CREATE, "mtu_selector", "mtu"), mtu_selector=2, mtu=6) == a.STATUS_REQUEST_INVALID
    assert (
        join(asker, (*CREATE, "rate_selector", "rate"), rate_selector=0, rate=17) == a.STATUS_REQUEST_INVALID
    )
    assert manager.administration.groups.groups == {}
    managed.settle()
    assert manager.groups == {}


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({"qkey": 1}, a.STATUS_REQUEST_INVALID),
        ({"sl": 1}, a.STATUS_REQUEST_INVALID),
        ({"flow_label": 1}, a.STATUS_REQUEST_INVALID),
        ({"traffic_class": 1}, a.STATUS_REQUEST_INVALID),
        ({"pkey": 0x8001}, a.STATUS_REQUEST_INVALID),
        ({"pkey": 0x7FFF}, 0),
        ({"mlid": 0xC001}, a.STATUS_REQUEST_INVALID),
        ({"mtu_selector": 0, "mtu": 4}, a.STATUS_REQUEST_INVALID),
        ({"mtu_selector": 1, "mtu": 5}, 0),
        ({"mtu_selector": 2, "mtu": 4}, 0),
        ({"rate_selector": 1, "rate": 3}, a.STATUS_REQUEST_INVALID),
        ({"rate_selector": 0, "rate": 2}, 0),
        ({"packet_lifetime_selector": 0, "packet_lifetime": 18}, a.STATUS_REQUEST_INVALID),
        ({"packet_lifetime_selector": 1, "packet_lifetime": 18}, a.STATUS_REQUEST_INVALID),
        ({"packet_lifetime_selector": 1, "packet_lifetime": 19}, 0),
        ({"packet_lifetime_selector": 2, "packet_lifetime": 18}, 0),
        ({"packet_lifetime": 5}, 0),
    ],
    ids=str,
)
def test_who_joins_must_know_the_group(values: dict, status: int) -> None:
    _, _, askers = bring_up()
    join(askers[1])
    found = join(askers[2], (*WHO, *values), **values)
    assert (found if isinstance(found, int) else 0) == status


def test_a_port_that_is_too_slow_or_not_in_the_partition_cannot_join() -> None:
    guids = [node.port_guid(1) for node in TREE.nodes[:8]]
    part = Partition(0x0012, frozenset(guids[1:3]), frozenset(guids[3:4]))
    managed, manager, askers = bring_up(partitions=(part,))
    made = join(askers[1], (*CREATE, "mtu_selector", "mtu"), pkey=0x8012, mtu_selector=2, mtu=5)
    assert isinstance(made, M)
    assert made.mtu == 5
    assert isinstance(join(askers[3], WHO), M)  # a limited member of the partition
    assert join(askers[4], WHO) == a.STATUS_REQUEST_INVALID
    assert join(askers[4], mgid=MGID[:15] + b"\x01", pkey=0x8012) == a.STATUS_REQUEST_INVALID
    assert askers[4].records(M) == []
    assert [each.mgid for each in askers[3].records(M)] == [MGID]
    managed.plane.nodes[2].own_port(1).change(neighbor_mtu=4, mtu_cap=4)
    manager.sweep(managed.now)
    managed.settle()
    assert join(askers[2], WHO) == a.STATUS_REQUEST_INVALID


def test_the_manager_chooses_gids_and_lids_that_are_free() -> None:
    _, manager, askers = bring_up()
    names = tuple(name for name in CREATE if name != "mgid")
    made = [join(asker, names) for asker in askers[:4]]
    records = [each for each in made if isinstance(each, M)]
    assert len({each.mgid for each in records}) == len({each.mlid for each in records}) == 4
    assert {each.mgid[:4] for each in records} == {b"\xff\x15\xa0\x1b"}
    local = join(askers[5], (*names, "scope"), scope=2)
    assert isinstance(local, M)
    assert (local.mgid[1], local.scope) == (0x12, 2)
    leave(askers[1], mgid=records[1].mgid)
    again = join(askers[6], names)
    assert isinstance(again, M)
    assert again.mlid == records[1].mlid
    assert again.mgid != records[1].mgid
    assert manager.problems == []


def test_groups_are_as_many_as_switches_can_forward() -> None:
    managed, manager, askers = bring_up()
    for node in managed.plane.nodes:
        if node.is_switch:
            node.set_switch_info(multicast_fdb_cap=3)
    manager.sweep(managed.now)
    managed.settle()
    names = tuple(name for name in CREATE if name != "mgid")
    made = [join(askers[1], names) for _ in range(4)]
    assert [each if isinstance(each, int) else each.mlid for each in made] == [
        0xC000, 0xC001, 0xC002, a.STATUS_NO_RESOURCES,
    ]  # fmt: skip


def test_members_are_for_who_is_trusted() -> None:
    _, _, askers = bring_up()
    join(askers[1])
    join(askers[2], WHO, port_gid=askers[6].gid)  # on behalf of another port
    plain = askers[3].records(M)
    assert [(each.mgid, each.port_gid, each.join_state) for each in plain] == [(MGID, bytes(16), 0)]
    trusted = askers[3].records(M, key=1)
    assert {(each.port_gid, each.join_state, each.proxy_join) for each in trusted} == {
        (askers[1].gid, FULL, 0), (askers[6].gid, FULL, 1),
    }  # fmt: skip
    wide = M(mtu_selector=0, mtu=4)
    assert askers[3].records(M, wide, mask(M, "mtu_selector", "mtu")) == []
    narrow = M(mtu_selector=0, mtu=3, qkey=0xB1B)
    assert len(askers[3].records(M, narrow, mask(M, "mtu_selector", "mtu", "qkey"))) == 1
    assert askers[3].records(M, M(qkey=1), mask(M, "qkey")) == []
    assert isinstance(leave(askers[2], port_gid=askers[6].gid), M)
    assert len(askers[3].records(M, key=1)) == 1


def test_a_path_leads_to_a_group() -> None:
    _, _, askers = bring_up()
    made = join(askers[1])
    assert isinstance(made, M)
    for wanted, names in ((a.PathRecord(dgid=MGID, sgid=askers[4].gid), ("sgid", "dgid")),
                          (a.PathRecord(dlid=0xC000, slid=askers[4].lid), ("slid", "dlid"))):  # fmt: skip
        answer = askers[4].ask(GET, a.ATTRIBUTE_PATH_RECORD, wanted, mask(a.PathRecord, *names))
        assert answer is not None
        found = a.PathRecord.decode(answer.data[0])
        assert (found.dgid, found.dlid, found.slid, found.sgid) == (
            MGID,
            0xC000,
            askers[4].lid,
            askers[4].gid,
        )
        assert (found.mtu, found.rate, found.pkey, found.flow_label) == (4, 3, 0xFFFF, 7)
    assert askers[4].status(TABLE, a.ATTRIBUTE_PATH_RECORD, wanted, mask(a.PathRecord, *names)) == 0


def test_a_path_to_a_group_is_for_members_of_its_partition_alone() -> None:
    """Whoever asks, for whichever port: both must be in it."""
    guids = [node.port_guid(1) for node in TREE.nodes[:8]]
    part = Partition(0x0012, frozenset(guids[1:3]), frozenset(guids[3:4]))
    _, _, askers = bring_up(partitions=(part,))
    assert isinstance(join(askers[1], pkey=0x8012), M)

    def status(asker: Asker, source: Asker) -> int:
        wanted = a.PathRecord(dgid=MGID, sgid=source.gid)
        return asker.status(GET, a.ATTRIBUTE_PATH_RECORD, wanted, mask(a.PathRecord, "sgid", "dgid"))

    assert status(askers[2], askers[2]) == status(askers[3], askers[2]) == 0
    assert status(askers[4], askers[4]) == a.STATUS_NO_RECORDS
    assert status(askers[4], askers[2]) == a.STATUS_NO_RECORDS
    assert status(askers[2], askers[4]) == a.STATUS_NO_RECORDS


def test_a_port_that_goes_is_a_member_no_more() -> None:
    managed, manager, askers = bring_up()
    for number in (1, 5, 6):
        join(askers[number], WHO if number > 1 else CREATE)
    managed.settle()
    link = TREE.link_at(TREE.index("h5"), 1)
    assert link is not None
    managed.plane.fail(link, managed.now)
    managed.run_until(managed.now + SECOND_NS)
    assert reached(managed, 1, 0xC000) == {6}
    managed.plane.restore(link, managed.now)
    managed.run_until(managed.now + 5 * SECOND_NS)
    assert reached(managed, 1, 0xC000) == {6}
    join(askers[5], WHO)
    managed.settle()
    assert reached(managed, 1, 0xC000) == {5, 6}
    assert manager.problems == []


def test_groups_that_change_while_a_sweep_is_under_way_are_written_after_it() -> None:
    managed, manager, askers = bring_up()
    join(askers[1])
    managed.settle()
    manager.sweep(managed.now)
    for out in list(manager.transmit()):  # the sweep has begun, and gets no answer yet
        managed.plane.send(managed.managers[manager], _as_sent(managed, manager, out), managed.now)
    join(askers[6], WHO)
    managed.settle()
    assert manager.phase == "resting"
    assert reached(managed, 1, 0xC000) == {6}


def _as_sent(managed: ManagedFabric, manager: FabricManager, out):  # type: ignore[no-untyped-def]
    return Datagram(out.dlid, managed.managers[manager].port.info.lid, out.qpn, out.qpn, out.data)


def test_joins_without_end_keep_no_light_sweep_waiting() -> None:
    managed, manager, askers = bring_up()
    join(askers[1])
    managed.settle()
    end = managed.now + 30 * SECOND_NS
    turn = 0
    light = manager.counters["light_sweeps"]
    while managed.now < end:
        turn += 1
        (join if turn % 2 else leave)(askers[6], *((WHO,) if turn % 2 else ()))
        managed.run_until(managed.now + SECOND_NS // 4)
    assert manager.counters["light_sweeps"] - light == 3


def test_a_light_sweep_that_comes_due_while_groups_are_written_follows_at_once() -> None:
    managed, manager, askers = bring_up()
    join(askers[1])
    managed.settle()
    managed.run_until(manager._due_ns - SECOND_NS // 10)
    light = manager.counters["light_sweeps"]
    managed.loses = lambda datagram: datagram.data[16:18] == b"\0\x1b"
    join(askers[6], WHO)
    managed.run_until(managed.now + SECOND_NS // 2)
    assert manager.phase == "regrouping"
    managed.loses = lambda datagram: False
    managed.run_until(managed.now + SECOND_NS // 4)
    assert manager.counters["light_sweeps"] == light + 1
    assert reached(managed, 1, 0xC000) == {6}


def test_a_new_master_lets_ports_register_anew_and_an_old_one_forgets() -> None:
    managed, manager, askers = bring_up()
    join(askers[1])
    managed.settle()
    asked = []

    def watch(datagram) -> bool:  # type: ignore[no-untyped-def]
        data = datagram.data
        if data[3] == SET and data[16:18] == b"\0\x15" and data[64 + 50 + 1] & 0x80:
            asked.append(bytes(data))
        return False

    managed.loses = watch
    high = managed.add((7, 1), ManagerConfig(TREE.nodes[7].port_guid(1), priority=9))
    managed.settle()
    manager.sweep(managed.now)
    managed.run_until(managed.now + 5 * SECOND_NS)
    assert (manager.state, high.state) == (states.STANDBY, states.MASTER)
    assert manager.groups == {}
    assert manager.administration.groups.groups == {}
    assert len(asked) == 8  # each host's port
    assert askers[3].records(M) == []
    assert isinstance(join(askers[1]), M)
    managed.settle()
    assert high.groups == {0xC000: frozenset({askers[1].guid})}


def test_a_group_that_changes_when_all_else_of_a_sweep_is_written_is_written_behind_it() -> None:
    managed, manager, askers = bring_up()
    join(askers[1])
    link = TREE.link_at(TREE.index("h6"), 1)
    assert link is not None
    managed.plane.fail(link, managed.now)
    managed.run_until(managed.now + SECOND_NS)
    phases = []

    def watch(datagram: Datagram) -> bool:
        if manager.phase == "activation" and not phases:
            phases.append(manager.phase)
            members = frozenset({askers[1].guid, askers[4].guid})
            manager.set_group(0xC000, members, managed.now)
        return False

    managed.loses = watch
    managed.plane.restore(link, managed.now)
    managed.run_until(managed.now + 5 * SECOND_NS)
    assert phases
    assert reached(managed, 1, 0xC000) == {4}


def test_joins_do_not_hide_from_a_light_sweep_that_a_port_has_changed() -> None:
    managed, manager, askers = bring_up()
    link = TREE.link_at(TREE.index("h6"), 1)
    assert link is not None
    for node in managed.plane.nodes:  # nobody knows a manager to tell it
        for port in node.ports:
            if port is not None and port.own and port.info.lid != manager.own_lid:
                port.change(sm_lid=0)
    managed.plane.fail(link, managed.now)
    askers[1].endpoint.port.change(sm_lid=manager.own_lid)
    assert isinstance(join(askers[1]), M)
    managed.settle()
    sweeps = manager.sweeps
    managed.run_until(managed.now + 11 * SECOND_NS)
    assert manager.sweeps == sweeps + 1
    assert manager.fabric.routes is not None
    assert len(manager.fabric.routes.graph.topology.links) == len(TREE.links) - 1
