"""One adapter, its link and the clock: the rounds that make packets move.

Theory of operation.  The engine never calls out for packets; somebody gives it turns.  A *round* is one
bounded turn: take what has arrived, let time-outs expire, transmit what is due.

Where the adapter is embedded in the application's process, any thread may give a round, under one lock: an
application thread that polls (inline, :meth:`EngineLoop.poll`), one that rings a doorbell or runs a command
(:meth:`EngineLoop.kick`, which gives a whole round only when the last one is long ago), one that blocks for
an event, or the background thread.  A poll that finds the lock taken returns at once: another thread does the
work.  One that finds nothing may give the processor to others (`EngineLoop.nap`).  No thread waits inside a
round, and the system calls of a burst keep the interpreter lock, so a round is short.  Where the adapter has
a process of its own, its single thread gives turns (:meth:`EngineLoop.turn`): it polls the doorbells, and
does not see when its hosts poll (``sees_polls``).

Transmission may be delayed: an ACK until the reply (`delayed_acknowledgement`), a doorbell until the next
ones (`doorbell_batching`).  Both waits end at the consumer's next poll, at a command, and after a time limit.
Where polls are seen the limit is long, because the poll ends the wait; the background thread flushes only for
a consumer that has stopped polling.  Where they are not seen it is short.

Sleeping is described in `sleeper`; `EngineLoop.deadline` alone says until when.

An engine never raises.  If one does all the same, or Ctrl-C or a signal handler that raises ends a turn
between two steps (interpreted: see `turn_lock`), its state cannot be trusted: :meth:`EngineLoop.fail` logs
the error and ends the service, and every host sees that the adapter is gone (EIO,
``IBV_EVENT_DEVICE_FATAL``).
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import cython

from softhca.driver.poll_back_off import NEVER, SLEEP, YIELD, PollBackOff
from softhca.machine.processor import yield_processor
from softhca.machine.signals import raised_by_handler
from softhca.runtime.clock import now_ns
from softhca.runtime.delayed_acknowledgement import QUICK_NS, DelayedAcknowledgement
from softhca.runtime.doorbell_batching import LEFT_NS, DoorbellBatching
from softhca.runtime.nap_choice import NapChoice
from softhca.runtime.refusals import RefusalReport
from softhca.runtime.same_host_ring import PacketReceiver
from softhca.runtime.sleeper import Sleeper
from softhca.runtime.transmitter import BURSTS, Transmitter
from softhca.runtime.turn_lock import TurnLock
from softhca.wire.burst import Arrival

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from softhca.adapter.engine import Adapter
    from softhca.links.link import Link
    from softhca.runtime.clients import Clients
    from softhca.runtime.same_host import SameHost

    def monotonic_ns() -> int:
        """The .pxd's."""

__all__ = ["NEVER", "SPIN_NS", "EngineLoop"]

SPIN_NS = 200_000
"""How long a thread that drives an engine polls without success before it blocks."""

_log = logging.getLogger("softhca.runtime")

SLEEP_GRAIN_NS = cython.declare(cython.ulonglong, 1_000_000)
"""A sleep ends at a full millisecond."""

SAME_HOST_NS = cython.declare(cython.ulonglong, 100_000)
"""How often an engine that is driven polls for what peers on this host say."""

KICK_NS = 100_000
"""A doorbell that is rung so long after the last round gives a round as well.  A consumer that always finds
completions polls the engine so rarely that it would hardly drive it otherwise."""

UNSEEN_BATCHING_NS = 5_000
"""How long a doorbell waits for the next one where polls are not seen."""

POLLS_AT_ONCE = 12
"""After so many empty polls in a row the polling thread yields the processor after each one, and after any
where the peer runs on this one (`PollBackOff.shares`, or there is no other).  Where there are several, it
does not for a while after a yield that took long: who competes for this one is no peer and keeps it for
milliseconds, and the peer runs on another one meanwhile.  Then it naps instead, where that brings more
(`softhca.runtime.nap_choice`)."""

POLLS_BEFORE_NAP = 4
"""After so many empty polls in a row, where others compete for the processor, the polling thread naps: it
sleeps until something arrives, or for a fraction of the time that it has polled in vain (`sleep_ns` of
`PollBackOff`): what a peer on this host writes into memory wakes nobody.  A thread that has slept gets the
processor at once when it is woken; one that polls all the time uses up its slice in vain, and is without the
processor for the next one, just when its peer has an answer."""

