"""Partitions from a file, and that ports and switches have and enforce them."""

from __future__ import annotations

import pytest
from packet_fabric import PacketFabric, packet

from softhca.fabric.generators import fat_tree
from softhca.fabric.manager import partition_file
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.manager import ManagerConfig
from softhca.fabric.manager.partition_file import PartitionFileError, read_partitions
from softhca.fabric.manager.partitions import Partition, Partitions
from softhca.fabric.topology import End, Link, NodeKind, Topology, make_node
from softhca.management import constants as c
from softhca.management.subnet_attributes import TABLES

TREE = fat_tree(4, 2)
HOSTS = [node.port_guid(1) for node in TREE.nodes if node.kind is NodeKind.CHANNEL_ADAPTER]
SWITCHES = [node.port_guid(0) for node in TREE.nodes if node.is_switch]
SELF = HOSTS[0]
DEFAULT = "Default = 0x7fff : ALL=full ;"


def read(text: str, self: int = SELF) -> dict[int, Partition]:
    return {each.pkey: each for each in read_partitions(text, TREE, self)}


def test_without_a_rule_for_it_all_are_limited_members_of_the_default_partition() -> None:
    for text in ("", "# nothing\n", " ; ;\n"):
        (only,) = read_partitions(text, TREE, SELF)
        assert (only.pkey, only.full) == (0x7FFF, {SELF})
        assert only.limited == {*HOSTS, *SWITCHES} - {SELF}


def test_members_are_guids_names_and_keywords() -> None:
    found = read(
        f"A = 0x8012 : {HOSTS[1]:#x}=full, {HOSTS[2]},  h3 = full , h4[1] ; # a comment ; = :\n"
        "B=19,defmember=full:SELF,\n h5=limited ;\n"
        "C=0x14 : ALL_SWITCHES ;  D=0x15 : defmember=full : ALL_CAS ; E=0x16:ALL_ROUTERS; F=0x17:;"
    )
    assert (found[0x12].full, found[0x12].limited) == ({HOSTS[1], HOSTS[3]}, {HOSTS[2], HOSTS[4]})
    assert (found[19].full, found[19].limited) == ({SELF}, {HOSTS[5]})
    assert (found[0x14].full, found[0x14].limited) == (set(), set(SWITCHES))
    assert (found[0x15].full, found[0x15].limited) == (set(HOSTS), set())
    for nobody in (0x16, 0x17):
        assert (found[nobody].full, found[nobody].limited) == (set(), set())
    assert sorted(found) == [0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x7FFF]


def test_rules_of_one_p_key_are_one_partition_and_full_members_full_ones() -> None:
    found = read("A=5:h1,h2=full;\nA=0x8005,defmember=full:h1,h3;\nA=5:h3=limited;" + DEFAULT)
    assert (found[5].full, found[5].limited) == ({HOSTS[1], HOSTS[2], HOSTS[3]}, set())
    assert (found[0x7FFF].full, found[0x7FFF].limited) == ({*HOSTS, *SWITCHES}, set())


def test_partitions_without_a_p_key_get_the_first_that_are_free() -> None:
    assert sorted(read("A:h1;")) == [1, 0x7FFF]
    found = read("A:h1;B=1:h2;:h3=full;default,indx0:SELF;A:h4;")
    assert {key: each.limited | each.full for key, each in found.items()} == {
        1: {HOSTS[2]}, 2: {HOSTS[1]}, 3: {HOSTS[3]}, 4: {HOSTS[4]}, 0x7FFF: {SELF},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A=5:h1", "line 1: no ';' behind 'A=5:h1'"),
        ("A=5:h1;\n\nB=6:h2\n", "line 3: no ';'"),
        ("\n# x\nA=5;\n", "line 3: no ':' in 'A=5'"),
        ("A=5:h1;\nB=0x8000:h1;", "line 2: 0x8000 is no P_Key"),
        ("A=0:h1;", "line 1: 0 is no P_Key"),
        ("A=0x10000:h1;", "no P_Key"),
        ("A=five:h1;", "line 1: 'five' is no number"),
        ("A=5:nobody;", "line 1: no port is called 'nobody'"),
        ("A=5:h1[2];", "no port is called"),
        ("A=5:s1-0[1];", "no port is called"),
        ("A=5:\n\n  0x77=full;", "line 1: no port has the GUID 0x0000000000000077"),
        ("A=5:h1=both;", "line 1: 'h1=both' is not supported"),
        ("A=5:h1=;", "not supported"),
        ("A=5,ipoib:h1;", "line 1: 'ipoib' is not supported"),
        ("A=5,indx0:h1;", "'indx0' is not supported"),
        ("A=5,defmember=both:h1;", "'defmember=both' is not supported"),
        ("A=5:mgid=ff12::1,h1;", "not supported"),
    ],
)
def test_what_cannot_be_is_told_with_its_line(text: str, why: str) -> None:
    with pytest.raises(PartitionFileError) as told:
        read(text)
    assert why in str(told.value)


