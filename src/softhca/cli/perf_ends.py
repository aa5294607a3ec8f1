"""One end of a performance test: its device, the handshakes of perftest's programs, and who asks whom.

Who connects by TCP speaks first in every handshake.  Who *asks* is the client as well, unless the test is
reversed; in a bidirectional test both ask.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from softhca.cli import output
from softhca.cli.control import STEP_TIMEOUT_S
from softhca.cli.errors import CommandError, UsageError
from softhca.cli.perf_bandwidth import BandwidthClient, Measured, Receiver, serve
from softhca.cli.perf_bidirectional import BothWays
from softhca.cli.perf_latency import LatencyEnd
from softhca.cli.perf_plan import MAX_INLINE_BYTES, READS, SAME_OPTIONS, Plan
from softhca.cli.perftest_exchange import SCRIPTS, Keys, PerftestExchange, Report

if TYPE_CHECKING:
    from softhca.cli.control import ControlConnection
    from softhca.cli.endpoint import Endpoint

MIB = 1 << 20

_LATE_S = 1.0
_POLLS_A_LOOK = 64
_LOOK_S = 0.5


@dataclass
class Outcome:
    """What an end knows of one message size: its own figures, and what the peer reports of its own."""

    size_bytes: int
    measured: Measured
    peer: Report | None = None


def run_end(args: argparse.Namespace, plan: Plan, control: ControlConnection) -> list[Outcome]:
    """One end of the test; what it can tell, an outcome for each message size."""
    client = not args.listen
    if plan.verb == "mailbox":
        from softhca.cli.perf_mailbox import run_end as run_mailbox

        measured = run_mailbox(args, plan, control)
        return [] if measured is None else [Outcome(plan.size_bytes, measured)]
    exchange = PerftestExchange(control, client)
    asks = plan.both or client != plan.reversed
    with open_endpoint(args, plan, asks) as endpoint:
        before = packets_received(endpoint)  # a peer that has our keys may begin at once
        mtu_code, cycle_bytes = exchange.introduce(endpoint.active_mtu_code)
        if cycle_bytes > endpoint.needs.area_bytes:
            raise CommandError(
                f"the peer cycles through {cycle_bytes} bytes, this end has {endpoint.needs.area_bytes}"
            )
        mine = [keys_of(endpoint, index) for index in range(plan.queue_pairs)]
        theirs = join(endpoint, exchange, plan, mine, mtu_code)
        sizes = plan.sizes_bytes(128 << mtu_code)
        total = plan.iterations * plan.queue_pairs * len(sizes)
        with output.progress(plan.test, total or None, client) as advance:
            end = End(endpoint, exchange, plan, mine, theirs, advance, before)
            return end.run(asks, sizes)


def open_endpoint(args: argparse.Namespace, plan: Plan, asks: bool) -> Endpoint:
    """Device, memory and queue pairs for one end of ``plan``."""
    from softhca.cli.endpoint import Endpoint, Needs
    from softhca.cli.perftest_exchange import CYCLE_BUFFER_BYTES
    from softhca.verbs import enums as e

    access = (
        e.IBV_ACCESS_LOCAL_WRITE
        | {
            "write": e.IBV_ACCESS_REMOTE_WRITE,
            "read": e.IBV_ACCESS_REMOTE_READ,
            "send": 0,
            "atomic": e.IBV_ACCESS_REMOTE_ATOMIC,
        }[plan.verb]
    )
    area_bytes = max(plan.landing_bytes, CYCLE_BUFFER_BYTES)
    area_bytes += -area_bytes % CYCLE_BUFFER_BYTES
    least_bytes = 1 if plan.all_sizes else plan.size_bytes
    inline = plan.kind == "lat" and least_bytes <= MAX_INLINE_BYTES
    receives = plan.verb == "send" and (plan.kind == "lat" or plan.both or not asks)
    endpoint = Endpoint(
        Needs(
            plan.service,
            area_bytes,
            plan.queue_pairs,
            send_depth=plan.depth,
            receive_depth=plan.receive_depth if receives else 1,
            areas=plan.areas,
            access=access,
            inline_bytes=min(plan.size_bytes, MAX_INLINE_BYTES) if inline else 0,
            reads=READS if plan.verb in ("read", "atomic") else 1,
            device=args.ib_dev,
            port=args.ib_port,
            gid_index=args.gid_idx,
            service_level=args.sl,
            silence_s=args.silence,
            shared=args.link == "shm",
            allocated=True,
            timeout_code=args.qp_timeout,
        )
    )
    if plan.service == "ud" and not plan.all_sizes and plan.size_bytes > 128 << endpoint.active_mtu_code:
        endpoint.close()
        raise UsageError(
            f"a datagram of {plan.size_bytes} bytes is larger than the port's MTU of "
            f"{128 << endpoint.active_mtu_code} bytes"
        )
    return endpoint


def packets_received(endpoint: Endpoint) -> int:
    """How many packets the device has received."""
    return int(endpoint.context.query_counters()["packets_received"])


def keys_of(endpoint: Endpoint, index: int) -> Keys:
    """What the peer must know about queue pair ``index``."""
    link = endpoint.links[index]
    return Keys(
        endpoint.lid,
        endpoint.needs.reads,
        link.qp.qp_num,
        link.psn,
        endpoint.mr.rkey,
        endpoint.address + endpoint.receive_area(index),
        endpoint.gid,
    )


def join(
    endpoint: Endpoint, exchange: PerftestExchange, plan: Plan, mine: list[Keys], mtu_code: int
) -> list[Keys]:
    """The handshakes up to connected queue pairs; returns the peer's keys.

    Raises :class:`CommandError` when the peer has another number of queue pairs: it says then the keys of one
    where those of another are due.
    """
    from softhca.cli.endpoint import Peer

    script = SCRIPTS[plan.test]
    for _ in range(script.first):
        exchange.handshake(mine[0])
    theirs = [exchange.handshake(keys) for keys in mine]
    for index, keys in enumerate(theirs):
        endpoint.connect(index, Peer(keys.qpn, keys.psn, keys.gid, keys.lid, keys.out_reads), mtu_code)
    for own, known in zip(mine + mine[:1] * script.ready, theirs + theirs[:1] * script.ready, strict=True):
        if exchange.handshake(own).qpn != known.qpn:
            raise CommandError(f"the peer has another number of queue pairs: {SAME_OPTIONS}")
    return theirs


class PeerWait:
    """Waits for the peer's word, and drives the adapter meanwhile, with the receives of a receiving end.

    Raises :class:`CommandError` when for the end's ``silence_s`` neither a word nor a packet has come
    (through shared memory no packets come: there only a word or a peer that goes away ends it).
    """

    def __init__(self, endpoint: Endpoint, control: ControlConnection, receiver: Receiver | None) -> None:
        self.endpoint = endpoint
        self.control = control
        self.receiver = receiver

    def packets(self) -> int:
        """How many packets the device has received."""
        return packets_received(self.endpoint)

    def __call__(self) -> None:
        """Return when the peer has said something, or has gone."""
        seen, heard_s, look_s = -1, time.monotonic(), 0.0
        work = self.receiver.poll if self.receiver is not None else self.endpoint.context.progress
        while not self.control.readable():
            for _ in range(_POLLS_A_LOOK):
                work()
            now_s = time.monotonic()
            if now_s < look_s or self.endpoint.needs.shared:
                continue
            look_s = now_s + _LOOK_S
            packets = self.packets()
            if packets != seen:
                seen, heard_s = packets, now_s
            elif now_s - heard_s > self.endpoint.needs.silence_s:
                raise CommandError(
                    f"the peer has been silent for {self.endpoint.needs.silence_s:g} s: {SAME_OPTIONS}"
                )


class End:
    """The choreography of one end on connected queue pairs.  ``packets_before``: how many the device had
    received before the peer could send any.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        exchange: PerftestExchange,
        plan: Plan,
        mine: list[Keys],
        theirs: list[Keys],
        advance: Any,
        packets_before: int,
    ) -> None:
        self.endpoint = endpoint
        self.exchange = exchange
        self.plan = plan
        self.script = SCRIPTS[plan.test]
        self.mine = mine
        self.theirs = theirs
        self.advance = advance
        self.done = 0
        self.receiver: Receiver | None = None
        if plan.verb == "send" and plan.kind == "bw" and (plan.both or exchange.client == plan.reversed):
            self.receiver = Receiver(endpoint, plan)
        self.attendance = PeerWait(endpoint, exchange.control, self.receiver)
        self.packets_before = packets_before

    def run(self, asks: bool, sizes: list[int]) -> list[Outcome]:
        """The whole test of an end that ``asks`` or only answers."""
        if self.plan.both:
            return self._both(sizes)
        if asks:
            return self._ask(sizes)
        if self.receiver is not None:
            return self._receive(sizes)
        return self._answer(sizes)

    def _step(self, size_bytes: int) -> Plan:
        return replace(self.plan, size_bytes=size_bytes)

    def _advanced(self, operations: float) -> None:
        """Tell of what was done with this size, beyond the sizes before."""
        self.advance(self.done + operations)

    def _greet(self, handshakes: int = 1) -> None:
        for _ in range(handshakes):
            self.exchange.handshake(self.mine[0])

    def _ask(self, sizes: list[int]) -> list[Outcome]:
        """Run the test, size by size, then say so."""
        outcomes = []
        for number, size_bytes in enumerate(sizes):
            plan = self._step(size_bytes)
            test: BandwidthClient | LatencyEnd
            if plan.kind == "bw":
                test = BandwidthClient(self.endpoint, plan, self.theirs)
            else:
                test = self._latency_end(plan, client=True, first=not number)
            self._greet(self.script.posted)
            measured = test.run(self._advanced)
            self.done += measured.operations
            outcomes.append(Outcome(size_bytes, measured))
            self._size_done()
        self.exchange.attend = self.attendance
        if self.script.report:
            self._greet()
            self.exchange.report(report_of(self._step(sizes[-1]), outcomes[-1].measured))
        self._close()
        return outcomes

    def _latency_end(self, plan: Plan, client: bool, first: bool) -> LatencyEnd:
        end = LatencyEnd(
            self.endpoint, plan, self.theirs[0], self.exchange.control, client, self.plan.landing_bytes
        )
        if first:
            end.post()
        return end

    def _size_done(self) -> None:
        """The handshake behind each of several sizes of ``send-bw``."""
        if self.plan.all_sizes and self.plan.test == "send-bw":
            self.exchange.attend = self.attendance
            self._greet()
            self.exchange.attend = None

    def _receive(self, sizes: list[int]) -> list[Outcome]:
        """``send-bw``: receive, and tell by this end's clock."""
        assert self.receiver is not None
        self.receiver.post()
        outcomes = []
        for size_bytes in sizes:
            self._greet(self.script.posted)
            self.receiver.begin()
            # A sender that ends by its clock, and is not the one that speaks first, ends the last handshake.
            if self.plan.iterations or not self.exchange.client:
                self.receiver.run(self.exchange.control)
            outcomes.append(Outcome(size_bytes, self.receiver.measured))
            self._size_done()
        self.exchange.attend = self.attendance
        self._close()
        outcomes[-1].measured = self.receiver.measured
        return self._told(outcomes)

    def _answer(self, sizes: list[int]) -> list[Outcome]:
        """Answer, or only be there, until the peer is finished."""
        endpoint, control, plan = self.endpoint, self.exchange.control, self.plan
        if plan.kind == "lat" and plan.verb in ("write", "send"):
            for number, size_bytes in enumerate(sizes):
                end = self._latency_end(self._step(size_bytes), client=False, first=not number)
                self._greet(self.script.posted)
                end.run(self._advanced)
            if self.script.close:
                serve(endpoint, control, "poll")
        elif not plan.reversed:
            serve(endpoint, control, plan.target)
        if not self.script.close:
            control.readable(endpoint.needs.silence_s)
            return []
        report = None
        if self.script.report:
            if plan.reversed:
                self.exchange.attend = self.attendance
                self.exchange.handshake(self.mine[0], timeout_s=None)
                self._check_asked()
            else:
                self._check_asked()
                self.exchange.handshake(self.mine[0], timeout_s=None)
            report = self.exchange.report(Report(sizes[-1], plan.iterations, 0.0, 0.0, 0.0))
            if not plan.reversed:
                serve(endpoint, control, "poll")
        self._close()
        return self._told([Outcome(sizes[-1], measured_of(report, plan))] if report else [])

    def _told(self, outcomes: list[Outcome]) -> list[Outcome]:
        """A server that is only asked has nothing to tell: its client tells it."""
        return outcomes if self.plan.reversed else []

    def _check_asked(self) -> None:
        """Raises :class:`CommandError` when the peer is finished and not one packet has come."""
        late_s = time.monotonic() + _LATE_S  # without acknowledgements its words are faster than its packets
        while not self.endpoint.needs.shared and self.attendance.packets() == self.packets_before:
            if time.monotonic() > late_s:
                self.exchange.control.receive(1)  # raises for a peer that has gone, which said nothing
                raise CommandError(
                    f"the peer says that it is finished and has asked for nothing: {SAME_OPTIONS}"
                )
            self.endpoint.context.progress()

    def _check_not_asked(self) -> None:
        """Raises :class:`CommandError` when the peer has asked before both ends agreed to begin."""
        if self.exchange.client:
            return
        self.exchange.control.readable(STEP_TIMEOUT_S)
        if self.attendance.packets() != self.packets_before:
            raise CommandError(f"the peer has begun before this end: {SAME_OPTIONS}; no warm-up")

    def _both(self, sizes: list[int]) -> list[Outcome]:
        """Both ends ask at the same time, and exchange their reports size by size."""
        if self.receiver is not None:
            self.receiver.post()
        outcomes: list[Outcome] = []
        for size_bytes in sizes:
            plan = self._step(size_bytes)
            if self.receiver is not None:
                self.receiver.begin()
            test = BandwidthClient(self.endpoint, plan, self.theirs)
            if self.receiver is None and not outcomes:
                self._check_not_asked()
            self._greet()
            if self.receiver is None:
                measured = test.run(self._advanced)
            else:
                measured = BothWays(test, self.receiver, self.exchange.control).run(self._advanced)
            self.done += measured.operations
            self.exchange.attend = self.attendance
            if self.receiver is None and plan.all_sizes and plan.verb != "atomic":
                self._greet()
            outcomes.append(Outcome(size_bytes, measured, self._reports(plan, measured)))
            self._size_done()
            self.exchange.attend = None
        self.exchange.attend = self.attendance
        self._close()
        return outcomes

    def _reports(self, plan: Plan, measured: Measured) -> Report | None:
        """Exchange them; ``send-bw`` for a time has none."""
        if plan.verb == "send" and plan.seconds:
            return None
        return self.exchange.report(report_of(plan, measured))

    def _close(self) -> None:
        if self.script.close:
            self.exchange.finish(self.mine[0])


def report_of(plan: Plan, measured: Measured) -> Report:
    """``measured`` in the units that perftest's programs exchange."""
    rate = measured.operations * 1e9 / max(measured.elapsed_ns, 1)
    average = rate * plan.size_bytes / MIB
    return Report(plan.size_bytes, measured.operations // plan.queue_pairs, average, average, rate / 1e6)


def measured_of(report: Report, plan: Plan) -> Measured:
    """What a peer's report says, as if this end had measured it; without single times."""
    operations = report.iterations * plan.queue_pairs
    rate = report.million_messages_per_s * 1e6 or report.average_mib_per_s * MIB / max(report.size_bytes, 1)
    return Measured(operations, int(operations * 1e9 / rate) if rate > 0 else 0)
