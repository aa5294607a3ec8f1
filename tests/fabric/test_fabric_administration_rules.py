"""Rules of groups, services and paths of which subnet administration's answers alone tell nothing."""

from __future__ import annotations

import pytest
from administration_tools import DELETE, GET, SET, TABLE, Asker, mask

from softhca.fabric.generators import fat_tree
from softhca.fabric.manager import membership
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.manager import FabricManager, ManagerConfig
from softhca.fabric.manager.membership import FULL, SEND_ONLY
from softhca.fabric.manager.partitions import Partition
from softhca.management import administration_attributes as a

TREE = fat_tree(4, 2)
GUIDS = [node.port_guid(1) for node in TREE.nodes[:8]]
MGID = bytes.fromhex("ff12401bffff000000000000ffffffff")
M, P, S = a.MCMemberRecord, a.PathRecord, a.ServiceRecord
MCM, PR = a.ATTRIBUTE_MC_MEMBER_RECORD, a.ATTRIBUTE_PATH_RECORD
WHO = ("mgid", "port_gid", "join_state")
CREATE = (*WHO, "qkey", "traffic_class", "pkey", "sl", "flow_label")
ANY = tuple(name for name in CREATE if name != "mgid")
APART = (
    Partition(0x7FFF, frozenset(GUIDS[:1]), None),  # two limited members see nothing of each other
    Partition(0x12, frozenset(GUIDS[1:3])),
    Partition(0x13, frozenset(GUIDS[3:5])),
    Partition(0x14, frozenset(GUIDS[1:2]), frozenset(GUIDS[5:7])),
)


def bring_up(**config: object) -> tuple[FabricManager, list[Asker]]:
    managed = ManagedFabric(TREE)
    manager = managed.add((0, 1), ManagerConfig(GUIDS[0], **config))  # type: ignore[arg-type]
    managed.settle()
    return manager, [Asker(managed, (node, 1)) for node in range(8)]


def join(asker: Asker, names: tuple[str, ...] = CREATE, method: int = SET, **values: object) -> M | int:
    facts = {"mgid": MGID, "port_gid": asker.gid, "join_state": FULL, "qkey": 1, "pkey": 0xFFFF, **values}
    answer = asker.ask(method, MCM, M(**facts), mask(M, *names))  # type: ignore[arg-type]
    assert answer is not None
    return answer.status or M.decode(answer.data[0])


def members(manager: FabricManager, mgid: bytes = MGID) -> dict[int, int]:
    return manager.administration.groups.groups[mgid].members


def test_who_shares_no_partition_with_a_port_neither_lets_it_join_nor_leave() -> None:
    manager, askers = bring_up(partitions=APART)
    assert isinstance(join(askers[3], pkey=0x8013), M)
    for method, guid in ((SET, 4), (DELETE, 3)):
        found = join(askers[1], WHO, method, port_gid=askers[guid].gid)
        assert found == a.STATUS_INVALID_GID
    assert members(manager) == {GUIDS[3]: FULL}
    assert isinstance(join(askers[3], WHO, port_gid=askers[4].gid), M)


def test_who_leaves_as_one_thing_stays_what_it_is_besides() -> None:
    manager, askers = bring_up()
    join(askers[1])
    join(askers[2], WHO, join_state=FULL | SEND_ONLY)
    left = join(askers[2], WHO, DELETE, join_state=SEND_ONLY)
    assert isinstance(left, M)
    assert left.join_state == SEND_ONLY
    assert members(manager) == {GUIDS[1]: FULL, GUIDS[2]: FULL}


def test_who_was_let_join_and_has_left_joins_himself() -> None:
    _, askers = bring_up()
    join(askers[1])
    proxied = join(askers[2], WHO, port_gid=askers[6].gid)
    assert isinstance(proxied, M)
    assert proxied.proxy_join == 1
    join(askers[6], WHO, DELETE)
    own = join(askers[6], WHO)
    assert isinstance(own, M)
    assert own.proxy_join == 0


def test_nobody_speaks_for_who_has_joined_himself() -> None:
    manager, askers = bring_up()
    join(askers[1])
    join(askers[2], WHO, port_gid=askers[6].gid)
    join(askers[6], WHO)  # from now on he speaks for himself
    for member in (askers[1], askers[6]):
        for method in (DELETE, SET):
            refused = join(askers[2], WHO, method, port_gid=member.gid, join_state=FULL)
            assert refused == a.STATUS_REQUEST_INVALID
    assert members(manager) == {GUIDS[1]: FULL, GUIDS[6]: FULL}
    assert isinstance(join(askers[6], WHO, DELETE), M)


def test_a_gid_that_the_manager_would_give_and_somebody_has_named_is_not_given_again() -> None:
    manager, askers = bring_up()
    first = join(askers[1], ANY)
    assert isinstance(first, M)
    following = first.mgid[:-4] + (int.from_bytes(first.mgid[-4:], "big") + 1).to_bytes(4, "big")
    assert isinstance(join(askers[2], mgid=following), M)
    third = join(askers[3], ANY)
    assert isinstance(third, M)
    assert third.mgid not in (first.mgid, following)
    assert len(manager.administration.groups.groups) == 3


