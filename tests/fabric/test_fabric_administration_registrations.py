"""Services and subscriptions of a subnet: registered by datagram, for a while, and told of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from administration_tools import DELETE, GET, SET, Asker, mask

from softhca.fabric.generators import fat_tree
from softhca.fabric.manager import services, subscriptions
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.manager import FabricManager, ManagerConfig
from softhca.fabric.manager.partitions import Partition
from softhca.fabric.manager.requests import NEVER_NS
from softhca.management import administration_attributes as a
from softhca.management import administration_tables as t
from softhca.management import constants as c
from softhca.management import rmpp
from softhca.management.subnet_attributes import Notice

S, I = a.ServiceRecord, a.InformInfo  # noqa: E741
SR, II = a.ATTRIBUTE_SERVICE_RECORD, a.ATTRIBUTE_INFORM_INFO
TREE = fat_tree(4, 2)
SECOND_NS = 1_000_000_000
NAMES = ("service_id", "service_gid", "service_pkey", "lease", "key", "name")
KEY = bytes(range(16))


def bring_up(**config: object) -> tuple[ManagedFabric, FabricManager, list[Asker]]:
    managed = ManagedFabric(TREE)
    manager = managed.add((0, 1), ManagerConfig(TREE.nodes[0].port_guid(1), **config))  # type: ignore[arg-type]
    managed.settle()
    return managed, manager, [Asker(managed, (node, 1)) for node in range(8)]


def service(asker: Asker, **values: object) -> S:
    facts = {"service_id": 7, "service_gid": asker.gid, "service_pkey": 0xFFFF, "lease": 20, "key": KEY,
             "name": b"storage".ljust(64, b"\0"), **values}  # fmt: skip
    return S(**facts)  # type: ignore[arg-type]


def register(asker: Asker, method: int = SET, names: tuple[str, ...] = NAMES, **values: object) -> S | int:
    answer = asker.ask(method, SR, service(asker, **values), mask(S, *names))
    assert answer is not None
    return answer.status or S.decode(answer.data[0])


def found(asker: Asker, **more: int) -> list[tuple[int, int]]:
    return [(each.service_id, each.lease) for each in asker.records(S, **more)]


def test_a_service_is_registered_found_prolonged_and_withdrawn() -> None:
    managed, manager, askers = bring_up()
    assert register(askers[1]) == service(askers[1])
    other = askers[4]
    wanted = S(name=b"storage".ljust(64, b"\0"))
    answer = other.ask(GET, SR, wanted, mask(S, "name"))
    assert answer is not None
    assert S.decode(answer.data[0]) == replace(service(askers[1]), key=bytes(16))
    assert other.records(S, key=1) == [service(askers[1])]
    assert other.records(S, S(service_id=8), mask(S, "service_id")) == []
    managed.run_until(managed.now + 15 * SECOND_NS)
    assert found(other) == [(7, 5)]
    assert isinstance(register(askers[1]), S)
    assert found(other) == [(7, 20)]
    managed.run_until(managed.now + 15 * SECOND_NS)
    assert register(askers[2], DELETE) == a.STATUS_NO_RECORDS
    assert isinstance(register(askers[1], DELETE), S)
    assert found(other) == []
    assert manager.administration.services.next_deadline_ns == NEVER_NS
    assert not manager.administration.services._of_port  # nothing is left of ports that offer nothing


def test_services_for_others_count_as_those_of_who_registers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MOST_OF_A_PORT", 2)
    _, manager, askers = bring_up()
    one, other = askers[1:3]
    for number in (1, 2):
        assert isinstance(register(one, service_id=number, service_gid=other.gid), S)
    assert register(one, service_id=3) == a.STATUS_NO_RESOURCES
    assert isinstance(register(other, service_id=4), S)
    assert isinstance(register(other, DELETE, service_id=1), S)
    assert isinstance(register(one, service_id=3), S)
    assert len(manager.administration.services) == 3


def test_a_lease_ends_when_it_says() -> None:
    managed, manager, askers = bring_up()
    start = managed.now
    register(askers[1], lease=5)
    register(askers[1], service_id=8, lease=services.FOR_EVER)
    register(askers[1], service_id=9, names=tuple(n for n in NAMES if n != "lease"), lease=1)
    managed.run_until(start + 5 * SECOND_NS - 1)
    assert [each for each, _ in found(askers[3])] == [7, 8, 9]
    managed.run_until(start + 5 * SECOND_NS)
    assert len(manager.administration.services) == 2
    managed.run_until(start + 10_000 * SECOND_NS)
    assert found(askers[3]) == [(8, services.FOR_EVER), (9, services.FOR_EVER)]


def test_only_who_knows_the_key_changes_a_service() -> None:
    _, _, askers = bring_up()
    register(askers[1])
    assert register(askers[1], key=bytes(16)) == a.STATUS_DENIED
    assert register(askers[1], DELETE, key=b"\1" * 16) == a.STATUS_DENIED
    without = tuple(name for name in NAMES if name != "key")
    assert register(askers[1], DELETE, without) == a.STATUS_DENIED
    assert isinstance(register(askers[1], DELETE), S)
    register(askers[1], SET, without)
    assert isinstance(register(askers[1]), S)  # one without a key is anybody's of the same port


def test_services_that_cannot_be_are_refused() -> None:
    guids = [node.port_guid(1) for node in TREE.nodes[:8]]
    _, _, askers = bring_up(partitions=(Partition(0x12, frozenset(guids[1:3])),))
    for name in ("service_id", "service_gid"):
        names = tuple(each for each in NAMES if each != name)
        assert register(askers[1], names=names) == a.STATUS_INSUFFICIENT_COMPONENTS
    assert register(askers[1], service_gid=bytes(16)) == a.STATUS_INVALID_GID
    assert register(askers[4], service_pkey=0x8012) == a.STATUS_REQUEST_INVALID
    assert isinstance(register(askers[1], service_pkey=0x8012), S)
    assert found(askers[2]) == [(7, 20)]
    assert found(askers[4]) == []
    assert found(askers[4], key=1) == [(7, 20)]


def test_services_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, askers = bring_up()
    monkeypatch.setattr(services, "MOST_OF_A_PORT", 3)
    monkeypatch.setattr(services, "MOST_SERVICES", 5)
    made = [register(askers[1], service_id=number) for number in range(1, 5)]
    assert made[3] == a.STATUS_NO_RESOURCES
    made = [register(askers[2], service_id=number) for number in range(1, 4)]
    assert made[2] == a.STATUS_NO_RESOURCES
    register(askers[1], DELETE, service_id=1)
    assert isinstance(register(askers[2], service_id=3), S)


# subscriptions


def inform(asker: Asker, **values: object) -> int:
    facts = {"lid_range_begin": 0xFFFF, "subscribe": 1, **values}
    return asker.status(SET, II, I(**facts))  # type: ignore[arg-type]


def told(asker: Asker) -> list[tuple[int, bytes]]:
    """Numbers of the traps and the issuers' GIDs that a program has been told of."""
    return [
        (Notice.decode(data, rmpp.DATA_AT).trap_number, data[rmpp.DATA_AT + 64 :][:16])
        for data in asker.reports
    ]