SHORTEST_NAP_NS = 20_000
"""No nap is shorter."""

COMPUTES_NS = 50_000
"""Who lets so much time pass between two empty polls has other work to do, and does not nap before it has
polled `POLLS_BEFORE_NAP` times more without such a pause."""

SINGLE_REQUEST_BYTES = cython.declare(cython.uint, 1024)
"""A single request up to this length, possibly followed by an acknowledgement, is answered before the link is
polled again.  That poll would cost half as much as the answer, and a ping-pong peer sends nothing else until
it has the answer."""

LONG_BYTES = cython.declare(cython.uint, 16_384)
"""A burst of at least this length is answered before the next one is taken, so that its sender, whose window
is a few bursts, can go on meanwhile."""

RECEIVE_BURSTS = cython.declare(cython.int, 8)

DRAINED_BURSTS = cython.declare(cython.int, 1024)

_KICK_NS = cython.declare(cython.ulonglong, KICK_NS)
_YIELD = cython.declare(cython.int, YIELD)
_SLEEP = cython.declare(cython.int, SLEEP)
_COMPUTES_NS = cython.declare(cython.ulonglong, COMPUTES_NS)
_POLLS_BEFORE_NAP = cython.declare(cython.uint, POLLS_BEFORE_NAP)
_SHORTEST_NAP_NS = cython.declare(cython.ulonglong, SHORTEST_NAP_NS)
_NO_QUEUE_PAIR = cython.declare(cython.uint, 0)
_NEVER = cython.declare(cython.ulonglong, NEVER)
# What `EngineLoop.receive` has found.
_NOTHING = cython.declare(cython.int, 0)
_SOME = cython.declare(cython.int, 1)
_SINGLE = cython.declare(cython.int, 2)


