"""Groups and services of subnet administration: what is kept of what is said, and what ends with whom."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from administration_tools import DELETE, SET, Asker, mask

from softhca.fabric.generators import fat_tree
from softhca.fabric.manager import subscriptions
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.manager import FabricManager, ManagerConfig
from softhca.fabric.manager.membership import FULL, NON_MEMBER, SEND_ONLY
from softhca.fabric.manager.partitions import Partition
from softhca.fabric.manager.paths import RefusedError
from softhca.fabric.manager.subscriptions import COUNTERS, MOST_MISSED, Subscriptions
from softhca.management import administration_attributes as a
from softhca.management.administration_attributes import InformInfo
from softhca.management.subnet_attributes import Notice

TREE = fat_tree(4, 2)
M, S = a.MCMemberRecord, a.ServiceRecord
MGID = bytes.fromhex("ff12401bffff000000000000ffffffff")
WHO = ("mgid", "port_gid", "join_state")
CREATE = (*WHO, "qkey", "traffic_class", "pkey", "sl", "flow_label")
FACTS = {"qkey": 0xB1B, "traffic_class": 3, "pkey": 0xFFFF, "sl": 0, "flow_label": 7}


def bring_up(**config: object) -> tuple[FabricManager, list[Asker]]:
    managed = ManagedFabric(TREE)
    manager = managed.add((0, 1), ManagerConfig(TREE.nodes[0].port_guid(1), **config))  # type: ignore[arg-type]
    managed.settle()
    return manager, [Asker(managed, (node, 1)) for node in range(4)]


def join(asker: Asker, names: tuple[str, ...] = CREATE, method: int = SET, **values: object) -> M | int:
    facts = {"mgid": MGID, "port_gid": asker.gid, "join_state": FULL, **FACTS, **values}
    answer = asker.ask(method, a.ATTRIBUTE_MC_MEMBER_RECORD, M(**facts), mask(M, *names))  # type: ignore[arg-type]
    assert answer is not None
    return answer.status or M.decode(answer.data[0])


def state(found: M | int) -> int:
    assert isinstance(found, M)
    return found.join_state


def test_who_joins_as_nothing_is_refused_and_who_joins_again_is_both() -> None:
    _, (one, two, *_) = bring_up()
    join(one)
    assert join(two, WHO, join_state=0) == a.STATUS_REQUEST_INVALID
    assert join(two, WHO, join_state=8) == a.STATUS_REQUEST_INVALID
    assert state(join(two, WHO, join_state=SEND_ONLY)) == SEND_ONLY
    assert state(join(two, WHO, join_state=NON_MEMBER)) == SEND_ONLY | NON_MEMBER
    # who leaves hears what it was of what it said
    assert state(join(two, WHO, DELETE, join_state=FULL | SEND_ONLY)) == SEND_ONLY
    assert state(join(two, WHO, DELETE, join_state=NON_MEMBER)) == NON_MEMBER


def test_what_is_not_named_of_a_new_group_is_not_taken() -> None:
    manager, (one, *_) = bring_up()
    made = join(one, hop_limit=9, scope=9)
    assert isinstance(made, M)
    assert (made.hop_limit, made.scope) == (0, 2)
    join(one, WHO, DELETE)
    made = join(one, (*CREATE, "scope"), scope=9)
    assert isinstance(made, M)
    assert made.scope == 2, "it stands in the group's GID"
    join(one, WHO, DELETE)
    made = join(one, (*CREATE, "hop_limit"), hop_limit=9)
    assert isinstance(made, M)
    assert made.hop_limit == 9
    assert len(manager.administration.groups.groups) == 1


def test_the_path_to_a_group_is_what_the_group_says() -> None:
    manager, (one, *_) = bring_up()
    made = join(one, (*CREATE, "hop_limit"), hop_limit=9)
    assert isinstance(made, M)
    names = ("flow_label", "hop_limit", "traffic_class", "pkey", "sl", "mtu", "rate", "packet_lifetime")
    for by_gid, wanted in ((1, a.PathRecord(dgid=MGID)), (0, a.PathRecord(dlid=made.mlid))):
        path = manager.administration.groups.path(wanted, 1, by_gid)
        assert path is not None
        assert (path.dgid, path.dlid) == (MGID, made.mlid)
        assert [getattr(path, name) for name in names] == [getattr(made, name) for name in names]


@pytest.mark.parametrize("owner", range(3))
@pytest.mark.parametrize("all_go", [False, True])
def test_a_group_goes_once_with_all_that_are_in_it(owner: int, all_go: bool) -> None:
    manager, askers = bring_up()
    one, two, three = (askers[(owner + place) % 3] for place in range(3))
    join(one)
    join(two, WHO, join_state=SEND_ONLY)
    join(three, WHO, join_state=NON_MEMBER)
    groups = manager.administration.groups
    groups.forget({one.guid, *([two.guid, three.guid] if all_go else [])})
    assert groups.groups == {}
    assert groups._count == 0
    made = join(one)
    assert isinstance(made, M)
    assert made.mlid == 0xC000


def test_a_service_is_one_in_each_partition() -> None:
    guids = frozenset(TREE.nodes[node].port_guid(1) for node in range(4))
    parts = (Partition(0x7FFF, guids, frozenset()), Partition(0x12, guids))
    manager, (one, *_) = bring_up(partitions=parts)
    names = ("service_id", "service_gid", "service_pkey", "key", "name")
    for pkey, count in ((0xFFFF, 1), (0x8012, 2), (0xFFFF, 2)):
        record = S(service_id=7, service_gid=one.gid, service_pkey=pkey, reserved16=5)
        answer = one.ask(SET, a.ATTRIBUTE_SERVICE_RECORD, record, mask(S, *names))
        assert answer is not None
        assert answer.status == 0
        found = S.decode(answer.data[0])
        assert (found.service_pkey, found.reserved16) == (pkey, 0)
        assert len(manager.administration.services) == count


# subscriptions, with ports that are only names

ISSUER = SimpleNamespace(gid=bytes(16), lid=9, lmc=0)


class Told:
    """Subscriptions of ports 1 … 3; ``reports`` are their transaction IDs and the queue pairs told."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, int]] = []
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.subscriptions = Subscriptions(self._send, self.counters, timeout_ns=10, retries=0)
        self.ports: Any = {guid: SimpleNamespace(guid=guid, sees=lambda issuer: True) for guid in (1, 2, 3)}
        self.inventory: Any = SimpleNamespace(by_guid=self.ports)

    def _send(self, guid: int, qpn: int, data: bytes) -> None:
        self.reports.append((int.from_bytes(data[8:16], "big"), qpn))

    def put(self, guid: int, **values: int) -> None:
        facts = {"lid_range_begin": 0xFFFF, "subscribe": 1, "type": 0xFFFF, "trap_number": 0xFFFF,
                 "is_generic": 1, "producer_type": 0xFF_FFFF, "qpn": 1}  # fmt: skip
        self.subscriptions.put(InformInfo(**{**facts, **values}), self.ports[guid])  # type: ignore[arg-type]

    def notify(self, now: int) -> None:
        notice = Notice(is_generic=1, type=1, trap_number=128, producer_type=2)
        self.subscriptions.notify(notice, cast("Any", ISSUER), self.inventory, now)


