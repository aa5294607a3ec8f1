"""Ethernets as values and as YAML: speeds, switches' settings, hosts' addresses, and what cannot be."""

from __future__ import annotations

import ipaddress
import re

import pytest

pytest.importorskip("yaml", reason="PyYAML: pip install 'softhca[fabric]'")

from softhca.cli.errors import CommandError
from softhca.cli.fabric_topology import load_topology
from softhca.fabric.ethernet.layout import LEAST_MBPS, MOST_DELAY_NS, MOST_MBPS, EthernetTopology
from softhca.fabric.ethernet.network import Cable
from softhca.fabric.ethernet.settings import Marking, Pausing, SwitchSettings
from softhca.fabric.ethernet_yaml import read_fabric
from softhca.fabric.generators import fat_tree
from softhca.fabric.topology import End, Topology, TopologyError

PLAIN = """kind: ethernet
link: 25G
switches: {leaf: 4, spine: 2}
hosts: {a: 2, b: 1, c: 1}
links:
  - a[2] leaf[1]
  - leaf[4] spine[1] 400G
  - spine[2] b[1] 100M
"""


def ethernet(text: str) -> EthernetTopology:
    found = read_fabric(text)
    assert isinstance(found, EthernetTopology)
    return found


def test_links_have_speeds_and_hosts_are_their_linked_ports() -> None:
    found = ethernet(PLAIN)
    assert found.mbps == (25_000, 400_000, 100)
    assert found.hosts == (End(2, 2), End(3, 1))
    assert found.switches == 2
    assert found.cables == (
        Cable(0, 1, True, 25_000, 500), Cable(0, 1, False, 400_000, 500), Cable(1, 2, True, 100, 500),
    )  # fmt: skip
    assert [found.near_end(link) for link in range(3)] == [End(0, 1), End(0, 4), End(1, 2)]
    assert (found.settings, found.congestion) == (SwitchSettings(), False)


def test_switches_do_what_is_said() -> None:
    text = PLAIN + (
        "delay: 2000\ncongestion: dcqcn\n"
        "queues: {buffer: 90000, queue: 80000, marking: {least: 10, most: 20, probability: 0.25},"
        " pausing: {off: 70000, on: 60000, priorities: [0, 3], quanta: 99}}\n"
    )
    found = ethernet(text)
    assert (found.delay_ns, found.congestion) == (2_000, True)
    assert found.settings == SwitchSettings(
        90_000, 80_000, Marking(10, 20, 0.25), Pausing(70_000, 60_000, (0, 3), 99)
    )
    without = ethernet(PLAIN + "queues: {marking: none, pausing: {priorities: 5}}\n").settings
    assert without == SwitchSettings(marking=None, pausing=Pausing(priorities=(5,)))


def test_a_generator_makes_an_ethernet_too() -> None:
    found = ethernet("kind: ethernet\nlink: 10G\ngenerate: {kind: fat-tree, radix: 4}\ndelay: 0\n")
    assert (len(found.hosts), found.switches) == (16, 20)
    assert set(found.mbps) == {10_000}


