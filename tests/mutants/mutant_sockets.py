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
JUDGE = "sockets/test_sockets_memory_management.py"
FINDING = "sockets/test_sockets_finding.py"
LIVES = "sockets/test_sockets_lives.py"

SOCKETS: tuple[tuple[Mutant, str], ...] = (
    (m("sockets-held-pages-are-granted", MANAGEMENT, "        if self._held:\n            return next(iter(self._held))\n", "",
       "a peer overwrites pages that the application has mapped or was lent"), JUDGE),
    (m("sockets-more-than-granted-is-taken", MANAGEMENT, "        if start + said.length - self._told_head > self.length:", "        if False:",
       "a peer that writes over what was not read is believed"), JUDGE),
    (m("sockets-credit-beyond-what-was-sent", MANAGEMENT, "        if not self.head <= head <= self.tail or", "        if not self.head <= head or",
       "forged credit gives a sender room that is not there"), JUDGE),
    (m("sockets-notifications-without-end", MANAGEMENT, "        if self.notifications - self._done >= NOTIFICATIONS:", "        if False:",
       "many small sends find no receive at the peer"), JUDGE),
    (m("sockets-ring-does-not-wrap", MANAGEMENT, "    return [(offset, first)] if first == length else [(offset, first), (0, length - first)]", "    return [(offset, length)]",
       "what crosses the end of the pool is written behind it"), JUDGE),
    (m("sockets-data-behind-fin", STATE, "        if self.finished and said.kind == DATA:", "        if False:",
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
)  # fmt: skip
"""Each with the tests that judge it."""
