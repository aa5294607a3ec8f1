"""Debian's own opensm and diagnostic tools on a fabric of ours: what they print is held against the topology.

The tools are unmodified; ``libumad2sim.so`` (Debian package ibsim-utils) stands in for the kernel.  A test is
left out only where the packages are not installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from fabric_bench import ABSENT, MANAGER, REASON, SEARCH, Bench, lids
from opensm_walk import walk

from machine_speed import limit_s
from softhca.fabric.generators import fat_tree, random_fabric, torus
from softhca.fabric.topology import NodeKind, Topology
from softhca.fabric.topology_file import read_ibnetdiscover

pytestmark = pytest.mark.skipif(bool(ABSENT), reason=REASON)
_ROUTE = re.compile(r"0x([0-9a-f]{4}) (\d{3}) : \((?:Channel Adapter|Switch) portguid 0x([0-9a-f]{16})")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("fabric"), random_fabric(6, 2, 4, Random(11)))
    made.manage()
    yield made
    made.close()


def shape(topology: Topology) -> tuple[object, object]:
    """Nodes by GUID, and links between GUIDs and ports."""
    nodes = {(node.guid, node.kind, node.port_count, node.description) for node in topology.nodes}
    links = {
        (frozenset((topology.nodes[end.node].guid, end.port) for end in (link.end_a, link.end_b)), str(link))
        for link in topology.links
    }
    return nodes, links


def test_ibnetdiscover_prints_the_topology(bench: Bench) -> None:
    assert shape(read_ibnetdiscover(bench.run("ibnetdiscover"))) == shape(bench.topology)


def test_ibnetdiscover_prints_the_same_from_ibsim(bench: Bench) -> None:
    if shutil.which("ibsim", path=SEARCH) is None:
        pytest.skip("ibsim is not installed (Debian package ibsim-utils)")
    peer = subprocess.Popen(
        ["ibsim", "-s", "-n", str(bench.file)],
        env={**os.environ, "PATH": SEARCH, "IBSIM_SOCKNAME": bench.name + "-peer"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=bench.folder,
        text=True,
    )
    environment = {**bench.environment(), "IBSIM_SOCKNAME": bench.name + "-peer"}
    try:
        told = subprocess.run(
            ["ibnetdiscover"], env=environment, cwd=bench.folder, capture_output=True, text=True, check=True,
            timeout=limit_s(60),
        )  # fmt: skip
    finally:
        peer.kill()
        peer.communicate()
    ours, theirs = (read_ibnetdiscover(text) for text in (bench.run("ibnetdiscover"), told.stdout))
    assert {node.guid for node in ours.nodes} == {node.guid for node in theirs.nodes}
    assert {pair for pair, _ in shape(ours)[1]} == {pair for pair, _ in shape(theirs)[1]}  # type: ignore[attr-defined]


def test_every_link_is_active(bench: Bench) -> None:
    text = bench.run("iblinkinfo", "--line")
    active = [line for line in text.splitlines() if "Active/  LinkUp" in line]
    assert len(active) == 2 * len(bench.topology.links)
    assert all("4X" in line for line in active)


def test_the_tools_tell_what_opensm_has_set(bench: Bench) -> None:
    found = lids(bench)
    assert len(set(found.values())) == len(bench.topology.nodes)
    own = found[bench.topology.index(MANAGER)]
    assert f"sm lid {own} " in bench.run("sminfo", host="h3")
    assert "SMINFO_MASTER" in bench.run("sminfo", host="h3")
    for index in (1, bench.topology.switches[2]):
        node = bench.topology.nodes[index]
        info = bench.run("smpquery", "nodeinfo", str(found[index]))
        assert f"Guid:............................0x{node.guid:016x}" in info
        assert f"NumPorts:........................{node.port_count}" in info
        ports = bench.run("smpquery", "portinfo", str(found[index]), "0" if node.is_switch else "1")
        assert f"Lid:.............................{found[index]}" in ports
        assert f"SMLid:...........................{own}" in ports
        assert node.description in bench.run("smpquery", "nodedesc", str(found[index]))
    assert "PortXmitPkts" in bench.run("perfquery", str(found[1]), "1")
    assert "PortUnicastXmitPkts" in bench.run("perfquery", "-x", str(found[1]), "1")
    record = bench.run("saquery", "--src-to-dst", f"{own}:{found[3]}", host="h3")
    assert f"slid....................{own}" in record
    assert f"dlid....................{found[3]}" in record


def shortest(topology: Topology, switch: int) -> dict[int, int]:
    """How many switches a packet from a switch crosses to each node, the first one counted."""
    found, waiting = {switch: 1}, [switch]
    for here in waiting:
        for port in range(1, topology.nodes[here].port_count + 1):
            peer = topology.peer(here, port)
            if peer is None or peer.node in found:
                continue
            is_switch = topology.nodes[peer.node].is_switch
            found[peer.node] = found[here] + is_switch
            if is_switch:
                waiting.append(peer.node)
    return found


def crossed(bench: Bench) -> dict[tuple[int, int], int]:
    """How many switches a packet from each switch to each node crosses by the tables that ibroute prints."""
    topology, found = bench.topology, lids(bench)
    by_guid = {node.port_guid(0 if node.is_switch else 1): index for index, node in enumerate(topology.nodes)}
    tables: dict[int, dict[int, int]] = {}
    for switch in topology.switches:
        rows = _ROUTE.findall(bench.run("ibroute", str(found[switch])))
        assert all(found[by_guid[int(guid, 16)]] == int(lid, 16) for lid, _, guid in rows)
        tables[switch] = {by_guid[int(guid, 16)]: int(port) for _, port, guid in rows}
    counts: dict[tuple[int, int], int] = {}
    for switch in topology.switches:
        for node in tables[switch]:
            here, count = switch, 1
            while (port := tables[here][node]) != 0:
                peer = topology.peer(here, port)
                assert peer is not None
                if peer.node == node and not topology.nodes[node].is_switch:
                    break
                here, count = peer.node, count + 1
                assert count <= len(topology.switches), "a packet goes in a circle"
            assert here == node or not topology.nodes[node].is_switch
            counts[switch, node] = count
    return counts


def test_opensm_s_tables_lead_everywhere_by_the_shortest_ways(bench: Bench) -> None:
    expected = {
        (switch, node): count
        for switch in bench.topology.switches
        for node, count in shortest(bench.topology, switch).items()
    }
    assert crossed(bench) == expected


def test_our_manager_s_tables_lead_where_opensm_s_do(tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")
    topology = fat_tree(4, 2)
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours = Bench(tmp_path / "ours", topology, "--manager")
    theirs = Bench(tmp_path / "theirs", topology)
    try:
        theirs.manage()
        ours.wait_until_up()
        assert "SMINFO_MASTER" in ours.run("sminfo", host="h3")
        ways, expected = crossed(ours), crossed(theirs)
        to_hosts = {(switch, host) for switch in topology.switches for host in topology.end_nodes}
        assert to_hosts <= ways.keys()  # up-down routing has no ways between the uppermost switches
        assert ways == {way: expected[way] for way in ways}
        found = lids(ours)
        first, last = found[topology.index("h0")], found[topology.index("h7")]
        assert "To ca" in ours.run("ibtracert", str(first), str(last))
    finally:
        theirs.close()
        ours.close()


def test_ibtracert_follows_links_of_the_topology(bench: Bench) -> None:
    topology, found = bench.topology, lids(bench)
    source, goal = topology.index("h1"), topology.index("h10")
    text = bench.run("ibtracert", str(found[source]), str(found[goal]))
    ports = {node.guid: index for index, node in enumerate(topology.nodes)}
    here = source
    for out, guid, entrance in re.findall(r"\[(\d+)\] -> \S+ port \{0x([0-9a-f]{16})\}\[(\d+)\]", text):
        peer = topology.peer(here, int(out))
        assert peer is not None
        there = next(
            index
            for index, node in enumerate(topology.nodes)
            if int(guid, 16) in (node.guid, *node.port_guids)
        )
        assert peer == (there, int(entrance))
        here = there
    assert here == goal
    assert len(ports) == len(topology.nodes)


def test_a_server_of_ibping_is_found_and_answers(bench: Bench) -> None:
    found = lids(bench)
    goal = str(found[bench.topology.index("h4")])
    server = bench.start(["ibping", "-S"], bench.environment("h4"))
    for _ in range(20):
        if server.poll() is not None:  # a request that comes before it has registered ends it: see fabric.md
            server = bench.start(["ibping", "-S"], bench.environment("h4"))
        bench.run("smpquery", "nodeinfo", goal)
        told = bench.run("ibping", "-c", "1", goal, host="h5")
        if " 1 received" in told:
            break
    assert " 1 received" in told
    assert "Pong from" in told


def test_errors_of_a_port_are_seen_and_cleared(bench: Bench) -> None:
    end = bench.end_text("s2", 1)
    bench.ask("degrade", end, "symbol_error=500", "link-error-recovery=3")
    wait_ms = round(limit_s(10) * 1000)  # a busy server answers later than in one second
    query = ("ibqueryerrors", "-t", str(wait_ms), "--threshold-file", os.devnull)
    text = bench.run(*query, status=1)  # there are some
    assert re.search(r"port 1: .*\[SymbolErrorCounter == 500\].*\[LinkErrorRecoveryCounter == 3\]", text)
    found = lids(bench)
    bench.run("perfquery", "-R", str(found[bench.topology.index("s2")]), "1")
    for option, name in (("--xmtsl", "XmtDataSL"), ("--rcvsl", "RcvDataSL")):
        told = bench.run("perfquery", option, str(found[0]), "1")
        levels = re.findall(rf"^{name}(\d+):\.+\d+$", told, re.MULTILINE)
        assert [int(level) for level in levels] == list(range(16))
    assert "SymbolErrorCounter == 500" not in bench.run(*query)


def test_ibportstate_changes_a_link_s_width_and_speed(tmp_path: Path) -> None:
    topology = torus([3], 1)
    own = Bench(tmp_path, topology, "--manager")
    try:
        own.wait_until_up()
        host = lids(own)[topology.index("h1")]

        def trained(*changes: str) -> str:
            for change in (*changes, "reset"):
                own.run("ibportstate", str(host), "1", *change.split(), host="h0", status=None)
            return own.run("smpquery", "portinfo", "-D", "0", "1", host="h1")

        slow = trained("width 1", "speed 2", "espeed 30")
        assert re.search(r"LinkWidthActive:\.+1X$", slow, re.MULTILINE)
        assert re.search(r"LinkSpeedActive:\.+5\.0 Gbps$", slow, re.MULTILINE)
        assert re.search(r"LinkSpeedExtActive:\.+No Extended Speed$", slow, re.MULTILINE)
        own.wait_until_up()
        line = r'"\s*h1"\s+\d+\s+1\[  \] ==\( 1X\s+5\.0 Gbps Active'
        assert re.search(line, own.run("iblinkinfo", "--line"))
        fast = trained("width 255", "speed 15", "espeed 31")
        assert re.search(r"LinkWidthActive:\.+4X$", fast, re.MULTILINE)
        assert re.search(r"LinkSpeedExtActive:\.+53\.125 Gbps$", fast, re.MULTILINE)
    finally:
        own.close()


def state_of(bench: Bench, *port: str) -> tuple[str, str]:
    """The logical and the physical state of a port, as smpquery tells them."""
    text = bench.run("smpquery", "portinfo", *port, host="h0")
    states = [re.search(rf"^{name}:\.+(\w+)$", text, re.MULTILINE) for name in ("LinkState", "PhysLinkState")]
    assert states[0] is not None
    assert states[1] is not None
    return states[0][1], states[1][1]


def test_our_manager_gives_many_lids_and_protects_ports_by_its_m_key(tmp_path: Path) -> None:
    topology = fat_tree(4, 2)
    options = ("--manager", "--m-key", "0x1234", "--lmc", "2", "--engine", "up-down")
    own = Bench(tmp_path, topology, *options)
    try:
        own.wait_until_up()
        for host in topology.end_nodes:
            base = lids(own)[host]
            told = own.run("ibaddr", "-L", str(base), host="h0")
            assert f"LID start {base} end {base + 3}" in told
        port = ("-D", "0,1", "3")
        assert state_of(own, *port) == ("Active", "LinkUp")
        own.run("ibportstate", *port, "disable", host="h0", status=255)  # nobody answers
        assert state_of(own, *port) == ("Active", "LinkUp")
        own.run("ibportstate", "-y", "0x1234", *port, "disable", host="h0")
        assert state_of(own, *port) == ("Down", "Disabled")
    finally:
        own.close()


def test_a_link_that_fails_is_routed_around_and_comes_back(tmp_path: Path) -> None:
    topology = random_fabric(5, 1, 3, Random(2))
    own = Bench(tmp_path, topology)
    try:
        opensm = own.manage()
        index, link = next(
            (index, link)
            for index, link in enumerate(topology.links)
            if all(topology.nodes[end.node].is_switch for end in (link.end_a, link.end_b))
            and len(shortest(topology.without([index]), link.end_a.node)) == len(topology.nodes)
        )
        end = own.end_text(topology.nodes[link.end_a.node].name, link.end_a.port)
        assert own.ask("fail", end).endswith(" is down\n")
        assert shape(read_ibnetdiscover(own.run("ibnetdiscover"))) == shape(topology.without([index]))
        own.line_of(opensm, "SUBNET UP")  # the trap has reached OpenSM, and it has routed anew
        found = lids(own)
        hosts = [each for each in topology.end_nodes if topology.nodes[each].kind is NodeKind.CHANNEL_ADAPTER]
        for host in hosts[1:]:
            assert "To ca" in own.run("ibtracert", str(found[hosts[0]]), str(found[host]))
        assert own.ask("restore", end).endswith(" is back\n")
        assert own.ask("restore", end).endswith(" was so already\n")
        own.line_of(opensm, "SUBNET UP")
        assert shape(read_ibnetdiscover(own.run("ibnetdiscover"))) == shape(topology)
    finally:
        own.close()


@pytest.mark.parametrize("engine", ["lash", "dfsssp", "updn"])
def test_engines_of_opensm_that_need_lanes_find_them(tmp_path: Path, engine: str) -> None:
    """Rings of five switches need two lanes; OpenSM looks how many there are before it has set any."""
    own = Bench(tmp_path, torus([5, 5], 1))
    try:
        said = own.run("opensm", "-o", "-Q", "-R", engine, "-f", "stdout", "-F", os.devnull)
    finally:
        own.close()
    assert "SUBNET UP" in said
    assert [line for line in said.splitlines() if " ERR " in line] == []


@pytest.mark.parametrize(("seed", "steps"), [(2, 3), (6, 3)], ids=["opensm", "ours"])
def test_cables_and_managers_come_and_go(tmp_path: Path, seed: int, steps: int) -> None:
    """A sample of ``opensm_walk.py``: cables out and in, OpenSM killed and begun anew, another takes over."""
    pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")
    assert len(walk(seed, steps, tmp_path)) == steps
