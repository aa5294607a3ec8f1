"""Rules of a manager's subscriptions, look-ups and budget, each by itself."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.fabric.manager import budget, lookups, subscriptions
from softhca.fabric.manager.lookups import SPACE, Lookups
from softhca.fabric.manager.manager import ManagerConfig
from softhca.fabric.manager.packets import PORT
from softhca.fabric.manager.requests import NEVER_NS
from softhca.fabric.manager.services import SECOND_NS, Services
from softhca.fabric.manager.subscriptions import COUNTERS, Subscriptions, wants
from softhca.management import administration_attributes as a
from softhca.management import administration_tables as t
from softhca.management import constants as c
from softhca.management.subnet_attributes import Notice

EVERYTHING = a.InformInfo(lid_range_begin=0xFFFF, subscribe=1, type=0xFFFF, trap_number=0xFFFF, qpn=1)
TIMEOUT_NS = 100


class Port:
    """As much of a known port as is asked for: all see each other."""

    def __init__(self, guid: int, lid: int = 4, lmc: int = 0) -> None:
        self.guid, self.lid, self.lmc = guid, lid, lmc
        self.gid = guid.to_bytes(16, "big")
        self.keys = {0x7FFF: 0xFFFF}

    def sees(self, other: object) -> bool:
        return True


class Subscribers:
    """Subscriptions and their ports."""

    def __init__(self, retries: int = 0) -> None:
        self.sent: list[int] = []
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.all = Subscriptions(
            lambda guid, qpn, data: self.sent.append(guid), self.counters, TIMEOUT_NS, retries
        )
        self.ports: dict[int, Any] = {guid: Port(guid) for guid in (1, 2)}
        self.inventory: Any = SimpleNamespace(by_guid=self.ports)

    def put(self, guid: int, subscribe: int = 1, trap_number: int = 0xFFFF) -> a.InformInfo:
        wanted = a.InformInfo(
            lid_range_begin=0xFFFF, subscribe=subscribe, type=0xFFFF, trap_number=trap_number, qpn=1,
            is_generic=1, producer_type=0xFF_FFFF,
        )  # fmt: skip
        return self.all.put(wanted, self.ports[guid])

    def notify(self, now: int) -> None:
        self.all.notify(Notice(is_generic=1), self.ports[1], self.inventory, now)


def test_a_port_that_goes_gets_no_reports_any_more() -> None:
    made = Subscribers(retries=3)
    made.put(1)
    made.put(2)
    made.notify(0)
    made.all.forget({2})
    made.sent.clear()
    made.all.expire(TIMEOUT_NS)
    assert made.sent == [1]


def test_late_reports_of_a_subscription_that_ended_do_not_end_the_next_one() -> None:
    made = Subscribers()
    made.put(1)
    for now in range(subscriptions.MOST_MISSED):
        made.notify(now)
    made.put(1, subscribe=0)
    made.put(1)
    made.all.expire(2 * TIMEOUT_NS)
    assert made.counters["reports_unanswered"] == subscriptions.MOST_MISSED
    assert made.counters["subscriptions_ended"] == 0
    assert len(made.all) == 1


def test_a_subscription_that_ended_leaves_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_OF_A_PORT", 2)
    made = Subscribers()
    made.put(1, trap_number=1)
    for _ in range(4):
        made.put(1, trap_number=2)
        made.put(1, 0, trap_number=2)
    assert len(made.all) == 1


def test_a_port_that_answers_no_reports_leaves_others_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_REPORTS", 8)
    monkeypatch.setattr(subscriptions, "MOST_REPORTS_TO_ONE", 4)
    made = Subscribers(retries=1)
    for trap_number in (0, 1, 2, 0xFFFF):
        made.all.put(
            a.InformInfo(lid_range_begin=0xFFFF, subscribe=1, type=0xFFFF, trap_number=0xFFFF, is_generic=1,
                         producer_type=0xFF_FFFF, qpn=1 + trap_number),
            made.ports[1],
        )  # fmt: skip
    for now in range(3):
        made.notify(now)
    made.put(2)
    made.notify(3)
    assert (made.sent.count(1), made.sent.count(2)) == (4, 1)
    assert made.counters["reports_dropped"] == 12
    made.all.expire(2 * TIMEOUT_NS)
    made.all.expire(4 * TIMEOUT_NS)
    assert not made.all._under_way
    assert not made.all._under_way_to
    made.notify(5 * TIMEOUT_NS)
    made.all.forget({1, 2})
    assert not made.all._under_way_to


def test_a_report_that_is_sent_again_waits_behind_those_that_are_due_before() -> None:
    made = Subscribers(retries=3)
    made.put(1)
    made.notify(0)
    made.notify(50)
    made.all.expire(TIMEOUT_NS)
    assert made.all.next_deadline_ns == 50 + TIMEOUT_NS
    made.all.expire(50 + TIMEOUT_NS)
    assert made.all.next_deadline_ns == 2 * TIMEOUT_NS
    assert made.counters["reports_sent_again"] == 2


def test_numbers_of_subscriptions_begin_anew_behind_the_last() -> None:
    made = Subscribers()
    made.all._next_number = 0xFFFF
    made.put(1, trap_number=1)
    made.put(1, trap_number=2)
    inventory: Any = SimpleNamespace(gid=lambda guid: bytes(16))
    records = [t.InformInfoRecord.decode(each) for each in made.all.records(inventory, None)]
    assert [each.enumeration for each in records] == [0xFFFF, 0]


@pytest.mark.parametrize(("begin", "end", "told"), [(4, 4, True), (7, 0, True), (8, 9, False), (1, 3, False)])
def test_a_range_of_lids_is_about_all_lids_of_a_port(begin: int, end: int, told: bool) -> None:
    wanted = a.InformInfo(
        lid_range_begin=begin, lid_range_end=end, is_generic=1, type=0xFFFF, trap_number=0xFFFF,
        producer_type=0xFF_FFFF,
    )  # fmt: skip
    issuer: Any = Port(1, lid=4, lmc=2)
    assert wants(wanted, Notice(is_generic=1), issuer) is told


def test_what_is_left_of_a_lease_is_told_in_whole_seconds() -> None:
    made, port = Services(), Port(1)
    inventory: Any = SimpleNamespace(at_gid=lambda gid: port)
    record = a.ServiceRecord(service_id=7, service_gid=port.gid, service_pkey=0xFFFF, lease=5)
    made.register(record, (1 << 64) - 1, port, inventory, 0)  # type: ignore[arg-type]
    for now, left in ((0, 5), (1, 4), (SECOND_NS, 4), (5 * SECOND_NS - 1, 0)):
        (told,) = made.records(port, False, now)  # type: ignore[arg-type]
        assert a.ServiceRecord.decode(told).lease == left


# look-ups


class Node:
    """A node that is asked for tables of GUIDs."""

    is_switch = False

    def path(self, number: int) -> bytes:
        return bytes([1, number])


def port_of(node: Node, number: int) -> Any:
    info = bytearray(64)
    PORT.put(info, "guid_cap", 8)
    return SimpleNamespace(node=node, node_guid=5, number=number, lid=3, info=bytes(info))


class Asked:
    """Look-ups, what they have sent, and what came of them."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.done: list[list[bytes]] = []
        self.lookups = Lookups(self.sent.append, ManagerConfig(1))

    def start(self, *ports: Any) -> int | None:
        found = self.lookups.start(
            (1, len(self.done)), t.ATTRIBUTE_GUID_INFO_RECORD, ports, bytes(72), 0, self.done.append
        )
        self.lookups.pump(0)
        return found

    def answer(self, status: int = 0, fill: int = 0) -> bool:
        asked = self.sent.pop(0)
        answer = bytearray(asked)
        answer[3] = c.METHOD_GET_RESPONSE
        answer[4:6] = (status | c.DIRECTION).to_bytes(2, "big")
        answer[64:128] = bytes([fill]) * 64
        return self.lookups.response(bytes(answer), 0)


