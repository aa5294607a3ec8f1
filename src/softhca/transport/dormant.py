"""The engines of a queue pair that has carried nothing yet.

A connected queue pair that only waits is most of what a large server has.  What its service needs to send or
to receive (rings of answers, lists of requests, buffers) is made when the first work request or packet comes:
`Connection.send_engine` and `receive_engine` put the real engine in place of this one and give it the
attributes that were set meanwhile; whoever wants more of an engine than the inputs and outputs below asks
for it by them.

With that call the queue pair lets the object here go, so nothing of it is touched behind the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from softhca.transport.engines import ReceiveEngine, SendEngine

if TYPE_CHECKING:
    from softhca.transport.connection import Connection
    from softhca.wire.burst import Arrival, Burst
    from softhca.wire.packet_view import PacketView
    from softhca.wire.raw import RawView


class DormantSender(SendEngine):
    """Stands for the send engine, and has nothing but its place."""

    def __init__(self, qp: Connection) -> None:
        self.qp = qp

    def waiting(self) -> bool:
        """Whether there is a work request, or the ring is broken: then the real engine must see to it."""
        return self.qp.has_requests()

    def receive(self, view: PacketView, arrival: Arrival, now: int) -> None:
        self.qp.send_engine().receive(view, arrival, now)

    def produce(self, burst: Burst, now: int) -> int:
        if self.waiting():
            return self.qp.send_engine().produce(burst, now)
        return 0

    def doorbell(self, now: int) -> None:
        if self.waiting():
            self.qp.send_engine().doorbell(now)

    def start(self, now: int) -> None:
        self.doorbell(now)

    def flush(self) -> None:
        if self.waiting():
            self.qp.send_engine().flush()

    def reset(self) -> None:
        if self.waiting():
            self.qp.send_engine().reset()


class DormantReceiver(ReceiveEngine):
    """Stands for the receive engine, likewise."""

    def __init__(self, qp: Connection) -> None:
        self.qp = qp

    def waiting(self) -> bool:
        """As for the send engine, of receives."""
        return self.qp.has_receives()

    def receive(self, view: PacketView, arrival: Arrival, now: int) -> None:
        self.qp.receive_engine().receive(view, arrival, now)

    def receive_raw(self, view: RawView, arrival: Arrival, now: int) -> None:
        self.qp.receive_engine().receive_raw(view, arrival, now)

    def flush(self) -> None:
        if self.waiting():
            self.qp.receive_engine().flush()

    def reset(self) -> None:
        if self.waiting():
            self.qp.receive_engine().reset()
