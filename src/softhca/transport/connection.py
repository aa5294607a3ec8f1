"""One end of a connection, or of a datagram service: its attributes, its state, its flow and its counters.

What sends and receives knows this of its owner, and nothing of queues: these are behind a source of requests
(`sending`) and a sink of messages (`receiving`).  A queue pair is one (`context`); an
end-to-end context of reliable datagrams would be another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from softhca.queues.control_fields import EVENT_SQ_DRAINED
from softhca.transport.counters import TransportCounters
from softhca.transport.migration import MIGRATED
from softhca.transport.observation import MESSAGE_DROPPED, PACKET_DROPPED
from softhca.transport.states import NAMES, RESET

if TYPE_CHECKING:
    from softhca.transport.environment import Environment
    from softhca.transport.flow import Flow
    from softhca.transport.services import Service


class Connection:
    """The attributes are those of ``ibv_qp_attr``; ``number`` names it to packets and to readers.

    ``row``: its service (`services.Service`); ``connected``: that has one peer; ``tells_losses``: a UC
    responder reports EVENT_MESSAGES_LOST (o9-131).  ``instance``: which connection between the two end nodes
    this is, 1 … 127, in every packet, and packets with another one are stale; 0: neither.  ``migration``:
    its state of path migration (`migration`).
    """

    port_number: int
    pkey: int
    pkey_index: int
    qkey: int
    access: int
    path_mtu_bytes: int
    rq_psn: int
    sq_psn: int
    max_rd_atomic: int
    max_dest_rd_atomic: int
    min_rnr_timer: int
    timeout: int
    retry_count: int
    rnr_retry: int
    instance: int
    migration: int
    flow: Flow

    dest_qp: int

    def __init__(self, environment: Environment, number: int, row: Service, pd: int) -> None:
        self.environment = environment
        self.number = number
        self.row = row
        self.service = row.number
        self.connected = row.connected
        self.pd = pd
        self.tells_losses = False
        self.state = RESET
        self.instance = 0
        self.migration = MIGRATED
        self.counters = TransportCounters()
        self.draining = False
        self.notify_drained = False
        self.established = False

    def count_sent(self, packets: int, length_bytes: int) -> None:
        """A burst is written."""
        self.counters.packets_sent += packets
        self.counters.bytes_sent += length_bytes
        self.environment.counters.packets_sent += packets
        self.environment.counters.bytes_sent += length_bytes

    def count(self, name: str) -> None:
        """One more of the counter ``name``, here and in the adapter's counters."""
        setattr(self.counters, name, getattr(self.counters, name) + 1)
        setattr(self.environment.counters, name, getattr(self.environment.counters, name) + 1)

    def drop(self, name: str, psn: int) -> None:
        """The packet ``psn`` is ignored; ``name`` is the counter's."""
        self.count(name)
        self.observe(PACKET_DROPPED if self.connected else MESSAGE_DROPPED, psn, name[6:])

    def observe(self, event: str, psn: int = -1, reason: str = "", value: int = -1) -> None:
        """Tell the observer, if there is one; ``value`` ≥ 0 is a number behind the reason."""
        if self.environment.observer is not None:
            if value >= 0:
                reason = f"{reason} {value}"
            self.environment.observer(event, self.number, psn, NAMES[self.state], reason)

    def fail(self, event: int = -1, reason: str = "") -> None:
        """To the error state; ``event`` ≥ 0 is reported."""
        raise NotImplementedError

    def migrate(self, event: str, now: int) -> bool:
        """Something has happened to the path (an input of `migration.TABLE`); whether it is another one now.
        """
        return False

    def drained(self) -> None:
        """SQD: nothing begun is unfinished any more."""
        self.draining = False
        if self.notify_drained:
            self.notify_drained = False
            self.environment.event(EVENT_SQ_DRAINED, self.number)
