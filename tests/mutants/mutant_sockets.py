"""Bugs of stream sockets, with the tests that judge them."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

MANAGEMENT = "sockets/memory_management.py"
PROCESSING = "sockets/memory_processing.py"
STATE = "sockets/stream_state.py"
LISTENING = "sockets/listening.py"
SHAPE = "sockets/shape.py"
SENDING = "sockets/stream_sending.py"
STREAM = "sockets/stream.py"
POLLING = "sockets/test_sockets_polling.py"
JUDGE = "sockets/test_sockets_memory_management.py"
FINDING = "sockets/test_sockets_finding.py"
LIVES = "sockets/test_sockets_lives.py"

SOCKETS: tuple[tuple[Mutant, str], ...] = (
    (m("sockets-held-pages-are-granted", MANAGEMENT, "        if self._held:\n            return next(iter(self._held))\n", "",
       "a peer overwrites pages that the application has mapped or was lent"), JUDGE),
    (m("sockets-more-than-granted-is-taken", MANAGEMENT, "        if start + length - self._told_head > self.length:", "        if False:",
       "a peer that writes over what was not read is believed"), JUDGE),
    (m("sockets-credit-beyond-what-was-sent", MANAGEMENT, "        if not self.head <= head <= self.tail or", "        if not self.head <= head or",
       "forged credit gives a sender room that is not there"), JUDGE),
    (m("sockets-notifications-without-end", MANAGEMENT, "        if self.notifications - self._done >= _NOTIFICATIONS:", "        if False:",
       "many small sends find no receive at the peer"), JUDGE),
    (m("sockets-ring-does-not-wrap", MANAGEMENT, "    return [(offset, first), (0, length - first)]", "    return [(offset, length)]",
       "what crosses the end of the pool is written behind it"), JUDGE),
    (m("sockets-data-behind-fin", STATE, "            if self.finished:\n", "            if False:\n",
       "a stream goes on after its end"), JUDGE),
    (m("sockets-any-address-is-served", LISTENING, "        return address in self.addresses or", "        return True or",
       "a stream comes to one socket, its TCP connection to another one"), FINDING),
    (m("sockets-host-not-checked", LISTENING, "            _check_host(cmid, host)\n", "",
       "who names another host's TCP address gets its connection"), FINDING),
    (m("sockets-shared-port-is-served", LISTENING, "            if not listening.getsockopt(kernel.SOL_SOCKET, kernel.SO_REUSEPORT):", "            if True:",
       "another process accepts the TCP connection of a stream"), FINDING),
    (m("sockets-second-asker-wins", LISTENING, "len(self._ready) >= MOST or key in self._ready", "len(self._ready) >= MOST",
       "who asks for the TCP address of another one gets its connection"), FINDING),
    (m("sockets-dropped-is-not-closed", SHAPE, "            HUB.soon(upgrade.drop)\n", "            pass\n",
       "the peer of a socket that was forgotten waits for ever"), LIVES),
    (m("sockets-child-keeps-the-sign-of-life", "sockets/upgrade.py", "        self.readiness.abandon()\n        self.tcp.close()\n", "        self.readiness.abandon()\n",
       "a dead program's peer waits until its child has ended, too"), LIVES),
    (m("sockets-nobody-is-pressed", SENDING, "SOLICITED if state.peers.presses else 0", "0",
       "who sends many small messages waits until the reader's program looks"), POLLING),
    (m("sockets-pressing-too-late", MANAGEMENT, "self._done >= _NOTIFICATIONS // 4", "self._done > _NOTIFICATIONS",
       "who sends many small messages waits until the reader's program looks"), POLLING),
    (m("sockets-no-completion-is-asked-for", SENDING, "            self.number + 1 - self._signaled >= SIGNAL_EACH\n", "            False\n",
       "small messages are never retired, and their sender waits for ever"), POLLING),
    (m("sockets-copies-without-completion", SENDING, "            or self.staging.tail - self._signaled_tail > self.staging.length >> 2\n", "",
       "memory for copies is used up by messages that nobody answers for"), POLLING),
    (m("sockets-who-sleeps-is-not-woken", STREAM, "not (self._sleeping or self._watched)", "True",
       "a sleeping reader gets no event for what arrives"), POLLING),
    (m("sockets-polls-for-ever-in-vain", "sockets/poll_budget.py", "self.limit_ns >> 1 if self.limit_ns > 2 * _LEAST else 0", "self.limit_ns",
       "calls poll as long where nothing ever comes so soon"), POLLING),
    (m("sockets-polls-on-a-busy-processor", "sockets/poll_budget.py", "        if now < self._contended_until_ns:\n            return now\n", "",
       "polls hold up the peer that they wait for"), POLLING),
    (m("sockets-memory-is-waited-for-for-ever", SENDING, "0 if prompt else min(self._misses + 1, MISSES)", "0",
       "each send of memory that may change waits for a round trip"), "sockets/test_sockets_stream.py"),
)  # fmt: skip
"""Each with the tests that judge it."""
