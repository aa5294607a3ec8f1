"""What distinguishes the services, a row each (IBTA vol. 1, table 33 and 9.7, 9.8).

Whoever has to tell services apart asks the row: which packets are a service's and where they go, which work
requests it has, and what its queue pairs are made of.  So a service is a row here, and whatever is truly new
(an engine, a header).  A queue pair is given its row; engines ask it there and need not know this table,
which knows them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from softhca.queues.control_fields import (
    QPT_RAW_PACKET,
    QPT_RC,
    QPT_RD,
    QPT_UC,
    QPT_UD,
    QPT_XRC_RECV,
    QPT_XRC_SEND,
)
from softhca.queues.layout import SEND
from softhca.queues.operations import OPERATIONS
from softhca.transport.acknowledgement import Sender
from softhca.transport.datagram import DatagramReceiver, DatagramSender
from softhca.transport.frames import FrameSender
from softhca.transport.queue_pair_flow import QueuePairFlow
from softhca.transport.raw import RawReceiver, RawSender
from softhca.transport.rd_receiving import EeResponder, EeSink, RdReceiver
from softhca.transport.rd_sending import EeSender, RdSender
from softhca.transport.receiving import ReceiveQueue
from softhca.transport.responder import Responder
from softhca.transport.same_host_source import SameHostSource
from softhca.transport.sending import SendQueue
from softhca.transport.states import FRAMES, RAW, RC, RD, RD_EEC, UC, UD, XRC, XRC_TARGET
from softhca.transport.unreliable import UnreliableSender
from softhca.transport.unreliable_receiver import UnreliableReceiver
from softhca.transport.xrc import NoReceiver, NoSender, XrcResponder, XrcSender, XrcSink
from softhca.wire.opcodes import BY_NAME, FRONT_HEADERS, SERVICE_NAMES

if TYPE_CHECKING:
    from softhca.transport.connection import Connection
    from softhca.transport.context import QueuePair
    from softhca.transport.ee_context import EndToEndContext
    from softhca.transport.engines import ReceiveEngine, SendEngine

# Dispatch keys: what names the queue pair that a packet is for.
BY_QP = 0
"""BTH's destination queue pair."""
BY_EE_CONTEXT = 1
"""RDETH's end-to-end context."""
BY_RAW_SERVICE = 2
"""The EtherType or IPv6: the packet has no BTH."""
BY_RULE = 3
"""Rules of flow steering over the headers of an Ethernet frame, which has no BTH either."""


def carried(service: int, connected: bool) -> frozenset[int]:
    """The work request opcodes of a service: those whose packets the opcode table has for it and, where it is
    connected, those that send none."""
    name = SERVICE_NAMES[service]
    return frozenset(
        row.opcode
        for row in OPERATIONS.values()
        if (f"{name}_{row.packets[-1]}" in BY_NAME if row.packets else connected)
    )


def _number(queue_pair: QueuePair) -> int:
    """The queue pair's own number."""
    return int(queue_pair.number)


def _ee_number(ee: EndToEndContext) -> int:
    """The EE context's own number."""
    return int(ee.ee_number)


