from collections.abc import Callable, Sequence
from typing import Any

from softhca.driver.liveness import Liveness
from softhca.driver.locked import Locked
from softhca.driver.work_requests import ReceiveRequest, SendRequest, WorkRequest
from softhca.queues.doorbells import DoorbellFifo
from softhca.queues.ring import RingLayout, RingProducer

SEND_FENCE: int
SEND_SIGNALED: int
SEND_SOLICITED: int
SEND_INLINE: int

def swapped(value: int) -> int: ...

class RingPoster:
    producer: RingProducer
    max_wr: int
    max_sge: int
    refused: str
    written: int
    request: WorkRequest | None

    def write(self, first: WorkRequest | None) -> None: ...

class SendPoster(RingPoster):
    max_inline_bytes: int

    def __init__(self, layout: RingLayout, max_wr: int, max_sge: int, max_inline_bytes: int) -> None: ...
    def post(
        self,
        opcode: int,
        flags: int,
        imm: int,
        wr_id: int,
        remote_va: int,
        rkey: int,
        compare: int,
        swap: int,
        ah: int,
        qpn: int,
        qkey: int,
        sges: Sequence[tuple[int, int, int]],
        inline: bytes | None,
    ) -> int: ...
    def post_run(
        self,
        opcode: int,
        flags: int,
        imm: int,
        wr_id: int,
        remote_va: int,
        rkey: int,
        address: int,
        length: int,
        lkey: int,
    ) -> int: ...

class ReceivePoster(RingPoster):
    def __init__(self, layout: RingLayout, max_wr: int, max_sge: int) -> None: ...
    def post(self, wr_id: int, sges: Sequence[tuple[int, int, int]]) -> int: ...

class QueuePairPoster(Locked):
    __slots__: tuple[str, ...]
    state: int
    _session: Any
    _send: SendPoster | None
    _receive: ReceivePoster | None
    _doorbells: DoorbellFifo
    _doorbell: int
    _kick: Callable[[], object]

    def _open(self, session: Liveness, state: int) -> None: ...
    def _set_doorbell(self, doorbells: DoorbellFifo, doorbell: int, kick: Callable[[], object]) -> None: ...
    def post_send(
        self,
        opcode: int,
        flags: int,
        imm: int,
        wr_id: int,
        remote_va: int,
        rkey: int,
        compare: int,
        swap: int,
        ah: int,
        qpn: int,
        qkey: int,
        sges: Sequence[tuple[int, int, int]],
        inline: bytes | None,
    ) -> None: ...
    def post_run(
        self,
        opcode: int,
        flags: int,
        imm: int,
        wr_id: int,
        remote_va: int,
        rkey: int,
        address: int,
        length: int,
        lkey: int,
    ) -> None: ...
    def post_chain(self, first: SendRequest) -> bool: ...
    def _notify(self) -> None: ...
    def post_receives(self, first: ReceiveRequest) -> None: ...
    def _receiver(self) -> ReceivePoster: ...
    def _notify_receives(self) -> None: ...
