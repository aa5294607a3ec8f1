"""Paths: an address vector (``ibv_ah_attr``) becomes a route, checked against the port's tables."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import Any

from softhca.adapter.config import AdapterConfig
from softhca.wire.framing import ROCE_V4, ROCE_V6
from softhca.wire.route import V4_MAPPED_PREFIX, Route

PORT_NUMBER = 1
FIRST_ENTROPY_PORT = 0xC000

SourcePortFor = Callable[[int], int]
"""``link.source_port_for``: a flow's entropy → the UDP source port that its packets leave from."""


def default_source_port(entropy: int) -> int:
    """A source port from the dynamic range, for links that leave the choice open."""
    return FIRST_ENTROPY_PORT | ((entropy ^ entropy >> 14) & 0x3FFF)


def is_multicast(gid: bytes) -> bool:
    """Whether a GID names a group: IPv6's ff00::/8, or 224.0.0.0/4 as an IPv4-mapped GID."""
    return gid[0] == 0xFF or (gid.startswith(V4_MAPPED_PREFIX) and gid[12] & 0xF0 == 0xE0)


def check_vector(vector: Mapping[str, Any], config: AdapterConfig) -> None:
    """EINVAL when the address vector cannot lead anywhere from this port."""
    destination = vector["dgid"]
    if vector.get("port_num", PORT_NUMBER) not in (0, PORT_NUMBER):
        raise OSError(errno.EINVAL, f"there is no port {vector['port_num']}")
    if not vector.get("is_global", 1) or len(destination) != 16 or not any(destination):
        raise OSError(
            errno.EINVAL, "on RoCE an address vector has a global route with a destination GID (A17.2)"
        )
    index = vector.get("sgid_index", 0)
    if not 0 <= index < len(config.gids):
        raise OSError(errno.EINVAL, f"there is no GID {index}")
    if not 0 <= vector.get("sl", 0) <= 15 or not 0 <= vector.get("flow_label", 0) < 1 << 20:
        raise OSError(errno.EINVAL, "a service level is 0…15 and a flow label has 20 bits")
    is_v4 = destination.startswith(V4_MAPPED_PREFIX)
    if is_v4 != config.gids[index].startswith(V4_MAPPED_PREFIX):
        raise OSError(errno.EINVAL, "source and destination GID are of different IP versions")


def route_of(
    vector: Mapping[str, Any], config: AdapterConfig, entropy: int, source_port_for: SourcePortFor
) -> Route:
    """The route of a checked address vector; ``entropy`` spreads flows over UDP source ports."""
    destination = bytes(vector["dgid"])
    # a flow label that the consumer sets is entropy too (IBTA A17.9.2)
    label = vector.get("flow_label", 0)
    return Route(
        framing=ROCE_V4 if destination.startswith(V4_MAPPED_PREFIX) else ROCE_V6,
        source=config.gids[vector.get("sgid_index", 0)],
        destination=destination,
        source_port=source_port_for(label or entropy),
        traffic_class=vector.get("traffic_class", 0),
        flow_label=label,
        hop_limit=vector.get("hop_limit", 0) or 64,
    )
