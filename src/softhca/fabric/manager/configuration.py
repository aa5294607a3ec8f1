"""What a manager writes into nodes: ports, forwarding tables, lanes, partitions, states of links.

Each function gives requests for what is not as it should be; what the nodes have already is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from softhca.fabric.graph import Bools
from softhca.fabric.manager.discovery import FoundNode
from softhca.fabric.manager.packets import PORT
from softhca.fabric.routing import NO_ROUTE, Routes
from softhca.management import constants as c
from softhca.management.subnet_attributes import SwitchInfo

INIT, ARMED, ACTIVE = 2, 3, 4
SUBNET_TIMEOUT = 18
PACKET_LIFETIME = 18
LINEAR_BLOCK = 64
MULTICAST_BLOCK = 32
POSITION_PORTS = 16
PKEY_BLOCK = 32
TABLE_BYTES = 64
LANE_CODES = {1: 1, 2: 2, 4: 3, 8: 4, 15: 5}
"""PortInfo's VLCap and OperationalVLs by how many lanes they are."""
MULTICAST_FIRST = 0xC000


class Write(NamedTuple):
    """One Set: the node's GUID, the way there, attribute, modifier, data; ``done`` gets the data of the
    response when it is right."""

    path: bytes
    attribute: int
    modifier: int
    data: bytes
    done: Callable[[bytes], None]


@dataclass(frozen=True)
class PortPlan:
    """What all ports are told."""

    sm_lid: int
    gid_prefix: int
    m_key: int
    lmc: int
    lanes: int
    reregister: bool = False
    """Ports of channel adapters are asked to register anew what they have with subnet administration."""
    keys_of: Callable[[int], list[int]] | None = None
    """The P_Keys of a port's GUID, where switches let nothing else pass to and from end nodes (10.9.6)."""


def port_writes(
    nodes: Mapping[int, FoundNode], lids: Mapping[tuple[int, int], int], plan: PortPlan
) -> Iterator[Write]:
    """LIDs, keys, MTU and lanes of every port, and ARMED for links that are in INIT."""
    for guid, node in nodes.items():
        for number, data in node.ports.items():
            wanted = bytearray(data)
            _no_change(wanted)
            if number == 0 or not node.is_switch:
                _own(wanted, node, lids.get((guid, number), 0), plan)
            peer = node.peers.get(number)
            other = nodes[peer[0]].ports.get(peer[1]) if peer and peer[0] in nodes else None
            if peer is not None and other is not None:
                _link(wanted, data, other, plan)
                _enforce(wanted, node, _enforced_keys(node, number, nodes, plan.keys_of) is not None)
            if _differs(wanted, data):
                yield _port_write(node, number, wanted)


def _own(wanted: bytearray, node: FoundNode, lid: int, plan: PortPlan) -> None:
    is_new = plan.reregister or lid != PORT.get(wanted, "lid")
    PORT.put(wanted, "client_reregister", int(is_new and not node.is_switch))
    PORT.put(wanted, "lid", lid)
    PORT.put(wanted, "lmc", 0 if node.is_switch else plan.lmc)
    PORT.put(wanted, "sm_lid", plan.sm_lid)
    PORT.put(wanted, "sm_sl", 0)
    PORT.put(wanted, "gid_prefix", plan.gid_prefix)
    PORT.put(wanted, "m_key", plan.m_key)
    PORT.put(wanted, "m_key_protect_bits", 1 if plan.m_key else 0)
    PORT.put(wanted, "subnet_timeout", SUBNET_TIMEOUT)


def _link(wanted: bytearray, data: bytes, other: bytes, plan: PortPlan) -> None:
    mtu = min(PORT.get(data, "mtu_cap"), PORT.get(other, "mtu_cap"))
    lanes = min(PORT.get(data, "vl_cap"), PORT.get(other, "vl_cap"), LANE_CODES[plan.lanes])
    PORT.put(wanted, "neighbor_mtu", mtu)
    PORT.put(wanted, "operational_vls", lanes)
    if PORT.get(data, "state") == INIT:
        PORT.put(wanted, "state", ARMED)


def _enforced_keys(
    node: FoundNode,
    port: int,
    nodes: Mapping[int, FoundNode],
    keys_of: Callable[[int], list[int]] | None,
) -> list[int] | None:
    """The P_Keys that a switch's port lets pass: those of the end node's port behind it.  None: it does not
    look at them, or has no room for so many."""
    peer = node.peers.get(port)
    other = nodes.get(peer[0]) if peer is not None else None
    if keys_of is None or node.switch is None or peer is None or other is None or other.is_switch:
        return None
    if not port or peer[1] not in other.port_guids:
        return None
    keys = keys_of(other.port_guids[peer[1]])
    return keys if len(keys) <= node.switch.partition_enforcement_cap else None


