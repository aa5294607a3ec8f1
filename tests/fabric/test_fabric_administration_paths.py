"""PathRecords: every pair of ports, by GIDs and LIDs, and only what routes, links and partitions allow."""

from __future__ import annotations

import itertools

import pytest
from administration_tools import GET, TABLE, Asker, mask

from softhca.fabric.generators import fat_tree, torus
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.manager import FabricManager, ManagerConfig
from softhca.fabric.manager.partitions import Partition
from softhca.fabric.manager.paths import RATES, fit, fit_lifetime
from softhca.fabric.topology import End, Link, LinkSpeed, LinkWidth, NodeKind, Topology, make_node
from softhca.management import administration_attributes as a

P = a.PathRecord
TREE = fat_tree(4, 2)
EXACT = 2


def bring_up(topology: Topology = TREE, **config: object) -> tuple[ManagedFabric, FabricManager, Asker]:
    managed = ManagedFabric(topology)
    first = topology.end_nodes[0]
    guid = topology.nodes[first].port_guid(1)
    manager = managed.add((first, 1), ManagerConfig(guid, **config))  # type: ignore[arg-type]
    managed.settle()
    return managed, manager, Asker(managed, (topology.end_nodes[1], 1))


def askers(managed: ManagedFabric) -> list[Asker]:
    return [Asker(managed, (node, 1)) for node in managed.plane.topology.end_nodes]


def path(asker: Asker, other: Asker, **wanted: int) -> P | int:
    """The path from one to the other as it is wanted; the status where there is none."""
    record = P(sgid=asker.gid, dgid=other.gid, **wanted)  # type: ignore[arg-type]
    answer = asker.ask(GET, a.ATTRIBUTE_PATH_RECORD, record, mask(P, "sgid", "dgid", *wanted))
    assert answer is not None
    return answer.status or P.decode(answer.data[0])


def test_every_pair_of_hosts_has_a_path_by_gids_and_by_lids() -> None:
    managed, manager, _ = bring_up()
    for one, other in itertools.product(askers(managed), repeat=2):
        found = path(one, other)
        assert isinstance(found, P)
        assert found == P(
            sgid=one.gid, dgid=other.gid, slid=one.lid, dlid=other.lid, reversible=1, pkey=0xFFFF,
            mtu_selector=EXACT, mtu=5, rate_selector=EXACT, rate=17, packet_lifetime_selector=EXACT,
            packet_lifetime=0 if one is other else 18,
        ) or one.guid == other.guid  # fmt: skip
        assert found.packet_lifetime == (0 if one.guid == other.guid else 18)
        by_lid = one.ask(
            GET, a.ATTRIBUTE_PATH_RECORD, P(slid=one.lid, dlid=other.lid), mask(P, "slid", "dlid")
        )
        assert by_lid is not None
        assert P.decode(by_lid.data[0]) == found
    assert manager.problems == []


def test_a_table_has_the_paths_of_all_pairs_that_have_one() -> None:
    managed, _, asker = bring_up()
    found = asker.records(P)
    hosts = {each.lid for each in askers(managed)}
    pairs = {(each.slid, each.dlid) for each in found}
    assert len(pairs) == len(found)
    assert set(itertools.product(hosts, repeat=2)) <= pairs
    mine = asker.records(P, P(sgid=asker.gid, num_path=1), mask(P, "sgid", "num_path"))
    assert {each.slid for each in mine} == {asker.lid}
    assert {each.dlid for each in mine} == {dlid for slid, dlid in pairs if slid == asker.lid}


def test_a_tree_s_roots_have_no_path_to_each_other() -> None:
    managed, _, asker = bring_up()
    roots = [
        managed.plane.nodes[TREE.index(name)].own_port(0).info.lid for name in ("s2-0", "s2-1")
    ]  # fmt: skip
    wanted = P(slid=roots[0], dlid=roots[1])
    assert asker.status(GET, a.ATTRIBUTE_PATH_RECORD, wanted, mask(P, "slid", "dlid")) == a.STATUS_NO_RECORDS
    assert asker.records(P, wanted, mask(P, "slid", "dlid")) == []
    up = asker.records(P, P(slid=asker.lid, dlid=roots[0]), mask(P, "slid", "dlid"))
    assert [each.reversible for each in up] == [1]


