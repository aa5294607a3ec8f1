"""Topology files in both forms: one line of error, or a topology that can be written and read again.

Input: which form, and whether the rest is the text or a list of words; then that.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuzz_choices import Choices

from softhca.fabric.ethernet.layout import EthernetTopology
from softhca.fabric.ethernet_yaml import read_fabric
from softhca.fabric.generators import fat_tree, torus
from softhca.fabric.topology import Topology, TopologyError
from softhca.fabric.topology_file import read_ibnetdiscover, write_ibnetdiscover
from softhca.fabric.topology_yaml import read_yaml, write_yaml

PRINTED = (
    'Switch 4 "a"\n', 'Switch 2 "b" # "x" base port 0 lid 1 lmc 0\n', 'Ca 1 "c"\n',
    'Hca\t2\t"H-000000000000000d"\n',
    'Rt 1 "r"\n', "switchguid=0x5(6)\n", "caguid=0x7\n", "vendid=0x1\n", "sysimgguid=12\n", '[1] "a"[1]\n',

    '[2] "b"[2] # "b" lid 3 4xEDR\n', '[1](7) "a"[2] # lid 1 lmc 1 "a" lid 3 12xSDR\n',
    '[3][ext 4] "a"[4] w=1\n',
    '[1] "c"[1]\n', "\n", "#", " ", '"', "[", "]", "(", "w=3", "0x",
    "Non-Chassis Nodes\n", "\udcff", "٣", "9" * 30,
)  # fmt: skip
SHORT = (
    "switches:\n", "hosts:\n", "routers:\n", "links:\n", "generate:", "link: 4xHDR\n", " a: 4\n",
    " b: {ports: 2", ", guid: 0x5", ", description: d", "}\n", " - a[1] b[2]\n", " - a[3] a[4] 1xSDR\n",
    " kind: torus\n", " sizes: 3x2\n", " kind: fat-tree\n", " radix: 4\n", "&x ", "*x", "<<: ", "\t", "- ",
    "!!python/object:os.system", "[", "{", '"', "|\n", "---\n", "0x", "9" * 30, "\u2028", "\x00", "٣",
)  # fmt: skip


def one_input(data: bytes) -> None:
    choices = Choices(data)
    kind = choices.byte() & 3
    words = SHORT if kind & 1 else PRINTED
    if kind & 2:
        text = choices.rest().decode("utf-8", "replace")
    else:
        text = ""
        while choices.more and len(text) < 4096:
            text += choices.pick(words) if choices.byte() & 15 else chr(choices.number(1))
    try:
        fabric = (read_fabric if kind & 1 else read_ibnetdiscover)(text)
    except TopologyError as error:
        assert "\n" not in str(error), str(error)
        assert error.line is None or 1 <= error.line <= len(text.splitlines()) + 1
        return
    if isinstance(fabric, EthernetTopology):
        assert len(fabric.cables) == len(fabric.topology.links)
        assert len(set(fabric.addresses())) == len(fabric.hosts)
        fabric = fabric.topology
    check(fabric)


def check(fabric: Topology) -> None:
    """Each link is there from both of its ends, and both forms give the topology again."""
    for index, link in enumerate(fabric.links):
        for own, other in ((link.end_a, link.end_b), (link.end_b, link.end_a)):
            assert fabric.peer(*own) == other
            assert fabric.link_at(*own) == index
    for again in (read_ibnetdiscover(write_ibnetdiscover(fabric)), read_yaml(write_yaml(fabric))):
        assert sorted(node.guid for node in again.nodes) == sorted(node.guid for node in fabric.nodes)
        assert sorted(map(str, again.links)) == sorted(map(str, fabric.links))


def seeds() -> Iterator[bytes]:
    """Small topologies of generators, and runs of words."""
    for fabric in (fat_tree(2, 2), torus([2])):
        yield b"\x02" + write_ibnetdiscover(fabric).encode()
        yield b"\x03" + write_yaml(fabric).encode()
    yield b"\x03generate: {kind: torus, sizes: 3x2}\n"
    yield b"\x03kind: ethernet\ngenerate: {kind: torus, sizes: 3x2}\nqueues: {pausing: {off: 9, on: 3}}\n"
    yield b"\x03kind: ethernet\nswitches: {s: 2}\nhosts: {h: 1}\nlinks: ['h[1] s[1] 25G']\n"
    yield b'\x02Switch 2 "a"\n[1] "b"[1] w=1\nCa 1 "b"\n[1] "a"[1]\n'
    for kind in (0, 1):
        yield bytes([kind]) + b"\x01" + b"".join(bytes([1, number]) for number in range(32))
