"""An Ethernet as a value: its nodes and links, how fast they are, and what its switches do.

Hosts of the network are the ports of channel adapters that have a link, numbered from 1 in the topology's
order; switches are numbered from 0 in theirs.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from softhca.fabric.ethernet.network import Cable
from softhca.fabric.ethernet.settings import SwitchSettings
from softhca.fabric.topology import End, Topology, TopologyError
from softhca.machine.arguments import check_kind
from softhca.wire.route import V4_MAPPED_PREFIX

USUAL_MBPS = 100_000
LEAST_MBPS, MOST_MBPS = 1, 1_600_000
USUAL_DELAY_NS = 500
MOST_DELAY_NS = 1_000_000_000
FIRST_ADDRESS = int(ipaddress.IPv4Address("127.0.64.1"))
LAST_ADDRESS = int(ipaddress.IPv4Address("127.0.255.254"))


@dataclass(frozen=True)
class EthernetTopology:
    """``mbps`` are the links' speeds in the order of ``topology.links``, ``delay_ns`` is each one's.
    ``congestion``: hosts slow down when they are told of marks (DCQCN).

    TopologyError: a router, a link between two hosts, a speed or delay that cannot be, more hosts than
    there are addresses.
    """

    topology: Topology
    mbps: tuple[int, ...]
    delay_ns: int = USUAL_DELAY_NS
    settings: SwitchSettings = field(default_factory=SwitchSettings)
    congestion: bool = False

    def __post_init__(self) -> None:
        check_kind(self.topology, Topology, "topology")
        check_kind(self.delay_ns, int, "delay in nanoseconds")
        nodes = self.topology.nodes
        if len(self.mbps) != len(self.topology.links):
            raise TopologyError(f"{len(self.mbps)} speeds of {len(self.topology.links)} links")
        if not 0 <= self.delay_ns <= MOST_DELAY_NS:
            raise TopologyError(f"a delay of {self.delay_ns} ns; expected 0 to {MOST_DELAY_NS}")
        for index, link in enumerate(self.topology.links):
            if not LEAST_MBPS <= self.mbps[index] <= MOST_MBPS:
                raise TopologyError(f"a link of {self.mbps[index]} Mb/s", link=index)
            if not any(nodes[end.node].is_switch for end in (link.end_a, link.end_b)):
                raise TopologyError("a link between two hosts, with no switch between them", link=index)
        if len(self.hosts) > LAST_ADDRESS - FIRST_ADDRESS:
            raise TopologyError(f"{len(self.hosts)} ports of hosts; there are addresses for fewer")

    @cached_property
    def hosts(self) -> tuple[End, ...]:
        """The ports of hosts that have links; the first is host 1."""
        return tuple(
            End(node, port)
            for node in self.topology.end_nodes
            for port in self.topology.nodes[node].addressed_ports
            if self.topology.peer(node, port) is not None
        )

    @property
    def switches(self) -> int:
        """`Cabled.switches`."""
        return len(self.topology.switches)

    @cached_property
    def cables(self) -> tuple[Cable, ...]:
        """`Cabled.cables`, in the order of the topology's links."""
        switches = {node: number for number, node in enumerate(self.topology.switches)}
        hosts = {end: number for number, end in enumerate(self.hosts, 1)}
        found = []
        for link, mbps in zip(self.topology.links, self.mbps, strict=True):
            near, far = link.end_a, link.end_b
            if near.node not in switches:
                near, far = far, near
            is_host = far.node not in switches
            other = hosts[far] if is_host else switches[far.node]
            found.append(Cable(switches[near.node], other, is_host, mbps, self.delay_ns))
        return tuple(found)

    def near_end(self, cable: int) -> End:
        """The end of a cable that is the first of `EthernetNetwork.links`."""
        link = self.topology.links[cable]
        return link.end_a if self.topology.nodes[link.end_a.node].is_switch else link.end_b

    def addresses(self, given: Sequence[bytes] = ()) -> tuple[bytes, ...]:
        """The hosts' GIDs, IPv4-mapped or IPv6: those that are given for the first ones, loopback addresses
        for all others.  TopologyError: an address twice, or too many."""
        if len(given) > len(self.hosts):
            raise TopologyError(f"{len(given)} addresses for {len(self.hosts)} ports of hosts")
        own = (
            V4_MAPPED_PREFIX + ipaddress.IPv4Address(FIRST_ADDRESS + number).packed
            for number in range(len(given), len(self.hosts))
        )
        found = (*given, *own)
        if len(set(found)) < len(found):
            raise TopologyError("two hosts have the same address")
        return found