def test_ends_that_are_not_there_have_a_status() -> None:
    managed, _, asker = bring_up()
    other = askers(managed)[4]
    nobody = other.gid[:8] + bytes(8)
    elsewhere = bytes([0xFE, 0xC0]) + other.gid[2:]
    both = mask(P, "sgid", "dgid")
    for gid in (nobody, elsewhere):
        record = P(sgid=asker.gid, dgid=gid)
        assert asker.status(GET, a.ATTRIBUTE_PATH_RECORD, record, both) == a.STATUS_INVALID_GID
        assert asker.records(P, record, both) == []
    for lid in (0, 999, 0xBFFF):
        record = P(slid=asker.lid, dlid=lid)
        wanted = mask(P, "slid", "dlid")
        assert asker.status(GET, a.ATTRIBUTE_PATH_RECORD, record, wanted) == a.STATUS_NO_RECORDS
    record = P(slid=asker.lid, dgid=other.gid, dlid=asker.lid)
    wanted = mask(P, "slid", "dlid", "dgid")
    assert asker.status(GET, a.ATTRIBUTE_PATH_RECORD, record, wanted) == a.STATUS_REQUEST_INVALID
    record = P(slid=asker.lid, dlid=0xC123)
    assert asker.status(GET, a.ATTRIBUTE_PATH_RECORD, record, mask(P, "slid", "dlid")) == a.STATUS_NO_RECORDS


def test_a_path_is_as_narrow_as_its_narrowest_link() -> None:
    switches = [make_node(f"s{n}", NodeKind.SWITCH, 3, 0x100 + n) for n in range(2)]
    hosts = [make_node(f"h{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x200 + 16 * n) for n in range(3)]
    links = (
        Link(End(0, 1), End(2, 1), LinkWidth.X4, LinkSpeed.EDR),
        Link(End(0, 2), End(1, 2), LinkWidth.X1, LinkSpeed.QDR),
        Link(End(1, 1), End(3, 1), LinkWidth.X12, LinkSpeed.EDR),
        Link(End(0, 3), End(4, 1), LinkWidth.X4, LinkSpeed.FDR),
    )
    managed = ManagedFabric(Topology((*switches, *hosts), links))
    port = managed.plane.nodes[4].own_port(1)
    port.change(mtu_cap=4)
    managed.add((2, 1))
    managed.settle()
    one, other, third = (Asker(managed, (node, 1)) for node in (2, 3, 4))
    narrow, near = path(one, other), path(one, third)
    assert isinstance(narrow, P)
    assert isinstance(near, P)
    assert (narrow.mtu, narrow.rate) == (5, 3)  # 10 Gb/s
    assert (near.mtu, near.rate) == (4, 12)  # 2,048 bytes, 56 Gb/s
    own = path(other, other)
    assert isinstance(own, P)
    assert own.rate == 18  # 300 Gb/s


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"mtu_selector": 0, "mtu": 4}, {"mtu": 5}),
        ({"mtu_selector": 0, "mtu": 5}, None),
        ({"mtu_selector": 1, "mtu": 5}, {"mtu": 4}),
        ({"mtu_selector": 1, "mtu": 1}, None),
        ({"mtu_selector": 2, "mtu": 3}, {"mtu": 3}),
        ({"mtu_selector": 2, "mtu": 6}, None),
        ({"mtu_selector": 3, "mtu": 1}, {"mtu": 5}),
        ({"rate_selector": 0, "rate": 3}, {"rate": 17}),
        ({"rate_selector": 0, "rate": 17}, None),
        ({"rate_selector": 1, "rate": 17}, {"rate": 14}),
        ({"rate_selector": 1, "rate": 2}, None),
        ({"rate_selector": 2, "rate": 7}, {"rate": 7}),
        ({"rate_selector": 2, "rate": 18}, None),
        ({"rate_selector": 2, "rate": 60}, None),
        ({"packet_lifetime_selector": 0, "packet_lifetime": 18}, {"packet_lifetime": 19}),
        ({"packet_lifetime_selector": 0, "packet_lifetime": 63}, None),
        ({"packet_lifetime_selector": 1, "packet_lifetime": 18}, None),
        ({"packet_lifetime_selector": 1, "packet_lifetime": 19}, {"packet_lifetime": 18}),
        ({"packet_lifetime_selector": 2, "packet_lifetime": 20}, {"packet_lifetime": 20}),
        ({"packet_lifetime_selector": 2, "packet_lifetime": 17}, None),
        ({"packet_lifetime_selector": 3}, {"packet_lifetime": 18}),
        ({"mtu": 1}, {"mtu": 5}),  # without its selector a value bounds nothing
        ({"sl": 3}, {"sl": 3}),
        ({"pkey": 0x7FFF}, {"pkey": 0xFFFF}),
        ({"pkey": 0x8012}, None),
        ({"flow_label": 7, "hop_limit": 3}, {"flow_label": 7, "hop_limit": 3}),
        ({"traffic_class": 9}, {"traffic_class": 9}),
    ],
    ids=str,
)  # fmt: skip
def test_a_path_is_as_it_is_wanted_or_there_is_none(wanted: dict, found: dict | None) -> None:
    managed, _, asker = bring_up()
    other = askers(managed)[6]
    answer = path(asker, other, **wanted)
    if found is None:
        assert answer == a.STATUS_NO_RECORDS
    else:
        assert isinstance(answer, P)
        assert {name: getattr(answer, name) for name in found} == found


