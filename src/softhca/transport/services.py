"""What distinguishes the services, as data (IBTA vol. 1, table 33 and 9.7, 9.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from softhca.queues.operations import OPERATIONS
from softhca.queues.wqe import SEND
from softhca.transport.states import RAW, RC, UC, UD
from softhca.wire.opcodes import BY_NAME, SERVICE_NAMES

if TYPE_CHECKING:
    from softhca.transport.context import QueuePair
    from softhca.transport.halves import Half


def carried(service: int, connected: bool) -> frozenset[int]:
    """The work request opcodes of a service: those whose packets the opcode table has for it and, where it is
    connected, those that send none."""
    name = SERVICE_NAMES[service]
    return frozenset(
        row.opcode
        for row in OPERATIONS.values()
        if (f"{name}_{row.packets[-1]}" in BY_NAME if row.packets else connected)
    )


@dataclass(frozen=True)
class Service:
    """One transport service.

    ``connected``: one peer and one service level, given by the queue pair's attributes; ``acknowledged``:
    requests are answered and retried; ``send_error_state``: a failed send request leaves the receive side
    alive (SQE); ``operations``: work requests.
    """

    number: int
    name: str
    connected: bool
    acknowledged: bool
    send_error_state: bool
    operations: frozenset[int]


SERVICES: dict[int, Service] = {
    RC: Service(
        RC,
        "RC",
        connected=True,
        acknowledged=True,
        send_error_state=False,
        operations=carried(RC, connected=True),
    ),
    UC: Service(
        UC,
        "UC",
        connected=True,
        acknowledged=False,
        send_error_state=True,
        operations=carried(UC, connected=True),
    ),
    UD: Service(
        UD,
        "UD",
        connected=False,
        acknowledged=False,
        send_error_state=True,
        operations=carried(UD, connected=False),
    ),
    RAW: Service(
        RAW,
        "RAW",
        connected=False,
        acknowledged=False,
        send_error_state=True,
        operations=frozenset({SEND}),
    ),
}


def operation_mask(service: int) -> int:
    """Bit n set where work request opcode n exists on ``service``."""
    return sum(1 << opcode for opcode in SERVICES[service].operations)


def make_half(queue_pair: QueuePair, sends: bool) -> Half:
    """The send side, or the receive side, that carries out the queue pair's service."""
    from softhca.transport.acknowledgement import Sender
    from softhca.transport.datagram import DatagramReceiver, DatagramSender
    from softhca.transport.raw import RawReceiver, RawSender
    from softhca.transport.responder import Responder
    from softhca.transport.same_host_source import SameHostSource
    from softhca.transport.sending import SendQueue
    from softhca.transport.unreliable import UnreliableSender
    from softhca.transport.unreliable_receiver import UnreliableReceiver

    if queue_pair.service == RC:
        return Sender(queue_pair, SameHostSource(queue_pair)) if sends else Responder(queue_pair)
    if queue_pair.service == UC:
        sender, receiver = UnreliableSender, UnreliableReceiver
    elif queue_pair.service == RAW:
        sender, receiver = RawSender, RawReceiver
    else:
        sender, receiver = DatagramSender, DatagramReceiver
    return sender(queue_pair, SendQueue(queue_pair)) if sends else receiver(queue_pair)
