"""Paths: an address vector (``ibv_ah_attr``) becomes a route, checked against the port's tables."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from softhca.adapter.config import LID_LAST_MULTICAST, LID_LAST_UNICAST, MANAGEMENT_LANE
from softhca.adapter.gid_table import NO_GID
from softhca.wire.flows import source_port
from softhca.wire.framing import NATIVE, ROCE_V4, ROCE_V6
from softhca.wire.ip import ECN_MASK, ECT0
from softhca.wire.route import V4_MAPPED_PREFIX, Route, is_multicast

if TYPE_CHECKING:
    from softhca.adapter.port import Port

DEFAULT_HOP_LIMIT = 64
LOCAL_HOP_LIMIT = 1
SRC_PATH_BITS_LAST = 0x7F

SourcePortFor = Callable[[int, bytes | None, bytes | None], int]
"""``link.source_port_for``: a flow's entropy, where it leads (None: it wants to be apart from others) and the
own GID that it begins at → the UDP source port that its packets leave from."""


def default_source_port(
    entropy: int, destination: bytes | None = None, source: bytes | None = None
) -> int:
    """A source port from the dynamic range, for links that leave the choice open."""
    return source_port(entropy)


def check_vector(vector: Mapping[str, Any], port: Port, connected: bool = False) -> None:
    """EINVAL when the address vector cannot lead anywhere from this port; ``connected``: not to a group
    either.
    """
    if vector.get("port_num", 0) not in (0, port.number):
        raise OSError(errno.EINVAL, f"port_num = {vector['port_num']}: the path begins at port {port.number}")
    if not 0 <= vector.get("sl", 0) <= 15 or not 0 <= vector.get("flow_label", 0) < 1 << 20:
        raise OSError(errno.EINVAL, "sl, flow_label: they have 4 and 20 bits")
    if not 0 <= vector.get("hop_limit", 0) <= 0xFF or not 0 <= vector.get("traffic_class", 0) <= 0xFF:
        raise OSError(errno.EINVAL, "hop_limit, traffic_class: they have 8 bits")
    if port.native:
        _check_native(vector, port, connected)
        return
    destination = vector["dgid"]
    if not vector.get("is_global", 1) or len(destination) != 16 or not any(destination):
        raise OSError(
            errno.EINVAL, "is_global, dgid: on RoCE a path has a global route with a destination GID (A17.2)"
        )
    index = _gid_index(vector, port)
    is_v4 = destination.startswith(V4_MAPPED_PREFIX)
    if is_v4 != port.gid_table[index].startswith(V4_MAPPED_PREFIX):
        raise OSError(errno.EINVAL, "sgid_index, dgid: the two GIDs are of different IP versions")


def _gid_index(vector: Mapping[str, Any], port: Port) -> int:
    index: int = vector.get("sgid_index", 0)
    if not 0 <= index < len(port.gid_table):
        raise OSError(errno.EINVAL, f"sgid_index = {index}: there is no such GID")
    if port.gid_table[index] == NO_GID:
        raise OSError(errno.EINVAL, f"sgid_index = {index}: its address has gone, and the entry is empty")
    return index


def _check_native(vector: Mapping[str, Any], port: Port, connected: bool) -> None:
    """The rules of a native address vector (IBTA vol. 1, 11.2.2.1): a DLID, and a global route if wanted."""
    dlid = _dlid(vector, port)
    if vector.get("sl", 0) == MANAGEMENT_LANE:
        raise OSError(errno.EINVAL, "sl = 15: it leads to virtual lane 15, which is management's")
    if not 0 <= vector.get("src_path_bits", 0) <= SRC_PATH_BITS_LAST:
        raise OSError(errno.EINVAL, f"src_path_bits: expected 0…{SRC_PATH_BITS_LAST}")
    if not 0 < dlid <= LID_LAST_MULTICAST:
        raise OSError(errno.EINVAL, f"dlid = {dlid:#x}: it leads to no port")
    destination = bytes(16)
    if vector.get("is_global", 0):
        _gid_index(vector, port)
        destination = vector["dgid"]
        if len(destination) != 16 or not any(destination):
            raise OSError(errno.EINVAL, "dgid: a global route has a destination GID")
    group = dlid > LID_LAST_UNICAST
    if group != (destination[0] == 0xFF) or (group and connected):
        raise OSError(
            errno.EINVAL, "dlid: a multicast LID goes with a multicast GID, from a datagram queue pair only"
        )


def _dlid(vector: Mapping[str, Any], port: Port) -> int:
    """The DLID of a native address vector; the own one where it says only that its GID is the port's."""
    dlid: int = vector.get("dlid", 0)
    if dlid == 0 and vector.get("is_global", 0) and vector["dgid"] in port.gids:
        dlid = port.lid
    return dlid


