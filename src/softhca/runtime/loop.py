"""One adapter, its link and the clock: the rounds that make packets move.

Theory of operation.  The engine never calls out for packets; somebody gives it turns.  A *round* is one
bounded turn: take what has arrived, let time-outs expire, transmit what is due.  Rounds are given by
whoever is there first, under one lock: an application thread that polls (inline, :meth:`EngineLoop.poll`),
one that rings a doorbell or runs a command (:meth:`EngineLoop.kick`, which gives a whole one only where the
last is long ago), one that blocks for an event, or the background thread.  Who polls and finds the lock
taken goes on at once: somebody else does the work.  Nobody waits inside a round, and the system calls of a
burst keep the interpreter lock, so a round is short.

Two words make sure that nothing is slept through.  ``look_ns`` is the moment at which the one that sleeps
in charge of this adapter will look again by itself: a round that leaves an earlier deadline behind wakes
it.  ``notices`` counts what the engine had to tell the host: where application threads sleep (``waiters``),
a round that brought news wakes them.

An acknowledgement may *tarry*.  Who polls, finds a lone message and answers it at once sends the ACK behind
the answer, in the same system call, instead of in front of it.  Nobody knows that an answer will come, so a
queue pair has to earn it: ``PROMPT`` messages in a row were answered within ``PROMPT_NS`` and before the next
look.  The first look that comes instead sends the ACK, before anything else, and so does the first command;
who stops looking is relieved by the background thread, as ever.

Doorbells may be *gathered*.  One queue pair's consumer says by a chain what goes together; one that posts to
several in turn cannot.  So where those of several are rung within ``GATHER_NS`` of each other, ``STEADY``
times in a row, a doorbell waits for the next ones: for ``GATHER_NS`` at most if another one comes, no more of
them than one call sends, and until the next look.  A consumer that stays away instead is relieved by the
background thread too, and then has to ring ``DISTRUST`` times before the same is tried again.

An engine never raises; if one does all the same, or Ctrl-C ends a turn between two steps, its state is not to
be trusted: :meth:`EngineLoop.fail` logs it and ends the service, and every host sees an adapter that is gone
(EIO, ``IBV_EVENT_DEVICE_FATAL``).
"""

import logging

import cython

from softhca.links.roce_udp import RoceUdpLink
from softhca.runtime.clock import now_ns
from softhca.runtime.processor import give_way
from softhca.runtime.same_host_ring import PacketReceiver, PacketSender
from softhca.runtime.turn_lock import TurnLock
from softhca.wire.burst import Arrival, Burst

__all__ = ["NEVER", "SPIN_NS", "EngineLoop"]

NEVER = (1 << 63) - 1
"""``look_ns`` of one that sleeps until it is woken, and the deadline of an engine that waits for nothing."""

SPIN_NS = 200_000
"""How long who drives an engine goes on without work before it blocks."""

_log = logging.getLogger("softhca.runtime")

LATE_NS = cython.declare(cython.ulonglong, 8_000_000)
"""A deadline may be noticed this much later than it is due before somebody is woken for it."""

SLEEP_GRAIN_NS = cython.declare(cython.ulonglong, 1_000_000)
"""A sleep ends at a full millisecond."""

TELL_NS = cython.declare(cython.ulonglong, 1_000_000_000)
"""How far apart two warnings about peers' keys are at least."""

LOOK_NS = cython.declare(cython.ulonglong, 100_000)
"""How often an engine that is driven looks at its neighbours on this host."""

KICK_NS = 100_000
"""Who rings a doorbell so long after the last round gives one as well: a consumer that always has completions
to take polls in vain so rarely that it hardly drives the engine otherwise."""

GATHER_NS = 50_000
"""Doorbells of several queue pairs that are rung within this time go out together."""

ALIKE = 16
"""More doorbells of one queue pair in a row come from a consumer that serves no other."""

STEADY = 8
"""After so many doorbells of one queue pair after another the next ones are expected."""

DISTRUST = 10_000
"""So many more doorbells are sent at once after the next one was expected in vain."""

RETRY_NS = 200_000
"""A burst that the link had no room for is offered again so long after it was."""

LONE_BYTES = cython.declare(cython.uint, 1024)
"""A single packet up to this length, or one with an acknowledgement behind it, is answered after a pause
before another is looked for: that look would cost half as much as the answer, and who waits for the answer
sends nothing else meanwhile."""