def test_bounds_are_kept_wherever_they_stand() -> None:
    places = [rate for rate, _ in RATES]
    assert places == sorted(places)
    for selector, wanted, best in itertools.product(range(4), range(7), range(1, 6)):
        got = fit(selector, wanted, best, 1)
        possible = {
            value for value in range(1, best + 1)
            if (value > wanted, value < wanted, value == wanted, True)[selector]
        }  # fmt: skip
        assert got == max(possible, default=None)
    for selector, wanted, least in itertools.product(range(4), range(64), (0, 18)):
        got = fit_lifetime(selector, wanted, least)
        possible = {
            value for value in range(least, 64)
            if (value > wanted, value < wanted, value == wanted, True)[selector]
        }  # fmt: skip
        assert got == min(possible, default=None)


def test_with_an_lmc_all_lids_have_paths_and_num_path_bounds_them() -> None:
    managed, _, asker = bring_up(lmc=2)
    other = askers(managed)[5]
    ends = mask(P, "sgid", "dgid")
    found = asker.records(P, P(sgid=asker.gid, dgid=other.gid), ends)
    pairs = [(each.slid - asker.lid, each.dlid - other.lid) for each in found]
    assert sorted(pairs) == list(itertools.product(range(4), repeat=2))
    assert pairs[:4] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    for most in (1, 3, 127):
        some = asker.records(P, P(sgid=asker.gid, dgid=other.gid, num_path=most), ends | mask(P, "num_path"))
        assert some == found[:most]
    one = asker.records(P, P(slid=asker.lid + 2, dgid=other.gid), mask(P, "slid", "dgid"))
    assert {each.slid for each in one} == {asker.lid + 2}
    assert len(one) == 4
    assert isinstance(path(asker, other), P)


