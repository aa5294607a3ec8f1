"""Traps of a fabric's nodes: what they tell the subnet manager by themselves (IBTA vol. 1, 13.4.9, 14.2.5.1).

A notice is sent to the LID of the manager that the port knows, and again each SubnetTimeOut, until the
manager represses it.  A node has at most one notice of each kind under way; what happens meanwhile is in it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace

from softhca.fabric.node_state import NodeState
from softhca.fabric.port_state import PortState
from softhca.fabric.topology import NodeKind
from softhca.management import constants as c
from softhca.management.directed_route import DirectedRoute
from softhca.management.mad import Mad, MadHeader
from softhca.management.subnet_attributes import (
    NOTICE_INFO,
    NOTICE_SECURITY,
    NOTICE_URGENT,
    TRAP_BAD_M_KEY,
    TRAP_CAPABILITY,
    TRAP_LINK_STATE,
    BadMKeyDetails,
    CapabilityDetails,
    LinkStateDetails,
    Notice,
)

NEVER_NS = (1 << 64) - 1
MOST_TIMES = 16
"""A trap that nobody represses is sent so often."""
TIMEOUT_UNIT_NS = 4_096
PRODUCERS = {NodeKind.CHANNEL_ADAPTER: 1, NodeKind.SWITCH: 2, NodeKind.ROUTER: 3}


@dataclass(slots=True)
class Pending:
    """A notice under way: sent from ``port`` of ``node``, for the next time when it is ``due_ns``."""

    node: NodeState
    port: PortState
    notice: Notice
    transaction_id: int
    due_ns: int
    times: int = 0


class Notices:
    """Those of all nodes of a fabric.  ``send(node, port, mad, lid, now)`` sends a datagram to a LID."""

    def __init__(self, send: Callable[[NodeState, PortState, bytearray, int, int], None]) -> None:
        self._send = send
        self._pending: dict[tuple[int, int], Pending] = {}
        self._deadlines: list[tuple[int, int, int]] = []
        self._last_sent_ns: dict[tuple[int, int], int] = {}
        self._next_id = 1

    def raise_link_state(self, node: NodeState, now: int) -> None:
        """A port of a switch has gone up or down."""
        port = node.own_port(0)
        details = LinkStateDetails(lid=port.info.lid).encode()
        self._raise(node, port, NOTICE_URGENT, TRAP_LINK_STATE, details, now)

    def raise_capability(self, node: NodeState, port: PortState, now: int) -> None:
        """A port's CapabilityMask has changed."""
        info = port.info
        details = CapabilityDetails(lid=info.lid, capability_mask=info.capability_mask).encode()
        self._raise(node, port, NOTICE_INFO, TRAP_CAPABILITY, details, now)

    def raise_bad_m_key(self, node: NodeState, port: PortState, details: BadMKeyDetails, now: int) -> None:
        """Somebody has sent a packet with a wrong M_Key."""
        self._raise(node, port, NOTICE_SECURITY, TRAP_BAD_M_KEY, details.encode(), now)

    def _raise(
        self, node: NodeState, port: PortState, kind: int, trap: int, details: bytes, now: int
    ) -> None:
        info = port.info
        if not info.sm_lid or not info.lid:
            return
        key = node.index, trap
        notice = Notice(
            type=kind,
            producer_type=PRODUCERS[node.node.kind],
            trap_number=trap,
            issuer_lid=info.lid,
            data_details=details,
        )
        if key in self._pending:
            waiting = self._pending[key]
            waiting.notice = replace(notice, notice_count=min(waiting.notice.notice_count + 1, 0x7FFF))
            return
        due_ns = max(now, self._last_sent_ns.get(key, -NEVER_NS) + self._interval_ns(port))
        self._pending[key] = Pending(node, port, notice, self._next_id, due_ns)
        self._next_id += 1
        heapq.heappush(self._deadlines, (due_ns, *key))

    @staticmethod
    def _interval_ns(port: PortState) -> int:
        return TIMEOUT_UNIT_NS << port.info.subnet_timeout

    def repress(self, node: NodeState, transaction_id: bytes) -> None:
        """A manager has heard the trap that has this transaction ID."""
        number = int.from_bytes(transaction_id, "big")
        for key, waiting in list(self._pending.items()):
            if key[0] == node.index and waiting.transaction_id == number and waiting.times:
                del self._pending[key]

    @property
    def next_deadline_ns(self) -> int:
        """When the next notice is due; `NEVER_NS`: none waits."""
        while self._deadlines:
            due_ns, *key = self._deadlines[0]
            waiting = self._pending.get((key[0], key[1]))
            if waiting is not None and waiting.due_ns == due_ns:
                return due_ns
            heapq.heappop(self._deadlines)
        return NEVER_NS

    def expire(self, now: int) -> None:
        """Send what is due."""
        while self.next_deadline_ns <= min(now, NEVER_NS - 1):
            _, index, trap = heapq.heappop(self._deadlines)
            waiting = self._pending[index, trap]
            self._last_sent_ns[index, trap] = now
            waiting.times += 1
            if waiting.times > MOST_TIMES or not waiting.port.info.sm_lid:
                del self._pending[index, trap]
                continue
            waiting.due_ns = now + self._interval_ns(waiting.port)
            heapq.heappush(self._deadlines, (waiting.due_ns, index, trap))
            self._send(waiting.node, waiting.port, _trap(waiting), waiting.port.info.sm_lid, now)


def _trap(waiting: Pending) -> bytearray:
    header = MadHeader(
        management_class=c.CLASS_SUBN_LID,
        method=c.METHOD_TRAP,
        transaction_id=waiting.transaction_id,
        attribute_id=c.ATTRIBUTE_NOTICE,
    )
    mad = Mad.make(header, waiting.notice.encode())
    route = DirectedRoute(m_key=waiting.port.info.m_key, dr_slid=0, dr_dlid=0).encode()
    return bytearray(Mad(header, route + mad.body[len(route) :]).encode())