def _enforce(wanted: bytearray, node: FoundNode, enforces: bool) -> None:
    """Whether a switch's port looks at P_Keys, in both directions as far as the switch can."""
    info = node.switch
    if info is not None and info.partition_enforcement_cap:
        PORT.put(wanted, "partition_enforcement_inbound", int(enforces and info.inbound_enforcement_cap))
        PORT.put(wanted, "partition_enforcement_outbound", int(enforces and info.outbound_enforcement_cap))


def _no_change(wanted: bytearray) -> None:
    """A Set of this changes no state and trains no link anew."""
    for name in ("state", "phys_state", "link_down_default_state"):
        PORT.put(wanted, name, 0)


def _differs(wanted: bytearray, data: bytes) -> bool:
    same = bytearray(wanted)
    if PORT.get(wanted, "state"):
        return True
    for name in ("phys_state", "link_down_default_state", "state"):
        PORT.put(same, name, PORT.get(data, name))
    return bytes(same) != data


def _port_write(node: FoundNode, number: int, wanted: bytearray) -> Write:
    def done(data: bytes) -> None:
        node.ports[number] = data

    return Write(node.path(number), c.ATTRIBUTE_PORT_INFO, number, bytes(wanted), done)


def activation_writes(nodes: Mapping[int, FoundNode]) -> Iterator[Write]:
    """ACTIVE for each port that is ARMED."""
    for node in nodes.values():
        for number, data in node.ports.items():
            if number and PORT.get(data, "state") == ARMED:
                wanted = bytearray(data)
                _no_change(wanted)
                PORT.put(wanted, "state", ACTIVE)
                PORT.put(wanted, "client_reregister", 0)
                yield _port_write(node, number, wanted)


Shadow = dict[tuple[int, int, int], bytes]
"""What tables have been written: by the node's GUID, attribute and modifier.  Empty: nobody knows."""


def forget_reset(nodes: Mapping[int, FoundNode], shadow: Shadow) -> None:
    """A switch that has no table (its top is 0) has been reset, and a port without a LID too: what has been
    written there is gone, as is what belongs to nodes that are gone."""
    kept = {
        guid
        for guid, node in nodes.items()
        if (node.switch.linear_fdb_top if node.switch else _has_lid(node))
    }
    for key in [key for key in shadow if key[0] not in kept]:
        del shadow[key]


def _has_lid(node: FoundNode) -> bool:
    return any(PORT.get(data, "lid") for data in node.ports.values())


def table_writes(
    nodes: Mapping[int, FoundNode], routes: Routes, guids: list[int], shadow: Shadow
) -> Iterator[Write]:
    """Linear forwarding tables of all switches; ``guids`` are those of the topology's nodes."""
    blocks = routes.lids.top // LINEAR_BLOCK + 1
    for number, index in enumerate(routes.graph.switches.tolist()):
        guid = guids[index]
        node = nodes[guid]
        row = np.full(blocks * LINEAR_BLOCK, NO_ROUTE, np.uint8)
        row[: routes.lids.top + 1] = routes.tables[number]
        data = row.tobytes()
        for block in range(blocks):
            part = data[block * LINEAR_BLOCK : (block + 1) * LINEAR_BLOCK]
            yield from _table(shadow, node, guid, c.ATTRIBUTE_LINEAR_FORWARDING, block, part)


def switch_info_writes(
    nodes: Mapping[int, FoundNode], top: int, multicast_top: int, clear: bool = True
) -> Iterator[Write]:
    """SwitchInfo of all switches; ``clear`` says that changes of ports' states have been seen."""
    for node in nodes.values():
        if node.is_switch:
            yield from _switch_info(node, top, multicast_top, clear)


def _switch_info(node: FoundNode, top: int, multicast_top: int, clear: bool) -> Iterator[Write]:
    before = node.switch or SwitchInfo()
    wanted = replace(
        before, linear_fdb_top=top, default_port=NO_ROUTE, default_multicast_primary_port=NO_ROUTE,
        default_multicast_not_primary_port=NO_ROUTE, lifetime=PACKET_LIFETIME,
        multicast_fdb_top=multicast_top,
    )  # fmt: skip
    if wanted == before and not (clear and before.port_state_change):
        return

    def done(data: bytes) -> None:
        node.switch = SwitchInfo.decode(data)

    # a Set with PortStateChange clears it
    data = replace(wanted, port_state_change=int(clear)).encode()
    yield Write(node.path(0), c.ATTRIBUTE_SWITCH_INFO, 0, data, done)


def _table(
    shadow: Shadow, node: FoundNode, guid: int, attribute: int, modifier: int, data: bytes, port: int = 0
) -> Iterator[Write]:
    """A block of a table, unless it has been written already."""
    key = guid, attribute, modifier
    if shadow.get(key) == data:
        return
    shadow[key] = b""

    def done(answer: bytes) -> None:
        shadow[key] = data

    yield Write(node.path(port), attribute, modifier, data, done)