def test_numbers_may_have_a_large_x_and_a_default_partition_any_case() -> None:
    found = read("A=0X12:h1;DEFAULT:h2=full;")
    assert (found[0x12].limited, found[0x7FFF].full, len(found)) == ({HOSTS[1]}, {HOSTS[2]}, 2)


def test_lines_are_counted_over_rules_of_several_lines() -> None:
    with pytest.raises(PartitionFileError, match=r"^line 7: 'x' is no number"):
        read("A=5:\n h1;\n\nB=6:\n h2;\n\nC=x:h3;")


def test_a_node_whose_name_looks_like_a_port_is_meant_before_a_port() -> None:
    nodes = (make_node("a", NodeKind.CHANNEL_ADAPTER, 2, 0x100),
             make_node("a[2]", NodeKind.CHANNEL_ADAPTER, 1, 0x200))  # fmt: skip
    found = read_partitions("A=5:a[2];B=6:a[1];", Topology(nodes, ()), nodes[0].port_guid(1))
    assert [each.limited for each in found[:2]] == [{nodes[1].port_guid(1)}, {nodes[0].port_guid(1)}]


def test_a_manager_that_is_a_limited_member_has_the_default_partition_once() -> None:
    partitions = Partitions([Partition(0x7FFF, frozenset(), None), Partition(5)])
    assert partitions.keys_of(SELF, is_manager=True) == [0xFFFF, 0x8005]
    assert partitions.keys_of(SELF) == [0x7FFF, 0x8005]


def test_a_partition_without_limited_members_named_has_all_that_are_no_full_ones() -> None:
    partition = Partition(5, frozenset({1}), None)
    assert [partition.key_of(guid) for guid in (1, 2)] == [0x8005, 5]
    assert Partition(5, frozenset({1}), frozenset()).key_of(2) is None


def test_a_switch_that_a_partition_names_is_in_the_default_one_too() -> None:
    partitions = Partitions([Partition(0x7FFF, frozenset({1})), Partition(5, frozenset({2}))])
    assert [partitions.of_switch(guid) for guid in (1, 2, 3)] == [[0xFFFF], [0xFFFF, 0x8005], [0xFFFF]]


def test_a_partition_is_configured_once() -> None:
    with pytest.raises(ValueError, match="configured twice"):
        Partitions([Partition(5), Partition(6), Partition(5)])


def test_partitions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_file, "MOST_PARTITIONS", 3)
    assert len(read("A=1:h1;B=2:h2;C=3:h3;")) == 4  # the default one besides
    with pytest.raises(PartitionFileError, match="line 1: more than 3 partitions"):
        read("A=1:h1;B=2:h2;C=3:h3;D=4:h4;")


def test_a_manager_at_a_switch_is_a_member_as_the_file_says() -> None:
    partitions = Partitions(read_partitions("A=5:SELF=full;", TREE, SWITCHES[0]))
    assert partitions.keys_of(SWITCHES[0], is_manager=True) == [0xFFFF, 0x8005]
    assert partitions.of_switch(SWITCHES[1]) == [0x7FFF]
    assert partitions.keys_of(HOSTS[0]) == [0x7FFF]


