"""Bugs of stream sockets, with the tests that judge them."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

MANAGEMENT = "sockets/memory_management.py"
PROCESSING = "sockets/memory_processing.py"
STATE = "sockets/stream_state.py"
JUDGE = "sockets/test_sockets_memory_management.py"

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
)  # fmt: skip
"""Each with the tests that judge it."""