def test_each_queue_pair_of_a_port_has_its_subscription() -> None:
    told = Told()
    for qpn in (1, 2, 2):
        told.put(1, qpn=qpn)
    told.notify(0)
    assert [qpn for _, qpn in told.reports] == [1, 2]
    told.put(1, qpn=1, subscribe=0)
    told.notify(0)
    assert [qpn for _, qpn in told.reports] == [1, 2, 2]


def test_a_port_may_subscribe_again_where_it_has_ended_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_OF_A_PORT", 2)
    told = Told()
    for number in (64, 65):
        told.put(1, trap_number=number)
    with pytest.raises(RefusedError):
        told.put(1, trap_number=66)
    told.put(1, trap_number=64, subscribe=0)
    told.put(1, trap_number=66)
    assert len(told.subscriptions) == 2


def test_of_ports_that_have_gone_no_report_is_under_way() -> None:
    told = Told()
    told.put(1)
    told.put(2)
    told.notify(0)
    told.subscriptions.forget({1})
    told.subscriptions.expire(10)
    assert told.counters["reports_unanswered"] == 1


def test_a_subscription_that_is_made_anew_misses_nothing_of_before() -> None:
    told = Told()
    told.put(1)
    for now in range(MOST_MISSED):
        told.notify(now)
    told.put(1, subscribe=0)
    told.put(1)
    told.subscriptions.expire(100)
    assert told.counters["reports_unanswered"] == MOST_MISSED
    assert told.counters["subscriptions_ended"] == 0
    assert len(told.subscriptions) == 1


def test_an_answer_with_another_transaction_is_none() -> None:
    told = Told()
    told.put(1)
    told.notify(0)
    ((number, _),) = told.reports
    for said, is_answer in ((number | 1 << 32, False), (number, True), (number, False)):
        data = bytes(8) + said.to_bytes(8, "big") + bytes(240)
        assert told.subscriptions.answered(data, told.ports[1]) == is_answer


@pytest.mark.parametrize(
    ("first", "last", "is_told"), [(7, 7, 0), (7, 8, 1), (10, 10, 1), (11, 20, 1), (12, 12, 0)]
)
def test_a_range_is_about_all_lids_of_an_issuer(
    first: int, last: int, is_told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    monkeypatch.setattr(ISSUER, "lid", 8)
    monkeypatch.setattr(ISSUER, "lmc", 2)
    told.put(1, lid_range_begin=first, lid_range_end=last)
    told.notify(0)
    assert len(told.reports) == is_told
