"""The performance management agent of a fabric's node (IBTA vol. 1, 16.1): its ports' counters.

Counters are read and cleared by attribute; a counter that does not fit its field shows the field's greatest
value.  Answers are made in place, as `subnet_agent` does.
"""

from __future__ import annotations

from softhca.fabric.node_state import NodeState
from softhca.fabric.port_state import PortState
from softhca.management import constants as c
from softhca.management.attributes import ClassPortInfo
from softhca.management.performance_attributes import (
    ALL_PORTS,
    CAPABILITY_ALL_PORTS,
    CAPABILITY_EXTENDED,
    CAPABILITY_XMIT_WAIT,
    SELECT,
    PortCounters,
    PortCountersExtended,
    PortRcvDataSL,
    PortRcvErrorDetails,
    PortXmitDataSL,
    PortXmitDiscardDetails,
)
from softhca.wire.layout import Header

DATA_AT = 64
DATA_BYTES = 192
PORT_SELECT_AT = 1
SELECTORS = frozenset({"reserved8", "port_select", "counter_select", "counter_select2", "reserved32"})

ATTRIBUTES: dict[int, type[Header]] = {
    c.ATTRIBUTE_PORT_COUNTERS: PortCounters,
    c.ATTRIBUTE_PORT_RCV_ERROR_DETAILS: PortRcvErrorDetails,
    c.ATTRIBUTE_PORT_XMIT_DISCARD_DETAILS: PortXmitDiscardDetails,
    c.ATTRIBUTE_PORT_COUNTERS_EXTENDED: PortCountersExtended,
    c.ATTRIBUTE_PORT_XMIT_DATA_SL: PortXmitDataSL,
    c.ATTRIBUTE_PORT_RCV_DATA_SL: PortRcvDataSL,
}

_CLASS_INFO = ClassPortInfo(
    capability_mask=CAPABILITY_ALL_PORTS | CAPABILITY_EXTENDED | CAPABILITY_XMIT_WAIT,
    resp_time_value=16,
).encode()


class PerformanceAgent:
    """Answers for ``node``; ``counters`` as `subnet_agent.COUNTERS`."""

    def __init__(self, node: NodeState, counters: dict[str, int]) -> None:
        self.node = node
        self._counters = counters

    def answer(self, mad: bytearray) -> bool:
        """A request of performance management has come.  True: ``mad`` is the response now."""
        method = mad[3]
        if method not in c.ANSWERED_METHODS:
            self._counters["drops_method"] += 1
            return False
        attribute = mad[16] << 8 | mad[17]
        if mad[0] != c.BASE_VERSION or mad[2] != 1:
            return self._respond(mad, c.STATUS_BAD_VERSION, "refused_version")
        if attribute == c.ATTRIBUTE_CLASS_PORT_INFO and method == c.METHOD_GET:
            mad[DATA_AT : DATA_AT + DATA_BYTES] = _CLASS_INFO.ljust(DATA_BYTES, b"\0")
            return self._respond(mad, c.STATUS_OK, "answered")
        layout = ATTRIBUTES.get(attribute)
        if layout is None:
            return self._respond(mad, c.STATUS_BAD_ATTRIBUTE, "refused_attribute")
        ports = self._ports(mad[DATA_AT + PORT_SELECT_AT])
        if not ports:
            return self._respond(mad, c.STATUS_BAD_VALUE, "refused_value")
        asked = layout.decode(mad, DATA_AT)
        if method == c.METHOD_SET:
            names = _selected(asked)
            for port in ports:
                port.clear(layout.__name__, names)
        mad[DATA_AT : DATA_AT + DATA_BYTES] = _counted(asked, ports).ljust(DATA_BYTES, b"\0")
        return self._respond(mad, c.STATUS_OK, "answered")

    def _ports(self, number: int) -> list[PortState]:
        """Those that a datagram selects."""
        if number == ALL_PORTS:
            return [port for port in self.node.ports if port is not None]
        port = self.node.port(number)
        return [] if port is None else [port]

    def _respond(self, mad: bytearray, status: int, reason: str) -> bool:
        self._counters[reason] += 1
        mad[3] = c.METHOD_GET_RESPONSE
        mad[4], mad[5] = status >> 8, status & 0xFF
        return True


def _counted(asked: Header, ports: list[PortState]) -> bytes:
    """The attribute with the counters of these ports added up."""
    layout = type(asked)
    values = {name: getattr(asked, name) for name in SELECTORS if hasattr(asked, name)}
    for field in layout.LAYOUT:
        if field.name not in SELECTORS:
            total = sum(port.read(layout.__name__, field.name) for port in ports)
            values[field.name] = min(total, (1 << field.bits) - 1)
    return layout(**values).encode()


def _selected(asked: Header) -> list[str]:
    """The counters that a Set clears (16.1.3.5, 16.1.4.11)."""
    if isinstance(asked, PortCounters):
        low = [name for bit, name in enumerate(SELECT) if asked.counter_select >> bit & 1]
        high = [name for bit, name in enumerate(SELECT2) if asked.counter_select2 >> bit & 1]
        return low + high
    select: int = getattr(asked, "counter_select", 0)
    names = [field.name for field in type(asked).LAYOUT if field.name not in SELECTORS]
    return [name for bit, name in enumerate(names) if select >> bit & 1]


SELECT2 = ("xmit_wait", "qp1_dropped")
