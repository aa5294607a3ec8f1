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
DIRECTORY = "memory/shared_directory.py"
OF_DIRECTORY = "memory/test_shared_directory.py"
OF_WITHDRAWAL = "memory/test_shared_withdrawal.py"

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
    (m("directory-valid-first", DIRECTORY, "        for i, word in enumerate(words, 1):\n            store64(entry + 8 * i, word)\n", "        store64(entry, number | VALID_ENTRY)\n        for i, word in enumerate(words, 1):\n            store64(entry + 8 * i, word)\n",
       "a peer finds a grant whose words are another one's"), OF_DIRECTORY),
    (m("directory-claim-torn", DIRECTORY, "            if epoch == (epoch := load64(self.address)):\n                break\n", "            break\n",
       "what a peer claims now counts for an epoch that is over, and is not revoked"), OF_DIRECTORY),
    (m("directory-call-of-who-has-left", DIRECTORY, "while self.is_inside(epoch) and self._may_be", "while self._may_be",
       "a withdrawal waits for a call of one who has left"), OF_DIRECTORY),
    (m("directory-grant-is-leaving", DIRECTORY, " and not self._queue_pairs.is_leaving(number):", ":",
       "a queue pair whose withdrawal was struck is never reached directly again"), OF_DIRECTORY),
    (m("directory-no-barrier", DIRECTORY, "        atomic_add64(address_of(self._fence), 1)  # a full barrier\n        inside", "        inside",
       "neither a peer nor its owner sees the other one's word"), OF_DIRECTORY),
    (m("directory-ends-open", DIRECTORY, "        self.set_gate(False)\n        for reader", "        for reader",
       "peers go on in the memory of an adapter that has ended"), OF_DIRECTORY),
    (m("directory-foreign-claims-spread", DIRECTORY, "            if claim.foreign:\n                continue\n", "",
       "with one region outside of the arenas all of them lose their grants"), OF_WITHDRAWAL),
    (m("directory-emptied-keep-places", DIRECTORY, "        for key in emptied:\n            self._regions.give_back(key)\n", "",
       "regions on exchanged pages keep their places from others"), OF_WITHDRAWAL),
    (m("directory-refused-are-held", DIRECTORY, "                if not refused:\n                    self._held", "                if True:\n                    self._held",
       "pages that were never exchanged are settled, and those that another peer holds given out"), OF_WITHDRAWAL),
    (m("directory-pages-by-address", DIRECTORY, "    _, length, _, arena, place = words\n", "    place, length, _, arena, _ = words\n",
       "the claim on a region is not revoked whose address is not its place"), OF_WITHDRAWAL),
)  # fmt: skip