def fail(managed: ManagedFabric, name: str, port: int, back: bool = False) -> None:
    link = TREE.link_at(TREE.index(name), port)
    assert link is not None
    (managed.plane.restore if back else managed.plane.fail)(link, managed.now)
    managed.run_until(managed.now + 5 * SECOND_NS)


def gid_of(managed: ManagedFabric, name: str) -> bytes:
    node = managed.plane.nodes[TREE.index(name)]
    guid = node.node.port_guid(0 if node.is_switch else 1)
    return (0xFE80 << 112 | guid).to_bytes(16, "big")


def test_who_subscribes_is_told_of_traps_and_of_ports_that_come_and_go() -> None:
    managed, manager, askers = bring_up()
    asker, other = askers[2], askers[3]
    assert inform(asker) == 0
    fail(managed, "h6", 1)
    leaf, own = gid_of(managed, "s1-3"), gid_of(managed, "h0")
    assert (128, leaf) in told(asker)
    assert (a.TRAP_GID_OUT, own) in told(asker)
    gone = next(data for data in asker.reports if data[rmpp.DATA_AT + 5] == a.TRAP_GID_OUT)
    assert Notice.decode(gone, rmpp.DATA_AT).data_details[6:22] == gid_of(managed, "h6")
    assert gone[:4] == bytes([1, 3, 2, c.METHOD_REPORT])
    assert gone[16:18] == b"\0\x02"
    asker.reports.clear()
    fail(managed, "h6", 1, back=True)
    assert (a.TRAP_GID_IN, own) in told(asker)
    assert told(other) == []
    assert inform(asker, subscribe=0) == 0
    asker.reports.clear()
    fail(managed, "h6", 1)
    assert told(asker) == []
    assert inform(asker, subscribe=0) == a.STATUS_REQUEST_INVALID
    counters = manager.administration.counters
    assert counters["reports"] > 3
    assert counters["reports_sent_again"] == counters["reports_unanswered"] == 0


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"trap_number": 128}, {128}),
        ({"trap_number": a.TRAP_GID_OUT}, {a.TRAP_GID_OUT}),
        ({"type": 3}, {a.TRAP_GID_OUT}),
        ({"type": 1}, {128}),
        ({"producer_type": 2}, {128}),
        ({"producer_type": 4}, {a.TRAP_GID_OUT}),
        ({"producer_type": 1}, set()),
        ({"is_generic": 0}, set()),
        ({"lid_range_begin": 1, "lid_range_end": 1}, {a.TRAP_GID_OUT}),
        ({"lid_range_begin": 2, "lid_range_end": 0xBFFF}, {128}),
        ({"lid_range_begin": 1}, {a.TRAP_GID_OUT}),
        ({"gid": "h0"}, {a.TRAP_GID_OUT}),
        ({"gid": "s1-3"}, {128}),
        ({"gid": "s1-2"}, set()),
    ],
    ids=str,
)
def test_a_subscription_says_of_what(wanted: dict, expected: set[int]) -> None:
    managed, _, askers = bring_up()
    if "gid" in wanted:
        wanted = {**wanted, "gid": gid_of(managed, wanted["gid"]), "lid_range_begin": 0}
    assert inform(askers[2], **wanted) == 0
    fail(managed, "h6", 1)
    assert {number for number, _ in told(askers[2])} == expected


