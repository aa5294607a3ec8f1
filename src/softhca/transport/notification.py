"""Congestion notification packets (CNPs) of RoCEv2, IBTA annex A17.9.3.

A CNP is BTH, 16 bytes that are reserved, and ICRC; its opcode is 0x81, BECN is set, and everything else of
its BTH but P_Key and destination is 0, MigReq and PSN too.  It goes to the queue pair whose packets were
marked, along the way of the flow back, but in a class of its own, so that it does not stand in the queue that
it tells of, and not marked as ECN-capable: nobody tells of a CNP that was marked.
"""

from __future__ import annotations

from softhca.wire.bth import BECN_BIT
from softhca.wire.bth import LENGTH_BYTES as BTH_BYTES
from softhca.wire.build import put_bth, put_icrc
from softhca.wire.burst import Burst
from softhca.wire.icrc import compute
from softhca.wire.opcodes import CNP_PACKET
from softhca.wire.route import Route

RESERVED_BYTES = 16
NOTIFICATION_BYTES = BTH_BYTES + RESERVED_BYTES + 4
"""BTH … ICRC."""
TRAFFIC_CLASS = 48 << 2
"""DSCP 48 (CS6, network control), as network cards send them; not ECN-capable."""


def notification_route(route: Route) -> Route:
    """The route of notifications of a flow along ``route``."""
    return Route(
        route.framing, route.source, route.destination, source_port=route.source_port,
        traffic_class=TRAFFIC_CLASS, flow_label=route.flow_label, hop_limit=route.hop_limit,
        destination_port=route.destination_port, scope=route.scope, port_number=route.port_number,
    )  # fmt: skip


def put_notification(burst: Burst, route: Route, pkey: int, dest_qp: int) -> None:
    """Let an empty burst be a CNP for a queue pair of the peer."""
    burst.reset()
    burst.route = route
    burst.counted = route.counted
    if burst.counted:
        route.identification = 0
    o = put_bth(burst.data, 0, CNP_PACKET, False, 0, pkey, dest_qp, False, 0, BECN_BIT, 0, False)
    burst.buffer[o : o + RESERVED_BYTES] = bytes(RESERVED_BYTES)
    o += RESERVED_BYTES
    put_icrc(burst.data, o, compute(route, burst.address, o))
    burst.length = burst.stride = NOTIFICATION_BYTES
    burst.packets = 1
