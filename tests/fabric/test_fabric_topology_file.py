"""Topology files: what ibnetdiscover prints, the short YAML form, and what is wrong with others."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from softhca.fabric import topology_file, topology_yaml
from softhca.fabric.generators import dragonfly, fat_tree, guid_of, random_fabric, torus
from softhca.fabric.topology import End, LinkSpeed, LinkWidth, NodeKind, Topology, TopologyError
from softhca.fabric.topology_file import read_ibnetdiscover, write_ibnetdiscover
from softhca.fabric.topology_yaml import read_yaml, write_yaml


def numbered(value: object) -> str:
    """Names of cases without spaces; pytest numbers them."""
    return "case"


PRINTED = """\
#
# Topology file: generated on Tue Nov 24 00:00:00 2026
#
# Initiated from node 0008f10403960558 port 0008f10403960559
Non-Chassis Nodes

vendid=0x8f1
devid=0x5a06
sysimgguid=0x5442ba00003000
switchguid=0x5442ba00003080(5442ba00003081)
Switch\t24 "S-005442ba00003080"\t\t# "a switch" enhanced port 0 lid 6 lmc 0
[22]\t"H-0008f10403961354"[1](8f10403961355) \t\t# "first HCA-1" lid 4 4xSDR
[1][ext 3]\t"R-0008f10403960558"[2](8f1040396055a) \t\t# "router" lid 14 12xEDR

Chassis 1 (guid 0x5442ba00003000)
vendid=0x2c9
caguid=0x8f10403961354
Ca\t2 "H-0008f10403961354"\t\t# "first HCA-1"
[1](8f10403961355) \t"S-005442ba00003080"[22]\t\t# lid 4 lmc 1 "a switch" lid 6 4xSDR

rtguid=0x8f10403960558
Rt\t2 "R-0008f10403960558"\t\t# "router"
[2](8f1040396055a) \t"S-005442ba00003080"[1][ext 3]\t\t# lid 14 lmc 1 "a switch" lid 6 12xEDR
"""

BY_HAND = """
Switch 8 "Switch1"
[1] "Hca1"[1]
[4] "Hca2"[2] w=1

Hca 2 "Hca1"
[1] "Switch1"[1]
Hca 2 "Hca2"
[2] "Switch1"[4]
"""

SHORT = """\
# a comment
link: 4xEDR
switches:
  leaf: 8
  spine: {ports: 0x9, guid: 0x0002c90200401234, description: in the cellar, system_guid: 77}
hosts:
  h1: 1
routers:
  way out: {ports: 2}
links:
  - h1[1] leaf[1]
  - "leaf[7] spine[1] 12xQDR"
  - way out[2] spine[2]
