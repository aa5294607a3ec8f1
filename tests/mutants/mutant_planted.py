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
SENDING = "sockets/stream_sending.py"
RECEIVING = "sockets/stream_receiving.py"
PROTOCOL = "sockets/protocol.py"
LISTENING = "sockets/listening.py"
SENDING_RULES = "sockets/test_sockets_sending_rules.py"
LISTENING_RULES = "sockets/test_sockets_listening_rules.py"
STREAM = "sockets/test_sockets_stream.py"
OFFERS = "sockets/test_sockets_memory_management.py"
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
    (m("sending-request-stays", SENDING, "if behind.take_event_request() or presses or not written:", "if presses or not written or behind.take_event_request():",
       "a peer that has got its event gets another one with the next message"), SENDING_RULES),
    (m("sending-copies-overtake", SENDING, "            length = min(length, self.staging.room())\n        length = min(length, self._chunk, state.peers.length >> 1)\n", "            length = min(length, self.staging.length)\n        length = min(length, self._chunk, state.peers.length >> 1)\n",
       "a copy is overwritten that is under way"), SENDING_RULES),
    (m("sending-copies-overtake-in-memory", SENDING, "            length = min(length, self.staging.room())\n        length = min(length, self._chunk, state.peers.length >> 1, _IN", "            length = min(length, self.staging.length)\n        length = min(length, self._chunk, state.peers.length >> 1, _IN",
       "a copy is overwritten that is being written to the peer"), SENDING_RULES),
    (m("sending-tries-long", SENDING, "            self._misses = _MISSES - 1", "            self._misses = 0",
       "every 256 messages a program waits four times in vain"), SENDING_RULES),
    (m("sending-changing-memory", SENDING, "length > limit and self._lkey != 0 and (frozen or blocking)", "length > limit and self._lkey != 0",
       "what a program changes behind a non-blocking send is sent changed"), SENDING_RULES),
    (m("receiving-look-maps", RECEIVING, "and self._mapping and not peek and", "and self._mapping and",
       "a look at data takes them"), STREAM),
    (m("buffer-left-stays-mapped", "sockets/memory_processing.py", "    def __exit__(self, *_: object) -> None:\n", "    def left(self, *_: object) -> None:\n",
       "a socket whose buffer was left before ends the program"), STREAM),
    (m("receiving-maps-all", RECEIVING, "size = min(size, (self.pool.length // 2 - own.held) & ~OFFSET_MASK)", "size = min(size, self.pool.length & ~OFFSET_MASK)",
       "a buffer has the whole pool, and the sender no room"), STREAM),
    (m("offer-of-any-size", PROTOCOL, " or pool_bytes & (pool_bytes - 1):", ":",
       "places in a peer's pool are not where that one looks"), OFFERS),
    (m("offer-with-any-flags", PROTOCOL, "if magic != MAGIC or version != VERSION or flags & ~_ALONE:", "if magic != MAGIC or version != VERSION:",
       "what a later version would say is not understood"), OFFERS),
    (m("listening-stranger-is-here", LISTENING, "not (is_here(of_gid(path.gid).host) and is_here(of_gid(host).host))", "not is_here(of_gid(host).host)",
       "another host takes the stream of a connection within this one"), LISTENING_RULES),
    (m("listening-unanswered-is-claimed", LISTENING, "                served.take_back(*key)\n", "                pass\n",
       "a connection is given a stream whose peer has none"), LISTENING_RULES),
    (m("listening-given-up-stays-open", LISTENING, "        for each in given_up:\n            each.refuse()\n", "",
       "streams that nobody claims keep their memory"), LISTENING_RULES),
    (m("listening-accepts-what-is-not-used", LISTENING, "        if stream.opened:\n            return stream\n        stream.refuse()\n        return None", "        return stream",
       "a server waits at a stream whose client speaks by TCP"), "sockets/test_sockets_scarce.py"),
    (m("listening-goes-on-in-two-processes", LISTENING, "            before_fork.append(self.close)\n", "            pass\n",
       "a forked child accepts connections whose streams are its parent's"), LISTENING_RULES),
    (m("listening-close-wakes-nobody", "sockets/cm_listening.py", "            self._news.notify_all()\n            for sign", "            for sign",
       "who waits for connections waits on when the socket is closed"), LISTENING_RULES),
    (m("requests-wait-behind-a-failure", "sockets/requests.py", "                    self._posted()  # others' requests wait behind this one\n", "                    pass\n",
       "who asks behind one for whom memory ran out is not answered"), LISTENING_RULES),
    (m("requests-close-of-another", "sockets/requests.py", "            if _listeners.get((self.space, self._port)) is self:\n", "            if (self.space, self._port) in _listeners:\n",
       "the end of an old listener makes the new one unknown"), LISTENING_RULES),
    (m("pageable-address-of-nothing", "verbs/pageable.py", "self._address = memory.buf if iova is None else iova", "self._address = memory.buf if not iova else iova",
       "a region that begins at address 0 says that it begins elsewhere"), "verbs/suite/test_suite_pageable.py"),
    (m("close-wakes-nobody", "verbs/base.py", "        _closing.threads.pop(id(resource), None)\n        _closing.news.notify_all()", "        _closing.threads.pop(id(resource), None)",
       "of two threads that close one object the second one never comes back"), "verbs/test_verbs_ownership.py"),
)  # fmt: skip