class ConnectionPaths:
    """Routes of a port's connections by what they are made of: those along one path share route and vector.

    Both are only read.  ``clear`` when the port's own addresses change.  At most ``MOST`` are remembered.
    """

    MOST = 4096

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[Mapping[str, Any], Route]] = {}

    def clear(self) -> None:
        """Forget them all; who has one keeps it."""
        self._known.clear()

    def find(self, vector: Mapping[str, Any], port: Port, entropy: int) -> tuple[Mapping[str, Any], Route]:
        """The vector (an equal one) and the route of a checked address vector."""
        udp_port = 0 if port.native else _source_port(vector, entropy, port)
        key = udp_port, *vector, *vector.values()
        path = self._known.get(key)
        if path is None:
            if len(self._known) >= self.MOST:
                self.clear()
            path = vector, _route(vector, port, udp_port, port.config.congestion is not None)
            self._known[key] = path
        return path


def _source_port(vector: Mapping[str, Any], entropy: int, port: Port) -> int:
    """The source port of a RoCE vector: a flow label that the consumer sets is entropy too (IBTA A17.9.2)."""
    label = vector.get("flow_label", 0)
    source = port.gid_table[vector.get("sgid_index", 0)]
    if label:
        return port.source_port_for(label, None, source)
    return port.source_port_for(entropy, bytes(vector["dgid"]), source)


def _hop_limit(vector: Mapping[str, Any]) -> int:
    """The hop limit of a RoCE vector.

    0 and 1 say that the consumer leaves it to the adapter: libibverbs' own programs write 1 whatever the way,
    and Linux puts the route's in its place.  Then a group is one of this subnet, and all else may be routed.
    """
    limit: int = vector.get("hop_limit", 0)
    if limit > LOCAL_HOP_LIMIT:
        return limit
    return LOCAL_HOP_LIMIT if is_multicast(bytes(vector["dgid"])) else DEFAULT_HOP_LIMIT


def route_of(vector: Mapping[str, Any], port: Port, entropy: int) -> Route:
    """The route of a checked address vector; ``entropy`` spreads flows over UDP source ports."""
    return _route(vector, port, 0 if port.native else _source_port(vector, entropy, port))


def _route(vector: Mapping[str, Any], port: Port, udp_port: int, reacts: bool = False) -> Route:
    """``reacts``: who sends along it slows down for marks, so its packets are ECN-capable (RFC 3168)."""
    if port.native:
        return _native_route(vector, port)
    destination = bytes(vector["dgid"])
    traffic_class = vector.get("traffic_class", 0)
    return Route(
        framing=ROCE_V4 if destination.startswith(V4_MAPPED_PREFIX) else ROCE_V6,
        source=port.gid_table[vector.get("sgid_index", 0)],
        destination=destination,
        source_port=udp_port,
        traffic_class=traffic_class & ~ECN_MASK | ECT0 if reacts else traffic_class,
        flow_label=vector.get("flow_label", 0),
        hop_limit=_hop_limit(vector),
        port_number=port.number,
    )


def _native_route(vector: Mapping[str, Any], port: Port) -> Route:
    has_grh = bool(vector.get("is_global", 0))
    local = {
        "slid": port.source_lid(vector.get("src_path_bits", 0)),
        "dlid": _dlid(vector, port),
        "sl": vector.get("sl", 0),
        "port_number": port.number,
    }
    if not has_grh:
        return Route(NATIVE, port.gid_table[0], bytes(16), **local)
    return Route(
        NATIVE,
        port.gid_table[vector.get("sgid_index", 0)],
        bytes(vector["dgid"]),
        traffic_class=vector.get("traffic_class", 0),
        flow_label=vector.get("flow_label", 0),
        hop_limit=vector.get("hop_limit", 0),
        has_grh=True,
        **local,
    )