"""


def test_what_ibnetdiscover_prints_is_read() -> None:
    fabric = read_ibnetdiscover(PRINTED)
    switch, adapter, router = fabric.nodes
    assert (switch.kind, switch.port_count, switch.guid) == (NodeKind.SWITCH, 24, 0x5442BA00003080)
    assert (switch.port_guids, switch.system_guid) == ((0x5442BA00003081,), 0x5442BA00003000)
    assert (switch.vendor_id, switch.device_id, switch.enhanced_port_zero) == (0x8F1, 0x5A06, True)
    assert (switch.name, switch.description) == ("S-005442ba00003080", "a switch")
    assert (adapter.kind, adapter.guid, adapter.description) == (
        NodeKind.CHANNEL_ADAPTER, 0x8F10403961354, "first HCA-1",
    )  # fmt: skip
    assert adapter.port_guids == (0x8F10403961355, 0x8F10403961356)
    assert (adapter.vendor_id, adapter.device_id, adapter.enhanced_port_zero) == (0x2C9, 0, False)
    assert (router.kind, router.port_guid(2)) == (NodeKind.ROUTER, 0x8F1040396055A)
    assert fabric.peer(1, 1) == (0, 22)
    assert fabric.peer(2, 2) == (0, 1)
    assert sorted(str(link) for link in fabric.links) == ["12xEDR", "4xSDR"]


def test_what_is_written_by_hand_is_read_and_gets_guids() -> None:
    fabric = read_ibnetdiscover(BY_HAND)
    assert [node.name for node in fabric.nodes] == ["Switch1", "Hca1", "Hca2"]
    assert [node.guid for node in fabric.nodes] == [guid_of(0), guid_of(1), guid_of(2)]
    assert fabric.peer(2, 2) == (0, 4)
    widths = [fabric.links[index].width for index in (0, 1)]
    assert widths == [LinkWidth.X4, LinkWidth.X1]
    assert {link.speed for link in fabric.links} == {LinkSpeed.HDR}


def test_words_and_numbers_are_read_in_capitals_too_and_switches_have_either_port_0() -> None:
    text = 'SwitchGUID=0X10(11)\nSwitch 2 "a" # "enhanced by hand" base port 0\n'
    for enhanced in (False, True):
        made = read_ibnetdiscover(text.replace("base", "enhanced") if enhanced else text)
        (node,) = made.nodes
        assert (node.guid, node.port_guids, node.enhanced_port_zero) == (0x10, (0x11,), enhanced)
        assert read_ibnetdiscover(write_ibnetdiscover(made)).nodes[0].enhanced_port_zero == enhanced


@pytest.mark.parametrize(("here", "there"), [("# 4xEDR", ""), ("", "# 4xEDR")])
def test_a_link_is_as_fast_as_either_end_says(here: str, there: str) -> None:
    text = f'Switch 8 "s"\n[1] "h"[1] {here}\nHca 1 "h"\n[1] "s"[1] {there}\n'
    assert read_ibnetdiscover(text).links[0].speed is LinkSpeed.EDR


def test_a_guid_follows_from_the_name_where_no_line_says_it() -> None:
    fabric = read_ibnetdiscover('Switch 2 "S-0002c90200401234"\nCa 1 "H-0002c9020040ABCD"\n')
    assert [node.guid for node in fabric.nodes] == [0x0002C90200401234, 0x0002C9020040ABCD]


def _renamed(fabric: Topology) -> Topology:
    letters = {NodeKind.SWITCH: "S", NodeKind.CHANNEL_ADAPTER: "H", NodeKind.ROUTER: "R"}
    nodes = tuple(replace(node, name=f"{letters[node.kind]}-{node.guid:016x}") for node in fabric.nodes)
    return Topology(nodes, fabric.links)


@pytest.mark.parametrize(
    "fabric",
    [
        fat_tree(4, 2),
        torus([3, 3], speed=LinkSpeed.XDR),
        dragonfly(3, 1, 1, width=LinkWidth.X12),
        random_fabric(9, 2, 4, Random(5)),
        read_yaml(SHORT),
    ],
    ids=["tree", "torus", "dragonfly", "random", "yaml"],
)
def test_what_is_written_is_read_back(fabric: Topology) -> None:
    again = read_ibnetdiscover(write_ibnetdiscover(fabric))
    assert again.nodes == _renamed(fabric).nodes

    def ends(topology: Topology) -> set[tuple[frozenset[End], str]]:
        return {(frozenset((link.end_a, link.end_b)), str(link)) for link in topology.links}

    assert ends(again) == ends(fabric)
    assert read_yaml(write_yaml(fabric)) == fabric


def test_lids_are_written_where_they_are_known() -> None:
    text = write_ibnetdiscover(fat_tree(4, 1), lambda node, port: (node + 1, 2 if port else 0))
    assert '# "s1-0" base port 0 lid 5 lmc 0\n' in text
    assert '# lid 2 lmc 2 "s1-0" lid 5 4xHDR\n' in text
    assert '# "h1" lid 2 4xHDR\n' in text
    by_port = write_ibnetdiscover(fat_tree(4, 1), lambda node, port: (16 * node + port, 0))
    assert '# lid 17 lmc 0 "s1-0" lid 64 4xHDR\n' in by_port  # a switch has the LID of its port 0


def test_the_short_form_is_read() -> None:
    fabric = read_yaml(SHORT)
    assert [(node.name, node.port_count) for node in fabric.nodes] == [
        ("leaf", 8), ("spine", 9), ("h1", 1), ("way out", 2),
    ]  # fmt: skip
    spine = fabric.nodes[1]
    assert (spine.guid, spine.description, spine.system_guid) == (0x0002C90200401234, "in the cellar", 77)
    assert fabric.nodes[0].guid == guid_of(0)
    assert [str(link) for link in fabric.links] == ["4xEDR", "12xQDR", "4xEDR"]
    assert fabric.peer(3, 2) == (1, 2)


def test_the_short_form_may_name_a_generator() -> None:
    fabric = read_yaml("link: 4xNDR\ngenerate: {kind: torus, sizes: 3x3, hosts: 2}\n")
    assert fabric == torus([3, 3], 2, speed=LinkSpeed.NDR)


@pytest.mark.parametrize(
    ("change", "line", "reason"),
    [
        ((), None, ""),
        (('[1] "Switch1"[1]', '[1] "Switch1"[2]'), 3, "half a link: Switch1[1] is linked to Hca1[1]"),
        (('[1] "Hca1"[1]\n', ""), 6, "half a link: Hca1[1] is linked to Switch1[1], which says nothing"),
        (('[2] "Switch1"[4]', '[2] "Switch1"[1]'), 4, "half a link: Switch1[4] is linked to Hca2[2]"),
        (('[1] "Hca1"[1]', '[1] "Hca9"[1]'), 3, "Switch1[1] is linked to 'Hca9', which is no node"),
        (('[4] "Hca2"[2]', '[1] "Hca2"[2]'), 4, "port 1 of Switch1 twice"),
        (("[4]", "[9]"), 4, "half a link: Switch1[9] is linked to Hca2[2]"),
        (('Hca 2 "Hca2"', 'Hca 2 "Hca1"'), 8, "two nodes are named 'Hca1'"),
        (("Switch 8", "Switch 0"), 2, "Switch1 has 0 ports"),
        (("Switch 8", "Switch 255"), 2, "Switch1 has 255 ports"),
        (("Switch 8", "Switch 254"), None, ""),
        (("Switch 8", "Switch 999"), 2, "Switch1 has 999 ports"),
        (("Switch 8", "Bridge 8"), 2, "neither node, port nor GUID: 'Bridge 8"),
        (('Switch 8 "Switch1"', 'Switch 8 "Switch1" x'), 2, "what is 'x' behind a node?"),
        (("w=1", "w=3"), 4, "no link is 3 lanes wide"),
        (("w=1", "fast"), 4, "what is 'fast' behind a port?"),
        (('[1] "Hca1"[1]', "[1] Hca1"), 3, "no port: '[1] Hca1'"),
        (('Hca 2 "Hca1"', 'caguid=0x10\nHca 2 "Hca1"'), None, ""),
        (("Switch 8", "switchguid=0x99999999999999999\nSwitch 8"), 2, "neither node"),
        (("Switch 8", "switchguid=9999999999999999999999\nSwitch 8"), 2, "neither node"),
        (('\nSwitch 8 "Switch1"\n', "\n"), 2, "a port before any node"),
        (("\nSwitch", "\ninclude other\nSwitch"), 2, "neither node, port nor GUID: 'include other'"),
    ],
    ids=numbered,
)
def test_a_file_by_hand_that_is_wrong_is_refused_with_its_line(
    change: tuple[str, str], line: int | None, reason: str
) -> None:
    text = BY_HAND.replace(*change, 1) if change else BY_HAND
    if not reason:
        read_ibnetdiscover(text)
        return
    with pytest.raises(TopologyError) as error:
        read_ibnetdiscover(text)
    assert reason in str(error.value)
    if line is not None:
        assert error.value.line == line


def test_guids_twice_and_loops_are_refused_with_their_line() -> None:
    text = 'switchguid=0x5\nSwitch 2 "a"\ncaguid=0x5\nCa 1 "b"\n'
    with pytest.raises(TopologyError, match="line 4: b and a have the same GUID 0x0000000000000005"):
        read_ibnetdiscover(text)
    with pytest.raises(TopologyError, match=r"line 2: a port is linked to itself: a\[1\]"):
        read_ibnetdiscover('Switch 2 "a"\n[1] "a"[1]\n')
    with pytest.raises(TopologyError, match=r"line 2: a has ports 1 to 2, not 3"):
        read_ibnetdiscover('Switch 2 "a"\n[1] "a"[3]\n[3] "a"[1]\n')


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", None, "an empty file"),
        ("[", 1, "no YAML"),
        ("\x00", None, "no YAML"),
        ("- 1", 1, "a topology is a mapping"),
        ("switches:\n  a: 8\n  a: 8\n", 3, "a key twice"),
        ("nodes: {}", 1, "a topology has no 'nodes'; it may have switches"),
        ("switches: 8", 1, "switches is a mapping of names"),
        ("switches: {a: {}}", 1, "a does not say how many ports it has"),
        ("switches: {a: {port: 1}}", 1, "a has no 'port'"),
        ("switches:\n  a: eight", 2, "ports of a is 'eight'; expected a number"),
        ("switches:\n  a: [8]", 2, "ports of a is one word or number"),
        ("switches:\n  a: 999", 2, "a has 999 ports"),
        ('switches:\n  "a[1]": 8', 2, "a node cannot be named 'a[1]'"),
        ('switches:\n  "a[": 8', 2, "a node cannot be named 'a['"),
        ('switches:\n  "a]": 8', 2, "a node cannot be named 'a]'"),
        ("switches: {a: 8}\nlinks: x", 2, "links is a list"),
        ("switches: {a: 8}\nlinks:\n - x", 3, "no link: 'x'"),
        ("switches: {a: 8}\nlinks:\n - a[1] a[2]\n - a[1] a[3]", 4, "two links at a[1]"),
        ("switches: {a: 8}\nlinks:\n - a[1] b[2]", 3, "a link to 'b', which is no node"),
        ("switches: {a: 8}\nlinks:\n - a[1] a[9]", 3, "a has ports 1 to 8, not 9"),
        ("switches: {a: 8}\nlinks:\n - a[1] a[2] 3xHDR", 3, "no link is '3xHDR'"),
        ("link: fast", 1, "no link is 'fast'"),
        ("generate: {kind: torus}", 1, "torus needs sizes"),
        ("generate: {}", 1, "no generator is named ''"),
        ("switches: {a: 8}\ngenerate: {kind: torus, sizes: 3}", 1, "switches beside generate"),
        ("switches: {a: {ports: {b: {c: {d: e}}}}}", 1, "more levels"),
        ("switches: {a: {ports: {b: {c: d}}}}", 1, "more levels"),
        ("switches: {a: {ports: {b: c}}}", 1, "one word or number"),
        ("hosts:\n h0: &ports 1\n h1: *ports", 2, "an alias"),
        (f"x: &a [{'x,' * 60}]\ny: &b [{'*a,' * 60}]\nz: [{'*b,' * 60}]", 1, "an alias"),
        ("hosts: {a: 1}\nswitches:\n  b: {ports: 2, guid: 0x200000000010001}\n", 3, "same GUID"),
    ],
    ids=numbered,
)
def test_a_short_form_that_is_wrong_is_refused_with_its_line(
    text: str, line: int | None, reason: str
) -> None:
    with pytest.raises(TopologyError) as error:
        read_yaml(text)
    assert reason in str(error.value)
    assert error.value.line == line


def test_a_file_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology_file, "MAX_BYTES", 100)
    monkeypatch.setattr(topology_yaml, "MAX_BYTES", 100)
    for read in (read_ibnetdiscover, read_yaml):
        with pytest.raises(TopologyError, match="more than 100 bytes"):
            read("#" * 101)
        with pytest.raises(TopologyError, match=r"neither|empty"):
            read("x:" if read is read_ibnetdiscover else "#" * 100)
    just = 'Switch 2 "a"\n'
    assert len(read_ibnetdiscover(just.ljust(100)).nodes) == 1


@pytest.mark.parametrize(("here", "there"), [("w=1", ""), ("", "w=1"), ("w=1", "w=1")])
def test_a_link_is_as_wide_as_either_end_says(here: str, there: str) -> None:
    text = f'Switch 8 "s"\n[1] "h"[1] {here}\nHca 1 "h"\n[1] "s"[1] {there}\n'
    assert read_ibnetdiscover(text).links[0].width is LinkWidth.X1


def test_numbers_of_a_maker_fit_their_fields_and_descriptions_their_quotes() -> None:
    text = 'vendid=0x12345678\ndevid=0x12345\nSwitch 8 "s"\n'
    node = read_ibnetdiscover(text).nodes[0]
    assert (node.vendor_id, node.device_id) == (0x345678, 0x2345)
    said = Topology((replace(node, description='a "new" one\n'),), ())
    assert read_ibnetdiscover(write_ibnetdiscover(said)).nodes[0].description == "a ?new? one?"