@pytest.fixture
def asked() -> Iterator[Asked]:
    made = Asked()
    yield made
    assert made.lookups.idle


def tables(asked: Asked) -> list[int]:
    """The first byte of the tables that the last query has brought."""
    return [t.GuidInfoRecord.decode(each).table[0] for each in asked.done[-1]]


def test_what_a_node_refuses_is_not_its_table_and_is_asked_again(asked: Asked) -> None:
    port = port_of(Node(), 1)
    assert asked.start(port) == 1
    assert asked.answer(status=0x1C, fill=9)
    assert tables(asked) == []
    assert asked.start(port) == 1
    assert asked.answer(fill=7)
    assert tables(asked) == [7]
    assert asked.start(port) == 0  # it is known


def test_two_ports_of_an_adapter_have_a_table_each(asked: Asked) -> None:
    node = Node()
    assert asked.start(port_of(node, 1), port_of(node, 2)) == 2
    assert asked.answer(fill=1)
    assert asked.answer(fill=2)
    assert tables(asked) == [1, 2]
    for number in (1, 2):
        assert asked.start(port_of(node, number)) == 0
        assert tables(asked) == [number]


def test_a_block_that_was_written_is_read_anew(asked: Asked) -> None:
    port = port_of(Node(), 1)
    asked.start(port)
    asked.answer(fill=1)
    written: list[int | None] = []
    asked.lookups.write((9, 9), port, 0, bytes(64), lambda status, data: written.append(status))
    asked.lookups.pump(0)
    asked.answer()
    assert written == [0]
    assert asked.start(port) == 1
    asked.answer(fill=2)
    assert tables(asked) == [2]


