"""What a port counts: packets, bytes, and every packet that it dropped, by reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from softhca.wire.drops import COUNT, DROP_RESOURCES, NAMES

if TYPE_CHECKING:
    from softhca.adapter.port import Port
    from softhca.transport.counters import TransportCounters

_COUNT = cython.declare(cython.int, COUNT)
_RESOURCES = cython.declare(cython.int, DROP_RESOURCES)


class PortCounters:
    """Integers that only grow.  ``bytes`` are BTH … ICRC, of native packets LRH … VCRC; loopback traffic is
    counted as received and sent too.  ``packets_discarded`` would have been sent, had the port been active.
    """

    def __init__(self) -> None:
        self.packets_received = 0
        self.bytes_received = 0
        self.packets_sent = 0
        self.bytes_sent = 0
        self.bursts_received = 0
        self.bursts_sent = 0
        self.loopback_packets = 0
        self.multicast_copies = 0
        self.identifications_recovered = 0
        self.packets_discarded = 0
        self.drops = [0] * _COUNT

    def drop(self, reason: int) -> None:
        """Count one dropped packet; an unknown reason counts as "resources"."""
        if 0 < reason < _COUNT:
            self.drops[reason] += 1
        else:
            self.drops[_RESOURCES] += 1

    def as_dict(self) -> dict[str, int]:
        """All counters by name; a drop is ``drops_`` and the reason's name."""
        figures = {
            name: getattr(self, name)
            for name in (
                "packets_received",
                "bytes_received",
                "packets_sent",
                "bytes_sent",
                "bursts_received",
                "bursts_sent",
                "loopback_packets",
                "multicast_copies",
                "identifications_recovered",
                "packets_discarded",
            )
        }
        for reason in range(1, COUNT):
            figures[f"drops_{NAMES[reason]}"] = self.drops[reason]
        return figures


def port_figures(port: Port, totals: TransportCounters) -> dict[str, int]:
    """All counters of a port by name: its own, the transport's ``totals`` over all queue pairs of the adapter
    under ``transport_``…, what its link wants to be seen, and its management queue pairs'."""
    figures = port.counters.as_dict()
    figures.update({f"transport_{name}": value for name, value in totals.as_dict().items()})
    if port.link_counters is not None:
        figures.update(port.link_counters())
    for flow in port.management:
        if flow is not None:
            counters = flow.dispatcher.counters
            figures.update({f"management{flow.number}_{name}": count for name, count in counters.items()})
    connections = port.management[1].connections.manager.counters
    figures.update({f"cm_{name}": count for name, count in connections.items()})
    return figures
