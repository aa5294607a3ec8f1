"""GUIDs that ports get beside their own by GUIDInfoRecords, and paths between many ports at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from administration_tools import DELETE, GET, SET, TABLE, Asker, mask

from softhca.fabric.generators import fat_tree
from softhca.fabric.manager import aliases, lookups
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.manager import FabricManager, ManagerConfig
from softhca.fabric.manager.partitions import Partition
from softhca.fabric.topology import End
from softhca.management import administration_attributes as a
from softhca.management import administration_tables as t
from softhca.management import constants as c
from softhca.management import rmpp

TREE = fat_tree(4, 2)
G, M, P = t.GuidInfoRecord, a.MultiPathRecord, a.PathRecord
GUID_RECORD, MULTI = t.ATTRIBUTE_GUID_INFO_RECORD, a.ATTRIBUTE_MULTI_PATH_RECORD
NAMED = mask(G, "lid", "block")
KEY = 1
PREFIX = (0xFE80 << 48).to_bytes(8, "big")


def bring_up(**config: object) -> tuple[ManagedFabric, FabricManager, list[Asker]]:
    managed = ManagedFabric(TREE)
    switch = TREE.index("s1-0")
    guid = TREE.nodes[switch].port_guid(0)
    manager = managed.add((switch, 0), ManagerConfig(guid, **config))  # type: ignore[arg-type]
    managed.settle()
    return managed, manager, [Asker(managed, (node, 1)) for node in TREE.end_nodes]


def place(*numbers: int) -> int:
    """The component mask of GUIDs of a block."""
    return NAMED | sum(1 << (4 + number) for number in numbers)


def table(**guids: int) -> bytes:
    """A block with GUIDs at places."""
    return b"".join(guids.get(f"at{number}", 0).to_bytes(8, "big") for number in range(8))


def change(
    asker: Asker, wanted: int, method: int = SET, lid: int = 0, block: int = 0, key: int = 0, **guids: int
) -> list[int] | int:
    """The GUIDs of the answer; the status where it is none."""
    record = G(lid or asker.lid, block, table=table(**guids))
    answer = asker.ask(method, GUID_RECORD, record, wanted, key=key)
    assert answer is not None
    if answer.status:
        return answer.status
    assert answer.method == (c.METHOD_GET_RESPONSE if method == SET else DELETE | c.RESPONSE)
    data = G.decode(answer.data[0])
    assert (data.lid, data.block) == (record.lid, block)
    return [int.from_bytes(data.table[at : at + 8], "big") for at in range(0, 64, 8)]


def test_a_port_gets_guids_and_its_node_has_them() -> None:
    _, manager, (one, two, *_) = bring_up()
    assert change(one, place(1, 3), at1=0xAB, at3=0xCD, at4=0xEE) == [one.guid, 0xAB, 0, 0xCD, 0, 0, 0, 0]
    assert one.endpoint.port.guids[0] == table(at1=0xAB, at3=0xCD)
    seen = two.ask(GET, GUID_RECORD, G(one.lid), NAMED)
    assert seen is not None
    assert G.decode(seen.data[0]).table == table(at0=one.guid, at1=0xAB, at3=0xCD)
    assert change(one, place(3), at3=0xCE) == [one.guid, 0xAB, 0, 0xCE, 0, 0, 0, 0]
    assert change(one, place(1), DELETE) == [one.guid, 0, 0, 0xCE, 0, 0, 0, 0]
    assert change(one, place(1, 2), DELETE) == [one.guid, 0, 0, 0xCE, 0, 0, 0, 0]
    assert manager.administration.aliases.of(one.guid) == [0xCE]
    assert change(two, place(1), at1=0xAB) == [two.guid, 0xAB, 0, 0, 0, 0, 0, 0]  # free again
    assert manager.problems == []


def test_guids_that_somebody_has_and_a_port_s_own_are_not_given() -> None:
    _, _, (one, two, *_) = bring_up()
    assert change(one, place(1), at1=0xAB) == [one.guid, 0xAB, 0, 0, 0, 0, 0, 0]
    assert change(two, place(1, 2, 3), at1=0xAB, at2=one.guid, at3=5) == [two.guid, 0, 0, 5, 0, 0, 0, 0]
    assert change(one, place(1, 2), at1=0xAB, at2=0xAB) == [one.guid, 0xAB, 0, 0, 0, 0, 0, 0]
    for method in (SET, DELETE):
        assert change(one, place(0, 2), method, at0=0x77, at2=5) == a.STATUS_REQUEST_INVALID
    # one that is asked for in vain takes what stood there
    assert change(one, place(1), at1=two.guid) == [one.guid, 0, 0, 0, 0, 0, 0, 0]


def test_zero_asks_the_manager_for_a_guid() -> None:
    _, manager, (one, two, *_) = bring_up()
    first = aliases.ASSIGNED | 1
    assert change(two, place(1), at1=first + 1) == [two.guid, first + 1, 0, 0, 0, 0, 0, 0]
    assert change(one, place(1, 2)) == [one.guid, first, first + 2, 0, 0, 0, 0, 0]
    assert {manager.administration.aliases.owner(first + each) for each in (0, 2)} == {one.guid}


def test_what_cannot_be_is_refused() -> None:
    managed, _, (one, two, *_) = bring_up()
    for wanted in (mask(G, "lid"), mask(G, "block"), 1 << 5):
        assert change(one, wanted, at1=5) == a.STATUS_INSUFFICIENT_COMPONENTS
    assert change(one, place(1), lid=0x3FFF, at1=5) == a.STATUS_NO_RECORDS
    assert change(one, place(1), block=1, at1=5) == a.STATUS_NO_RECORDS  # 8 GUIDs a port
    assert change(one, place(1), lid=two.lid, at1=5) == a.STATUS_DENIED
    assert change(one, place(1), DELETE, lid=two.lid) == a.STATUS_DENIED
    assert change(one, place(1), lid=two.lid, at1=5, key=KEY) == [two.guid, 5, 0, 0, 0, 0, 0, 0]
    managed.loses = lambda datagram: datagram.data[16:18] == c.ATTRIBUTE_GUID_INFO.to_bytes(2, "big")
    one.send(one.datagram(SET, GUID_RECORD, G(one.lid, 0, table=table(at1=6)), place(1)))
    managed.settle()
    managed.run_until(managed.now + 10_000_000_000)
    answer = one.take()
    assert answer is not None
    assert answer.status == a.STATUS_NO_RESOURCES


def test_who_shares_no_partition_with_a_port_does_not_see_it() -> None:
    guids = [TREE.nodes[node].port_guid(1) for node in TREE.end_nodes]
    parts = (Partition(0x7FFF, frozenset(), frozenset()), Partition(0x12, frozenset(guids[:1])))
    _, _, (one, two, *_) = bring_up(partitions=parts)
    assert change(two, place(1), lid=one.lid, at1=5) == a.STATUS_NO_RECORDS
    assert change(one, place(1), at1=5) == [one.guid, 5, 0, 0, 0, 0, 0, 0]


def test_guids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    _, manager, (one, *_) = bring_up()
    monkeypatch.setattr(aliases, "MOST_ALIASES", 2)
    assert change(one, place(1, 2), at1=1, at2=2) == [one.guid, 1, 2, 0, 0, 0, 0, 0]
    assert change(one, place(3), at3=3) == a.STATUS_NO_RESOURCES
    monkeypatch.setattr(lookups, "MOST_LOOKUPS", 0)
    assert change(one, place(1), DELETE) == c.STATUS_BUSY
    assert manager.administration.aliases.of(one.guid) == [1, 2]


def test_what_is_refused_for_want_of_room_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, manager, (one, two, *_) = bring_up()
    known = manager.administration.aliases
    monkeypatch.setattr(aliases, "MOST_ALIASES", 4)
    assert change(one, place(1, 2), at1=1, at2=2) == [one.guid, 1, 2, 0, 0, 0, 0, 0]
    assert change(two, place(1), at1=3) == [two.guid, 3, 0, 0, 0, 0, 0, 0]
    # another one at place 1, one of the manager's at 3, and one too many
    assert change(one, place(1, 3, 4), at1=5, at4=6) == a.STATUS_NO_RESOURCES
    assert (known.of(one.guid), known.of(two.guid)) == ([1, 2], [3])
    assert [known.owner(each) for each in (1, 2, 3)] == [one.guid, one.guid, two.guid]
    assert [known.owner(each) for each in (5, 6, aliases.ASSIGNED | 1)] == [None] * 3
    assert one.endpoint.port.guids[0] == table(at1=1, at2=2)
    assert change(one, place(3)) == [one.guid, 1, 2, aliases.ASSIGNED | 1, 0, 0, 0, 0]
    assert change(one, place(2), at2=6) == [one.guid, 1, 6, aliases.ASSIGNED | 1, 0, 0, 0, 0]  # in its place
    assert change(one, place(4), at4=7) == a.STATUS_NO_RESOURCES


def test_an_alias_is_a_gid_of_its_port_as_long_as_it_has_it() -> None:
    _, _, (one, two, *_) = bring_up()
    alias = PREFIX + (0xAB).to_bytes(8, "big")
    wanted = P(sgid=two.gid, dgid=alias), mask(P, "sgid", "dgid")
    assert two.status(GET, a.ATTRIBUTE_PATH_RECORD, *wanted) == a.STATUS_INVALID_GID
    change(one, place(1), at1=0xAB)
    answer = two.ask(GET, a.ATTRIBUTE_PATH_RECORD, *wanted)
    assert answer is not None
    found = P.decode(answer.data[0])
    assert (found.dgid, found.dlid, found.slid) == (alias, one.lid, two.lid)
    back = one.ask(GET, a.ATTRIBUTE_PATH_RECORD, P(sgid=alias, dgid=two.gid), mask(P, "sgid", "dgid"))
    assert back is not None
    assert P.decode(back.data[0]).sgid == alias
    change(one, place(1), DELETE)
    assert two.status(GET, a.ATTRIBUTE_PATH_RECORD, *wanted) == a.STATUS_INVALID_GID


def test_who_wants_to_know_hears_of_guids_that_come_and_go() -> None:
    managed, _, (one, two, *_) = bring_up()
    info = a.InformInfo(subscribe=1, lid_range_begin=0xFFFF, type=3, producer_type=4)
    assert two.status(SET, a.ATTRIBUTE_INFORM_INFO, info) == 0
    for method in (SET, DELETE):
        change(one, place(1), method, at1=0xAB)
        managed.settle()
    told = [int.from_bytes(each[rmpp.DATA_AT + 4 : rmpp.DATA_AT + 6], "big") for each in two.reports]
    assert told == [a.TRAP_GID_IN, a.TRAP_GID_OUT]


def test_a_port_that_comes_back_has_its_guids_again() -> None:
    managed, manager, (one, *_) = bring_up()
    change(one, place(1), at1=0xAB)
    link = TREE.link_at(*End(TREE.end_nodes[0], 1))
    assert link is not None
    managed.plane.fail(link, managed.now)
    managed.run_until(managed.now + 1_000_000_000)
    assert one.guid not in manager.administration.inventory.by_guid
    assert manager.administration.inventory.at_gid(PREFIX + (0xAB).to_bytes(8, "big")) is None
    one.endpoint.port.guids.clear()  # its node has been started anew
    managed.plane.restore(link, managed.now)
    managed.run_until(managed.now + 1_000_000_000)
    assert one.endpoint.port.guids[0] == table(at1=0xAB)
    assert manager.administration.inventory.at_gid(PREFIX + (0xAB).to_bytes(8, "big")).guid == one.guid


def test_a_manager_that_is_master_no_more_forgets_them() -> None:
    _, manager, (one, *_) = bring_up()
    change(one, place(1), at1=0xAB)
    manager.administration.step_down()
    assert manager.administration.aliases.owner(0xAB) is None
    assert manager.administration.inventory.at_gid(PREFIX + (0xAB).to_bytes(8, "big")) is None


# paths between many ports


def multi(
    asker: Asker,
    sources: list[Asker],
    goals: list[Asker],
    *names: str,
    flags: int | None = None,
    **wanted: int,
) -> list[P] | int:
    """The paths of the answer; the status where there are none."""
    gids = b"".join(each.gid for each in (*sources, *goals)).ljust(16 * a.MULTI_PATH_GIDS, b"\0")
    counts = {"sgid_count": len(sources), "dgid_count": len(goals), **wanted}
    record = M(gids=gids, **counts)
    data = asker.datagram(c.METHOD_GET_MULTI, MULTI, record, mask(M, *(names or counts)))
    if flags is not None:
        front = a.AdministrationHeader.decode(data, rmpp.HEADER_AT)
        front = replace(front, rmpp_version=1, rmpp_type=rmpp.DATA, rmpp_flags=flags, segment_number=1)
        data = data[: rmpp.HEADER_AT] + front.encode() + data[rmpp.DATA_AT :]
    asker.arrived.clear()
    asker.send(data)
    answer = asker.take()
    assert answer is not None
    if answer.status:
        return answer.status
    assert answer.method == c.METHOD_GET_MULTI | c.RESPONSE
    return [P.decode(each) for each in answer.data]


def test_paths_go_from_each_source_to_each_goal() -> None:
    _, _, askers = bring_up()
    sources, goals = askers[1:3], askers[4:7]
    found = multi(askers[0], sources, goals)
    assert isinstance(found, list)
    assert [(each.slid, each.dlid) for each in found] == [
        (one.lid, other.lid) for one in sources for other in goals
    ]
    for each in found:
        alone = askers[0].ask(
            GET, a.ATTRIBUTE_PATH_RECORD, P(sgid=each.sgid, dgid=each.dgid), mask(P, "sgid", "dgid")
        )
        assert alone is not None
        assert P.decode(alone.data[0]) == each


def test_they_are_bounded_as_paths_are() -> None:
    _, _, askers = bring_up(lmc=1)
    one, two = askers[1:3]
    for count in (1, 2, 3):
        found = multi(askers[0], [one], [two], num_path=count)
        assert isinstance(found, list)
        assert len(found) == count
    assert multi(askers[0], [one], [two], mtu_selector=0, mtu=5) == []  # more than 4,096 bytes
    (only,) = multi(askers[0], [one], [two], mtu_selector=2, mtu=3, num_path=1)
    assert only.mtu == 3
    assert multi(askers[0], [one], [two], pkey=0x12) == []


def test_a_question_may_come_by_rmpp_but_as_one_datagram() -> None:
    _, manager, askers = bring_up()
    whole = rmpp.ACTIVE | rmpp.FIRST | rmpp.LAST
    found = multi(askers[0], askers[1:2], askers[2:3], flags=whole)
    assert isinstance(found, list)
    assert len(found) == 1
    before = manager.administration.counters["drops_form"]
    with pytest.raises(AssertionError):
        multi(askers[0], askers[1:2], askers[2:3], flags=rmpp.ACTIVE | rmpp.FIRST)
    assert manager.administration.counters["drops_form"] == before + 1


def test_questions_that_cannot_be_are_refused() -> None:
    _, manager, askers = bring_up()
    one, two, three = askers[:3]
    counts = "sgid_count", "dgid_count"
    for name in counts:
        assert multi(one, [two], [three], name) == a.STATUS_INSUFFICIENT_COMPONENTS
    assert multi(one, [], [three]) == a.STATUS_REQUEST_INVALID
    assert multi(one, [two], []) == a.STATUS_REQUEST_INVALID
    assert multi(one, [two], [three], dgid_count=11) == a.STATUS_REQUEST_INVALID
    assert multi(one, [two], [three], independence_selector=1) == a.STATUS_REQUEST_INVALID
    assert multi(one, [two], [three], dgid_count=2) == a.STATUS_INVALID_GID  # the second is of zeros
    found = multi(one, askers[:5], askers[:6])  # 11 GIDs
    assert isinstance(found, list)
    assert len(found) == 30
    for method in (GET, TABLE, SET):
        assert one.status(method, MULTI) == c.STATUS_BAD_ATTRIBUTE
    assert one.status(c.METHOD_GET_MULTI, a.ATTRIBUTE_PATH_RECORD) == c.STATUS_BAD_ATTRIBUTE
    assert manager.problems == []
