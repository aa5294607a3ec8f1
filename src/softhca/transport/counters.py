"""What the transport counts: one object for each queue pair and one for the adapter
(``Environment.counters``)."""

NAMES = (
    "packets_sent", "bytes_sent", "packets_received", "bytes_received", "retransmissions", "timeouts",
    "acks_sent", "acks_received", "naks_sent", "naks_received", "rnr_naks_sent", "rnr_naks_received",
    "implied_naks", "out_of_sequence", "duplicates", "ghost_acks", "send_errors", "receive_errors",
    "drops_state", "drops_service", "drops_opcode", "drops_length", "drops_sequence", "drops_qkey",
    "drops_no_receive", "drops_receive_length", "drops_protection", "drops_resources",
    "drops_unexpected_response", "drops_held", "key_refusals",
)  # fmt: skip


class TransportCounters:
    """Integers that only grow.  ``retransmissions`` counts go-backs, ``bytes`` are BTH … ICRC, ``drops_…``
    are packets that an unreliable service, or a queue pair in the wrong state, ignored for that reason.
    ``key_refusals`` are keys of peers that gave no right to what they asked for."""

    def __init__(self):
        for name in NAMES:
            setattr(self, name, 0)

    def as_dict(self):
        """All counters by name."""
        return {name: getattr(self, name) for name in NAMES}
