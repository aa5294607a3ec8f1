"""What distinguishes the services, as data (IBTA vol. 1, table 33 and 9.7, 9.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from softhca.transport.states import RAW, RC, UC, UD

if TYPE_CHECKING:
    from softhca.transport.context import QueuePair
    from softhca.transport.halves import Half

# work request opcodes (ibv_wr_opcode)
WR_RDMA_WRITE = 0
WR_RDMA_WRITE_WITH_IMM = 1
WR_SEND = 2
WR_SEND_WITH_IMM = 3
WR_RDMA_READ = 4
WR_ATOMIC_CMP_AND_SWP = 5
WR_ATOMIC_FETCH_AND_ADD = 6
WR_LOCAL_INV = 7
WR_BIND_MW = 8
WR_SEND_WITH_INV = 9
WR_REG_MR = 11
WR_OPCODES = 12

_SENDS = frozenset({WR_SEND, WR_SEND_WITH_IMM})
_WRITES = frozenset({WR_RDMA_WRITE, WR_RDMA_WRITE_WITH_IMM})
_LOCAL = frozenset({WR_LOCAL_INV, WR_BIND_MW, WR_REG_MR})
_ALL = frozenset(range(WR_SEND_WITH_INV + 1)) | _LOCAL


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
        operations=_ALL,
    ),
    UC: Service(
        UC,
        "UC",
        connected=True,
        acknowledged=False,
        send_error_state=True,
        operations=_SENDS | _WRITES | _LOCAL,
    ),
    UD: Service(
        UD,
        "UD",
        connected=False,
        acknowledged=False,
        send_error_state=True,
        operations=_SENDS,
    ),
    RAW: Service(
        RAW,
        "RAW",
        connected=False,
        acknowledged=False,
        send_error_state=True,
        operations=frozenset({WR_SEND}),
    ),
}


def operation_mask(service: int) -> int:
    """Bit n set where work request opcode n exists on ``service``."""
    return sum(1 << opcode for opcode in SERVICES[service].operations)


def make_half(queue_pair: QueuePair, sends: bool) -> Half:
    """The send side, or the receive side, that carries out the queue pair's service."""
    from softhca.transport.acknowledgement import Requester
    from softhca.transport.datagram import DatagramReceiver, DatagramSender
    from softhca.transport.raw import RawReceiver, RawSender
    from softhca.transport.responder import Responder
    from softhca.transport.unreliable import UnreliableSender
    from softhca.transport.unreliable_receiver import UnreliableReceiver

    if queue_pair.service == RC:
        return Requester(queue_pair) if sends else Responder(queue_pair)
    if queue_pair.service == UC:
        return UnreliableSender(queue_pair) if sends else UnreliableReceiver(queue_pair)
    if queue_pair.service == RAW:
        return RawSender(queue_pair) if sends else RawReceiver(queue_pair)
    return DatagramSender(queue_pair) if sends else DatagramReceiver(queue_pair)
