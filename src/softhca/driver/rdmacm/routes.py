"""Routes and addresses on native links: what subnet administration says of the way to a GID, and of IP
addresses.

On RoCEv2 an address is all that a packet needs; on InfiniBand the LID, service level and MTU of the way come
from a PathRecord (IBTA vol. 1, 15.2.5.16), which a datagram to the subnet manager's port asks for, and a port
that has an IP address besides its GID is found by a ServiceRecord (`softhca.management.address_queries`).
"""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from softhca.driver.agents import MadAddress
from softhca.driver.errors import DriverError
from softhca.management import address_queries, group_queries
from softhca.management.path_queries import CLASS_SUBN_ADM, CLASS_VERSION, answer, question

if TYPE_CHECKING:
    from softhca.driver.device import DeviceDriver
    from softhca.driver.rdmacm.local_devices import LocalPort

RETRIES = 3


@dataclass(frozen=True)
class Route:
    """The way to another port of the subnet: its LID, the service level, the path MTU (``ibv_mtu``), and the
    entry of the own P_Key table that packets carry.  ``dlid`` 0: RoCEv2, where none of it is needed."""

    dlid: int = 0
    sl: int = 0
    mtu: int = 5
    pkey_index: int = 0


ON_ETHERNET = Route()


def find_route(place: LocalPort, gid: bytes, timeout_ms: int) -> Route:
    """Ask subnet administration for the route from a native port to a GID, for ``timeout_ms`` in all.

    DriverError: ENETDOWN where the port has no LID or knows no subnet manager, EHOSTUNREACH where there is no
    such path, ETIMEDOUT where nobody answers.
    """
    asked = question(place.gid, gid, random.getrandbits(32))
    found = answer(_ask(place.device, place.port, asked, timeout_ms))
    if found.status:
        why = f"no path to {gid.hex(':', 2)}: subnet administration's status {found.status:#06x}"
        raise DriverError(errno.EHOSTUNREACH, why)
    if not 0 < found.dlid <= 0xBFFF or not 1 <= found.mtu <= 5:
        raise DriverError(errno.EHOSTUNREACH, f"a path to LID {found.dlid:#x} with the MTU {found.mtu}")
    index = index_of(place, found.pkey)
    if index < 0:
        why = f"the path is in partition {found.pkey:#06x}, which the port is not in"
        raise DriverError(errno.EHOSTUNREACH, why)
    return Route(found.dlid, found.sl, found.mtu, index)


def find_port(place: LocalPort, address: bytes, timeout_ms: int) -> bytes:
    """The GID of the port that has an IP address, in the form of a GID.  As `find_route`; EHOSTUNREACH where
    nobody has it.
    """
    asked = address_queries.question_of_address(address, random.getrandbits(32))
    found = address_queries.answer(_ask(place.device, place.port, asked, timeout_ms))
    if found.status or found.address != address or not any(found.gid):
        why = f"nobody has {address.hex(':', 2)}: subnet administration's status {found.status:#06x}"
        raise DriverError(errno.EHOSTUNREACH, why)
    return found.gid


def address_of(device: DeviceDriver, port: int, gid: bytes, timeout_ms: int) -> bytes:
    """The IP address of an own native port, in the form of a GID; empty: it has none.  As `find_route`."""
    asked = address_queries.question_of_port(gid, random.getrandbits(32))
    found = address_queries.answer(_ask(device, port, asked, timeout_ms))
    return b"" if found.status or found.gid != gid else found.address


def join_group(
    place: LocalPort, group: bytes, qkey: int, join_state: int, timeout_ms: int
) -> group_queries.GroupAnswer:
    """Let a native port join an IP group, in the form of a GID, in its first partition.  As `find_route`;
    EADDRNOTAVAIL where that is refused.
    """
    pkey = place.device.query_pkey(place.port, 0)
    mgid = group_queries.mgid_of(group, pkey)
    asked = group_queries.question(mgid, place.gid, qkey, pkey, join_state, random.getrandbits(32))
    found = group_queries.answer(_ask(place.device, place.port, asked, timeout_ms))
    if found.status or found.mgid != mgid or not 0xC000 <= found.mlid < 0xFFFF:
        why = f"{mgid.hex(':', 2)} cannot be joined: subnet administration's status {found.status:#06x}"
        raise DriverError(errno.EADDRNOTAVAIL, why)
    return found


def _ask(device: DeviceDriver, port: int, asked: bytes, timeout_ms: int) -> bytes:
    """Subnet administration's response."""
    attributes = device.query_port(port)
    if not attributes["lid"] or not attributes["sm_lid"]:
        raise DriverError(errno.ENETDOWN, f"port {port} has no LID, or knows no subnet manager")
    manager = MadAddress(dlid=attributes["sm_lid"], sl=attributes["sm_sl"])
    agent = device.register_agent(port, CLASS_SUBN_ADM, CLASS_VERSION, (), 1)
    try:
        return agent.ask(asked, manager, max(timeout_ms // (RETRIES + 1), 1), RETRIES)
    finally:
        agent.unregister()


def index_of(place: LocalPort, pkey: int) -> int:
    """Where the own port has a partition's key, as a full member or a limited one; −1: it is not in it."""
    length = place.device.query_port(place.port)["pkey_tbl_len"]
    for index in range(length):
        own = place.device.query_pkey(place.port, index)
        if own and own & 0x7FFF == pkey & 0x7FFF:
            return index
    return -1
