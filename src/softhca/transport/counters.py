"""What the transport counts: one object for each queue pair and one for the adapter
(``Environment.counters``)."""

from __future__ import annotations

NAMES = (
    "packets_sent", "bytes_sent", "packets_received", "bytes_received", "retransmissions", "timeouts",
    "acks_sent", "acks_received", "naks_sent", "naks_received", "rnr_naks_sent", "rnr_naks_received",
    "implied_naks", "out_of_sequence", "duplicates", "ghost_acks", "send_errors", "receive_errors",
    "drops_state", "drops_service", "drops_opcode", "drops_length", "drops_sequence", "drops_qkey",
    "drops_no_receive", "drops_receive_length", "drops_protection", "drops_resources",
    "drops_unexpected_response", "drops_held", "drops_instance", "key_refusals",
    "packets_marked", "cnps_sent", "cnps_received", "cnps_ignored",
)  # fmt: skip


class TransportCounters:
    """Integers that only grow.  ``retransmissions`` counts go-backs, ``bytes`` are BTH … ICRC, ``drops_…``
    are packets that an unreliable service, or a queue pair in the wrong state, ignored for that reason;
    ``drops_instance`` are those of an old connection of the same queue pairs.  ``key_refusals`` are keys of
    peers that gave no right to what they asked for.  ``packets_marked``: bursts of
    packets that came marked for congestion; ``cnps_…`` tell of it (`softhca.transport.congestion`), those
    ``ignored`` came too soon behind another one to change anything."""

    packets_sent: int
    bytes_sent: int
    packets_received: int
    bytes_received: int
    retransmissions: int
    timeouts: int
    acks_sent: int
    acks_received: int
    naks_sent: int
    naks_received: int
    rnr_naks_sent: int
    rnr_naks_received: int
    implied_naks: int
    out_of_sequence: int
    duplicates: int
    ghost_acks: int
    send_errors: int
    receive_errors: int
    drops_state: int
    drops_service: int
    drops_opcode: int
    drops_length: int
    drops_sequence: int
    drops_qkey: int
    drops_no_receive: int
    drops_receive_length: int
    drops_protection: int
    drops_resources: int
    drops_unexpected_response: int
    drops_held: int
    drops_instance: int
    key_refusals: int
    packets_marked: int
    cnps_sent: int
    cnps_received: int
    cnps_ignored: int

    def __init__(self) -> None:
        for name in NAMES:
            setattr(self, name, 0)

    def as_dict(self) -> dict[str, int]:
        """All counters by name."""
        return {name: getattr(self, name) for name in NAMES}