def test_who_joins_with_another_hop_limit_is_refused() -> None:
    _, askers = bring_up()
    assert isinstance(join(askers[1], (*CREATE, "hop_limit"), hop_limit=5), M)
    assert join(askers[2], (*WHO, "hop_limit"), hop_limit=6) == a.STATUS_REQUEST_INVALID
    assert isinstance(join(askers[2], (*WHO, "hop_limit"), hop_limit=5), M)


def test_rates_are_compared_by_what_they_are_and_not_by_their_codes() -> None:
    _, askers = bring_up()
    rate_50_gbps = 20  # the links have 100 Gbit/s, whose code is 16
    made = join(askers[1], (*CREATE, "rate_selector", "rate"), rate_selector=2, rate=rate_50_gbps)
    assert isinstance(made, M)
    assert made.rate == rate_50_gbps
    assert isinstance(join(askers[2], WHO), M)


def test_ports_that_go_together_are_all_forgotten() -> None:
    manager, askers = bring_up()
    for asker in askers[1:5]:
        join(asker, CREATE if asker is askers[1] else WHO)
    groups = manager.administration.groups
    groups.forget(set(GUIDS[2:5]))
    assert members(manager) == {GUIDS[1]: FULL}
    groups.forget(set(GUIDS))
    assert groups.groups == {}
    assert groups._count == 0


def test_a_group_comes_once_whoever_joins_it() -> None:
    manager, askers = bring_up()
    told: list[tuple[bytes, bool]] = []
    manager.administration.groups._on_change = lambda mgid, is_there: told.append((mgid, is_there))
    for asker in askers[1:4]:
        join(asker, CREATE if asker is askers[1] else WHO)
    for asker in askers[1:4]:
        join(asker, WHO, DELETE)
    assert told == [(MGID, True), (MGID, False)]


def test_a_service_s_key_is_told_to_who_is_trusted_alone() -> None:
    _, askers = bring_up()
    record = S(service_id=7, service_gid=askers[1].gid, service_pkey=0xFFFF, key=bytes(range(16)))
    names = ("service_id", "service_gid", "service_pkey", "key")
    assert askers[1].status(SET, a.ATTRIBUTE_SERVICE_RECORD, record, mask(S, *names)) == 0
    for asker in askers[1:3]:
        assert [each.key for each in asker.records(S)] == [bytes(16)]
        assert [each.key for each in asker.records(S, key=1)] == [record.key]


@pytest.mark.parametrize(
    ("facts", "is_there"),
    [
        ({"dgid": MGID}, True),
        ({"dlid": 0xC000}, True),
        ({"dgid": MGID, "dlid": 0xC000, "sl": 0, "pkey": 0x8013, "traffic_class": 3}, True),
        ({"dgid": MGID, "pkey": 0x0013}, True),
        ({"dgid": MGID[:-1] + b"\0", "dlid": 0xC000}, False),
        ({"dgid": MGID, "dlid": 0xC001}, False),
        ({"dgid": MGID, "sl": 1}, False),
        ({"dgid": MGID, "pkey": 0xFFFF}, False),
        ({"dgid": MGID, "traffic_class": 4}, False),
        ({"dgid": MGID, "flow_label": 1}, False),
        ({"dgid": MGID, "hop_limit": 1}, False),
    ],
    ids=str,
)  # fmt: skip
def test_a_path_to_a_group_has_what_is_asked_for(facts: dict, is_there: bool) -> None:
    _, askers = bring_up(partitions=APART)
    join(askers[3], pkey=0x8013, traffic_class=3)
    wanted = P(sgid=askers[3].gid, **facts)
    names = mask(P, "sgid", *facts)
    assert askers[3].status(GET, PR, wanted, names) == (0 if is_there else a.STATUS_NO_RECORDS)
    answer = askers[3].ask(TABLE, PR, wanted, names)
    assert answer is not None
    assert (answer.status, len(answer.data)) == (0, int(is_there))


def test_a_path_to_a_group_is_for_who_is_in_its_partition_alone() -> None:
    _, askers = bring_up(partitions=APART)
    join(askers[3], pkey=0x8013)
    names = mask(P, "sgid", "dgid")
    for asker, source, status in (
        (askers[4], askers[4], 0),
        (askers[4], askers[3], 0),  # of another port that it sees
        (askers[1], askers[1], a.STATUS_NO_RECORDS),
        (askers[1], askers[3], a.STATUS_NO_RECORDS),
        (askers[4], askers[1], a.STATUS_NO_RECORDS),
    ):
        assert asker.status(GET, PR, P(sgid=source.gid, dgid=MGID), names) == status
    assert askers[1].status(GET, PR, P(dgid=MGID), mask(P, "dgid")) == a.STATUS_NO_RECORDS
    other = MGID[:-1] + b"\1"
    join(askers[1], mgid=other, pkey=0x8014)
    for source, status in ((askers[1], 0), (askers[5], 0), (askers[6], a.STATUS_NO_RECORDS)):
        assert askers[5].status(GET, PR, P(sgid=source.gid, dgid=other), names) == status  # limited, both


def test_the_greatest_number_of_a_gid_is_followed_by_the_first() -> None:
    manager, askers = bring_up()
    groups = manager.administration.groups
    groups._next = 0xFFFF_FFFF
    made = [join(asker, ANY) for asker in askers[1:3]]
    assert [each.mgid[-4:] for each in made if isinstance(each, M)] == [b"\xff" * 4, b"\0\0\0\1"]
    assert all(mgid[2:4] == membership.OWN_SIGNATURE for mgid in groups.groups)