PROMPT = 8
"""So many lone messages in a row a consumer has answered at once: the acknowledgement of the next tarries."""

PROMPT_NS = 20_000
"""What is at once."""

LONG_BYTES = cython.declare(cython.uint, 16_384)
"""A run of packets from this length on is answered before the next one is taken, so that its sender, whose
window is a few of them, goes on meanwhile."""

_KICK_NS = cython.declare(cython.ulonglong, KICK_NS)
_GATHER_NS = cython.declare(cython.ulonglong, GATHER_NS)
_RETRY_NS = cython.declare(cython.ulonglong, RETRY_NS)
_ALIKE = cython.declare(cython.uint, ALIKE)
_STEADY = cython.declare(cython.int, STEADY)
_DISTRUSTED = cython.declare(cython.int, STEADY - DISTRUST)
_NOBODY = cython.declare(cython.longlong, -1)
_NO_QUEUE_PAIR = cython.declare(cython.uint, 0)
_PROMPT = cython.declare(cython.uint, PROMPT)
_PROMPT_NS = cython.declare(cython.ulonglong, PROMPT_NS)
_LEFT_NS = cython.declare(cython.ulonglong, 1_000_000)
PORT = cython.declare(cython.int, 1)
AGAIN = cython.declare(cython.int, 0)
MISSES = cython.declare(cython.uint, 16)
LOCK_WAIT_S = 0.001
PATIENCE = cython.declare(cython.uint, 12)
RECEIVE_BURSTS = cython.declare(cython.int, 8)
TRANSMIT_BURSTS = cython.declare(cython.int, 8)


