"""Bugs that were planted by hand, package by package, as those would who do not know the tests: the ones that no
test of the package found, with the tests that find them since.
"""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

BLOCKS = "mailbox/blocks.py"
BOX = "mailbox/box.py"
CHANNELS = "driver/channels.py"
CLIENTS = "runtime/clients.py"
CONNECTING = "driver/rdmacm/connecting.py"
CONNECTIONS = "driver/connections.py"
DATAGRAM_PROTOCOL = "sockets/datagram_protocol.py"
DATAGRAM_STATE = "sockets/datagram_state.py"
DESCRIPTORS = "driver/descriptors.py"
DISPATCHER = "management/dispatcher.py"
EVENTS = "driver/rdmacm/events.py"
EVENT_CHANNELS = "runtime/event_channels.py"
FABRIC_ADAPTERS = "runtime/fabric_adapters.py"
GROUPS = "driver/rdmacm/groups.py"
HANDSHAKE = "queues/handshake.py"
HOST_AGENTS = "adapter/host_agents.py"
IDENTIFIER = "driver/rdmacm/identifier.py"
INSTANCES = "management/cm/instances.py"
JOURNAL = "mailbox/journal.py"
LISTENING = "driver/rdmacm/listening.py"
LIVENESS = "sockets/liveness.py"
LOOP = "runtime/loop.py"
MANAGER = "management/cm/manager.py"
ON_DEMAND = "memory/on_demand.py"
PENDING = "management/pending.py"
PORTS = "driver/rdmacm/ports.py"
PROCESS = "runtime/process.py"
PROTOCOL = "sockets/protocol.py"
QUEUE_PAIRS = "driver/rdmacm/queue_pairs.py"
REMOTE_READER = "mailbox/remote_reader.py"
REQUESTS = "mailbox/requests.py"
RESOLUTIONS = "management/cm/resolutions.py"
RMPP = "management/rmpp.py"
SAME_HOST = "runtime/same_host.py"
SAME_HOST_PEERS = "runtime/same_host_peers.py"
SAME_HOST_PORT = "runtime/same_host_port.py"
SAME_HOST_RING = "runtime/same_host_ring.py"
SESSION = "driver/session.py"
SHARED_ARENA = "memory/shared_arena.py"
STREAM = "sockets/stream.py"
STREAM_PATH = "sockets/stream_path.py"
STREAM_RECEIVING = "sockets/stream_receiving.py"
STREAM_SENDING = "sockets/stream_sending.py"
TAP = "links/tap.py"
TABLES = "management/cm/tables.py"
TIMERS = "management/cm/timers.py"
WIRING = "mailbox/wiring.py"
BY_ADAPTER_CONNECTION_INSTANCES = "adapter/test_adapter_connection_instances.py"
BY_ADAPTER_HOST_AGENTS = "adapter/test_adapter_host_agents.py"
BY_DRIVER_CHANNEL_ENDS = "driver/test_driver_channel_ends.py"
BY_DRIVER_RDMACM_CHANNEL = "driver/test_driver_rdmacm_channel.py"
BY_DRIVER_RDMACM_LISTENING = "driver/test_driver_rdmacm_listening.py"
BY_DRIVER_RDMACM_PORTS = "driver/test_driver_rdmacm_ports.py"
BY_DRIVER_SESSION = "driver/test_driver_session.py"
BY_LINKS_TAP = "links/test_links_tap.py"
BY_MAILBOX_RULES = "mailbox/test_mailbox_rules.py"
BY_MANAGEMENT_CM_ENDS = "management/test_management_cm_ends.py"
BY_MANAGEMENT_CM_LIMITS = "management/test_management_cm_limits.py"
BY_MANAGEMENT_CM_RESOLUTIONS = "management/test_management_cm_resolutions.py"
BY_MANAGEMENT_DISPATCHER = "management/test_management_dispatcher.py"
BY_MANAGEMENT_PENDING = "management/test_management_pending.py"
BY_MANAGEMENT_RMPP = "management/test_management_rmpp.py"
BY_MEMORY_ON_DEMAND = "memory/test_memory_on_demand.py"
BY_QUEUES_HANDSHAKE = "queues/test_queues_handshake.py"
BY_RUNTIME_CLIENTS_RULES = "runtime/test_runtime_clients_rules.py"
BY_RUNTIME_EVENT_CHANNELS = "runtime/test_runtime_event_channels.py"
BY_RUNTIME_FABRIC_ADAPTERS = "runtime/test_runtime_fabric_adapters.py"
BY_RUNTIME_LOOP_RULES = "runtime/test_runtime_loop_rules.py"
BY_RUNTIME_PROCESS_RULES = "runtime/test_runtime_process_rules.py"
BY_RUNTIME_SAME_HOST_RING = "runtime/test_runtime_same_host_ring.py"
BY_RUNTIME_SAME_HOST_RULES = "runtime/test_runtime_same_host_rules.py"
BY_SHARED_WITHDRAWAL = "memory/test_shared_withdrawal.py"
BY_SOCKETS_DATAGRAM_STATE = "sockets/test_sockets_datagram_state.py"
BY_SOCKETS_MEMORY_MANAGEMENT = "sockets/test_sockets_memory_management.py"
BY_SOCKETS_RECEIVING_RULES = "sockets/test_sockets_receiving_rules.py"
BY_SOCKETS_SENDING_RULES = "sockets/test_sockets_sending_rules.py"
BY_SOCKETS_STREAM_RULES = "sockets/test_sockets_stream_rules.py"

