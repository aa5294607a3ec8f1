"""Debian's unmodified saquery asks our manager and OpenSM the same of the same fabric: they say the same."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from fabric_bench import ABSENT, REASON, Bench, lids

from machine_speed import limit_s
from softhca.fabric.generators import fat_tree

pytestmark = pytest.mark.skipif(bool(ABSENT), reason=REASON)
TOPOLOGY = fat_tree(4, 2)
HOST = "h3"
GUIDS = {node.name: node.port_guid(0 if node.is_switch else 1) for node in TOPOLOGY.nodes}
PARTITIONS = f"""# for both managers
Default = 0x7fff : ALL=full ;
Storage = 0x12 : {GUIDS["h2"]:#x}=full, {GUIDS["h3"]:#x},
    {GUIDS["h4"]:#x} ;
Storage = 0x12, defmember=full : {GUIDS["h5"]:#x} ;
Switches = 0x8034 : ALL_SWITCHES=full ;
"""
_LINE = re.compile(r"^\s+([A-Za-z_][\w /]*?):?\.+(.*)$")


class Pair(NamedTuple):
    """The same fabric twice, and the LIDs of its nodes."""

    ours: Bench
    theirs: Bench
    our_lids: dict[int, int]
    their_lids: dict[int, int]

    def both(self, *words: str, named: dict[str, int] | None = None) -> tuple[list[dict], list[dict]]:
        """The records that saquery prints; ``{name}`` in a word is the LID of a node."""
        answers = []
        for bench, known in ((self.ours, self.our_lids), (self.theirs, self.their_lids)):
            values = {name: known[index] for name, index in (named or {}).items()}
            text = bench.run("saquery", *(word.format(**values) for word in words), host=HOST)
            by_lid = {lid: f"node {index}" for index, lid in known.items()}
            answers.append([plain(each, by_lid) for each in records(text)])
        return answers[0], answers[1]


def records(text: str) -> list[dict[str, str]]:
    """What saquery dumps, record by record."""
    found: list[dict[str, str]] = []
    for line in text.splitlines():
        if line.endswith("dump:") and not line.startswith("\t"):
            found.append({})
        match = _LINE.match(line)
        if match and found:
            found[-1][match[1].strip()] = match[2].strip()
    return found


def plain(record: dict[str, str], by_lid: dict[int, str]) -> dict[str, str]:
    """A record with nodes' numbers for the LIDs, which the two managers assign in different ways."""
    lids_of = ("lid", "dlid", "slid", "LID", "EndPortLid", "FromLID", "ToLID", "Lid", "SMLid", "base_lid")
    return {
        name: by_lid.get(int(value), value) if name in lids_of else value for name, value in record.items()
    }


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")
    folder: Path = tmp_path_factory.mktemp("administration")
    for name in ("ours", "theirs"):
        (folder / name).mkdir()
    file = folder / "partitions.conf"
    file.write_text(PARTITIONS)
    with contextlib.ExitStack() as ends:
        theirs = Bench(folder / "theirs", TOPOLOGY)
        ends.callback(theirs.close)
        theirs.manage("-P", str(file))
        ours = Bench(folder / "ours", TOPOLOGY, "--manager", "--partitions", str(file))
        ends.callback(ours.close)
        ours.wait_until_up()
        yield Pair(ours, theirs, lids(ours), lids(theirs))


NODES = range(0, len(TOPOLOGY.nodes), 3)


@pytest.mark.parametrize("node", NODES)
def test_nodes_and_guids_are_the_same(pair: Pair, node: int) -> None:
    ours, theirs = pair.both("NR", "{node}", named={"node": node})
    assert ours == theirs
    assert [each["NodeDescription"] for each in ours] == [TOPOLOGY.nodes[node].name]
    ours, theirs = pair.both("GIR", "{node}/0", named={"node": node})
    assert len(ours) == 1
    assert ours == theirs[:1]


@pytest.mark.parametrize(
    ("source", "goal"), [("h1", "h1"), ("h1", "h2"), ("h0", "h7"), ("s1-0", "h6"), ("h5", "s2-1")]
)
def test_paths_are_the_same_by_lids_and_by_gids(pair: Pair, source: str, goal: str) -> None:
    named = {"source": TOPOLOGY.index(source), "goal": TOPOLOGY.index(goal)}
    ours, theirs = pair.both("-p", "--src-to-dst", "{source}:{goal}", named=named)
    assert ours == theirs[:1]
    assert len(ours) == 1
    ends = [_gid(name) for name in (source, goal)]
    ours, theirs = pair.both("-p", "--sgid-to-dgid", "-".join(ends))
    assert ours == theirs[:1]
    assert len(ours) == 1


def _gid(name: str) -> str:
    node = TOPOLOGY.nodes[TOPOLOGY.index(name)]
    guid = f"{node.port_guid(0 if node.is_switch else 1):016x}"
    return "fe80::" + ":".join(guid[at : at + 4] for at in range(0, 16, 4))


@pytest.mark.parametrize(
    ("bounds", "count"),
    [
        (("--mtu", "4"), 1),
        (("--pkey", "0x12"), 0),
        (("--sl", "2"), 1),
        (("--rate", "3"), 1),
        (("--reversible", "1"), 1),
    ],
    ids=str,
)
def test_paths_are_bounded_in_the_same_way(pair: Pair, bounds: tuple[str, ...], count: int) -> None:
    named = {"source": TOPOLOGY.index("h1"), "goal": TOPOLOGY.index("h6")}
    ours, theirs = pair.both("-p", "--slid", "{source}", "--dlid", "{goal}", *bounds, named=named)
    assert len(ours) == len(theirs[:1]) == count
    assert ours == theirs[:count]


@pytest.mark.parametrize("name", ["h0", "h2", "h3", "h4", "h5"])
def test_ports_have_the_same_p_keys_from_one_file(pair: Pair, name: str) -> None:
    found = []
    for bench, known in ((pair.ours, pair.our_lids), (pair.theirs, pair.their_lids)):
        text = bench.run("smpquery", "pkeys", str(known[TOPOLOGY.index(name)]), "1", host=HOST)
        found.append({key for key in re.findall(r"0x[0-9a-f]{4}", text) if int(key, 16)})
    assert found[0] == found[1]
    storage = {"h2": {"0x8012"}, "h3": {"0x0012"}, "h4": {"0x0012"}, "h5": {"0x8012"}}
    assert found[0] == {"0xffff"} | storage.get(name, set())


@pytest.mark.parametrize(("source", "goal", "count"), [("h2", "h4", 1), ("h3", "h4", 0), ("h0", "h5", 0)])
def test_paths_of_a_partition_are_the_same(pair: Pair, source: str, goal: str, count: int) -> None:
    named = {"source": TOPOLOGY.index(source), "goal": TOPOLOGY.index(goal)}
    bounds = ("-p", "--slid", "{source}", "--dlid", "{goal}", "--pkey", "0x8012")
    ours, theirs = pair.both(*bounds, named=named)
    assert len(ours) == len(theirs[:1]) == count
    assert ours == theirs[:count]


def test_guids_beside_a_port_s_own_are_given_and_taken_in_the_same_way(pair: Pair) -> None:
    program = Path(__file__).with_name("fabric_records.py")
    own, answers = GUIDS["h7"], []
    for bench in (pair.ours, pair.theirs):
        node = f"H-{TOPOLOGY.nodes[TOPOLOGY.index('h7')].guid:016x}"
        done = subprocess.run(
            [sys.executable, program, f"{GUIDS['h1']:x}"],
            env={**os.environ, "SOFTHCA_DEVICES": f"softhca0=fabric:{bench.name}/{node}"},
            capture_output=True, text=True, timeout=limit_s(60), check=True,
        )  # fmt: skip
        answers.append([json.loads(line) for line in done.stdout.splitlines()])
    assert answers[0] == answers[1]
    found = dict(answers[0])
    assert found["set"] == [0, [own, 0xAB, 0, 0xCD, 0, 0, 0, 0]]
    assert found["delete"] == [0, [own, 0xAC, 0, 0, 0, 0, 0, 0]]
    assert [found[each][0] for each in ("own", "block", "no block")] == [0x200, 0x300, 0x600]
    ours, theirs = pair.both("GIR", "{node}/0", named={"node": TOPOLOGY.index("h7")})
    assert ours == theirs[:1]


def test_links_of_a_node_are_the_same(pair: Pair) -> None:
    for name in ("h4", "s1-2"):
        node = TOPOLOGY.index(name)
        ours, theirs = pair.both("LR", "{node}", named={"node": node})
        assert {tuple(each.items()) for each in ours} == {tuple(each.items()) for each in theirs}
        linked = sum(link.end_a.node == node or link.end_b.node == node for link in TOPOLOGY.links)
        assert len(ours) == linked


def test_ports_are_the_same_but_for_what_each_manager_sets(pair: Pair) -> None:
    # LocalPort of a switch is the port by which the manager's last question came in
    own = {"HoqLife", "VLStallCount", "OperVLs", "PartEnforceInb", "PartEnforceOutb", "LocalPhysErr",
           "OverrunErr", "LocalPort"}  # fmt: skip
    for name, port in (("h2", 1), ("s1-1", 0)):
        ours, theirs = pair.both("PIR", f"{{node}}/{port}", named={"node": TOPOLOGY.index(name)})
        assert len(ours) == 1
        assert {key: value for key, value in ours[0].items() if key not in own} == {
            key: value for key, value in theirs[0].items() if key not in own
        }
    ours, theirs = pair.both("-s")
    assert ours == theirs[: len(ours)]
    assert [each["EndPortLid"] for each in ours] == ["node 0"]


def test_switches_and_managers_are_the_same(pair: Pair) -> None:
    named = {"node": TOPOLOGY.index("s2-0")}
    ours, theirs = pair.both("SWIR", "{node}", named=named)
    assert len(ours) == 1
    assert {name for name in ours[0] if ours[0][name] != theirs[0][name]} <= {
        "DefaultPort", "DefaultMulticastPrimaryPort", "DefaultMulticastNotPrimaryPort", "LinearFDBTop",
    }  # fmt: skip
    ours, theirs = pair.both("SMIR")
    assert len(ours) == 1
    assert {name for name in ours[0] if ours[0][name] != theirs[0][name]} <= {"ActCount"}
    ours, theirs = pair.both("SL2VL", "{node}/1/2", named=named)
    assert ours == theirs[:1]
    assert len(ours) == 1


def test_tables_of_our_manager_are_those_that_the_switches_have(pair: Pair) -> None:
    switch = pair.our_lids[TOPOLOGY.index("s1-2")]
    rows = re.findall(r"^\t\t(\d+)\t(\d+)", pair.ours.run("saquery", "LFTR", f"{switch}/0", host=HOST), re.M)
    table = {int(lid): int(port) for lid, port in rows if int(port) != 255}
    said = re.findall(r"^0x([0-9a-f]{4}) (\d{3}) :", pair.ours.run("ibroute", str(switch)), re.MULTILINE)
    assert table == {int(lid, 16): int(port) for lid, port in said}
    assert len(table) == len(TOPOLOGY.nodes)


def test_what_cannot_be_is_refused_by_both(pair: Pair) -> None:
    for bench in (pair.ours, pair.theirs):
        bench.run("saquery", "PKTR", "1/0/0", host=HOST, status=5)
        assert records(bench.run("saquery", "-p", "--src-to-dst", "1:77", host=HOST)) == []
        assert records(bench.run("saquery", "MFTR", "1", host=HOST)) == []
    trusted = pair.ours.run("saquery", "--smkey", "1", "PKTR", "1/1/0", host=HOST)
    assert "0xffff" in trusted


def test_a_long_answer_is_cut_and_the_manager_is_told(pair: Pair) -> None:
    ours, _ = pair.both("LR")
    assert len(ours) == 21  # whole records: 168 bytes
    ours, _ = pair.both("-N")
    assert len(ours) == 1
    ours, _ = pair.both("PR")
    assert len(ours) == 2