def test_answers_to_what_a_former_master_has_asked_are_nobody_s(asked: Asked) -> None:
    asked.start(port_of(Node(), 1))
    asked.lookups.step_down()
    assert asked.answer()
    assert asked.done == []
    assert asked.lookups.next_deadline_ns == NEVER_NS


def test_responses_of_another_space_are_for_others(asked: Asked) -> None:
    for space in (0, SPACE | 2, 0x8000 | SPACE):
        data = bytearray(256)
        data[8:12] = space.to_bytes(4, "big")
        assert not asked.lookups.response(bytes(data), 0)


def modifiers(
    attribute: int, info: dict[str, int], is_switch: bool, numbers: tuple[int, ...],
    wanted: bytes = bytes(72),
    mask: int = 0,
) -> list[int]:  # fmt: skip
    """What is read of a port with such a PortInfo, at a node with these ports."""
    data = bytearray(64)
    for name, value in info.items():
        PORT.put(data, name, value)
    node = SimpleNamespace(is_switch=is_switch, ports=dict.fromkeys(numbers, bytes(data)))
    port: Any = SimpleNamespace(node=node, number=numbers[0], lid=3, info=bytes(data))
    return [read.modifier for read in lookups._READS[attribute](port, wanted, mask)]


def test_of_arbitration_those_blocks_are_read_that_a_port_has() -> None:
    for low, high, blocks in ((0, 0, []), (1, 0, [1]), (32, 33, [1, 3, 4]), (33, 32, [1, 2, 3])):
        info = {"vl_arbitration_low_cap": low, "vl_arbitration_high_cap": high}
        adapter = modifiers(t.ATTRIBUTE_VL_ARBITRATION_RECORD, info, False, (2,))
        assert adapter == [block << 16 for block in blocks]
        switch = modifiers(t.ATTRIBUTE_VL_ARBITRATION_RECORD, info, True, (0, 1))
        assert switch == [block << 16 | port for port in (0, 1) for block in blocks]


def test_of_lanes_an_adapter_has_one_table_and_a_switch_one_a_pair() -> None:
    assert modifiers(t.ATTRIBUTE_SL_TO_VL_RECORD, {}, False, (1, 2)) == [0]
    found = modifiers(t.ATTRIBUTE_SL_TO_VL_RECORD, {}, True, (0, 1))
    assert found == [entering << 8 | leaving for leaving in (0, 1) for entering in (0, 1)]


def test_of_guids_all_blocks_are_read_that_hold_one() -> None:
    for cap, count in ((0, 0), (1, 1), (8, 1), (9, 2), (255, 32)):
        assert modifiers(t.ATTRIBUTE_GUID_INFO_RECORD, {"guid_cap": cap}, False, (1,)) == list(range(count))


def test_queries_and_what_is_known_and_asked_at_a_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "MOST_LOOKUPS", 2)
    monkeypatch.setattr(lookups, "MOST_CACHED", 1)
    made = Asked()
    for number in (1, 2):
        assert not made.lookups.is_full(number)
        made.lookups.start((number, 1), t.ATTRIBUTE_GUID_INFO_RECORD, [port_of(Node(), number)], bytes(72), 0,
                           made.done.append)  # fmt: skip
    assert made.lookups.is_full(3)
    assert made.start(port_of(Node(), 3)) is None
    made.lookups.pump(0)
    for fill in (1, 2):
        assert made.answer(fill=fill)
    assert len(made.lookups._known) == 1
    assert made.start(port_of(Node(), 1)) == 0
    assert made.start(port_of(Node(), 2)) == 1
    made.answer()


def test_no_more_is_asked_at_a_time_than_a_manager_may() -> None:
    for config, sent in ((ManagerConfig(1, window=2), 2), (ManagerConfig(1, window=64), lookups.WINDOW)):
        made = Asked()
        made.lookups = Lookups(made.sent.append, config)
        assert made.start(*(port_of(Node(), number) for number in range(1, 20))) == 19
        assert len(made.sent) == sent


