"""Bugs in single steps of the transport and the adapter that were found by rule and by reading, one token each."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

EDGES = "transport/test_transport_edges.py"
ADAPTER = "adapter/test_adapter_edges.py"
COMMANDS = "adapter/test_adapter_commands.py"
CONGESTION = "adapter/test_adapter_congestion.py"

STEPS: tuple[tuple[Mutant, str], ...] = (
    (m("step-bytes-of-a-shared-burst", "transport/replies.py", "length = burst.length - length", "length = burst.length + length",
       "answers behind another queue pair's count as if they were the whole burst"), EDGES),
    (m("step-delays-a-nak", "transport/replies.py", "            and self.nak_pending == 0\n", "",
       "an acknowledgement with a NAK behind it is delayed"), EDGES),
    (m("step-join-before-a-read", "transport/replies.py", "        if not self.may_delay_ack():\n            return 0\n", "",
       "an acknowledgement that joins others' packets overtakes the answer to a READ"), EDGES),
    (m("step-timeout-unchanged", "transport/retry.py", "if interval == self.interval_ns and retry_count", "if retry_count",
       "a new time-out alone changes nothing"), EDGES),
    (m("step-retries-unchanged", "transport/retry.py", "and retry_count == self.retry_count and rnr_retry", "and rnr_retry",
       "a new retry count alone changes nothing"), EDGES),
    (m("step-timer-begins-anew", "transport/requester.py", "if (self.retry.deadline_ns == 0 or self.retry.persisting) and _TRANSMIT[", "if _TRANSMIT[",
       "who goes on sending never times out"), EDGES),
    (m("step-each-message-a-burst", "transport/requester.py", "            + (_BURST_OVERHEAD if first else 0),", "            + _BURST_OVERHEAD,",
       "each message of a burst is charged for a burst of its own"), EDGES),
    (m("step-joined-to-an-atomic", "transport/requester.py", "        self.sent(_ACK_COST + _BURST_OVERHEAD, False)\n        self.pushed = False\n", "        self.sent(_ACK_COST + _BURST_OVERHEAD, False)\n        self.pushed = True\n",
       "an atomic operation that is answered gives its room back with the message behind it"), EDGES),
    (m("step-atomic-of-another-region", "transport/responder.py", "region is None or region is not resource.region or region.generation", "region is None or region.generation",
       "an atomic is answered again by a key that is another region's now"), EDGES),
    (m("step-longer-than-a-message", "transport/unreliable_receiver.py", "            if self.length_bytes > _MAX_MESSAGE:\n                return \"drops_length\"\n", "",
       "an unreliable RDMA WRITE may be longer than a message"), EDGES),
    (m("step-read-of-any-resource", "transport/replay.py", "if gap >= 0 and gap < resource.packets:", "if gap >= 0:",
       "the newest READ answers whatever comes behind it"), EDGES),
    (m("step-reset-keeps-a-receive", "transport/unreliable_receiver.py", "        self.sink.reset()\n", "",
       "a reset of an unreliable connection keeps the receives of its former life"), EDGES),
    (m("step-flushed-by-another-name", "transport/receiving.py", "        if self.acquired:\n            self.complete(_FLUSHED,", "        if self.acquired:\n            self.complete(_PROTECTION_ERROR,",
       "the receive of a message that is given up ends with another error than the others"), EDGES),
    (m("step-atomic-refused-uncounted", "transport/responder.py", "            self.connection.count(\"key_refusals\")\n            self.replies.fatal(view.psn, _REMOTE_ACCESS, _EVENTS[_REMOTE_ACCESS])\n            return\n        self.connection.observe(DUPLICATE_ANSWERED, view.psn, ATOMIC_AGAIN)\n        self.replies.ring.ask(resource, 0, 1, 8)", "            self.replies.fatal(view.psn, _REMOTE_ACCESS, _EVENTS[_REMOTE_ACCESS])\n            return\n        self.connection.observe(DUPLICATE_ANSWERED, view.psn, ATOMIC_AGAIN)\n        self.replies.ring.ask(resource, 0, 1, 8)",
       "a key that is good for no repeated atomic is not counted"), EDGES),
    (m("step-grh-without-immediate", "transport/datagram.py", "12 + 8 + (4 if view.has_immdt else 0) + view", "12 + 8 + view",
       "the GRH of a RoCE datagram does not count its immediate"), EDGES),
    (m("step-datagram-receives-stay", "transport/datagram.py", "        self.queue.flush(self.now)\n", "        pass\n",
       "the receives of a datagram queue pair in error are not flushed"), EDGES),
    (m("step-write-beyond-its-length", "transport/unreliable_receiver.py", "        if self.received_bytes + view.payload_bytes > self.length_bytes:\n            return \"drops_length\"\n", "",
       "the middle of an unreliable RDMA WRITE goes beyond its length"), EDGES),
    (m("step-delayed-keeps-its-turn", "transport/requester.py", "            if window is not None:\n                window.leave(self.flow)\n            return 0\n", "            return 0\n",
       "who waits for the delay of an RNR NAK keeps its turn in the window"), EDGES),
    (m("step-stalled-keeps-its-turn", "transport/requester.py", "        window.leave(self.flow)\n        if not already:\n", "        if not already:\n",
       "who waits for a sign of life keeps its turn in the window"), EDGES),
    (m("step-broken-again-and-again", "transport/receiving.py", "                self.broken = True\n", "",
       "a receive ring that is broken is read again"), EDGES),
    (m("step-broken-without-completion", "transport/receiving.py", "                self.acquired = True\n                return _OPERATION_ERROR\n", "                return _OPERATION_ERROR\n",
       "nobody is told that a receive ring is broken"), EDGES),
    (m("step-broken-by-another-name", "transport/receiving.py", "                self.acquired = True\n                return _OPERATION_ERROR\n", "                self.acquired = True\n                return _PROTECTION_ERROR\n",
       "a receive ring that is broken is told as a wrong key"), EDGES),
    (m("step-turns-uncharged", "adapter/engine.py", "            scheduler.charge(burst.length)\n", "",
       "a higher service level never gives a lower one a turn"), ADAPTER),
    (m("step-domain-among-contexts", "adapter/ee_commands.py", "adapter.resources.reserve(Kind.RDD)", "adapter.resources.reserve(Kind.EEC)",
       "domains of reliable datagrams are counted as EE contexts"), ADAPTER),
    (m("step-table-among-queues", "adapter/work_queue_commands.py", "adapter.resources.reserve(Kind.RWQ_IND_TABLE)", "adapter.resources.reserve(Kind.WQ)",
       "tables of work queues are counted as work queues"), ADAPTER),
    (m("step-file-of-any-domain", "adapter/xrc_domains.py", "if flags & XRCD_FILE else None", "if flags else None",
       "an XRC domain without a file is shared with others that have none"), ADAPTER),
    (m("step-doorbell-of-a-shared-queue", "adapter/commands.py", '"doorbell": NO_DOORBELL, "max_wr"', '"doorbell": 0, "max_wr"',
       "a shared receive queue is told the first doorbell"), ADAPTER),
    (m("step-context-waits-for-ever", "adapter/ee_commands.py", "    adapter.memory_waiters.remove(ee.flow)\n", "",
       "an EE context that is destroyed waits for memory still"), ADAPTER),
    (m("step-contexts-outlive-their-host", "adapter/commands.py", "    if resource.kind is Kind.EEC:\n        ee_commands.destroy(adapter, resource)\n        return\n", "",
       "the EE contexts of a host that is gone go on"), ADAPTER),
    (m("step-buffers-outlive-their-host", "adapter/commands.py", "    if resource.kind is Kind.ARENA:\n        _release_arena(host, resource)\n    elif", "    if",
       "the buffers of a host that is gone stay in its map"), COMMANDS),
    (m("step-marked-in-its-class-alone", "adapter/receive_path.py", "arrival.traffic_class & _MARKED == _MARKED", "arrival.traffic_class == _MARKED",
       "a packet that has a traffic class is never marked"), CONGESTION),
)