class EngineLoop:
    """``adapter`` with its ``link``; ``wake`` is called, without arguments, to wake whoever sleeps in charge.

    A link has ``receive(arrival) -> bool`` and ``send(burst) -> int`` (0: no room now, give the same burst
    again later), both without blocking.  One that holds packets back also has ``next_deadline() -> int`` and
    ``expire(now) -> bool`` (send what is due; whether any left).  ``clock`` gives nanoseconds.  ``poll`` and
    ``kick`` take the lock; all else is called under it.  ``direct`` is the link where it is a `RoceUdpLink`
    itself, which is called without a detour; None: ``take`` and ``give`` are.
    """

    def __init__(self, adapter, link, wake, clock=now_ns):
        self.adapter = adapter
        adapter.notice = self.notice
        self.link = link
        self.direct = link if type(link) is RoceUdpLink else None
        self.take = link.receive
        self.give = link.send
        self.wake = wake
        self.clock = clock
        self.lock = TurnLock()
        self.burst = Burst()
        self.arrival = Arrival()
        self.kept = False
        self.holds = hasattr(link, "next_deadline")
        self.dead = False
        self.give_way = give_way
        self.idle = 0
        self.missed = 0
        self.polls = 0
        self.rounds = 0
        self.round_ns = 0
        self.notices = 0
        self.told = 0
        self.look_ns = NEVER
        self.waiters = 0
        self.refusals = 0
        self.tell_ns = 0
        self.polled = False
        self.lone = None
        self.lone_ns = 0
        self.tarries = False
        self.rung = _NOBODY
        self.rung_ns = 0
        self.alike = 0
        self.steady = 0
        self.gathers = False
        self.gathered = 0
        self.sent_ns = 0
        self.neighbours = None
        self.neighbours_ns = 0
        self.senders = {}
        self.receivers = []

    def have(self, neighbours):
        """Drive the paths to ``neighbours`` on this host as well."""
        self.neighbours = neighbours
        self.senders = neighbours.senders
        self.receivers = neighbours.receivers

    def progress(self, now):
        """One bounded round at ``now``, under the lock; True when there was something to do."""
        try:
            return self._round(now)
        except Exception as error:
            self.fail(error)
            return False
        except BaseException as error:
            # Ctrl-C between two steps of a command: nobody knows what was done and what was not
            self.fail(error)
            raise

    def _round(self, now):
        arrival: Arrival = self.arrival
        worked: cython.bint = False
        lone: cython.bint = False
        _turn: cython.int
        self.rounds += 1
        self.round_ns = now
        if self.lone is not None:
            self.answer(now)
        if self.neighbours is not None and self.receive_near(now):
            worked = True
        for _turn in range(RECEIVE_BURSTS):
            if not (self.take(arrival) if self.direct is None else self.direct.receive(arrival)):
                break
            worked = True
            self.adapter.receive(PORT, arrival, now)
            if arrival.length >= LONG_BYTES:
                self.transmit(now)
            elif self.idle and arrival.length <= 2 * arrival.stride and arrival.length <= LONE_BYTES:
                lone = self.polled
                break
        if self.adapter.counters.key_refusals != self.refusals:
            self.tell_refusals(now)
        self.adapter.expire(now)
        if self.holds and self.link.expire(now):
            worked = True
        if not (lone and self.may_tarry(now)) and self.transmit(now):
            worked = True
        if self.neighbours is not None and now >= self.neighbours_ns:
            self.neighbours_ns = now + LOOK_NS
            if self.neighbours.look():
                self.neighbours_ns = now
                worked = True
        return worked

    def may_tarry(self, now):
        """A lone message has come: whether its acknowledgement, all that is to be sent, waits for what the
        consumer posts next."""
        self.lone = None if self.waiters else self.adapter.tarrier()
        self.lone_ns = now
        self.tarries = self.lone is not None and self.lone.prompt >= _PROMPT
        return self.tarries

    def answer(self, now):
        """No answer has come before this: send what is held back, if anything is."""
        if self.lone is not None:
            self.lone.prompt = 0
            self.lone = None
        if self.tarries or self.gathers:
            self.tarries = False
            self.transmit(now)

    def left(self, now):
        """Whether something is held back that the consumer seems to have forgotten."""
        if self.gathers and now - self.rung_ns > _LEFT_NS:
            self.steady = _DISTRUSTED
            return True
        return self.tarries and now - self.lone_ns > _LEFT_NS

    def gather(self, now):
        """A doorbell was rung at ``now``: whether it is sent with those of other queue pairs that are
        expected to follow."""
        former: cython.longlong = self.rung
        soon: cython.bint = now - self.rung_ns < _GATHER_NS
        if self.gathers and now - self.rung_ns > _LEFT_NS:
            self.steady = _DISTRUSTED
        self.rung = self.adapter.rung
        self.rung_ns = now
        if former == _NOBODY:
            return False
        self.alike = self.alike + 1 if former == self.rung else 0
        if self.alike > _ALIKE or not soon:
            self.steady = min(self.steady, 0)
            return False
        if self.steady < _STEADY:
            if former != self.rung:
                self.steady += 1
            return False
        # No more than one call sends: what comes after that call, a command, must find all of them sent.
        self.gathers = (not self.waiters and now - self.sent_ns < _GATHER_NS
                        and self.gathered + 1 < TRANSMIT_BURSTS)
        self.gathered += 1
        return self.gathers

    def looked(self, now):
        """The consumer polls: what it rings next is the first one again."""
        if self.gathers and now - self.rung_ns > _LEFT_NS:
            self.steady = _DISTRUSTED
        self.rung = _NOBODY

    def posted(self, now):
        """The consumer has posted something, and its doorbells are served: it may be the answer to a lone
        message."""
        if now - self.lone_ns <= _PROMPT_NS and self.lone.requester.has_work():
            if self.lone.prompt < _PROMPT:
                self.lone.prompt += 1
        else:
            self.lone.prompt = 0
        self.lone = None
        self.tarries = False

    def receive_near(self, now):
        """Take what neighbours on this host have put into their rings, a bounded number of bursts each."""
        arrival: Arrival = self.arrival
        receiver: PacketReceiver
        worked: cython.bint = False
        _turn: cython.int
        for receiver in self.receivers:
            for _turn in range(RECEIVE_BURSTS):
                if not receiver.receive(arrival):
                    break
                worked = True
                self.adapter.receive(PORT, arrival, now)
        return worked

    def send_near(self, burst):
        """Hand a burst of a reliable connection to a neighbour on this host; False: the link is its way."""
        sender: PacketSender = self.senders.get(burst.route.destination)
        return sender is not None and burst.data[0] >> 5 == 0 and sender.send(burst)

    def tell_refusals(self, now):
        """Peers have named keys that give them no right: say so, at most once a second, with the count."""
        if now < self.tell_ns:
            return
        count: cython.ulonglong = self.adapter.counters.key_refusals
        _log.warning("an adapter has refused %d requests of peers for their keys", count - self.refusals)
        self.refusals = count
        self.tell_ns = now + TELL_NS

    def transmit(self, now):
        """Send what is due, a bounded number of bursts; one that the link has no room for is kept."""
        burst: Burst = self.burst
        worked: cython.bint = False
        _turn: cython.int
        self.gathers = False
        self.gathered = 0
        self.sent_ns = now
        for _turn in range(TRANSMIT_BURSTS):
            if not self.kept:
                if not self.adapter.transmit(PORT, burst, now):
                    break
                if self.neighbours is not None and self.send_near(burst):
                    worked = True
                    continue
            result: cython.int = self.give(burst) if self.direct is None else self.direct.send(burst)
            self.kept = result == AGAIN
            if self.kept:
                break
            worked = True
        return worked

    def poll(self):
        """A round for a thread that polls, unless another thread gives one.  True: there was work."""
        if self.dead or not self._take_lock():
            return False
        try:
            if self.dead:  # it was closed while the lock was waited for
                return False
            self.polls += 1
            self.polled = True
            now: cython.ulonglong = self.now()
            self.looked(now)
            worked: cython.bint = self.progress(now)
            self.polled = False
            if not self.dead:
                self.settle()
        finally:
            self.lock.release()
        if worked:
            self.idle = 0
        else:
            self.idle += 1
            if self.idle > PATIENCE:
                # Where processors are scarce, what is waited for may itself be waiting for this one.
                self.give_way()
        return worked

    def _take_lock(self):
        """Take the lock if nobody has it.  After some looks in vain wait for it a moment: the thread that has
        it may itself be waiting for the interpreter lock, which a poller gives away too rarely.
        """
        if self.lock.take():
            self.missed = 0
            return True
        self.missed += 1
        if self.missed <= MISSES or not self.lock.acquire(True, LOCK_WAIT_S):
            return False
        self.missed = 0
        return True

    def kick(self):
        """The host rang doorbells or wrote commands: take them and transmit, now; then give a round, if the
        last one is long ago."""
        self.lock.acquire()
        try:
            if not self.dead:
                now: cython.ulonglong = self.now()
                if (self.tarries or self.gathers) and self.adapter.commanded():
                    self.answer(now)
                self.adapter.rung = _NO_QUEUE_PAIR
                self.adapter.kick(now)
                if self.lone is not None:
                    self.posted(now)
                # what a command alone has caused is sent at once
                if self.adapter.rung == _NO_QUEUE_PAIR or not self.gather(now):
                    self.transmit(now)
                if now - self.round_ns >= _KICK_NS:
                    self.polls += 1
                    self.progress(now)
                    self.rung_ns = self.now()  # that took a while
                if not self.dead:
                    self.settle()
        except Exception as error:
            self.fail(error)
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            self.lock.release()

    def now(self):
        """The time by ``clock``."""
        if cython.compiled and self.clock is now_ns:
            return monotonic_ns()  # noqa: F821 - the pxd's: the same clock
        return self.clock()

    def fail(self, error):
        """The engine raised ``error``: log it, give no more rounds, wake whoever sleeps; under the lock."""
        # Who finds the loop dead finds the reason in the log.
        _log.error("an adapter has failed and is given up", exc_info=error)
        self.dead = True
        self.wake()

    def settle(self):
        """After a round: wake a sleeper that would look too late, or that waits for news that came."""
        if self.waiters and self.notices != self.told:
            self.told = self.notices
            self.wake()
        elif self.deadline() + LATE_NS < self.look_ns:
            self.look_ns = 0  # it looks as soon as it can: no need to wake it again before
            self.wake()

    def notice(self):
        """The engine has told a host something (called by the adapter within a round)."""
        self.notices += 1

    def deadline(self):
        """When the next round is due even if nothing arrives; ``NEVER`` when none is."""
        due: cython.ulonglong
        if self.gathers:
            due = self.rung_ns
        elif self.tarries:
            due = self.lone_ns
        else:
            due = self.adapter.next_deadline()
        if self.kept and self.sent_ns + _RETRY_NS < due:
            due = self.sent_ns + _RETRY_NS
        if self.holds:
            held: cython.ulonglong = self.link.next_deadline()
            if held < due:
                due = held
        return due

    def soon(self, now):
        """Whether the link holds a packet that is due before a sleep could end exactly then."""
        if not self.holds:
            return False
        held: cython.ulonglong = self.link.next_deadline()
        return held < now + SLEEP_GRAIN_NS