def lane_writes(
    nodes: Mapping[int, FoundNode], routes: Routes, guids: list[int], shadow: Shadow
) -> Iterator[Write]:
    """SL-to-VL tables and arbitration of lanes, where routes need more than one lane (14.2.5.8, 14.2.5.9)."""
    lanes = routes.routing.lanes
    if lanes == 1:
        return
    arbitration = b"".join(bytes([lane, 64]) for lane in range(lanes)).ljust(64, b"\0")
    for number, index in enumerate(routes.graph.switches.tolist()):
        guid = guids[index]
        node, table = nodes[guid], routes.routing.lanes_of(number)
        linked = [port for port in node.peers if port]
        for leaving in linked:
            row = table[leaving].tolist() if table is not None else [0] * 16
            data = bytes(row[at] << 4 | row[at + 1] for at in range(0, 16, 2))
            for entering in (0, *linked):
                modifier = entering << 8 | leaving
                yield from _table(shadow, node, guid, c.ATTRIBUTE_SL_TO_VL_TABLE, modifier, data)
            modifier = 1 << 16 | leaving
            yield from _table(shadow, node, guid, c.ATTRIBUTE_VL_ARBITRATION, modifier, arbitration)


def partition_writes(
    nodes: Mapping[int, FoundNode],
    keys_of: Callable[[int], list[int]],
    shadow: Shadow,
    problem: Callable[[str], None],
) -> Iterator[Write]:
    """P_Key tables of ports with LIDs, and of switches' ports to end nodes, which have the same keys, block
    by block; ``keys_of`` gives the keys of a port's GUID.  Blocks that have been written and hold no key any
    more are emptied; keys beyond a port's table are told."""
    for guid, node in nodes.items():
        for port, port_guid in node.port_guids.items():
            cap = max(1, node.info.partition_cap)
            yield from _pkey_writes(guid, node, port, keys_of(port_guid), cap, shadow, problem)
        for port in node.peers:
            enforced = _enforced_keys(node, port, nodes, keys_of)
            if enforced is not None and node.switch is not None:
                cap = node.switch.partition_enforcement_cap
                yield from _pkey_writes(guid, node, port, enforced, cap, shadow, problem)


def _pkey_writes(
    guid: int,
    node: FoundNode,
    port: int,
    keys: list[int],
    cap: int,
    shadow: Shadow,
    problem: Callable[[str], None],
) -> Iterator[Write]:
    if len(keys) > cap:
        problem(f"{len(keys)} P_Keys for port {port} of {guid:#018x}, which has room for {cap}")
    data = b"".join(key.to_bytes(2, "big") for key in keys[:cap])
    blocks = max(1, -(-len(data) // TABLE_BYTES))
    before = range(blocks, -(-cap // PKEY_BLOCK))
    kept = [each for each in before if any(shadow.get(_pkey_place(guid, port, each), b""))]
    for block in (*range(blocks), *kept):
        part = data[block * TABLE_BYTES : (block + 1) * TABLE_BYTES].ljust(TABLE_BYTES, b"\0")
        key = _pkey_place(guid, port, block)
        if shadow.get(key) == part:
            continue
        shadow[key] = b""

        def done(answer: bytes, key: tuple[int, int, int] = key, part: bytes = part) -> None:
            shadow[key] = part

        modifier = port << 16 | block if node.is_switch else block
        yield Write(node.path(port), c.ATTRIBUTE_PKEY_TABLE, modifier, part, done)


def _pkey_place(guid: int, port: int, block: int) -> tuple[int, int, int]:
    """The key of a block of P_Keys in a `Shadow`: ports of a channel adapter have tables of their own."""
    return guid, c.ATTRIBUTE_PKEY_TABLE, port << 24 | block


def multicast_writes(
    nodes: Mapping[int, FoundNode],
    routes: Routes,
    guids: list[int],
    trees: Mapping[int, Mapping[int, Bools]],
    shadow: Shadow,
) -> Iterator[Write]:
    """Multicast forwarding tables: ``trees`` has for each multicast LID the ports by number of the switch.
    Blocks that hold no group any more are written too."""
    before: dict[int, list[int]] = {}
    for guid, attribute, modifier in shadow:
        if attribute == c.ATTRIBUTE_MULTICAST_FORWARDING:
            before.setdefault(guid, []).append(modifier)
    for number, index in enumerate(routes.graph.switches.tolist()):
        guid = guids[index]
        node = nodes[guid]
        wanted = {modifier: bytearray(64) for modifier in before.get(guid, ())}
        for mlid, tree in trees.items():
            if number not in tree:
                continue
            block, place = divmod(mlid - MULTICAST_FIRST, MULTICAST_BLOCK)
            for port in np.flatnonzero(tree[number]).tolist():
                position, bit = divmod(port, POSITION_PORTS)
                data = wanted.setdefault(position << 28 | block, bytearray(64))
                data[2 * place + 1 - bit // 8] |= 1 << bit % 8
        for modifier, data in wanted.items():
            yield from _table(
                shadow, node, guid, c.ATTRIBUTE_MULTICAST_FORWARDING, modifier, bytes(data)
            )