class Service(NamedTuple):
    """One transport service.

    ``number``: the top three bits of its opcodes (raw datagrams, which have none: 8, Ethernet frames: 9;
    XRC has two rows, for its initiators and its targets); ``qp_types``: ibv_qp_type of its queue pairs;
    ``rules``: the service whose column of `states.TRANSITIONS` they obey.

    ``key`` says what of a packet names the queue pair that it is for (``BY_…``), and ``key_number`` what it
    says there for a given queue pair, 24 bits; None: packets do not name its queue pairs.

    ``connected``: one peer and one service level, given by the queue pair's attributes; ``acknowledged``:
    requests are answered and retried; ``send_error_state``: a failed send request leaves the receive side
    alive (SQE); ``operations``: work requests.

    ``domain``: its queue pairs are in a reliable datagram domain, and send and receive by EE contexts; these
    have a row of their own, without a type.  ``sends`` and ``receives``: its queue pairs have a send queue,
    and a receive queue or a shared one.
    ``shares_bursts`` and ``multicasts`` are its flows' (`Flow`).  ``sender`` and ``receiver`` make the
    engines of a queue pair when it first needs them, and ``flow`` its flow when it is made.
    """

    number: int
    name: str
    qp_types: tuple[int, ...]
    rules: int
    connected: bool
    acknowledged: bool
    send_error_state: bool
    operations: frozenset[int]
    sender: Callable[[Any], SendEngine]
    receiver: Callable[[Any], ReceiveEngine]
    flow: Callable[[Connection], QueuePairFlow] = QueuePairFlow
    key: int = BY_QP
    key_number: Callable[[Any], int] | None = _number
    domain: bool = False
    shares_bursts: bool = False
    multicasts: bool = False
    sends: bool = True
    receives: bool = True

    def operation_mask(self) -> int:
        """Bit n set where the service has work request opcode n."""
        return sum(1 << opcode for opcode in self.operations)

    @property
    def request_headers(self) -> tuple[str, ...]:
        """What stands between BTH and the operation's headers of a request, in order; the decoder's table
        (`wire.opcodes`) has it."""
        return FRONT_HEADERS[self.number][0] if self.number in FRONT_HEADERS else ()

    @property
    def response_headers(self) -> tuple[str, ...]:
        """The same of a response."""
        return FRONT_HEADERS[self.number][1] if self.number in FRONT_HEADERS else ()


def _reliable_sender(queue_pair: QueuePair) -> SendEngine:
    return Sender(queue_pair, SameHostSource(queue_pair))


def _reliable_receiver(queue_pair: QueuePair) -> ReceiveEngine:
    return Responder(queue_pair, ReceiveQueue(queue_pair))


def _unreliable_sender(queue_pair: QueuePair) -> SendEngine:
    return UnreliableSender(queue_pair, SendQueue(queue_pair))


def _unreliable_receiver(queue_pair: QueuePair) -> ReceiveEngine:
    return UnreliableReceiver(queue_pair, ReceiveQueue(queue_pair))


def _datagram_sender(queue_pair: QueuePair) -> SendEngine:
    return DatagramSender(queue_pair, SendQueue(queue_pair))


def _datagram_receiver(queue_pair: QueuePair) -> ReceiveEngine:
    return DatagramReceiver(queue_pair, ReceiveQueue(queue_pair))


def _xrc_sender(queue_pair: QueuePair) -> SendEngine:
    return XrcSender(queue_pair, SendQueue(queue_pair))


def _xrc_receiver(queue_pair: QueuePair) -> ReceiveEngine:
    return XrcResponder(queue_pair, XrcSink(queue_pair))


def _ee_sender(ee: EndToEndContext) -> SendEngine:
    return EeSender(ee)


def _ee_receiver(ee: EndToEndContext) -> ReceiveEngine:
    return EeResponder(ee, EeSink(ee))


def _raw_sender(queue_pair: QueuePair) -> SendEngine:
    return RawSender(queue_pair, SendQueue(queue_pair))


def _raw_receiver(queue_pair: QueuePair) -> ReceiveEngine:
    return RawReceiver(queue_pair, ReceiveQueue(queue_pair))


def _frame_sender(queue_pair: QueuePair) -> SendEngine:
    return FrameSender(queue_pair, SendQueue(queue_pair))


def _frame_receiver(queue_pair: QueuePair) -> ReceiveEngine:
    return RawReceiver(queue_pair, ReceiveQueue(queue_pair), ends_short=True)


