"""What a queue pair asks of its two engines, whatever its service: the send engine carries requests out, the
receive engine executes and answers those of the peer.

Every method returns at once, raises nothing on hostile input and is called by one thread at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softhca.wire.burst import Arrival, Burst
    from softhca.wire.packet_view import PacketView
    from softhca.wire.raw import RawView


class SendEngine:
    """Sends the requests of a source (`sending.RequestSource`) and takes the answers to them.

    ``una_psn``, where requests are acknowledged, is the first PSN that is not.
    """

    una_psn: int

    def receive(self, view: PacketView, arrival: Arrival, now: int) -> None:
        """Take the answer that ``view`` has decoded and whose bytes stand in ``arrival``."""

    def produce(self, burst: Burst, now: int) -> int:
        """Write packets into the empty ``burst``, or (RC) behind those of other queue pairs along the same
        route; how many (0: nothing may be sent now, or there is no place for it)."""
        return 0

    def expire(self, now: int) -> None:
        """A deadline asked of the environment may have come; an early call does no harm."""

    def resume(self, now: int) -> None:
        """Memory for which this engine has asked `Environment.wait_for_memory` may be there again."""

    def doorbell(self, now: int) -> None:
        """There may be new work requests in the ring."""

    def begin(self, psn: int) -> None:
        """The attribute ``sq_psn`` has been given."""

    def start(self, now: int) -> None:
        """The queue pair has entered a state in which this engine works, or its attributes have changed."""

    def flush(self) -> None:
        """Complete what is queued as flushed and forget what is under way; new work requests as well.

        One call completes no more than the queue holds, for the consumer may post as fast; when there may be
        more it asks for a turn, in which it is called again.
        """

    def reset(self) -> None:
        """Forget everything, without completions; what the ring holds is dropped."""

    def leave_window(self) -> None:
        """Give the destination's window back what is in flight, for the destination changes."""

    def path_changed(self, now: int) -> None:
        """The connection goes along another path from now on, with its time-out: what is under way on the old
        one may not have arrived."""

    def give_way(self) -> None:
        """Nothing is to be sent before a later moment: let others have the window meanwhile."""

    def has_work(self) -> bool:
        """True when `produce` may have something to send."""
        return False

    def drained(self) -> bool:
        """True when nothing that was begun is unfinished."""
        return True


class ReceiveEngine:
    """Takes requests and messages of the peer; where these go a sink says (`receiving.MessageSink`).

    ``epsn``, of a connection, is the PSN expected next.
    """

    epsn: int

    def receive(self, view: PacketView, arrival: Arrival, now: int) -> None:
        """Take the packet that ``view`` has decoded and whose bytes stand in ``arrival``."""

    def receive_raw(self, view: RawView, arrival: Arrival, now: int) -> None:
        """Take the raw datagram that ``view`` has decoded and whose bytes stand in ``arrival``."""

    def produce(self, burst: Burst, now: int) -> int:
        """Write answers as `SendEngine.produce` writes requests."""
        return 0

    def expire(self, now: int) -> None:
        """A deadline asked of the environment may have come; an early call does no harm."""

    def resume(self, now: int) -> None:
        """Memory for which this engine has asked `Environment.wait_for_memory` may be there again."""

    def begin(self, psn: int) -> None:
        """The attribute ``rq_psn`` has been given."""

    def start(self, now: int) -> None:
        """The queue pair has entered a state in which this engine works, or its attributes have changed."""

    def flush(self) -> None:
        """Complete the receives as flushed and forget what is under way; as `SendEngine.flush`."""

    def reset(self) -> None:
        """Forget everything, without completions; what the ring holds is dropped."""

    def announce(self) -> None:
        """Let the peer hear of this end, where the service acknowledges: send what it was told last again."""

    def has_work(self) -> bool:
        """True when `produce` may have something to send."""
        return False

    def may_delay_ack(self) -> bool:
        """True when this engine has something to send, and all of it may wait a moment to go behind what the
        send engine sends."""
        return False

    def join(self, burst: Burst, now: int) -> int:
        """Write behind the packets of the send engine in ``burst`` what may go there and fits; how many
        packets."""
        return 0
