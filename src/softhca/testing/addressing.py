"""Where the adapters of a test are: addresses, configurations, paths, and whom a packet reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from softhca.adapter.config import NATIVE as NATIVE_PORT
from softhca.adapter.config import AdapterConfig, PortConfig, native_gid
from softhca.driver.services import Path
from softhca.wire.framing import NATIVE, ROCE_V4, ROCE_V6
from softhca.wire.route import V4_MAPPED_PREFIX

if TYPE_CHECKING:
    from softhca.testing.node import Node

MAX_NUMBER = 250
GUID = 0x0200_5EFF_FE00_5300
"""The port GUID of adapter N on native links is this number + N (RFC 7042's range for documentation)."""

FIRST_LID = 0x10
SM_LID = 1
MULTICAST_LID = 0xC000


def gid(number: int, framing: int = ROCE_V4, port_number: int = 1) -> bytes:
    """The GID of 192.0.2.``number`` or 2001:db8::``number`` (RFC 5737, RFC 3849); of port P, which is not the
    first, of 192.0.(P + 1).``number`` or 2001:db8::P:``number``.
    """
    if framing == ROCE_V4:
        return V4_MAPPED_PREFIX + bytes((192, 0, 1 + port_number, number))
    middle = 0 if port_number == 1 else port_number
    return bytes.fromhex("20010db8") + bytes(9) + bytes([middle, 0, number])


def is_group(gid: bytes) -> bool:
    """Whether a GID is a multicast group's, of either version of IP."""
    return gid[0] == 0xFF or (gid[:12] == V4_MAPPED_PREFIX and gid[12] >> 4 == 0xE)


class Addressing:
    """RoCEv2 over IPv4 or IPv6: adapter N is 192.0.2.N or 2001:db8::N."""

    native = False

    def __init__(self, framing: int) -> None:
        self.framing = framing

    def gid(self, number: int, port_number: int = 1) -> bytes:
        """The GID of a port of adapter ``number``."""
        return gid(number, self.framing, port_number)

    def port(self, number: int, port_number: int) -> dict[str, Any]:
        """Fields of `PortConfig`: what a port of adapter ``number`` is made with."""
        return {"gids": (self.gid(number, port_number),)}

    def config(self, number: int, ports: int = 1, **options: Any) -> AdapterConfig:
        """What adapter ``number`` is made with, and ``options`` of `AdapterConfig`."""
        further = tuple(PortConfig(**self.port(number, each)) for each in range(2, ports + 1))
        return AdapterConfig(**{**self.port(number, 1), "further_ports": further, **options})

    def path(self, target: Node, port_number: int = 1, **details: Any) -> Path:
        """The path to an adapter's port; ``details`` are fields of `Path`."""
        port = target.adapter.ports[port_number - 1]
        return Path(port.gid_table[0], **{"mtu": port.own.active_mtu, **details})

    def reaches(self, node: Node, port: Any, source: Node, route: Any, data: bytes) -> bool:
        """Whether a packet that ``source`` has sent along ``route`` comes to a ``port`` of ``node``.

        What goes to a group comes to all other ports.
        """
        if is_group(route.destination):
            return node is not source or port.number != route.port_number
        return route.destination in port.gids


class NativeAddressing(Addressing):
    """Native InfiniBand: adapter N has the LID 16 + N, times 2 to the power of its LMC."""

    native = True

    def __init__(self) -> None:
        super().__init__(NATIVE)

    def gid(self, number: int, port_number: int = 1) -> bytes:
        return native_gid(GUID + number + 256 * (port_number - 1))

    def lid(self, number: int, lmc: int = 0) -> int:
        """The base LID with which adapter ``number`` begins."""
        return (FIRST_LID + number) << lmc

    def port(self, number: int, port_number: int) -> dict[str, Any]:
        lid = self.lid(number) + 256 * (port_number - 1)
        return {**super().port(number, port_number), "framing": NATIVE_PORT, "lid": lid, "sm_lid": SM_LID}

    def config(self, number: int, ports: int = 1, **options: Any) -> AdapterConfig:
        return super().config(number, ports, **{"lid": self.lid(number, options.get("lmc", 0)), **options})

    def path(self, target: Node, port_number: int = 1, **details: Any) -> Path:
        """By the target's present LID; with ``grh=True`` packets have a GRH with its present GID."""
        port = target.adapter.ports[port_number - 1]
        dgid = port.gid_table[0] if details.pop("grh", False) else None
        return Path(dgid, **{"mtu": port.own.active_mtu, "dlid": port.lid, **details})

    def reaches(self, node: Node, port: Any, source: Node, route: Any, data: bytes) -> bool:
        if len(data) < 4:
            return False
        dlid = int.from_bytes(data[2:4], "big")
        if dlid >= MULTICAST_LID:
            return node is not source or port.number != route.port_number
        owns: bool = port.owns_lid(dlid)
        return owns


def addressing_of(link: str) -> Addressing:
    """For links of a kind: ``ipv4``, ``ipv6`` or ``native``; ValueError for any other."""
    if link == "native":
        return NativeAddressing()
    if link not in ("ipv4", "ipv6"):
        raise ValueError(f"link {link!r}: expected 'ipv4', 'ipv6' or 'native'")
    return Addressing(ROCE_V4 if link == "ipv4" else ROCE_V6)