class EngineLoop:
    """``adapter`` with the ``links`` of its ports, in their order; ``wake`` is called, without arguments, to
    wake whoever sleeps in charge.

    ``clock`` gives nanoseconds.  ``poll`` and ``kick`` take the lock; all else is called under it.
    ``sees_polls``: the hosts that the adapter serves poll by ``poll``.  ``ports`` are the ways of bursts, one
    a port.  ``nap`` sleeps until something arrives or a given time, whichever comes first; None: there is
    nobody who could.
    ``clients``: hosts of other processes that this one serves beside its own, ``attached`` where there are
    any; see `softhca.runtime.clients`.
    """

    same_host: SameHost
    clients: Clients

    def __init__(
        self, adapter: Adapter, links: Sequence[Link], wake: Callable[[], object],
        clock: Callable[[], int] = now_ns, sees_polls: bool = True,
    ) -> None:
        self.adapter = adapter
        self.clock = clock
        self.sees_polls = sees_polls
        self.lock = TurnLock()
        self.sleeper = Sleeper(wake)
        adapter.notify = self.sleeper.on_event
        self.ports = [Transmitter(adapter, link, number) for number, link in enumerate(links, 1)]
        self.acknowledgement = DelayedAcknowledgement(LEFT_NS if sees_polls else QUICK_NS)
        self.batching = DoorbellBatching(BURSTS, LEFT_NS if sees_polls else UNSEEN_BATCHING_NS, sees_polls)
        alone = len(os.sched_getaffinity(0)) == 1  # whom it waits for can run here alone
        self.back_off = PollBackOff(0, NEVER, NEVER) if alone else PollBackOff(POLLS_AT_ONCE)
        self.nap_choice = NapChoice()
        self.nap: Callable[[int], object] | None = None
        self.quick_polls = 0  # empty ones in a row, with no pause between them
        self.empty_ns = 0  # when the last poll was empty; 0 where something was done since
        self.refusals = RefusalReport()
        self.yield_processor = yield_processor
        self.arrival = Arrival()
        self.ring_arrival = Arrival()
        self.polled = not sees_polls
        self.polls = 0
        self.rounds = 0
        self.round_ns = 0
        self.dead = False
        self.same_host = None
        self.same_host_ns = 0
        self.clients = None
        self.clients_ns = 0
        self.attached = False

    def share(self, same_host: SameHost) -> None:
        """Drive what the adapter shares with others on this host as well."""
        self.same_host = same_host
        for port in same_host.ports.values():
            self.ports[port.number - 1].use_rings(port)
            port.take_rest = self.take_rest

    # one turn, under the lock

    def turn(self, now: int) -> bool:
        """Serve the hosts, whose polls are not seen, and give a round; True when there was something to
        do."""
        try:
            served: cython.bint = self.serve(now)
        except Exception as error:
            self.fail(error)
            return False
        return self.progress(now) or served

    def serve(self, now: int) -> bool:
        """Serve the hosts' doorbells and commands, and transmit; whether there were any."""
        if self.attached:
            self.clients.dismiss_ended()
        served: cython.bint = self.serve_hosts(now)
        if not (served or self.sees_polls):
            return False
        if self.acknowledgement.flow is not None:
            self.acknowledgement.posted(self.acknowledgement.flow.has_requests(), now)
        # what a command alone has caused is sent at once
        if self.adapter.last_doorbell == _NO_QUEUE_PAIR or not self.batching.on_doorbell(
            self.adapter.last_doorbell, now, self.sleeper.waiters == 0
        ):
            self.transmit(now)
        return served

    def serve_hosts(self, now: int) -> bool:
        """Serve the hosts' doorbells and commands; whether there were any.

        A command finds sent what its host has posted before it, and what its completions owe their senders:
        it may end the queue pair.
        """
        self.adapter.last_doorbell = _NO_QUEUE_PAIR
        served: cython.bint = self.adapter.ring(now)
        if self.adapter.commanded:
            self.acknowledgement.end()
            self.transmit(now)
            served = self.adapter.command(now) or served
            self.adapter.last_doorbell = _NO_QUEUE_PAIR
        return served

    def progress(self, now: int) -> bool:
        """One bounded round at ``now``; True when there was something to do."""
        try:
            return self._round(now)
        except BaseException as error:
            # Ctrl-C between two steps of a command: nobody knows what was done and what was not
            self.fail(error)
            if _is_programs(error):
                raise
            return False

    def _round(self, now: int) -> bool:
        port: Transmitter
        taken: cython.int
        arrived: cython.bint = False
        single: cython.bint = False
        worked: cython.bint = False
        self.rounds += 1
        self.round_ns = now
        if self.acknowledgement.flow is not None and (
            self.sees_polls or self.acknowledgement.overdue(now)
        ):
            self.flush(now)
        if self.attached:
            self.clients.dismiss_ended()
            if self.serve_hosts(now):
                worked = True
        if self.same_host is not None and self.receive_rings(now):
            worked = True
        for port in self.ports:
            taken = self.receive(port, now)
            if taken != _NOTHING:
                single = taken == _SINGLE and not arrived
                arrived = True
        if arrived:
            worked = True
        if self.adapter.counters.key_refusals != self.refusals.reported:
            self.refusals.report(self.adapter.counters.key_refusals, now)
        self.adapter.expire(now)
        for port in self.ports:
            if port.link.expire(now):
                worked = True
        if self._sends(single, worked, now) and self.transmit(now):
            worked = True
        if self.same_host is not None and now >= self.same_host_ns:
            self.same_host_ns = now + SAME_HOST_NS
            if self.same_host.poll():
                self.same_host_ns = now
                worked = True
        if self.clients is not None and now >= self.clients_ns and self.clients.turn(now):
            worked = True
        return worked

    def receive(self, port: Transmitter, now: int) -> int:
        """Take what has arrived at a port, a bounded number of bursts: nothing, some, or some of which the
        last was a single request that the polling consumer may answer at once."""
        arrival: Arrival = self.arrival
        taken: cython.int = _NOTHING
        _turn: cython.int
        for _turn in range(RECEIVE_BURSTS):
            if not port.link.receive(arrival):
                break
            taken = _SOME
            self.adapter.receive(port.port_number, arrival, now)
            if arrival.length >= LONG_BYTES:
                self.transmit(now)
            elif self.back_off.empty_polls and is_single_request(arrival):
                # a client's poll, which would take the answer along, is not seen
                return _SINGLE if self.polled and not self.attached else _SOME
        return taken

    def _sends(self, single: bool, worked: bool, now: int) -> bool:
        """Whether the round transmits at its end.  ``single``: a single request has come, nothing else."""
        if single:
            return not self.acknowledgement.received(
                None if self.sleeper.waiters else self.adapter.flow_delaying_ack(), now
            )
        if self.sees_polls or worked or not (self.acknowledgement.waits or self.batching.waits):
            return True
        return self.overdue(now)

    def receive_rings(self, now: int) -> bool:
        """Take what peers on this host have put into their rings, a bounded number of bursts each, and tell
        threads to look where one has written to their memory; whether there was anything."""
        port: Transmitter
        receiver: PacketReceiver
        worked: cython.bint = False
        for port in self.ports:
            for receiver in port.rings:
                if receiver.take_wake_request():
                    self.adapter.wake_threads()
                    worked = True
                if self.receive_ring(port, receiver, RECEIVE_BURSTS, now):
                    worked = True
        return worked

    def receive_ring(self, port: Transmitter, receiver: PacketReceiver, most: int, now: int) -> bool:
        """Take up to ``most`` bursts from a peer's ring; whether there were any."""
        arrival: Arrival = self.ring_arrival  # links leave in theirs what only rings change
        worked: cython.bint = False
        _turn: cython.int
        if receiver.fresh:
            if not receiver.waiting():
                return False
            # what this peer has sent before stands in the port's own link
            receiver.fresh = False
            self.drain(port, now)
        for _turn in range(most):
            if not receiver.receive(arrival):
                break
            worked = True
            self.adapter.receive(port.port_number, arrival, now)
            receiver.done()
        return worked

    def take_rest(self, port_number: int, receiver: PacketReceiver) -> None:
        """A peer on this host has gone: take what it has left in its ring, a disconnect perhaps, before the
        ring goes too."""
        if not self.dead:
            self.receive_ring(self.ports[port_number - 1], receiver, DRAINED_BURSTS, self.clock())

    def drain(self, port: Transmitter, now: int) -> None:
        """Take what stands in a port's link now; no more than fits there, however much follows."""
        _turn: cython.int
        for _turn in range(DRAINED_BURSTS):
            if not port.link.receive(self.arrival):
                break
            self.adapter.receive(port.port_number, self.arrival, now)

    def transmit(self, now: int) -> bool:
        """Send what is due, a bounded number of bursts; whether anything was sent."""
        self.batching.sent(now)
        self.acknowledgement.waits = False
        port: Transmitter
        sent: cython.bint = False
        for port in self.ports:
            if port.transmit(now):
                sent = True
        return sent

    def flush(self, now: int) -> None:
        """Send what is held back, if anything is: its wait is over."""
        if self.attached:
            self.clients.dismiss_ended()
        waited: cython.bint = self.acknowledgement.end()
        if waited or self.batching.waits:
            self.transmit(now)

    def send_rest(self) -> None:
        """Send all that is due, since nobody will give turns any more: hosts that have gone, and with them
        their connections, leave disconnects behind."""
        if not self.dead:
            self.flush(self.clock())
            while self.transmit(self.clock()):
                pass

    def overdue(self, now: int) -> bool:
        """Whether something is held back that has waited too long."""
        if self.batching.overdue(now):
            return True
        return self.acknowledgement.waits and self.acknowledgement.overdue(now)

    # for application threads

    def poll(self) -> bool:
        """A round for a thread that polls, unless another thread gives one.  True: there was work.  Behind an
        empty one the thread may yield the processor or nap."""
        return self._poll(True)

    def look(self) -> bool:
        """The same for a thread that does not nap: it knows itself how long it polls, and sleeps then, or it
        has other work to do than to poll."""
        return self._poll(False)

    def _poll(self, naps: bool) -> bool:
        if self.dead or not self.lock.take_soon():
            return False
        try:
            if self.dead:  # it was closed while the lock was waited for
                return False
            self.polls += 1
            self.polled = True
            now: cython.ulonglong = self.now()
            self.batching.polled(now)
            worked: cython.bint = self.progress(now)
            self.polled = False
            if not self.dead:
                self.settle(now)
        finally:
            self.lock.release()
        if worked:
            self.back_off.worked(now)
            self.nap_choice.done(now)
            self.quick_polls = 0
            self.empty_ns = 0
        else:
            self._give_way(now, naps)
        return worked

    def _give_way(self, now: int, naps: bool) -> None:
        """A poll at ``now`` was empty: others may have the processor."""
        advice: cython.int = self.back_off.missed(now)
        self.quick_polls = 0 if self.empty_ns and now > self.empty_ns + _COMPUTES_NS else self.quick_polls + 1
        self.empty_ns = now
        if advice == _YIELD:
            self.yield_processor()
            after: cython.ulonglong = self.now()
            self.back_off.yielded(now, after)
            if self.back_off.contended(after):
                self.nap_choice.begins(after, self.back_off.contended_until_ns)
        elif advice == _SLEEP:
            if (
                naps
                and self.quick_polls > _POLLS_BEFORE_NAP
                and self.nap_choice.naps
                and self.nap is not None
                and not self.lock.mine()
            ):
                nap_ns: cython.ulonglong = self.back_off.sleep_ns(now)
                self.nap(now + (nap_ns if nap_ns > _SHORTEST_NAP_NS else _SHORTEST_NAP_NS))
            self.empty_ns = self.now()

    def kick(self) -> None:
        """The host rang doorbells or wrote commands: serve them and transmit at once; then give a round, if
        the last one is long ago."""
        self.lock.acquire()
        try:
            if not self.dead:
                now: cython.ulonglong = self.now()
                self.back_off.worked_ns = now  # a program that posts is not idle: shorter naps
                self.nap_choice.done(now)
                self.empty_ns = 0
                self.serve(now)
                if now - self.round_ns >= _KICK_NS:
                    self.polls += 1
                    self.progress(now)
                    self.batching.last_ns = self.now()  # that took a while
                if not self.dead:
                    self.settle(now)
        except BaseException as error:
            self.fail(error)
            if _is_programs(error):
                raise
        finally:
            self.lock.release()

    def now(self) -> int:
        """The time by ``clock``."""
        if cython.compiled and self.clock is now_ns:
            return monotonic_ns()  # the same clock
        return self.clock()

    def fail(self, error: BaseException) -> None:
        """The engine raised ``error``: log it, give no more rounds, wake whoever sleeps; under the lock."""
        # The log has the reason.
        _log.error("an adapter has failed and is given up", exc_info=error)
        self.dead = True
        self.sleeper.wake()

    # for who sleeps

    def settle(self, now: int) -> None:
        """After a turn at ``now``: wake a sleeper that would wake up too late, or that waits for what has
        happened.  While a program polls nobody sleeps for long, and no deadline needs to be known."""
        if self.attached:
            self.clients.notify()
        if self.sleeper.cares(now):
            self.sleeper.settle(self.deadline())

    def deadline(self) -> int:
        """When the next round is due even if nothing arrives; ``NEVER`` when none is."""
        port: Transmitter
        next_ns: cython.ulonglong
        held_back: cython.bint = self.batching.waits or self.acknowledgement.waits
        due: cython.ulonglong = self._held_by_links_ns()
        for port in self.ports:
            if port.pending:
                next_ns = port.deadline()  # until then nothing else is sent there
            elif held_back:
                next_ns = self._held_back_ns()
            else:
                next_ns = self.adapter.next_deadline(port.port_number)
            due = next_ns if next_ns < due else due
        return due

    def _held_by_links_ns(self) -> int:
        """When the first packet that a link holds back is due; ``NEVER`` when none is held."""
        port: Transmitter
        next_ns: cython.ulonglong
        due: cython.ulonglong = _NEVER
        for port in self.ports:
            next_ns = port.link.next_deadline()
            due = next_ns if next_ns < due else due
        return due

    def _held_back_ns(self) -> int:
        """When what is held back is to be sent at the latest."""
        first: cython.ulonglong = self.batching.deadline()
        second: cython.ulonglong = self.acknowledgement.deadline()
        return first if first < second else second

    def soon(self, now: int) -> bool:
        """Whether something held back, here or by the link, is due before a sleep could end exactly then."""
        end_ns: cython.ulonglong = now + SLEEP_GRAIN_NS
        return self._held_by_links_ns() < end_ns or self._held_back_ns() < end_ns


def _is_programs(error: BaseException) -> bool:
    """Whether an error that ended a turn is the program's own: Ctrl-C, or of a handler of its signals."""
    return not isinstance(error, Exception) or raised_by_handler(error)


def is_single_request(arrival: Arrival) -> bool:
    """Whether this may be all that the peer sends before it gets an answer, as in a ping-pong."""
    return arrival.length <= 2 * arrival.stride and arrival.length <= SINGLE_REQUEST_BYTES
