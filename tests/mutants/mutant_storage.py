"""Bugs of storage, with the tests that judge them."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

SESSION = "storage/session.py"
UNIT = "storage/io_unit.py"
CHANNEL = "storage/target_channel.py"
INITIATOR = "storage/initiator.py"
DEVICE = "storage/block_device.py"
DESCRIPTORS = "storage/descriptors.py"
JUDGE = "storage/test_storage_session.py"
FAILOVER = "storage/test_storage_failover.py"
NETWORK = "storage/test_storage_network.py"

STORAGE: tuple[tuple[Mutant, str], ...] = (
    (m("storage-login-leaves-old-channels", UNIT, "                self._drop(other, number)\n                result = srp.TERMINATED", "                result = srp.TERMINATED",
       "a write of before a failover overwrites what was written after it"), FAILOVER),
    (m("storage-repeats-nothing", DEVICE, "            repeated = list(former.under_way.values())", "            repeated = []",
       "what was under way when a port failed is lost"), FAILOVER),
    (m("storage-repeats-in-any-order", DEVICE, "self._waiting.extendleft(reversed(repeated))", "self._waiting.extendleft(repeated)",
       "of two writes of one block that are repeated the older one is the last"), FAILOVER),
    (m("storage-takes-another-disk", DEVICE, "if self._identity and page != self._identity:", "if False:",
       "after a failover a host writes to a disk that it does not know"), FAILOVER),
    (m("storage-credit-of-aborted-is-lost", SESSION, "            self._owed += 1\n", "            pass\n",
       "each aborted command leaves the initiator one request less"), JUDGE),
    (m("storage-takes-more-than-granted", SESSION, "if under_way >= self.limit or", "if",
       "an initiator has as many requests under way as it likes"), JUDGE),
    (m("storage-moves-more-than-the-buffer", SESSION, "if task.plan.length > min(task.buffer.length, self._most_bytes):", "if task.plan.length > self._most_bytes:",
       "a read that the host has no room for is said to be good"), JUDGE),
    (m("storage-ordered-waits-for-nobody", SESSION, "is_ordered = srp.ORDERED in (attribute, other.command.task_attribute)", "is_ordered = False",
       "an ordered command overtakes those before it"), JUDGE),
    (m("storage-abort-is-answered-at-once", SESSION, "        self.remaining += 1\n", "",
       "a unit says that a task is aborted while it still reads from the host"), JUDGE),
    (m("storage-table-is-believed", DESCRIPTORS, "    if sum(each.length for each in ranges) != length:", "    if False:",
       "a table with ranges of another length than it says is used"), JUDGE),
    (m("storage-unknown-response-is-believed", INITIATOR, "if found.tag not in self._under_way:", "if False:",
       "a unit ends commands that there are not"), "storage/test_storage_initiator.py"),
    (m("storage-send-queue-overflows", CHANNEL, "len(self._posted) < SEND_DEPTH and ", "",
       "a command with many ranges ends its channel"), NETWORK),
)  # fmt: skip
"""Each with the tests that judge it."""