BY_HAND: tuple[tuple[Mutant, str], ...] = (
    (m("hand-mb-tickets-one-more", BOX, "if len(self._tickets) >= MAX_TICKETS:", "if len(self._tickets) > MAX_TICKETS:",
       "one request more is open than outcomes are kept for"), BY_MAILBOX_RULES),
    (m("hand-mb-second-outcome-overwrites", BOX, "if outcome is not None and self._tickets.get(outcome.number, outcome) is None:", "if outcome is not None and outcome.number in self._tickets:",
       "a peer changes the outcome of a request that is known already"), BY_MAILBOX_RULES),
    (m("hand-mb-used-when-closed", BOX, "        if not self._memory.is_open:\n            self._require_open()\n", "",
       "a closed mailbox reads and writes memory that another region may have"), "mailbox/test_mailbox_box.py"),
    (m("hand-verbs-copied", "verbs/base.py", "    __reduce_ex__ = sole_owner\n\n    def __del__", "    def __del__",
       "a copy that is dropped closes the original"), "verbs/test_verbs_copies.py"),
    (m("hand-mb-others-owe-no-credit", BOX, "                self._statistics.outcomes_unknown += 1\n        if self._inbox.owed() >= self._credit_every:\n            self._give_credit()", "                self._statistics.outcomes_unknown += 1",
       "a peer that sends requests alone waits for credit until its reader is idle"), BY_MAILBOX_RULES),
    (m("hand-mb-take-keeps-floor", BOX, "        self._floor = -1\n        if self._entries:\n            self._settle()\n        if self._poll_inbox() != TAKEN:", "        if self._entries:\n            self._settle()\n        if self._poll_inbox() != TAKEN:",
       "who takes the next message has not processed the last batch"), BY_MAILBOX_RULES),
    (m("hand-mb-choked-not-asked", BOX, "            if self._entries and self._requests.choked:\n                self._on_idle()  # the peer may wait for credit before it takes outcomes\n                break", "            if False:\n                break",
       "requests of a peer that takes no outcomes fill the memory"), BY_MAILBOX_RULES),
    (m("hand-mb-choked-without-credit", BOX, "                self._on_idle()  # the peer may wait for credit before it takes outcomes\n", "",
       "two ends wait for each other: one for credit, the other for outcomes to be taken"), BY_MAILBOX_RULES),
    (m("hand-mb-limit-ignored-with-requests", BOX, "while self._entries and len(messages) < limit and self._poll_inbox() == TAKEN:", "while self._entries and self._poll_inbox() == TAKEN:",
       "a receive brings more messages than were asked for, while a request waits"), BY_MAILBOX_RULES),
    (m("hand-mb-credit-lost-without-room", BOX, "        if self._wiring.has_room:\n            self._wiring.write_credit(self._credits.address, int(self._inbox.seal_credit()))\n", "        credit_bytes = int(self._inbox.seal_credit())\n        if self._wiring.has_room:\n            self._wiring.write_credit(self._credits.address, credit_bytes)\n",
       "credit that found no room in the send queue counts as given"), BY_MAILBOX_RULES),
    (m("hand-mb-nested-processed", REQUESTS, "            if number in self._decoded:  # an action may have polled\n                self._judge", "            if number in self._journal.entries:\n                self._judge",
       "a request that an action has ended meanwhile ends the receiver's loop"), BY_MAILBOX_RULES),
    (m("hand-mb-journal-length-unbounded", JOURNAL, "        if length > MAX_RECORD_BYTES:\n            return\n        body", "        body",
       "a torn record makes a journal read as much as its length says"), BY_MAILBOX_RULES),
    (m("hand-mb-journal-numbers-unchecked", "machine/arguments.py", "    if not least <= number <= most:\n", "    if False:\n",
       "a number that no record has room for ends the polling loop by struct.error"), "mailbox/test_mailbox_journal.py"),
    (m("hand-mb-journal-seek-missing", JOURNAL, "        self._file.seek(self._bytes)\n        self._file.truncate()\n", "        self._file.seek(self._bytes)\n",
       "a record that was cut off comes back behind a new one"), BY_MAILBOX_RULES),
    (m("hand-mb-fixed-ignored-for-all", BLOCKS, "if self._fixed_bytes >= 0 and length != self._fixed_bytes and kind == DATA:", "if self._fixed_bytes > 0 and length != self._fixed_bytes and kind == DATA:",
       "messages that are all empty may have any length"), BY_MAILBOX_RULES),
    (m("hand-mb-wiring-overtakes-waiting", WIRING, "if self._waiting or len(ranges) > 1 or self._outstanding >= DEPTH:", "if len(ranges) > 1 or self._outstanding >= DEPTH:",
       "a block overtakes one that waits for room"), BY_MAILBOX_RULES),
    (m("hand-mb-wiring-chain-one-more", WIRING, "while self._waiting and self._outstanding < DEPTH:", "while self._waiting and self._outstanding <= DEPTH:",
       "a send queue is given one operation more than it holds"), BY_MAILBOX_RULES),
    (m("hand-mb-room-beside-waiting", WIRING, "return self._outstanding < DEPTH and not self._waiting", "return self._outstanding < DEPTH",
       "credit overtakes blocks that wait for room"), BY_MAILBOX_RULES),
    (m("hand-mb-read-again-while-reading", REMOTE_READER, "            if landed:\n                self._fetch()\n            return EMPTY", "            self._fetch()\n            return EMPTY",
       "a slot is fetched into memory that the READ before it still writes"), BY_MAILBOX_RULES),
    (m("hand-dv-detach-after", CHANNELS, "        detach, self._detach = self._detach, _nothing\n        detach()", "        self._detach()\n        self._detach = _nothing",
       "a device that a signal handler closes meanwhile leaves its adapter twice"), BY_DRIVER_CHANNEL_ENDS),
    (m("hand-dv-closed-told-twice", CHANNELS, "        on_closed, self.on_closed = self.on_closed, None\n", "        on_closed = self.on_closed\n",
       "a channel that is closed again is told of again"), BY_DRIVER_CHANNEL_ENDS),
    (m("hand-dv-memory-before-detach", CHANNELS, "        self.detach()\n        self.memory.close()\n        self.notify_closed()", "        self.memory.close()\n        self.detach()\n        self.notify_closed()",
       "memory goes while its adapter uses it"), BY_DRIVER_CHANNEL_ENDS),
    (m("hand-dv-passed-errno", CHANNELS, "code = getattr(error, \"errno\", errno.EBADF)", "code = errno.EINVAL",
       "too few descriptors are called a wrong argument"), BY_DRIVER_CHANNEL_ENDS),
    (m("hand-dv-cm-ring-leaks", CONNECTIONS, "        except DriverError:\n            self._ring.free()\n            raise\n        driver.events", "        except DriverError:\n            raise\n        driver.events",
       "each channel of connections that is refused costs memory"), BY_DRIVER_CHANNEL_ENDS),
    (m("hand-dv-cm-entries", CONNECTIONS, "if not 0 < entries <= MAX_CM_ENTRIES:", "if not 0 < entries < MAX_CM_ENTRIES:",
       "the longest channel of connections cannot be had"), BY_DRIVER_CHANNEL_ENDS),
    (m("hand-dv-cm-close-ends-first", CONNECTIONS, "            self._session.call(control.CLOSE_CM, cm=self.number)\n            self._ring.end()", "            self._ring.end()\n            self._session.call(control.CLOSE_CM, cm=self.number)",
       "a channel whose end is refused is dead and cannot be closed"), BY_DRIVER_CHANNEL_ENDS),
    (m("hand-dv-cm-alternate-lid", CONNECTIONS, "if not any(gid) and not named[\"lid\"]:", "if not any(gid):",
       "an alternate path within a native subnet is not seen"), BY_DRIVER_CHANNEL_ENDS),
    (m("hand-dv-cm-private-end", CONNECTIONS, "entry[_HEADER.size : _HEADER.size + read[_PRIVATE_BYTES]]", "entry[_HEADER.size :]",
       "private data have bytes that no message had"), BY_DRIVER_CHANNEL_ENDS),
    (m("hand-rt-done-before-receive", LOOP, "            self.adapter.receive(port.port_number, arrival, now)\n            receiver.done()", "            receiver.done()\n            self.adapter.receive(port.port_number, arrival, now)",
       "a peer may overwrite a burst that the engine is reading"), BY_RUNTIME_LOOP_RULES),
    (m("hand-rt-kick-no-settle", LOOP, "                    self.batching.last_ns = self.now()  # that took a while\n                if not self.dead:\n                    self.settle(now)", "                    self.batching.last_ns = self.now()  # that took a while",
       "who waits for an event is not woken by the doorbell that brought it"), BY_RUNTIME_LOOP_RULES),
    (m("hand-rt-poll-lock-kept", LOOP, "            self.polls += 1\n            self.polled = True\n            now: cython.ulonglong = self.now()\n            self.batching.polled(now)\n", "            self.polls += 1\n            self.polled = True\n            now: cython.ulonglong = self.now()\n",
       "the first doorbell behind a poll waits for others"), BY_RUNTIME_LOOP_RULES),
    (m("hand-rt-links-expire-once", LOOP, "            if port.link.expire(now):\n                worked = True\n", "            if not worked and port.link.expire(now):\n                worked = True\n",
       "a link that holds packets back is not told the time while there is work"), BY_RUNTIME_LOOP_RULES),
    (m("hand-sh-wake-before-push", SAME_HOST_RING, "        self.producer.push(self.words_address, _DESCRIPTION)\n        self.producer.push(burst.address, n)\n        self.bursts += 1\n        if atomic_cas64(self.asleep, 1, 0):  # a full barrier: the peer sees the ring, or is woken\n            self.wake()\n", "        if atomic_cas64(self.asleep, 1, 0):\n            self.wake()\n        self.producer.push(self.words_address, _DESCRIPTION)\n        self.producer.push(burst.address, n)\n        self.bursts += 1\n",
       "a peer is woken before there is something in the ring, and sleeps again"), BY_RUNTIME_SAME_HOST_RING),
    (m("hand-sh-give-up-silent", SAME_HOST_RING, "        self.broken = True\n        store64(self.closed, 1)\n        return False", "        self.broken = True\n        return False",
       "a sender fills a ring that nobody reads any more"), BY_RUNTIME_SAME_HOST_RING),
    (m("hand-m-removed-twice", TABLES, "        if self._elements.pop(element.number, None) is not None:\n            self.connections -= 1", "        self._elements.pop(element.number, None)\n        self.connections -= 1",
       "a connection that is forgotten twice makes room for one too many"), BY_MANAGEMENT_CM_LIMITS),
    (m("hand-m-timer-stale-entry", TIMERS, "            if queued_ns != element.queued_ns:\n                continue\n", "",
       "each deadline that was replaced leaves an entry for ever"), BY_MANAGEMENT_CM_LIMITS),
    (m("hand-m-sidr-undelivered-waits", RESOLUTIONS, "        if not listener.owner.deliver(told):\n            return False\n", "        listener.owner.deliver(told)\n",
       "requests that their owner has not heard of fill the tables"), BY_MANAGEMENT_CM_RESOLUTIONS),
    (m("hand-m-instance-wrap", INSTANCES, "self._remember(place, last % INSTANCES + 1)", "self._remember(place, (last + 1) % (INSTANCES + 1) or last)",
       "connection 128 between two ports, and all behind it, have one number"), BY_ADAPTER_CONNECTION_INSTANCES),
    (m("hand-sk-offer-end", PROTOCOL, "if address + pool_bytes + BEHIND_BYTES >= 1 << 64:", "if address + pool_bytes >= 1 << 64:",
       "the record behind a peer's pool ends past the address space"), BY_SOCKETS_MEMORY_MANAGEMENT),
    (m("hand-sk-offer-power", PROTOCOL, "or pool_bytes & (pool_bytes - 1):", ":",
       "a pool of a size that positions do not wrap at"), BY_SOCKETS_MEMORY_MANAGEMENT),
    (m("hand-sk-offer-flags", PROTOCOL, "or version != VERSION or flags & ~_ALONE:", "or version != VERSION:",
       "flags of a later version are taken for none"), BY_SOCKETS_MEMORY_MANAGEMENT),
    (m("hand-sk-notification-closed", PROTOCOL, "if value & ~_CLOSED or (value and kind == RESET):", "if value & ~_CLOSED:",
       "an immediate with bits that mean nothing is a notification"), BY_SOCKETS_MEMORY_MANAGEMENT),
    (m("hand-q-hand-code-request", HANDSHAKE, "if message not in MESSAGES or message == READY or code:", "if message not in MESSAGES or message == READY:",
       "a request with an errno in it is served"), BY_QUEUES_HANDSHAKE),
    (m("hand-p-heap-not-heap", PENDING, "            heapq.heapify(self._deadlines)\n", "",
       "requests run out of their time in any order once many were answered"), BY_MANAGEMENT_PENDING),
    (m("hand-r-window-shrinks", RMPP, " or window < self._window_last:\n", ":\n",
       "an acknowledgement with a narrower window acknowledges"), BY_MANAGEMENT_RMPP),
    (m("hand-r-receiver-abort-done", RMPP, "                self.failed = True\n                self.done = False\n", "                self.failed = True\n",
       "an answer that is too long is whole and has failed at once"), BY_MANAGEMENT_RMPP),
    (m("hand-m-rej-timeout-any-reason", MANAGER, "if isinstance(message, m.Rej) and not number and message.reason == m.REJ_TIMEOUT:", "if isinstance(message, m.Rej) and not number:",
       "any rejection without a number ends the connection that it guesses"), BY_MANAGEMENT_CM_ENDS),
    (m("hand-m-rej-timeout-guid", MANAGER, "found = self._by_remote.get((place_of(source), guid, message.local_comm_id))", "found = next((each for key, each in self._by_remote.items() if key[2] == message.local_comm_id), None)",
       "a rejection without a number ends the connection of another adapter"), BY_MANAGEMENT_CM_ENDS),
    (m("hand-m-comm-id-of-another", MANAGER, "return found if isinstance(message, m.Rej) and not message.local_comm_id else None", "return found if isinstance(message, m.Rej) else None",
       "a rejection of another connection of the peer's ends this one"), BY_MANAGEMENT_CM_ENDS),
    (m("hand-m-answered-unknown-known", MANAGER, "            if isinstance(known, Connection) and known.state != states.CLOSED:\n                return  # it is here, and this is somebody else's\n", "",
       "a stranger learns which numbers are of live connections"), BY_MANAGEMENT_CM_ENDS),
    (m("hand-m-forget-peer-of-another", MANAGER, "        if self._by_end.get(by_end) is connection:\n            del self._by_end[by_end]", "        self._by_end.pop(by_end, None)",
       "the end of a request hides that a later one's peer has forgotten it"), BY_MANAGEMENT_CM_ENDS),
    (m("hand-m-forget-remote-of-another", MANAGER, "        if self._by_remote.get(by_id) is connection:\n            del self._by_remote[by_id]", "        self._by_remote.pop(by_id, None)",
       "the end of a request makes the next one of its numbers unknown"), BY_MANAGEMENT_CM_ENDS),
    (m("hand-m-forget-local-of-another", MANAGER, "        if self._by_local.get(connection.local_end) is connection:\n            del self._by_local[connection.local_end]", "        self._by_local.pop(connection.local_end, None)",
       "the end of a request keeps the next one of its queue pair from moving along"), BY_MANAGEMENT_CM_ENDS),
    (m("hand-m-migrated-other-lost", MANAGER, "            if not same_port(connection.peer, there):\n                connection.other = connection.peer\n", "",
       "what a peer sends while its connection moves is not heard"), BY_MANAGEMENT_CM_ENDS),
    (m("hand-ds-full-uncredited", DATAGRAM_STATE, "            if believed:\n                self._credit(found, now_ns)\n            self._drop(FULL", "            self._drop(FULL",
       "a datagram that found no room is waited for by its sender"), BY_SOCKETS_DATAGRAM_STATE),
    (m("hand-dp-cut", DATAGRAM_PROTOCOL, "return (pages, rest) if rest <= size - HEADER_BYTES else (pages + 1, 0)", "return (pages, rest) if rest < size - HEADER_BYTES else (pages + 1, 0)",
       "a first message that is just full is cut otherwise than the peer expects"), BY_SOCKETS_DATAGRAM_STATE),
    (m("hand-dp-credit-window", DATAGRAM_PROTOCOL, "            if not 1 <= total <= MOST_WINDOW:\n                raise ProtocolError(f\"a window of {total}\")\n", "",
       "a peer tells a window that cannot be"), BY_SOCKETS_DATAGRAM_STATE),
    (m("hand-rc-accept-refused-state", CONNECTING, "            channel.reply(self._number, own, parameters.private_data)\n            owner.state = after", "            owner.state = after\n            channel.reply(self._number, own, parameters.private_data)",
       "a request that could not be accepted cannot be accepted again"), BY_DRIVER_RDMACM_LISTENING),
    (m("hand-rc-accept-room-late", CONNECTING, "            _check_room(parameters.private_data, REPLY_BYTES)\n            queue_pair", "            queue_pair",
       "an acceptance with too many private data moves the queue pair before it is refused"), BY_DRIVER_RDMACM_LISTENING),
    (m("hand-rc-bounded-most", CONNECTING, "    if wanted > most:\n", "    if wanted >= most:\n",
       "a program cannot ask for all that its device can do"), BY_DRIVER_RDMACM_LISTENING),
    (m("hand-rc-ended-not-error", CONNECTING, "            elif after in states.ENDED and owner.connected:\n                queue_pairs.to_error(owner)\n", "",
       "what was posted for a connection that was rejected never completes"), BY_DRIVER_RDMACM_LISTENING),
    (m("hand-rl2-refuse-forget", LISTENING, "            port.forget(event.id)\n            with contextlib", "            with contextlib",
       "each request that a listener refuses leaves a receiver behind"), BY_DRIVER_RDMACM_LISTENING),
    (m("hand-rl2-child-timeout", LISTENING, "        child.ack_timeout = owner.ack_timeout\n", "",
       "a connection that is accepted forgets its listener's time-out"), BY_DRIVER_RDMACM_LISTENING),
    (m("hand-ri-bind-refused-device", IDENTIFIER, "            if found is not None:\n                self.devices.release(found.device)\n            raise\n", "            raise\n",
       "a refused bind keeps its device open for ever"), BY_DRIVER_RDMACM_LISTENING),
    (m("hand-ri-localhost-is-nobody", IDENTIFIER, "            if error.errno != errno.EADDRNOTAVAIL or not address.is_localhost:\n", "            if True:\n",
       "who binds to localhost is refused where the device has another address"), BY_DRIVER_RDMACM_LISTENING),
    (m("hand-re-withdraw-settle", EVENTS, "            self._notices = deque(pair for pair in self._notices if pair[0] is not identifier)\n            self._settle()", "            self._notices = deque(pair for pair in self._notices if pair[0] is not identifier)",
       "a descriptor stays ready for events of an identifier that was closed"), BY_DRIVER_RDMACM_CHANNEL),
    (m("hand-re-takeback-settle", EVENTS, "            self._notices.remove((identifier, notice))\n            self._settle()", "            self._notices.remove((identifier, notice))",
       "a descriptor stays ready for a request that was taken back"), BY_DRIVER_RDMACM_CHANNEL),
    (m("hand-re-fileno-late", EVENTS, "                for _ in self._notices:\n                    self._descriptor.queued()\n", "",
       "who asks for a descriptor late is not told of what waits"), BY_DRIVER_RDMACM_CHANNEL),
    (m("hand-re-detach-unwatch", EVENTS, "        if not users:\n            device.events.unwatch(self._tell_lost)\n\n    def post", "\n    def post",
       "a thread goes on waiting at a device that no identifier is on"), BY_DRIVER_RDMACM_CHANNEL),
    (m("hand-re-close-wake", EVENTS, "            device.events.unwatch(self._tell_lost)\n            device.wake_waiters()\n\n    def check", "            device.events.unwatch(self._tell_lost)\n\n    def check",
       "who waits at a device for a channel's events sleeps through its end"), BY_DRIVER_RDMACM_CHANNEL),
    (m("hand-re-inherited-notices", EVENTS, "        self._make_locks()\n        self._notices.clear()\n", "        self._make_locks()\n",
       "a forked child is told its parent's events"), BY_DRIVER_RDMACM_CHANNEL),
    (m("hand-d-asked-again-evicts", DISPATCHER, "if key not in self._outstanding and len(self._outstanding)", "if len(self._outstanding)",
       "who asks again where all places are taken loses another one's answer"), BY_MANAGEMENT_DISPATCHER),
    (m("hand-d-asked-again-order", DISPATCHER, "        self._outstanding.move_to_end(key)\n", "",
       "a request that was just asked again is the first to give way"), BY_MANAGEMENT_DISPATCHER),
    (m("hand-h-pending-answered-undelivered", HOST_AGENTS, "        if not self._put(0, data, source):\n            return False\n        header = MadHeader.decode(data)\n        if header.method & RESPONSE:\n            self.flow.pending.answered(self, request_key(header))\n        return True", "        header = MadHeader.decode(data)\n        if header.method & RESPONSE:\n            self.flow.pending.answered(self, request_key(header))\n        return self._put(0, data, source)",
       "a response that found no room is never asked for again"), BY_ADAPTER_HOST_AGENTS),
    (m("hand-h-cost-without-pending", HOST_AGENTS, "cost_bytes = cost_of(layout, produces=True) + MAX_PENDING * PENDING_BYTES", "cost_bytes = cost_of(layout, produces=True)",
       "a host has agents without end whose requests cost it nothing"), BY_ADAPTER_HOST_AGENTS),
    (m("hand-h-dlid-native", HOST_AGENTS, "if not fields[\"dlid\"] if port.native else not fields[\"is_global\"]:", "if not port.native and not fields[\"is_global\"]:",
       "a datagram to LID 0 leaves"), BY_ADAPTER_HOST_AGENTS),
    (m("hand-dv-session-tag-wrap", SESSION, "tag = next(self._tags) & 0xFFFFFFFF", "tag = next(self._tags)",
       "a program's 2^32nd command, and all behind it, fail"), BY_DRIVER_SESSION),
    (m("hand-dv-session-gone-lost", SESSION, "            self.gone = self.lost = True\n", "            self.gone = True\n",
       "who waits for a device learns nothing of an adapter that has died"), BY_DRIVER_SESSION),
    (m("hand-dv-descriptor-one", DESCRIPTORS, "            while True:\n                self._program.recv(1, socket.MSG_DONTWAIT)", "            self._program.recv(1, socket.MSG_DONTWAIT)",
       "a descriptor is ready though all events were taken"), BY_DRIVER_CHANNEL_ENDS),
    (m("hand-dv-descriptor-closed-blocking", DESCRIPTORS, "return fd < 0 or os.get_blocking(fd)", "return fd >= 0 and os.get_blocking(fd)",
       "who waits at a descriptor that is closed gets EAGAIN"), BY_DRIVER_CHANNEL_ENDS),
    (m("hand-rp-keep-unbounded", PORTS, "            if len(self._unclaimed) < _MOST_UNCLAIMED:\n                self", "            if True:\n                self",
       "events of numbers that nobody has fill the memory"), BY_DRIVER_RDMACM_PORTS),
    (m("hand-rp-keep-receiver", PORTS, "            self._receivers.pop(number, None)\n            if len", "            if len",
       "an event for who is being made goes to who was there before"), BY_DRIVER_RDMACM_PORTS),
    (m("hand-rp-stop-last", PORTS, "                del self._takers[service_id]\n                self.end(number)", "                self.end(number)",
       "who stops listening twice ends the next listener"), BY_DRIVER_RDMACM_PORTS),
    (m("hand-rp-register-unclaimed", PORTS, "            for event in self._unclaimed.pop(number, ()):\n                receiver(event)", "            for event in self._unclaimed.get(number, ()):\n                receiver(event)",
       "an event that came early is told to each that registers"), BY_DRIVER_RDMACM_PORTS),
    (m("hand-rp-forget-unclaimed", PORTS, "            self._receivers.pop(number, None)\n            self._unclaimed.pop(number, None)", "            self._receivers.pop(number, None)",
       "events of a connection that has ended are told to the next one of its number"), BY_DRIVER_RDMACM_PORTS),
    (m("hand-rq-rts-retry-end", QUEUE_PAIRS, "end = connection.own if connection.active and connection.own is not None else connection.peer", "end = connection.own if connection.own is not None else connection.peer",
       "who was asked tries again as often as it would have asked for itself"), BY_DRIVER_RDMACM_PORTS),
    (m("hand-rq-error-datagram", CONNECTING, "elif after in states.ENDED and owner.connected:", "elif after in states.ENDED:",
       "the queue pair of a datagram identifier is flushed when its peer goes"), "driver/test_driver_rdmacm_rules.py"),
    (m("hand-rq-ack-timeout", QUEUE_PAIRS, "connection.path.ack_timeout if owner.ack_timeout is None else owner.ack_timeout", "connection.path.ack_timeout",
       "a time-out that the program has set counts for nothing"), BY_DRIVER_RDMACM_PORTS),
    (m("hand-ri-ack-timeout", IDENTIFIER, "elif name == OPTION_ACK_TIMEOUT:\n                if not 0 <= value <= _MOST_ACK_TIMEOUT:", "elif name == OPTION_ACK_TIMEOUT:\n                if not 0 <= value <= _MOST_ACK_TIMEOUT + 1:",
       "a time-out of 32 is sent as 0, for ever"), BY_DRIVER_RDMACM_PORTS),
    (m("hand-ri-lost-any", IDENTIFIER, "if all(device.lost for device in self._attached):", "if any(device.lost for device in self._attached):",
       "who listens everywhere is told of a removal by the first device that goes"), BY_DRIVER_RDMACM_PORTS),
    (m("hand-rg-join-failed", GROUPS, "        except BaseException:\n            self._joined.pop(group.gid, None)\n            raise\n", "        except BaseException:\n            raise\n",
       "a group that could not be joined is joined for ever"), BY_DRIVER_RDMACM_PORTS),
    (m("hand-rg-dead-device", GROUPS, "and queue_pair is not None and queue_pair.device.alive:", "and queue_pair is not None:",
       "who leaves a group of a device that has gone is told an error"), BY_DRIVER_RDMACM_PORTS),
    (m("hand-cl-sleeper-count-error", CLIENTS, "        if rang or (self.unused and not leading):\n            self.disarm_wakeup()\n            return False", "        if rang or (self.unused and not leading):\n            return False",
       "who did not fall asleep counts as asleep for ever"), BY_RUNTIME_CLIENTS_RULES),
    (m("hand-cl-flags-after-serve", CLIENTS, "        self._sleepers += 1\n        self._raise_flags()\n        self.dismiss_ended()\n        # behind the flags: whoever rang before they could be seen is served now\n        rang = self.loop.attached and self.loop.serve_hosts(now)\n", "        self._sleepers += 1\n        self.dismiss_ended()\n        rang = self.loop.attached and self.loop.serve_hosts(now)\n        self._raise_flags()\n",
       "a client that rings between the last look and the flag wakes nobody"), BY_RUNTIME_CLIENTS_RULES),
    (m("hand-cl-raise-any-stops", CLIENTS, "return any([each.raise_flag() for each in attached])", "return any(each.raise_flag() for each in attached)",
       "of several clients the first one alone wakes the adapter"), BY_RUNTIME_CLIENTS_RULES),
    (m("hand-cl-flags-lowered-early", CLIENTS, "        if not self._sleepers:\n            self._lower_flags()", "        self._lower_flags()",
       "the second of two sleepers is woken by no client"), BY_RUNTIME_CLIENTS_RULES),
    (m("hand-ec-order", EVENT_CHANNELS, "if self._pending or not self._send(kind, element):", "if not self._send(kind, element):",
       "an event overtakes those that wait for room"), BY_RUNTIME_EVENT_CHANNELS),
    (m("hand-sh-arms-stop-at-first", SAME_HOST, "return all([receiver.arm_wakeup() for receiver in self.receivers])", "return all(receiver.arm_wakeup() for receiver in self.receivers)",
       "a neighbour behind one that has sent something wakes nobody"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-sleeper-count", SAME_HOST, "        if self._arm_rings():\n            return True\n        self.disarm_wakeup()\n        return False", "        if self._arm_rings():\n            return True\n        return False",
       "who did not fall asleep beside neighbours counts as asleep"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-disarm-other-sleeper", SAME_HOST, "        if self._sleepers:\n            self._rearm_wakeup()\n        else:", "        if not self._sleepers:",
       "the second of two sleepers is woken by no neighbour"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-uid", SAME_HOST, "return uid == os.geteuid() and (pid > 0 or not self.automatic)", "return (pid > 0 or not self.automatic)",
       "memory is shared with another user's adapter"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-room-bound", SAME_HOST, "return len(self._by_descriptor) < 2 * MAX_PEERS", "return len(self._by_descriptor) <= 2 * MAX_PEERS",
       "one neighbour more than there may be"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-process-reused", SAME_HOST, "            if peer.process.has_ended():  # else the descriptor was another's a moment ago\n                self._drop(peer)", "            self._drop(peer)",
       "a neighbour is dropped for a descriptor that is another's now"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-messages-descriptors", SAME_HOST, "            finally:\n                messages.close_all(descriptors)", "            finally:\n                pass",
       "descriptors that a neighbour passes unasked stay open"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-departing-inside", SAME_HOST, "for peer in [peer for peer in self._departing if not peer.is_inside()]:", "for peer in list(self._departing):",
       "a reader is unmapped under a neighbour that is inside"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-departed-holds", SAME_HOST, "                self.sharing.directory.settle(peer.reader)\n", "",
       "pages stay held for a neighbour that has gone"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-switching-dropped", SAME_HOST_PORT, "        if peer in self._switching:\n            self._switching.remove(peer)\n        peer.close()", "        peer.close()",
       "packets go into the ring of a neighbour that has gone"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-drop-unchanged", SAME_HOST_PORT, "        if self.senders.pop(peer.path.gid, None) is not None:\n            self.changed()", "        self.senders.pop(peer.path.gid, None)",
       "a port does not hear that a neighbour's ring has gone"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-admit-own-gid", SAME_HOST_PORT, "if len(gid) != 16 or self.same_host.is_own(gid):", "if len(gid) != 16:",
       "a neighbour takes the own GID"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-retry-unbounded", SAME_HOST_PORT, "        if len(self._retry_ns) >= MAX_PEERS:\n            self._retry_ns.clear()\n", "",
       "GIDs that nobody has fill the memory"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-retry-kept-after-contact", SAME_HOST_PORT, "        self._retry_ns.pop(gid, None)\n        self.changed()  # who connects here accepts, too", "        self.changed()  # who connects here accepts, too",
       "who has just connected here is not asked back for a while"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-open-twice", SAME_HOST_PEERS, "len(descriptors) == 2 and not self.path.alive:", "len(descriptors) == 2:",
       "a reader comes behind nothing that was asked"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-arena-number-again", SAME_HOST_PEERS, "                or number in self._arenas\n", "",
       "a neighbour replaces an arena that is in use"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-arena-count", SAME_HOST_PEERS, "or len(self._arenas) >= MAX_ARENAS", "or len(self._arenas) > MAX_ARENAS",
       "a neighbour gives more arenas than there are places"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-gone-still-mapped", SAME_HOST_PEERS, "            self.path.set_arena(number, 0, 0)\n", "",
       "writes go to an arena that was unmapped"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-mapped-not-given-back", SAME_HOST_PEERS, "        except BaseException:\n            MAPPED.give(size)\n            raise\n", "        except BaseException:\n            raise\n",
       "each arena that could not be mapped takes address space for ever"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-probe-own-pid", SAME_HOST_PEERS, "        if pid == os.getpid():\n            return 0\n", "",
       "an adapter of this process is reached as another process"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-sh-probe-address", SAME_HOST_PEERS, "not 0 < address < 1 << 63 or", "not 0 < address or",
       "an address of a neighbour's that no process has is read"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-ar-holds-end", SHARED_ARENA, "address + length <= self.base + self.size_bytes", "address < self.base + self.size_bytes",
       "a registration that ends behind the arena is shared"), BY_SHARED_WITHDRAWAL),
    (m("hand-ar-shares-last", SHARED_ARENA, "(place + length - 1) // PAGE_BYTES", "(place + length) // PAGE_BYTES",
       "a range that ends before a private page counts as private"), BY_SHARED_WITHDRAWAL),
    (m("hand-ar-used", SHARED_ARENA, "        self._used = max(self._used, first + pages)\n", "        self._used = first + pages\n",
       "an arena that is closed keeps memory"), BY_SHARED_WITHDRAWAL),
    (m("hand-od-range-end", ON_DEMAND, "+ length > 1 << 64:\n        raise OSError(\n            errno.EINVAL, f\"length", "+ length >= 1 << 64:\n        raise OSError(\n            errno.EINVAL, f\"length",
       "a region may not end with the last byte of the address space"), BY_MEMORY_ON_DEMAND),
    (m("hand-sk-news-cleared-late", STREAM_PATH, "                self._news = False\n                if self._closed or self._state is None:\n                    continue\n                self._arm()\n                self._pump()\n", "                if self._closed or self._state is None:\n                    self._news = False\n                    continue\n                self._arm()\n                self._pump()\n                self._news = False\n",
       "an event that comes while another one is answered is lost"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-arm-after-pump", STREAM_PATH, "                self._arm()\n                self._pump()\n                if self._goodbye:", "                self._pump()\n                self._arm()\n                if self._goodbye:",
       "what arrives between the last look and the request for an event is not told"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-owed-one-less", STREAM_PATH, "while self._owed >= _OWED and not self.error:", "while self._owed > _OWED and not self.error:",
       "a receive more is open than may be before they are posted anew"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-fail-twice-parts", STREAM, "        if not self.error:\n            self.error = code", "        if True:\n            self.error = code",
       "a later failure changes why a connection has ended"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-fail-waiters", STREAM, "            self._changed()\n            self._driver.wake_waiters()\n            HUB.soon(self._part)", "            self._changed()\n            HUB.soon(self._part)",
       "who waits in a stream that fails sleeps on"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-forged-no-reset", STREAM, "        self._send_reset()\n        self._fail(errno.ECONNRESET)", "        self._fail(errno.ECONNRESET)",
       "a peer that says what cannot be is not told that the connection is over"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-credit-reserved", STREAM_PATH, "len(self.sender.inflight) >= _MESSAGES - 1:", "len(self.sender.inflight) >= _MESSAGES:",
       "credit takes the place that is kept for the end"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-end-without-deaf", STREAM, "if self._state is None or not self._state.finished or not self._state.deaf:", "if self._state is None or not self._state.finished:",
       "a peer that dies behind its FIN has closed, it seems"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-peer-gone-no-pump", STREAM, "            self._pump()\n            self._judge_end()", "            self._judge_end()",
       "a close that stands in the queue when the peer goes is a reset"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-probe-beside", STREAM, "not (self.error or self._closed or self.sender.unanswered):", "not (self.error or self._closed):",
       "a peer that owes an answer already is asked again and again"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-reset-data-lost", STREAM_PATH, "if self.error and not (state.finished and not state.was_reset):", "if self.error:",
       "an end that was said becomes an error when the connection goes"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-shutdown-twice", STREAM, "if writing and not state.said_fin:", "if writing:",
       "who shuts down twice says two ends"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-lost-once", STREAM_PATH, "            self._lost = True\n", "",
       "all that is sent to a peer that has closed is lost, and no error tells"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-writable-deaf", STREAM_PATH, "        if state.said_fin or state.deaf:\n            return True\n        staging", "        if state.said_fin:\n            return True\n        staging",
       "who waits until it may send to a peer that has closed waits for ever"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-sleeper-not-armed", STREAM, "            self._sleeping += change\n            if change > 0:\n                self._arm_for_all()", "            self._sleeping += change",
       "who falls asleep in a receive is woken by solicited messages alone"), BY_SOCKETS_STREAM_RULES),
    (m("hand-pr-flag-cas-swapped", PROCESS, "if atomic_cas64(self._flag_address, 1, 0):", "if atomic_cas64(self._flag_address, 0, 1):",
       "an adapter process that is awake is woken by every second doorbell"), BY_RUNTIME_PROCESS_RULES),
    (m("hand-pr-descriptor-count", PROCESS, "        if len(passed) != 1:\n            messages.close_all(passed)\n            raise OSError(errno.EPROTO, \"the adapter process passed no memory\")\n", "",
       "descriptors that an adapter passes beside a memory stay open"), BY_RUNTIME_PROCESS_RULES),
    (m("hand-pr-leader-drains-dead", PROCESS, "            self._wake_event.drain()\n            if self.check_alive():", "            if self.check_alive():",
       "threads that wait turn in a circle once one was woken"), BY_RUNTIME_PROCESS_RULES),
    (m("hand-pr-interrupted-leader-leads-on", PROCESS, "            if not nested and self._leader_lock.mine():  # interrupted when it began, or ended, to lead\n                self._lead_no_more()\n", "            pass\n",
       "after a signal handler has raised nobody waits for an adapter process any more"), BY_RUNTIME_PROCESS_RULES),
    (m("hand-pr-handler-ends-the-lead", PROCESS, "        nested = self._leader_lock.mine()", "        nested = False",
       "a signal handler that waits takes the lead from the thread that it has interrupted"), BY_RUNTIME_PROCESS_RULES),
    (m("hand-progress-interrupted-leader-leads-on", "runtime/progress_thread.py", "        if not nested:\n            self._lead_no_more()\n", "",
       "after a signal handler has raised nobody sleeps for an adapter any more"), "runtime/test_runtime_spinning.py"),
    (m("hand-progress-waiter-counted-before", "runtime/progress_thread.py", "            with loop.lock:  # no handler comes between the two: nothing is called\n                counted[0], loop.sleeper.waiters = True, loop.sleeper.waiters + 1\n                self._waits += 1\n", "            with loop.lock:\n                loop.sleeper.waiters += 1\n                self._waits += 1\n            counted[0] = True\n",
       "after a signal handler has raised the background thread leaves the adapter to a thread that does not exist"), "runtime/test_runtime_spinning.py"),
    (m("hand-progress-interrupted-leaving", "runtime/progress_thread.py", "            except BaseException:  # of another handler\n                self._leave(loop, nested, counted)\n", "            except BaseException:  # of another handler\n",
       "the same where the handler comes when the thread ends its wait"), "runtime/test_runtime_spinning.py"),
    (m("hand-progress-interrupted-nap-leads-on", "runtime/progress_thread.py", "            if not nested:\n                self._lead_no_more()\n", "            pass\n",
       "after a signal handler has raised in a nap nobody sleeps for an adapter any more"), "runtime/test_runtime_spinning.py"),
    (m("hand-pr-lock-taken-step-by-step", PROCESS, "        with self._changes_lock:\n            self._changed.wait_for(", "        with self._changed:\n            self._changed.wait_for(",
       "a signal handler that raises leaves a lock taken that every wait takes"), BY_RUNTIME_PROCESS_RULES),
    (m("hand-commands-handler-refuses", "adapter/commands.py", "        if raised_by_handler(error):\n            raise\n", "",
       "the half of a command that a signal handler's TimeoutError leaves is taken for a refused one"), "adapter/test_adapter_commands.py"),
    (m("hand-loop-handler-swallowed", LOOP, "isinstance(error, Exception) or raised_by_handler(error)", "isinstance(error, Exception)",
       "a program never hears what its signal handler has raised in a turn"), "runtime/test_runtime_progress.py"),
    (m("hand-session-handler-refuses", "driver/errors.py", "    if raised_by_handler(error):\n        raise error\n", "",
       "a signal handler's TimeoutError is told to the program as a refusal"), "driver/test_driver_session.py"),
    (m("hand-signals-arguments-unseen", "machine/signals.py", "[: count + 1]", "[:count]",
       "a handler with *arguments is not recognized"), "machine/test_machine_signals.py"),
    (m("hand-pr-leaving-descriptors-stay", PROCESS, "        if self._leaving:\n            self._close_descriptors()\n\n    def _notify", "\n    def _notify",
       "each device that is closed while a thread waits costs its descriptors"), BY_RUNTIME_PROCESS_RULES),
    (m("hand-pr-detach-watched", PROCESS, "        fork.unwatch(self)\n        others", "        others",
       "channels that were left are kept for ever"), BY_RUNTIME_PROCESS_RULES),
    (m("hand-pr-progress-worked-flag", PROCESS, "            self._kicked = False\n            if self.liveness", "            if self.liveness",
       "a program that has kicked once never naps again"), BY_RUNTIME_PROCESS_RULES),
    (m("hand-pr-wait-until-late", PROCESS, "            if until_ns is not None and now_ns() >= until_ns:\n                return ready()", "            if until_ns is not None and now_ns() >= until_ns:\n                return False",
       "what comes with the end of a wait is told as a time-out"), BY_RUNTIME_PROCESS_RULES),
    (m("hand-sk-close-error-kept", STREAM, "self.error = self.error or errno.EBADF", "self.error = errno.EBADF",
       "a stream that is closed forgets why it had ended"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-wait-taken-after-error", STREAM_PATH, "        if last[0] and self.error and self.sender.taken < last[0]:\n            raise failure(self.error)\n", "",
       "bytes that never left count as sent"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-abandon-missed", STREAM, "        self._missed = False  # whoever waited is a thread of the parent\n", "",
       "a forked child wakes its parent's threads"), BY_SOCKETS_STREAM_RULES),
    (m("hand-sk-retire-taken", STREAM_SENDING, "        self.taken = max(self.taken, self.retired)", "        self.taken = self.retired",
       "memory that was taken counts as in use again"), BY_SOCKETS_SENDING_RULES),
    (m("hand-sk-staging-head-back", STREAM_SENDING, "            if staged > staging.head:\n                staging.head = staged", "            staging.head = staged",
       "a message without a copy frees no memory, and takes some back"), BY_SOCKETS_SENDING_RULES),
    (m("hand-sk-full-reserved", STREAM_SENDING, "        if len(self.inflight) >= _FULL:\n            return True", "        if len(self.inflight) >= MESSAGES:\n            return True",
       "data take the places that are kept for credit and the end"), BY_SOCKETS_SENDING_RULES),
    (m("hand-sk-signal-each", STREAM_SENDING, "            self.number + 1 - self._signaled >= _SIGNAL_EACH\n", "            self.number - self._signaled > 4 * SIGNAL_EACH\n",
       "a completion is asked for a quarter as often as room needs it"), BY_SOCKETS_SENDING_RULES),
    (m("hand-sk-let-go-early", STREAM_SENDING, "            if number > self.taken:\n                break\n", "",
       "memory is let go of before it was taken"), BY_SOCKETS_SENDING_RULES),
    (m("hand-sh-gone-arena-untold", SAME_HOST, "        for peer in self._admitted():\n            peer.send({\"gone\": number})", "        pass",
       "neighbours go on with an arena that is gone"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-dv-cm-close-router", CONNECTIONS, "        self._driver.events.remove_connections(self)\n        self._ring.free()", "        self._ring.free()",
       "each channel of connections that is closed is kept for ever"), BY_DRIVER_CHANNEL_ENDS),
    (m("hand-ri-close-events", IDENTIFIER, "            self.channel.withdraw(self)\n", "",
       "a program is told events of an identifier that it has closed"), BY_DRIVER_RDMACM_PORTS),
    (m("hand-sk-retire-equal", STREAM_SENDING, "while inflight and inflight[0][0] <= number:", "while inflight and inflight[0][0] < number:",
       "the message that a completion is of counts as under way"), BY_SOCKETS_SENDING_RULES),
    (m("hand-sk-peek-takes", STREAM_RECEIVING, "        if not peek:\n            self.copied_bytes += length\n            own.take(length)\n        return parts[0]", "        self.copied_bytes += length\n        own.take(length)\n        return parts[0]",
       "a look takes what it shows"), BY_SOCKETS_RECEIVING_RULES),
    (m("hand-sk-reclaim-mapped", STREAM_RECEIVING, "            self._mapped.pop(position, None)\n", "",
       "what was given back is undone once more as the stream ends"), BY_SOCKETS_RECEIVING_RULES),
    (m("hand-lv-asked-late", LIVENESS, "                found._asked = False  # first: who finds no room from here on says so again\n                if found._ask(not found._stream.writable):\n                    found.stalled()", "                if found._ask(not found._stream.writable):\n                    found._asked = False\n                    found.stalled()",
       "who once found room again never has its peer asked any more"), BY_SOCKETS_RECEIVING_RULES),
    (m("hand-mb-outcome-sent-before-put", BOX, "            if not self._put(OUTCOME, (outcome[1],)):\n                return\n            self._requests.outcome_sent(outcome[0])", "            self._requests.outcome_sent(outcome[0])\n            if not self._put(OUTCOME, (outcome[1],)):\n                return",
       "an outcome that found no room is never told"), BY_MAILBOX_RULES),
    (m("hand-mb-poll-keeps-floor", BOX, "        self._progress()\n        self._floor = -1\n        if self._entries:\n            self._settle()\n        self._wiring.take_completions()", "        self._progress()\n        if self._entries:\n            self._settle()\n        self._wiring.take_completions()",
       "who polls has not processed the last batch"), BY_MAILBOX_RULES),
    (m("hand-mb-reached-in-hand", BOX, "return self._in_hand[0][0] - 1", "return self._in_hand[0][0]",
       "a request is performed while the message before it is in hand"), BY_MAILBOX_RULES),
    (m("hand-lv-errored-asks", LIVENESS, "if not wanted or self._stream.error:", "if not wanted:",
       "a peer is asked for a stream that has ended"), BY_SOCKETS_RECEIVING_RULES),
    (m("hand-sh-second-reader", SAME_HOST, "            if isinstance(peer, InboundPeer) and peer.reader is not None:\n                self._receive_wake(peer)  # from its handshake on it says no more than that\n                return\n", "            if False:\n                return\n",
       "a neighbour that asks several times in one moment has as many readers, all but one of which stay when it goes"), BY_RUNTIME_SAME_HOST_RULES),
    (m("hand-fa-parted-for-ever", FABRIC_ADAPTERS, "            self._parted = False\n", "",
       "an adapter that has gone, of which two bursts wait one after the other, ends its fabric"), BY_RUNTIME_FABRIC_ADAPTERS),
    (m("hand-fa-join-unwatched", FABRIC_ADAPTERS, "            adapters.packets.leave(self.port, adapters.loop.clock())\n            raise\n", "            raise\n",
       "a port whose adapter was refused for want of room is taken for ever"), BY_RUNTIME_FABRIC_ADAPTERS),
    (m("hand-fa-join-silent", FABRIC_ADAPTERS, "            return  # its descriptor was another's, to whom something had come\n", "            data = b\"\"\n",
       "an adapter whose socket has an earlier one's number is refused before it has said anything"), BY_RUNTIME_FABRIC_ADAPTERS),
    (m("hand-lk-tap-begin-leaks", TAP, "        except BaseException:\n            self._close()\n            raise\n", "        except BaseException:\n            raise\n",
       "a capture that cannot begin keeps its descriptor"), BY_LINKS_TAP),
    (m("hand-lk-tap-ended-writes", TAP, "        if self._fd < 0:\n            self._pending.clear()\n            return\n        try:", "        try:",
       "a capture that has ended is said to end again with each further link"), BY_LINKS_TAP),
    (m("hand-lk-tap-first-of-two-stays", TAP, "    except BaseException:\n        sent.close()\n        raise\n", "    except BaseException:\n        raise\n",
       "the first of two capture files stays open where the second cannot be made"), BY_LINKS_TAP),
    (m("hand-fa-infos-overtaken", FABRIC_ADAPTERS, "if self.is_full or self.infos:", "if self.is_full:",
       "packets overtake what a manager has set before them"), BY_RUNTIME_FABRIC_ADAPTERS),
    (m("hand-fa-infos-unbounded", FABRIC_ADAPTERS, "len(self.infos) >= MOST_INFOS", "len(self.infos) > 4 * MOST_INFOS",
       "an adapter that reads nothing makes its fabric keep more than it says"), BY_RUNTIME_FABRIC_ADAPTERS),
    (m("hand-fa-part-full", FABRIC_ADAPTERS, "        if self.is_full:\n            self._writable()\n", "",
       "others wait for room at an adapter that has gone"), BY_RUNTIME_FABRIC_ADAPTERS),
    (m("hand-fa-turn-unbounded", FABRIC_ADAPTERS, "for _ in range(MOST_A_TURN):", "for _ in range(1 << 20):",
       "one adapter keeps the others from their turns"), BY_RUNTIME_FABRIC_ADAPTERS),
    (m("hand-fa-wake-forgets-room", FABRIC_ADAPTERS, "self._loop.want(self.socket.fileno(), True, self.is_full)", "self._loop.want(self.socket.fileno(), True, False)",
       "an adapter whose socket was full is never told anything again, once a burst of its own has gone"), BY_RUNTIME_FABRIC_ADAPTERS),
)  # fmt: skip
"""Each with the tests that judge it."""
