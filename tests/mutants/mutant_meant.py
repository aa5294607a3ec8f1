"""Bugs of meaning that were planted by hand and no test of their package found at first: orders, limits by one,
steps that a reset forgets, whose an object is; with the tests that find them since.
"""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

MEANT: tuple[tuple[Mutant, str], ...] = (
    (m("meant-empty-again-answers-a-read", "transport/responder.py", "            or resource.length_bytes\n            or view.reth_va", "            or view.reth_va",
       "a repeated ATOMIC WRITE is answered where a READ was"), "transport/test_transport_rules.py"),
    (m("meant-gap-psn-never-moves", "transport/responder.py", "            if self.replies.nak_pending == _SEQUENCE and distance(self.gap_psn, psn) > 0:\n                self.gap_psn = psn\n", "",
       "a NAK that waits does not know of the last packet that came too early"), "transport/test_transport_rules.py"),
    (m("meant-advance-forgets-gap-still-open", "transport/responder.py", "            else:\n                self.nak_sent = True\n                self.replies.nak_psn = self.epsn", "            else:\n                self.replies.nak_psn = self.epsn",
       "a gap that was closed in part ends at an earlier packet"), "transport/test_transport_rules.py"),
    (m("meant-invalidation-not-dying", "transport/responder.py", "            self.replies.dying = True\n            self.connection.fail(-1)", "            self.connection.fail(-1)",
       "a key that cannot be withdrawn takes the answer to an earlier READ along"), "transport/test_transport_rules.py"),
    (m("meant-rnr-timer-32", "transport/responder.py", "_RNR | (self.connection.min_rnr_timer & 31)", "_RNR | (self.connection.min_rnr_timer & 15)",
       "RNR timers from 16 on are shorter than they say"), "transport/test_transport_rules.py"),
    (m("meant-read-limit-of-message", "transport/responder.py", "if not self.connection.access & _REMOTE_READ or n > _MAX_MESSAGE:", "if not self.connection.access & _REMOTE_READ:",
       "a READ longer than any message is refused for its key"), "transport/test_transport_rules.py"),
    (m("meant-reset-keeps-nak-sent", "transport/responder.py", "        self.gap_psn = 0\n        self.nak_sent = False\n        self.execution.abandon()\n        self.sink.reset()", "        self.gap_psn = 0\n        self.execution.abandon()\n        self.sink.reset()",
       "the first gap after a reset is not told"), "transport/test_transport_rules.py"),
    (m("meant-resolve-pd-of-qp-for-srq", "transport/receiving.py", "        if self.shared is not None:\n            pd = self.shared.pd\n        if not self.buffers", "        if not self.buffers",
       "shared receives are looked up in the queue pair's domain"), "transport/test_transport_rules.py"),
    (m("meant-reset-leaks-acquired-slot", "transport/receiving.py", "            if self.acquired:\n                self.ring.release(1)\n            self.acquired = False\n            left", "            self.acquired = False\n            left",
       "each reset in the middle of a message costs a receive"), "transport/test_transport_rules.py"),
    (m("meant-local-inv-any-pd", "transport/key_work.py", "connection.number, connection.pd, False)", "connection.number, connection.pd, True)",
       "LOCAL_INV of a region without remote rights is refused"), "transport/test_transport_rules.py"),
    (m("meant-fence-only-at-atomics", "transport/requester.py", "        if self.cursor_packet == 0 and request.work.flags & _FENCE and self.rd_outstanding:\n            return self.block(_READS)\n        if request.kind == _READ:\n            return self.step_read(request, window)\n", "        if request.kind == _READ:\n            return self.step_read(request, window)\n        if self.cursor_packet == 0 and request.work.flags & _FENCE and self.rd_outstanding:\n            return self.block(_READS)\n",
       "a fence does not hold READs"), "transport/test_transport_rules.py"),
    (m("meant-atomic-status-without-order", "transport/requester.py", "            request.status = _PROTECTION_ERROR\n            return self.block(_ORDER) if self.head != self.cursor else self.step(request, window)\n        if written == 0:\n            return 0\n        self.cursor_packet = 1", "            request.status = _OPERATION_ERROR\n            return self.block(_ORDER) if self.head != self.cursor else self.step(request, window)\n        if written == 0:\n            return 0\n        self.cursor_packet = 1",
       "an ATOMIC WRITE whose memory has gone is told as another error"), "transport/test_transport_rules.py"),
    (m("meant-forget-keeps-retry", "transport/requester.py", "        self.retry.stop()\n        self.rd_outstanding = 0\n        self.condition = _IDLE\n        self.leave_window()", "        self.rd_outstanding = 0\n        self.condition = _IDLE\n        self.leave_window()",
       "after a reset the old time-out is still awaited"), "transport/test_transport_rules.py"),
)  # fmt: skip