@pytest.mark.parametrize(
    "wanted",
    [{"subscribe": 2}, {"is_generic": 2}, {"qpn": 0}, {"lid_range_begin": 0}, {"lid_range_begin": 0xC000},
     {"lid_range_begin": 5, "lid_range_end": 4}, {"lid_range_begin": 5, "lid_range_end": 0xC000}],
    ids=str,
)  # fmt: skip
def test_a_subscription_that_cannot_be_is_refused(wanted: dict) -> None:
    _, manager, askers = bring_up()
    assert inform(askers[2], **wanted) == a.STATUS_REQUEST_INVALID
    assert len(manager.administration.subscriptions) == 0


def test_a_report_is_sent_again_and_who_says_nothing_is_a_subscriber_no_more() -> None:
    managed, manager, askers = bring_up()
    silent, asker = askers[2], askers[3]
    silent.answers_reports = False
    for each in (silent, asker):
        assert inform(each, trap_number=128) == 0
    counters = manager.administration.counters
    start = managed.now
    link = TREE.link_at(TREE.index("h6"), 1)
    assert link is not None
    managed.plane.fail(link, managed.now)
    managed.run_until(start + SECOND_NS // 2)
    assert len(silent.reports) == 3
    assert len({data[10:16] for data in silent.reports}) == 1  # one report, sent three times
    managed.run_until(start + 2 * SECOND_NS)
    assert len(silent.reports) == 4
    assert (counters["reports"], counters["reports_sent_again"], counters["reports_unanswered"]) == (2, 3, 1)
    assert len(asker.reports) == 1
    fail(managed, "h6", 1, back=True)
    silent.answers_reports = True
    fail(managed, "h6", 1)
    silent.answers_reports = False
    assert counters["subscriptions_ended"] == 0
    for back, ended in ((True, 0), (False, 0), (True, 1)):  # what was answered counts anew
        fail(managed, "h6", 1, back)
        assert counters["subscriptions_ended"] == ended
    assert len(manager.administration.subscriptions) == 1
    before = len(asker.reports), len(silent.reports)
    fail(managed, "h6", 1)
    assert len(silent.reports) == before[1]
    assert len(asker.reports) == before[0] + 1


def test_only_who_was_told_can_say_that_a_report_has_come() -> None:
    managed, manager, askers = bring_up()
    asker, other = askers[2], askers[3]
    asker.answers_reports = False
    inform(asker, trap_number=128)
    fail_at = TREE.link_at(TREE.index("h6"), 1)
    assert fail_at is not None
    managed.plane.fail(fail_at, managed.now)
    managed.run_until(managed.now + SECOND_NS // 10)
    report = asker.reports[0]
    forged = report[:3] + bytes([report[3] | c.RESPONSE]) + report[4:]
    manager.receive(forged, other.lid, managed.now)
    assert manager.administration.counters["drops_form"] == 1
    managed.run_until(managed.now + SECOND_NS // 4)
    assert len(asker.reports) == 2


def test_subscriptions_have_records_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, askers = bring_up()
    monkeypatch.setattr(subscriptions, "MOST_OF_A_PORT", 2)
    monkeypatch.setattr(subscriptions, "MOST_SUBSCRIPTIONS", 3)
    made = [inform(askers[2], trap_number=number) for number in (64, 65, 65, 66)]
    assert made == [0, 0, 0, a.STATUS_NO_RESOURCES]
    assert [inform(askers[3], trap_number=number) for number in (64, 65)] == [0, a.STATUS_NO_RESOURCES]
    own = askers[3].records(t.InformInfoRecord)
    assert [(each.subscriber_gid, I.decode(each.inform_info).trap_number) for each in own] == [
        (askers[3].gid, 64)
    ]
    everybody = askers[4].records(t.InformInfoRecord, key=1)
    assert len(everybody) == 3
    assert len({each.enumeration for each in everybody}) == 3


def test_reports_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    managed, manager, askers = bring_up()
    monkeypatch.setattr(subscriptions, "MOST_REPORTS", 1)
    for asker in askers[2:5]:
        asker.answers_reports = False
        inform(asker, trap_number=128)
    link = TREE.link_at(TREE.index("h6"), 1)
    assert link is not None
    managed.plane.fail(link, managed.now)
    managed.run_until(managed.now + SECOND_NS // 10)
    counters = manager.administration.counters
    assert (counters["reports"], counters["reports_dropped"]) == (1, 2)


def test_who_shares_no_partition_with_the_issuer_is_not_told() -> None:
    guids = [node.port_guid(1) for node in TREE.nodes[:8]]
    part = Partition(0x7FFF, frozenset(guids[:3]), None)
    managed, _, askers = bring_up(partitions=(part,))
    for asker in askers[2:4]:
        assert inform(asker, trap_number=144) == 0
    managed.plane.set_manager(askers[5].endpoint, True, managed.now)
    managed.run_until(managed.now + SECOND_NS)
    assert [number for number, _ in told(askers[2])] == [144]
    assert told(askers[3]) == []


def test_a_port_that_goes_has_no_subscription_any_more() -> None:
    managed, manager, askers = bring_up()
    inform(askers[6], trap_number=128)
    fail(managed, "h6", 1)
    assert len(manager.administration.subscriptions) == 0
    assert manager.administration.subscriptions.next_deadline_ns == NEVER_NS


def test_who_subscribes_hears_of_groups() -> None:
    managed, _, askers = bring_up()
    asker = askers[2]
    inform(asker, type=3)
    record = a.MCMemberRecord(mgid=b"\xff\x12" + bytes(14), port_gid=askers[3].gid, join_state=1, pkey=0xFFFF)
    names = ("mgid", "port_gid", "join_state", "qkey", "traffic_class", "pkey", "sl", "flow_label")
    for method in (SET, DELETE):
        assert (
            askers[3].status(method, a.ATTRIBUTE_MC_MEMBER_RECORD, record, mask(a.MCMemberRecord, *names))
            == 0
        )
    managed.run_until(managed.now + SECOND_NS)
    assert [number for number, _ in told(asker)] == [a.TRAP_GROUP_CREATED, a.TRAP_GROUP_DELETED]
    assert {data[rmpp.DATA_AT + 16 :][:16] for data in asker.reports} == {record.mgid}


ATS = 0x1000_0CE1_0041_5453
V4, V6 = bytes(10) + b"\xff\xff" + bytes((10, 1, 2, 3)), bytes.fromhex("fd00") + bytes(13) + b"\7"


def test_addresses_of_ports_are_services_of_theirs() -> None:
    """As DAPL's Address Translation Service has them."""
    guids = [TREE.nodes[node].port_guid(1) for node in range(3)]
    addresses = {guids[1]: V4, guids[2]: V6, 0x1234: V4}
    _, manager, askers = bring_up(addresses=addresses)
    by_gid = {each.service_gid: each for each in askers[4].records(S)}
    assert by_gid.keys() == {askers[1].gid, askers[2].gid}
    for asker, data in ((askers[1], bytes(12) + V4[12:]), (askers[2], V6)):
        record = by_gid[asker.gid]
        assert (record.service_id, record.service_pkey, record.lease) == (ATS, 0xFFFF, services.FOR_EVER)
        assert record.name.rstrip(b"\0") == b"DAPL Address Translation Service"
        assert record.data == data.ljust(64, b"\0")
        wanted = S(service_id=ATS, data=data.ljust(64, b"\0"))
        answer = askers[5].ask(GET, SR, wanted, 1 | 0xFFFF << 7)
        assert answer is not None
        assert S.decode(answer.data[0]).service_gid == asker.gid
    assert len(manager.administration.services) == 2


def test_an_address_is_a_service_of_a_partition_that_its_port_is_in() -> None:
    guids = [TREE.nodes[node].port_guid(1) for node in range(3)]
    everyone, apart = Partition(0x7FFF, frozenset(guids[:1]), frozenset()), Partition(1, frozenset(guids[1:]))
    _, _, askers = bring_up(addresses={guids[1]: V4}, partitions=(everyone, apart))
    assert [each.service_pkey for each in askers[2].records(S)] == [0x8001]
    assert askers[0].records(S) == []