def start_for(made: Asked, lid: int, transaction: int, *ports: Any) -> int | None:
    return made.lookups.start(
        (lid, transaction), t.ATTRIBUTE_GUID_INFO_RECORD, ports, bytes(72), 0, made.done.append
    )


def test_one_lid_leaves_others_as_many_queries_as_it_has() -> None:
    made = Asked()
    places = iter(range(1, 100))
    for transaction in range(lookups.MOST_LOOKUPS_OF_ONE):
        assert start_for(made, 1, transaction, port_of(Node(), next(places))) == 1
    assert start_for(made, 1, 99, port_of(Node(), next(places))) is None
    assert made.lookups.is_full(1)
    for transaction in range(lookups.MOST_LOOKUPS - lookups.MOST_LOOKUPS_OF_ONE):
        assert not made.lookups.is_full(2)
        assert start_for(made, 2, transaction, port_of(Node(), next(places))) == 1
    assert made.lookups.is_full(3)


def test_who_asks_for_much_takes_turns_with_who_asks_for_little() -> None:
    made = Asked()
    made.lookups = Lookups(made.sent.append, ManagerConfig(1, window=2))
    for transaction in (1, 2):
        start_for(made, 1, transaction, *(port_of(Node(), number) for number in range(1, 40)))
    made.lookups.pump(0)
    start_for(made, 2, 1, port_of(Node(), 100))
    made.answer(fill=1)
    made.answer(fill=1)
    assert made.done == []
    assert [each[130] for each in made.sent].count(100) == 1  # by its way
    made.answer(fill=1)
    made.answer(fill=7)
    assert len(made.done) == 1


def test_a_node_that_does_not_answer_is_asked_no_more_for_this_query() -> None:
    config = ManagerConfig(1, window=2, retries=0)
    made = Asked()
    made.lookups = Lookups(made.sent.append, config)
    dead, alive = Node(), Node()
    ports = [port_of(dead, number) for number in range(1, 20)] + [port_of(alive, 30)]
    ports[-1].node_guid = 6
    assert start_for(made, 1, 1, *ports) == 20
    made.lookups.pump(0)
    made.sent.clear()
    made.lookups.expire(config.timeout_ns)
    assert len(made.sent) == 1
    assert made.answer(fill=4)
    assert tables(made) == [4]
    assert made.lookups.idle


def test_what_a_request_names_is_read_alone() -> None:
    wanted = bytes((0, 3, 1, 2)).ljust(72, b"\0")  # LID 3, and the bytes behind it
    guids, lanes = t.ATTRIBUTE_GUID_INFO_RECORD, t.ATTRIBUTE_SL_TO_VL_RECORD
    for mask, blocks in ((1, [0, 1, 2, 3]), (2, [1]), (3, [1]), (4, [0, 1, 2, 3])):
        assert modifiers(guids, {"guid_cap": 32}, False, (1,), wanted, mask) == blocks
    for mask, pairs in ((2, [1 << 8 | 1, 1 << 8 | 2]), (4, [1 << 8 | 2, 2 << 8 | 2]), (6, [1 << 8 | 2])):
        assert modifiers(lanes, {}, True, (1, 2), wanted, mask) == pairs


# budget


def test_time_that_goes_back_gives_nothing_twice() -> None:
    bucket = budget.Bucket(1, 10, 0)
    bucket.take(20)
    for second in (10, 5, 10):
        assert not bucket.has_some(second * budget.SECOND_NS)
    assert bucket.has_some(11 * budget.SECOND_NS)


def test_who_asks_all_the_time_keeps_his_debts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MOST_SOURCES", 2)
    made = budget.Budget(1000)
    assert made.allows(1, 0)
    made.charge(1, 600)
    assert not made.allows(1, 0)
    for source in (2, 3, 4):
        assert made.allows(source, 0)
        assert not made.allows(1, 0)


def test_a_field_of_an_attribute_is_written_without_those_beside_it() -> None:
    for filler in (0, 0xFF):
        for name in ("lmc", "sm_sl", "mtu_cap"):
            data = bytearray([filler] * 64)
            PORT.put(data, name, 0x105)
            width = PORT._places[name][3]
            assert PORT.get(data, name) == 0x105 & width
            PORT.put(data, name, filler & width)
            assert data == bytes([filler] * 64)
