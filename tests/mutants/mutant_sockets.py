"""Bugs of stream sockets, with the tests that judge them."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

MANAGEMENT = "sockets/memory_management.py"
PROCESSING = "sockets/memory_processing.py"
STATE = "sockets/stream_state.py"
LISTENING = "sockets/listening.py"
STREAM_SOCKET = "sockets/stream_socket.py"
SENDING = "sockets/stream_sending.py"
STREAM = "sockets/stream.py"
POLLING = "sockets/test_sockets_polling.py"
JUDGE = "sockets/test_sockets_memory_management.py"
FINDING = "sockets/test_sockets_finding.py"
LIVES = "sockets/test_sockets_lives.py"
SCARCE = "sockets/test_sockets_scarce.py"
HUB = "sockets/hub.py"
ASKING = "sockets/test_sockets_liveness.py"
FAULTS = "sockets/test_sockets_faults.py"

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
    (m("sockets-dropped-is-not-closed", STREAM_SOCKET, "            HUB.soon(upgrade.drop)\n", "            pass\n",
       "the peer of a socket that was forgotten waits for ever"), LIVES),
    (m("sockets-child-keeps-the-sign-of-life", "sockets/upgrade.py", "        self.readiness.abandon()\n        self.tcp.close()\n", "        self.readiness.abandon()\n",
       "a dead program's peer waits until its child has ended, too"), LIVES),
    (m("sockets-hub-goes-round-for-nothing", HUB, " and _call(watched[0]) in _SCARCE:\n                    self._rest(fd, watched)\n", ":\n                    _call(watched[0])\n",
       "where no descriptor is left, one who asks makes a thread of the program take all of a processor"), SCARCE),
    (m("sockets-hub-half-open", HUB, "            epoll = undone.enter_context(select.epoll())\n", "            epoll = self._epoll = undone.enter_context(select.epoll())\n",
       "a program that once had no descriptor left connects by TCP alone for good"), SCARCE),
    (m("sockets-hub-without-thread", HUB, "            try:\n                made.start()\n", "            self._thread = made\n            try:\n                made.start()\n",
       "a program that once had no thread left connects by TCP alone for good"), SCARCE),
    (m("sockets-late-answer-is-taken", LISTENING, "        if stream.opened:\n            return stream\n", "        if stream:\n            return stream\n",
       "a connection to a listener that stood still is RDMA's on one side and TCP's on the other"), SCARCE),
    (m("sockets-silent-peer-is-waited-for-each-time", "sockets/datagrams.py", "            peer.asked = True  # one that does not answer is waited for once\n", "",
       "each datagram to a process that stands still takes a second"), SCARCE),
    (m("sockets-nobody-asks-who-gives-no-room", STREAM, "            say = self.on_stall\n", "            say = None\n",
       "a send to a process that stands still waits for ever where nothing is under way"), ASKING),
    (m("sockets-asks-those-who-read", "sockets/liveness.py", "found._ask(not found._stream.writable)", "found._ask(True)",
       "a sender that has once had no room asks its peer for ever"), ASKING),
    (m("sockets-keep-alive-is-tcps-alone", "sockets/liveness.py", "        with contextlib.suppress(OSError):\n            if", "        with contextlib.suppress(OSError):\n            if False and",
       "a program that keeps its connection alive is not told that the peer's adapter stands still"), ASKING),
    (m("sockets-wait-as-the-manager-has-it", "sockets/connecting.py", "            cmid.set_option(0, _ACK_OPTION, settings.ack_timeout, 1)", "            pass",
       "a peer that does not answer is waited for for as long as the connection manager has it"), ASKING),
    (m("sockets-keep-alive-at-two-speeds", "sockets/liveness.py", " and found._round == number", "",
       "options that are set again make one more clock each time"), ASKING),
    (m("sockets-nobody-keeps-the-time", "sockets/upgrade.py", "                HUB.start()\n", "",
       "a program that only connects, by the connection manager, never learns that its peer has gone"), FAULTS),
    (m("sockets-mapped-pages-are-somebody-else-s", PROCESSING, "            self._lent += not result\n", "",
       "pages that could not be taken out of a receive buffer at a socket's end become another connection's pool"), "sockets/test_sockets_stream.py"),
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
    (m("sockets-polls-for-ever-in-vain", "driver/poll_back_off.py", "self.limit_ns >> 1 if self.limit_ns > 2 * _SHORTEST else 0", "self.limit_ns",
       "calls poll as long where nothing ever comes so soon"), "driver/test_driver_poll_back_off.py"),
    (m("sockets-polls-on-a-busy-processor", "driver/poll_back_off.py", "        if self.contended(now):\n            return now\n", "",
       "polls hold up the peer that they wait for"), "driver/test_driver_poll_back_off.py"),
    (m("sockets-memory-is-waited-for-for-ever", SENDING, "0 if prompt else min(self._misses + 1, MISSES)", "0",
       "each send of memory that may change waits for a round trip"), "sockets/test_sockets_stream.py"),
)  # fmt: skip
"""Each with the tests that judge it."""