def tables(managed: ManagedFabric, name: str, port: int) -> tuple[int, ...]:
    state = managed.plane.nodes[TREE.index(name)].ports[port]
    assert state is not None
    return tuple(key for key in TABLES[c.ATTRIBUTE_PKEY_TABLE].decode(state.pkey_block(0)) if key)


def enforcement(managed: ManagedFabric, name: str) -> list[tuple[int, int]]:
    ports = managed.plane.nodes[TREE.index(name)].ports
    return [
        (each.info.partition_enforcement_inbound, each.info.partition_enforcement_outbound)
        for each in ports if each is not None
    ]  # fmt: skip


def test_switches_enforce_towards_end_nodes_what_these_have() -> None:
    managed = ManagedFabric(TREE)
    end = End(TREE.index("s1-0"), 0)
    guid = TREE.nodes[end.node].port_guid(0)
    partitions = read_partitions("A=5:h0=full;" + DEFAULT, TREE, guid)
    manager = managed.add(end, ManagerConfig(guid, partitions=partitions))
    managed.settle()
    assert manager.problems == []
    assert tables(managed, "h0", 1) == tables(managed, "s1-0", 1) == (0xFFFF, 0x8005)
    assert tables(managed, "h1", 1) == tables(managed, "s1-0", 2) == (0xFFFF,)
    assert enforcement(managed, "s1-0") == [(0, 0), (1, 1), (1, 1), (0, 0), (0, 0)]  # not between switches
    assert enforcement(managed, "s2-0") == [(0, 0)] * 5
    before = managed.datagrams
    manager.start(managed.now)  # nothing is written again
    managed.settle()
    sets = managed.datagrams - before
    assert sets < before / 2


def test_a_switch_without_room_for_so_many_keys_does_not_enforce() -> None:
    managed = ManagedFabric(TREE)
    many = "".join(f"P={number}:h1;" for number in range(1, 32)) + DEFAULT
    end = End(TREE.index("s1-0"), 0)
    guid = TREE.nodes[end.node].port_guid(0)
    for more, wanted in (("", (1, 1)), ("P=99:h1;", (0, 0))):
        managed = ManagedFabric(TREE)
        partitions = read_partitions(many + more, TREE, guid)
        manager = managed.add(end, ManagerConfig(guid, partitions=partitions))
        managed.settle()
        assert manager.problems == []
        assert enforcement(managed, "s1-0")[1:3] == [(1, 1), wanted]
        assert len(tables(managed, "h1", 1)) == 32
        assert len(tables(managed, "s1-0", 2)) == (32 if wanted == (1, 1) else 1)


def test_without_partitions_nothing_is_enforced() -> None:
    managed = ManagedFabric(TREE)
    managed.add((0, 1))
    managed.settle()
    assert enforcement(managed, "s1-0") == [(0, 0)] * 5


def test_packets_of_a_foreign_partition_end_at_the_first_switch() -> None:
    leaf = make_node("s", NodeKind.SWITCH, 3, 0x100)
    ends = [make_node(f"h{number}", NodeKind.CHANNEL_ADAPTER, 1, 0x200 + 16 * number) for number in range(3)]
    links = tuple(Link(End(0, 1 + number), End(1 + number, 1)) for number in range(3))
    topology = Topology((leaf, *ends), links)
    guid = leaf.port_guid(0)
    partitions = read_partitions("A=5:h0,h1=full;Default=0x7fff:h0=full,h2=full;", topology, guid)
    small = PacketFabric(topology, ["h0", "h1", "h2"], ManagerConfig(guid, partitions=partitions))
    one, two, three = small.adapters
    for to, pkey in ((two, 0x8005), (two, 0xFFFF), (three, 0xFFFF), (three, 0x8005), (two, 0x8006)):
        small.send(one, packet(one.lid, to.lid, pkey=pkey))
    assert (len(two.got), len(three.got)) == (1, 1)
    assert small.count("drops_pkey") == 3


def test_a_file_of_very_many_partitions_is_refused_at_the_first_too_many() -> None:
    """Each that has no P_Key of its own looks for a free one: all of these would take a minute."""
    with pytest.raises(PartitionFileError, match="line 1: more than 4096 partitions"):
        read_partitions("a: ALL;" * 40_000, fat_tree(4, 1), 1)
