"""Where the adapters of a test are: addresses, configurations, paths, and whom a packet reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from softhca.adapter.config import NATIVE as NATIVE_PORT
from softhca.adapter.config import AdapterConfig, native_gid
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


def gid(number: int, framing: int = ROCE_V4) -> bytes:
    """The GID of 192.0.2.``number`` or 2001:db8::``number`` (RFC 5737, RFC 3849)."""
    if framing == ROCE_V4:
        return V4_MAPPED_PREFIX + bytes((192, 0, 2, number))
    return bytes.fromhex("20010db8") + bytes(11) + bytes([number])


def is_group(gid: bytes) -> bool:
    """Whether a GID is a multicast group's, of either version of IP."""
    return gid[0] == 0xFF or (gid[:12] == V4_MAPPED_PREFIX and gid[12] >> 4 == 0xE)


class Addressing:
    """RoCEv2 over IPv4 or IPv6: adapter N is 192.0.2.N or 2001:db8::N."""

    native = False

    def __init__(self, framing: int) -> None:
        self.framing = framing

    def gid(self, number: int) -> bytes:
        """The GID of adapter ``number``."""
        return gid(number, self.framing)

    def config(self, number: int, **options: Any) -> AdapterConfig:
        """What adapter ``number`` is made with, and ``options`` of `AdapterConfig`."""
        return AdapterConfig(**{"gids": (self.gid(number),), **options})

    def path(self, target: Node, **details: Any) -> Path:
        """The path to an adapter; ``details`` are fields of `Path`."""
        return Path(target.gid, **{"mtu": target.adapter.config.active_mtu, **details})

    def reaches(self, node: Node, source: Node | None, route: Any, data: bytes) -> bool:
        """Whether a packet that ``source`` has sent along ``route`` comes to ``node``.

        What goes to a group comes to everybody else.
        """
        if is_group(route.destination):
            return node is not source
        return route.destination in node.adapter.port.gids


class NativeAddressing(Addressing):
    """Native InfiniBand: adapter N has the LID 16 + N, times 2 to the power of its LMC."""

    native = True

    def __init__(self) -> None:
        super().__init__(NATIVE)

    def gid(self, number: int) -> bytes:
        return native_gid(GUID + number)

    def lid(self, number: int, lmc: int = 0) -> int:
        """The base LID with which adapter ``number`` begins."""
        return (FIRST_LID + number) << lmc

    def config(self, number: int, **options: Any) -> AdapterConfig:
        lid = self.lid(number, options.get("lmc", 0))
        own = {"gids": (self.gid(number),), "framing": NATIVE_PORT, "lid": lid, "sm_lid": SM_LID}
        return AdapterConfig(**{**own, **options})

    def path(self, target: Node, **details: Any) -> Path:
        """By the target's present LID; with ``grh=True`` packets have a GRH with its present GID."""
        port = target.adapter.port
        dgid = port.gid_table[0] if details.pop("grh", False) else None
        own = {"mtu": target.adapter.config.active_mtu, "dlid": port.lid}
        return Path(dgid, **{**own, **details})

    def reaches(self, node: Node, source: Node | None, route: Any, data: bytes) -> bool:
        if len(data) < 4:
            return False
        dlid = int.from_bytes(data[2:4], "big")
        owns: bool = node.adapter.port.owns_lid(dlid)
        return owns or (dlid >= MULTICAST_LID and node is not source)


def addressing_of(link: str) -> Addressing:
    """For links of a kind: ``ipv4``, ``ipv6`` or ``native``; ValueError for any other."""
    if link == "native":
        return NativeAddressing()
    if link not in ("ipv4", "ipv6"):
        raise ValueError(f"link {link!r}: expected 'ipv4', 'ipv6' or 'native'")
    return Addressing(ROCE_V4 if link == "ipv4" else ROCE_V6)