def test_other_kinds_are_read_as_before() -> None:
    text = "kind: infiniband\nswitches: {s: 2}\n"
    assert isinstance(read_fabric(text), Topology)
    assert isinstance(read_fabric("switches: {s: 2}\n"), Topology)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind: token-ring\n", "line 1: no kind of fabric is 'token-ring'"),
        ("kind: [ethernet]\n", "line 1: kind is one word"),
        ("kind: ethernet\nroutes: 1\n", "line 2: an Ethernet has no 'routes'"),
        ("kind: ethernet\nrouters: {r: 2}\n", "an Ethernet has no 'routers'"),
        ("kind: ethernet\nlink: 4xHDR\n", "line 2: no speed of an Ethernet link is '4xHDR'"),
        ("kind: ethernet\nlink: 0G\n", "line 2: no speed"),
        ("kind: ethernet\nlink: 9999999G\n", "line 2: no speed"),
        ("kind: ethernet\nhosts: {a: 1, b: 1}\nlinks:\n  - a[1] b[1]\n", "line 4: a link between two hosts"),
        ("kind: ethernet\nswitches: {s: 2}\nhosts: {a: 1}\nlinks:\n  - a[1] s[1] fast\n", "line 5: no speed"),
        ("kind: ethernet\nswitches: {s: 2}\nhosts: {a: 1, b: 1, c: 1}\nlinks:\n"
         "  - a[1] s[1]\n  - b[1] c[1]\n",
         "line 6: a link between two hosts"),
        ("kind: ethernet\ndelay: soon\n", "line 2: delay is 'soon'"),
        ("kind: ethernet\ndelay: 2000000000\n", "a delay of 2000000000 ns"),
        ("kind: ethernet\ncongestion: red\n", "line 2: congestion is 'red'"),
        ("kind: ethernet\nqueues: {size: 1}\n", "line 2: queues has no 'size'"),
        ("kind: ethernet\nqueues: {queue: 0}\n", "line 2: queues: a switch has a buffer"),
        ("kind: ethernet\nqueues: {marking: {least: 9, most: 3}}\n", "line 2: marking: marking: expected"),
        ("kind: ethernet\nqueues: {marking: {probability: 7}}\n", "line 2: probability is '7'"),
        ("kind: ethernet\nqueues: {pausing: {off: 1, on: 2}}\n", "line 2: pausing: pausing: expected"),
        ("kind: ethernet\nqueues: {pausing: {priorities: [9]}}\n", "line 2: pausing: pausing: prior"),
        ("kind: ethernet\nqueues: {pausing: {priorities: [[1]]}}\n", "line 2: "),
        ("kind: ethernet\ngenerate: {kind: fat-tree, radix: 4}\nhosts: {a: 1}\n", "line 3: hosts beside"),
        ("kind: ethernet\ngenerate: {kind: fat-tree, radix: 5}\n", "line 2: "),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(TopologyError, match=re.escape(why)):
        read_fabric(text)


def test_hosts_have_the_addresses_that_are_given_and_loopback_ones_else() -> None:
    found = ethernet(PLAIN)
    given = [bytes(10) + b"\xff\xff" + ipaddress.IPv4Address("10.1.2.3").packed]
    one, two = found.addresses(given)
    assert one == given[0]
    assert ipaddress.IPv4Address(two[12:]).is_loopback
    assert len(set(found.addresses())) == 2
    assert found.addresses()[1] == two  # whoever else has one that is given
    with pytest.raises(TopologyError, match="the same address"):
        found.addresses([two])
    with pytest.raises(TopologyError, match="3 addresses for 2"):
        found.addresses([bytes(16)] * 3)
    with pytest.raises(TopologyError, match="the same address"):
        found.addresses(given * 2)


def test_speeds_and_delays_have_bounds() -> None:
    topology = ethernet(PLAIN).topology
    for mbps, delay_ns in ((LEAST_MBPS, 0), (MOST_MBPS, MOST_DELAY_NS)):
        assert EthernetTopology(topology, (mbps,) * 3, delay_ns).mbps == (mbps,) * 3
    for mbps, delay_ns in (
        (LEAST_MBPS - 1, 0), (MOST_MBPS + 1, 0), (LEAST_MBPS, -1), (LEAST_MBPS, MOST_DELAY_NS + 1),
    ):  # fmt: skip
        with pytest.raises(TopologyError):
            EthernetTopology(topology, (mbps,) * 3, delay_ns)


def test_speeds_must_be_as_many_as_links() -> None:
    tree = fat_tree(4)
    with pytest.raises(TopologyError, match="2 speeds of 48 links"):
        EthernetTopology(tree, (1, 2))


def test_commands_for_fabrics_with_lids_refuse_an_ethernet(tmp_path: object) -> None:
    file = tmp_path / "eth.yaml"  # type: ignore[operator]
    file.write_text(PLAIN)
    with pytest.raises(CommandError, match="is an Ethernet, which has no LIDs"):
        load_topology(str(file))