def test_service_levels_are_those_of_the_routes() -> None:
    fabric = torus([4, 3], 1)
    managed, manager, _ = bring_up(fabric)
    routes = manager.fabric.routes
    assert routes is not None
    levels = routes.routing.service_levels()
    assert levels is not None
    asked = askers(managed)
    known = manager.administration.inventory
    assert known is not None
    seen = set()
    for one, other in itertools.permutations(asked, 2):
        source, goal = known.by_guid[one.guid], known.by_guid[other.guid]
        level, back = levels[source.switch, goal.switch], levels[goal.switch, source.switch]
        found = path(one, other)
        assert isinstance(found, P)
        assert (found.sl, found.reversible) == (level, int(level == back))
        assert path(one, other, sl=int(level)) == found
        assert path(one, other, sl=int(level) ^ 1) == a.STATUS_NO_RECORDS
        reversible = path(one, other, reversible=1)
        assert reversible == (found if level == back else a.STATUS_NO_RECORDS)
        unnamed = P(sgid=one.gid, dgid=other.gid, reversible=1)
        assert one.records(P, unnamed, mask(P, "sgid", "dgid")) == [found], "it is not asked for"
        seen.add(int(level))
    assert len(seen) > 1


def test_partitions_say_who_has_a_path_to_whom_and_who_sees_whom() -> None:
    guids = [node.port_guid(1) for node in TREE.nodes[:8]]
    managed, _, _ = bring_up(
        partitions=(
            Partition(0x7FFF, frozenset(guids[:2]), None),
            Partition(0x0012, frozenset(guids[2:4]), frozenset(guids[4:6])),
        )
    )
    asked = askers(managed)
    keys: dict[tuple[int, int], int] = {}
    for one, other in itertools.permutations(range(8), 2):
        found = path(asked[one], asked[other])
        if isinstance(found, P):
            keys[one, other] = found.pkey
    full = {0, 1}
    for one, other in itertools.permutations(range(8), 2):
        expected = None
        if one in full or other in full:
            expected = 0xFFFF if one in full else 0x7FFF
        elif {one, other} <= set(range(2, 6)) and {one, other} & {2, 3}:
            expected = 0x8012 if one in (2, 3) else 0x0012
        assert keys.get((one, other)) == expected, (one, other)
    stranger = asked[7]
    seen = {each.lid for each in stranger.records(a.NodeRecord)}
    assert {asked[0].lid, asked[1].lid, stranger.lid} <= seen
    assert not seen & {asked[n].lid for n in (2, 3, 4, 5, 6)}
    trusted = {each.lid for each in stranger.records(a.NodeRecord, key=1)}
    assert {each.lid for each in asked} <= trusted
    pairs = {(each.slid, each.dlid) for each in stranger.records(P)}
    assert not {lid for pair in pairs for lid in pair} & {asked[n].lid for n in (2, 3, 4, 5, 6)}
    wanted = P(slid=asked[2].lid, dlid=asked[3].lid)
    assert (
        stranger.status(GET, a.ATTRIBUTE_PATH_RECORD, wanted, mask(P, "slid", "dlid")) == a.STATUS_NO_RECORDS
    )


def test_paths_follow_the_routes_when_a_link_fails() -> None:
    fabric = TREE
    managed, manager, asker = bring_up()
    link = fabric.link_at(fabric.index("h7"), 1)
    assert link is not None
    other = askers(managed)[7]
    assert isinstance(path(asker, other), P)
    managed.plane.fail(link, managed.now)
    managed.run_until(managed.now + 1_000_000_000)
    assert manager.sweeps == 2
    assert path(asker, other) == a.STATUS_INVALID_GID


def test_two_hosts_without_a_switch_have_a_path() -> None:
    hosts = [make_node(f"h{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x200 + 16 * n) for n in range(2)]
    managed = ManagedFabric(Topology(tuple(hosts), (Link(End(0, 1), End(1, 1)),)))
    managed.add((0, 1))
    managed.settle()
    one, other = askers(managed)
    found = path(other, one)
    assert isinstance(found, P)
    assert (found.slid, found.dlid) == (other.lid, one.lid)
    assert len(one.records(P)) == 4
    assert one.status(TABLE, a.ATTRIBUTE_LINK_RECORD) == 0