SERVICES: dict[int, Service] = {
    RC: Service(
        RC,
        "RC",
        qp_types=(QPT_RC,),
        rules=RC,
        connected=True,
        acknowledged=True,
        send_error_state=False,
        operations=carried(RC, connected=True),
        sender=_reliable_sender,
        receiver=_reliable_receiver,
        shares_bursts=True,
    ),
    UC: Service(
        UC,
        "UC",
        qp_types=(QPT_UC,),
        rules=UC,
        connected=True,
        acknowledged=False,
        send_error_state=True,
        operations=carried(UC, connected=True),
        sender=_unreliable_sender,
        receiver=_unreliable_receiver,
    ),
    UD: Service(
        UD,
        "UD",
        qp_types=(QPT_UD,),
        rules=UD,
        connected=False,
        acknowledged=False,
        send_error_state=True,
        operations=carried(UD, connected=False),
        sender=_datagram_sender,
        receiver=_datagram_receiver,
        multicasts=True,
    ),
    XRC: Service(
        XRC,
        "XRC",
        qp_types=(QPT_XRC_SEND,),
        rules=XRC,
        connected=True,
        acknowledged=True,
        send_error_state=False,
        operations=carried(XRC, connected=True),
        sender=_xrc_sender,
        receiver=NoReceiver,
        shares_bursts=True,
        receives=False,
    ),
    XRC_TARGET: Service(
        XRC,
        "XRC target",
        qp_types=(QPT_XRC_RECV,),
        rules=XRC_TARGET,
        connected=True,
        acknowledged=True,
        send_error_state=False,
        operations=frozenset(),
        sender=NoSender,
        receiver=_xrc_receiver,
        shares_bursts=True,
        sends=False,
        receives=False,
    ),
    RD: Service(
        RD,
        "RD",
        qp_types=(QPT_RD,),
        rules=RD,
        connected=False,
        acknowledged=True,
        send_error_state=True,
        operations=carried(RD, connected=True),
        sender=RdSender,
        receiver=RdReceiver,
        key=BY_EE_CONTEXT,
        key_number=None,
        domain=True,
    ),
    RD_EEC: Service(
        RD,
        "RD EE context",
        qp_types=(),
        rules=RD_EEC,
        connected=True,
        acknowledged=True,
        send_error_state=False,
        operations=frozenset(),
        sender=_ee_sender,
        receiver=_ee_receiver,
        key=BY_EE_CONTEXT,
        key_number=_ee_number,
        shares_bursts=True,
    ),
    RAW: Service(
        RAW,
        "RAW",
        qp_types=(QPT_RAW_PACKET,),
        rules=RAW,
        connected=False,
        acknowledged=False,
        send_error_state=True,
        operations=frozenset({SEND}),
        sender=_raw_sender,
        receiver=_raw_receiver,
        key=BY_RAW_SERVICE,
    ),
    FRAMES: Service(
        FRAMES,
        "FRAMES",
        qp_types=(),  # on Ethernet ports it stands for RAW
        rules=RAW,
        connected=False,
        acknowledged=False,
        send_error_state=True,
        operations=frozenset({SEND}),
        sender=_frame_sender,
        receiver=_frame_receiver,
        key=BY_RULE,
    ),
}


WORK_QUEUE = Service(
    FRAMES,
    "work queue",
    qp_types=(),
    rules=RAW,
    connected=False,
    acknowledged=False,
    send_error_state=False,
    operations=frozenset(),
    sender=NoSender,
    receiver=_frame_receiver,
    key=BY_RULE,
    key_number=None,
    sends=False,
)
"""A receive queue of frames without a queue pair, which receives what is chosen for it by a hash."""

SCALED = Service(
    FRAMES,
    "receive-side scaling",
    qp_types=(),
    rules=RAW,
    connected=False,
    acknowledged=False,
    send_error_state=False,
    operations=frozenset(),
    sender=NoSender,
    receiver=NoReceiver,
    key=BY_RULE,
    key_number=None,
    sends=False,
    receives=False,
)
"""A queue pair of frames without queues: each frame goes to a work queue of its table."""


def of_type(qp_type: int) -> Service | None:
    """The service of queue pairs of an ibv_qp_type; None: none has it."""
    return next((row for row in SERVICES.values() if qp_type in row.qp_types), None)


def dispatch_keys() -> bytes:
    """The dispatch key by the top three bits of an opcode; BY_QP where no service has them."""
    return bytes(SERVICES[code].key if code in SERVICES else BY_QP for code in range(8))
