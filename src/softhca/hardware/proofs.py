# amaranth: UnusedElaboratable=no
"""What is proved of the blocks, by names: who has a turn, and the packets' FIFOs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from softhca.hardware.claims import Claims
from softhca.hardware.completion_engine import CompletionEngine
from softhca.hardware.fifo import ReceiveFifo, SendFifo
from softhca.hardware.formal_arbiters import (
    ArbiterClaims,
    CompletionClaims,
    HoldsBus,
    LookUpHoldsBus,
    MoverHoldsBus,
    TransmitterClaims,
    WakeClaims,
)
from softhca.hardware.formal_fifos import ReceiveClaims, ReceiverClaims, SendClaims, ShowsPackets
from softhca.hardware.formal_scheduler import SchedulerClaims, TimerClaims
from softhca.hardware.host_interface import HostArbiter, HostPort
from softhca.hardware.packet_buffer import PacketBuffer
from softhca.hardware.payload_mover import PayloadMover
from softhca.hardware.retry_timer import RetryTimer
from softhca.hardware.serial import SerialReceiver, SerialTransmitter
from softhca.hardware.tops import REQUESTERS
from softhca.hardware.translation import Translation
from softhca.hardware.wake_up import WakeUp
from softhca.hardware.work_scheduler import WorkScheduler


class Proof(NamedTuple):
    """``make`` builds the block and what is claimed of it; ``told`` says that, with the block's size."""

    told: str
    make: Callable[[], Claims]


PROOFS: Mapping[str, Proof] = {
    "host_arbiter": Proof(
        "a turn for each of 7, whole, after at most one of each other's",
        lambda: ArbiterClaims(HostArbiter(REQUESTERS)),
    ),
    "host_port": Proof("its request for host memory stays until it is done", lambda: HoldsBus(HostPort())),
    "payload_mover": Proof(
        "its request for host memory stays until it is done", lambda: MoverHoldsBus(PayloadMover())
    ),
    "translation": Proof(
        "its request for host memory stays until it is done", lambda: LookUpHoldsBus(Translation())
    ),
    "completion_engine": Proof(
        "its request for host memory stays; 2 queues", lambda: HoldsBus(CompletionEngine(2))
    ),
    "completions": Proof(
        "the engines' entries take turns; 2 queues", lambda: CompletionClaims(CompletionEngine(2))
    ),
    "wake_up": Proof(
        "nothing is lost, nothing put twice, the engines first; 4 queue pairs", lambda: WakeClaims(WakeUp(4))
    ),
    "retry_timer": Proof(
        "nobody who waits is forgotten or served twice; 4 queue pairs, 4 clocks a step",
        lambda: TimerClaims(RetryTimer(4, 8, 4)),
    ),
    "work_scheduler": Proof(
        "its lists are queues, each waits once; 4 queue pairs, 4 levels",
        lambda: SchedulerClaims(WorkScheduler(4, 4)),
    ),
    "serial_transmitter": Proof(
        "packets leave whole, at most 4 replies before a request",
        lambda: TransmitterClaims(SerialTransmitter()),
    ),
    "serial_receiver": Proof(
        "a packet ends in a clock without a word", lambda: ReceiverClaims(SerialReceiver())
    ),
    "packet_buffer": Proof(
        "shows what shift registers would; 4 words, 2 packets", lambda: ShowsPackets(PacketBuffer(4, 2, 2))
    ),
    "receive_fifo": Proof(
        "keeps nothing cut or spoilt, counts the rest; 4 words, 2 packets",
        lambda: ReceiveClaims(ReceiveFifo(4, 2)),
    ),
    "send_fifo": Proof("keeps whole packets alone; 4 words, 2 packets", lambda: SendClaims(SendFifo(4, 2))),
}
