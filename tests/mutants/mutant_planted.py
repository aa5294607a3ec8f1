"""Bugs that a reviewer planted and no test found at first, with the tests that judge them now."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

ENGINE = "adapter/engine.py"
WINDOWS = "memory/windows.py"
CHANNEL_STEPS = "channels/steps.py"
PROCESS = "runtime/process.py"
WAKE_EVENT = "runtime/wake_event.py"

PLANTED: tuple[tuple[Mutant, str], ...] = (
    (m("arrival-at-an-old-moment", ENGINE, "        self.now = now\n        if arrival.frames:", "        if arrival.frames:",
       "what an arriving packet waits for is counted from the adapter's last turn"), "adapter/test_adapter_held.py"),
    (m("slot-of-no-key-is-lost", WINDOWS, "                return slot, key\n            self.regions.give_slot(slot)\n", "                return slot, key\n",
       "each round of the keys costs an adapter one region"), "memory/test_memory_key_reuse.py"),
    (m("channel-that-failed-flushes", CHANNEL_STEPS, "live = endpoint.error is None and endpoint.peer_ready and", "live = endpoint.peer_ready and",
       "the close of a channel that has failed posts to its queue pair"), "channels/test_channels_several.py"),
    (m("forked-child-waits-for-a-leader", PROCESS, "        self._changed, self._leader_lock = threading.Condition(), threading.Lock()  # the parent had them\n", "",
       "a forked child hangs in fork where a thread of its parent led"), "runtime/test_runtime_process_asleep.py"),
    (m("forked-child-waits-for-who-wakes", WAKE_EVENT, "        self._lock = threading.RLock()\n        self.close()", "        self.close()",
       "a forked child hangs in fork where a thread of its parent woke another"), "runtime/test_runtime_process_asleep.py"),
)  # fmt: skip
