"""Bugs that tests judge: orders of steps between processes, and what worlds never do."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_adapter import ADAPTER
from mutant_addresses import ADDRESSES
from mutant_around import AROUND
from mutant_by_hand import BY_HAND
from mutant_channels import CONNECTED
from mutant_checks import CHECKS
from mutant_congestion import CONGESTION
from mutant_connections import CONNECTIONS
from mutant_corners import CORNERS
from mutant_corners_fabric import CORNERS_OF_FABRIC
from mutant_corners_sockets import CORNERS_OF_SOCKETS
from mutant_driver import DRIVER
from mutant_edges import EDGES
from mutant_edits import Mutant
from mutant_edits import mutant as m
from mutant_fabric import FABRIC
from mutant_fabric_agents import FABRIC_AGENTS
from mutant_formats import FORMATS
from mutant_frames import FRAMES
from mutant_gates import GATES
from mutant_hardware import HARDWARE
from mutant_meant import MEANT
from mutant_native import NATIVE
from mutant_native_memory import NATIVE_MEMORY
from mutant_native_parts import PARTS
from mutant_parts_alone import PARTS_ALONE
from mutant_planted import PLANTED
from mutant_queues import QUEUES
from mutant_rooms import ROOMS
from mutant_runtime import RUNTIME
from mutant_sockets import SOCKETS
from mutant_steps import STEPS
from mutant_storage import STORAGE
from mutant_uniform import UNIFORM
from mutant_verbs import VERBS

REPLIES = "transport/replies.py"
PACING = "transport/response_pacing.py"
RESPONDER = "transport/responder.py"
ANSWERS = "transport/acknowledgement.py"
CONDITIONS = "transport/conditions.py"
EXECUTION = "transport/execution.py"
REQUESTER = "transport/requester.py"
RECEIVING = "transport/receiving.py"
WINDOW = "transport/window.py"
SEGMENTATION = "transport/segmentation.py"
AHEAD = "transport/test_transport_ahead.py"
COMPLETION = "queues/completion.py"
RING = "queues/ring.py"
SERVER = "runtime/server.py"
SERVED = "runtime/served_turns.py"
CHANNELS = "runtime/event_channels.py"
TRANSMITTER = "runtime/transmitter.py"
DELAYED = "runtime/delayed_acknowledgement.py"
BATCHING = "runtime/doorbell_batching.py"
SLEEPER = "runtime/sleeper.py"
LOOP = "runtime/loop.py"
ADAPTER_PROCESS = "runtime/adapter_process.py"
HANDSHAKE = "queues/handshake.py"
JOURNAL = "mailbox/journal.py"
KEYS = "memory/keys.py"
REGIONS = "memory/regions.py"
ON_DEMAND = "memory/on_demand.py"
XRC = "transport/xrc.py"
XRC_DOMAINS = "adapter/xrc_domains.py"
RD_SENDING = "transport/rd_sending.py"
RD_RECEIVING = "transport/rd_receiving.py"
EE_CONTEXT = "transport/ee_context.py"
EE_ERRORS = "transport/ee_error_cache.py"
CM = "management/cm/manager.py"
CM_STATES = "management/cm/states.py"
CM_TABLES = "management/cm/tables.py"
CM_TIMERS = "management/cm/timers.py"
SIDR = "management/cm/resolutions.py"

PUSH = """        if not self.producer.push(self.entry.address, abi.CQE_BYTES):
            self.overflowed = True
            self.notify_hook.overflow(self)
            return False
        self.posted += 1
"""
ARM = "        arm = atomic_add64(self.producer.layout.control + abi.RING_ARM_AT, 0)\n"
RAISE = "        for application in attached:\n            application.raise_flag()\n"
TURN = (
    "        now = now_ns()\n"
    "        if not self._turn(now) and self._goes_on():  # that turn may have detached the last application\n"
)

JUDGED: tuple[tuple[Mutant, str], ...] = (
    (m("rd-given-up-without-resync", RD_SENDING, "            self.messages.resync = True\n", "            pass\n",
       "a message that was given up is not resynchronised"), "adapter/test_adapter_rd.py"),
    (m("rd-psns-of-what-was-given-up", RD_SENDING, "self.una_psn = self.next_psn = self.asked_psn = self.high_psn", "self.una_psn = self.next_psn = self.asked_psn = request.first_psn",
       "PSNs that were sent come again for another message"), "adapter/test_adapter_rd.py"),
    (m("rd-fence-ignored", RD_SENDING, "(request.kind == _LOCAL or request.work.flags & _FENCE) and", "request.kind == _LOCAL and",
       "what is fenced overtakes what was set aside"), "adapter/test_adapter_rd_ends.py"),
    (m("rd-any-domain-sends", RD_SENDING, "elif ee.domain is not self.qp.domain:", "elif False:",
       "a queue pair uses another domain's EE context"), "adapter/test_adapter_rd.py"),
    (m("rd-any-domain-receives", RD_RECEIVING, " or qp.domain is not self.ee.domain:", ":",
       "a queue pair of another domain is reached"), "adapter/test_adapter_rd.py"),
    (m("rd-q-key-not-checked", RD_RECEIVING, "        if qp.qkey != view.qkey:\n", "        if False:\n",
       "a datagram with another Q_Key is taken"), "adapter/test_adapter_rd.py"),
    (m("rd-first-queue-pairs-domain", RD_RECEIVING, "        self.connection.pd = qp.pd\n", "        self.connection.pd = self.connection.pd or qp.pd\n",
       "memory is accessed in the protection domain of the queue pair that was named first"), "adapter/test_adapter_rd.py"),
    (m("rd-message-in-another-life", RD_RECEIVING, "            and self.incarnation == receiver_of(self.begun).incarnation\n", "",
       "a message goes on in a queue pair that was set up anew"), "adapter/test_adapter_rd_ends.py"),
    (m("rd-receive-kept-by-the-dead", RD_RECEIVING, "            receiver_of(self.qp).sinks.add(self)\n", "",
       "a queue pair that ends leaves its receive in an EE context's hands"), "adapter/test_adapter_rd_ends.py"),
    (m("rd-aborted-without-completion", RD_RECEIVING, "                queue.complete(_ABORTED, _RECV, 0, 0, 0, 0, False, now)\n", "                queue.acquired = False\n",
       "the receive of a message whose EE context has ended never completes"), "adapter/test_adapter_rd_ends.py"),
    (m("rd-refused-once", RD_RECEIVING, "            if gap <= 0:\n                self.answers.refuse(view.psn, self.answers.refused)\n", "            pass\n",
       "a refusal that is lost is not said again"), "adapter/test_adapter_rd_ends.py"),
    (m("ee-fails-alone", EE_CONTEXT, "        self.draining = False\n        self.flush()\n", "        self.draining = False\n",
       "what waits on an EE context that fails never ends"), "adapter/test_adapter_rd.py"),
    (m("ee-cache-without-end", EE_ERRORS, "if len(self.entries) >= self.capacity:", "if not self.capacity:",
       "the error cache is not bounded"), "adapter/test_adapter_rd_ends.py"),
    (m("ee-cache-last-come-first", EE_ERRORS, "popitem(last=False)", "popitem()",
       "who waits longest for a place in the error cache is served last"), "adapter/test_adapter_rd_ends.py"),
    (m("xrc-any-protection-domain", XRC, "        self.connection.pd = shared.pd\n", "        self.connection.pd = self.connection.pd or shared.pd\n",
       "a target accesses memory in the protection domain of the first queue that was named"), "adapter/test_adapter_xrc.py"),
    (m("xrc-message-changes-its-queue", XRC, "view.xrc_srq != self.srq:", "False:",
       "the packets of one message may name several queues"), "adapter/test_adapter_xrc.py"),
    (m("xrc-destroyed-queue-found", XRC, "        self._queues.pop(shared.number, None)\n", "        pass\n",
       "a shared receive queue that was destroyed is written to"), "adapter/test_adapter_xrc.py"),
    (m("xrc-destroyed-under-a-message", XRC, "        if queue is not None and queue.acquired:\n            self.qp.fail()\n", "",
       "a message goes on into a queue that was destroyed"), "adapter/test_adapter_xrc.py"),
    (m("xrc-queue-of-the-first-request", XRC, "        self.writer.xrc_srq = request.work.remote_qpn\n", "        self.writer.xrc_srq = self.writer.xrc_srq or request.work.remote_qpn\n",
       "all requests of an initiator go to one queue"), "adapter/test_adapter_xrc.py"),
    (m("xrc-domain-outlives-its-last-user", XRC_DOMAINS, "        self._open[key] -= 1\n", "",
       "a file's domain stays when all have closed it"), "adapter/test_adapter_xrc.py"),
    (m("read-answered-in-another-domain", RESPONDER, "            resource.pd = region.pd\n", "",
       "an answer is broken off when another queue's request comes between"), "adapter/test_adapter_xrc.py"),
    (m("read-answered-from-other-memory", REPLIES, "            resource.region.generation != resource.generation\n            or not resource", "            not resource",
       "the answer to a READ goes on after its key has died"), "transport/test_transport_reported_once.py"),
    (m("stalled-though-answered", CONDITIONS, "given up what is in flight\",\n        answer=True,\n", "given up what is in flight\",\n",
       "a silent peer's answer is not heeded"), "transport/test_transport_conditions.py"),
    (m("aborted-receive-is-a-send", "transport/rd_receiving.py", "queue.complete(_ABORTED, _RECV, 0,", "queue.complete(_ABORTED, 0, 0,",
       "a receive that is aborted completes as a send"), "adapter/test_adapter_rd_ends.py"),
    (m("flushed-receive-is-a-send", "transport/rd_receiving.py", "queue.complete(_FLUSHED, _RECV, 0,", "queue.complete(_FLUSHED, 0, 0,",
       "a receive that is flushed in the middle of a message completes as a send"), "adapter/test_adapter_rd_ends.py"),
    (m("retries-anew-at-any-modify", "transport/retry.py", "        if interval == self.interval_ns and retry_count == self.retry_count and rnr_retry == self.rnr_retry:\n            return\n", "",
       "who modifies a queue pair often never hears of a dead peer"), "transport/test_transport_answers.py"),
    (m("retries-stay-behind-new-attributes", "transport/retry.py", "        self.rnr_retry = rnr_retry\n        self.progress()\n", "        self.rnr_retry = rnr_retry\n",
       "more retries are granted, and there are none"), "transport/test_transport_answers.py"),
    (m("rnr-retries-no-change", "transport/retry.py", " and rnr_retry == self.rnr_retry:", ":",
       "another number of RNR retries is not taken"), "transport/test_transport_answers.py"),
    (m("retries-of-another-life", "transport/requester.py", "        self.retry.progress()\n        self.cursor = self.head", "        self.cursor = self.head",
       "a connection begins with the retries that the last one left"), "transport/test_transport_answers.py"),
    (m("retries-stay-at-migration", "transport/requester.py", "        self.retry.progress()\n        if self.head != self.tail and not (_DELAY", "        if self.head != self.tail and not (_DELAY",
       "the alternate path has no retries"), "adapter/test_adapter_path_migration.py"),
    (m("place-in-the-window-forgotten", REQUESTER, "        if placed and self.flow.waiting and", "        if False and",
       "who waits for room asks for a turn at every answer"), "transport/test_transport_conditions.py"),
    (m("rest-of-an-answer-is-a-loss", CONDITIONS, 'Recovery("ANSWERED", False,', 'Recovery("ANSWERED", True,',
       "what comes behind an answer that found no place spends a retry"), "transport/test_transport_rc_held_requester.py"),
    (m("refused-again-hears-nothing", CONDITIONS, 'Recovery("REFUSED_AGAIN", False, False, True,', 'Recovery("REFUSED_AGAIN", False, False, False,',
       "an RNR NAK of a packet that has gone again is not heeded"), "transport/test_transport_conditions.py"),
    (m("receiver-stays-with-a-queue", EXECUTION, "        self.queue = self.sink.receive_queue(view)\n",
       "        if self.queue is None:\n            self.queue = self.sink.receive_queue(view)\n",
       "all messages go where the first one went"), "transport/test_transport_sinks.py"),
    (m("acquired-receive-not-flushed", RECEIVING, "        if self.acquired:\n            self.complete(_FLUSHED, ", "        if False:\n            self.complete(_FLUSHED, ",
       "the receive of the message under way is not flushed"), "transport/test_transport_sinks.py"),
    (m("receive-error-told-twice", RESPONDER, "            event = -1\n", "            pass\n",
       "an error that a receive tells is an event, too"), "transport/test_transport_reported_once.py"),
    (m("arm-word-read-too-early", COMPLETION, PUSH + ARM, ARM + PUSH,
       "a request to be told that comes while an entry is written is lost"), "queues/test_queues_completion.py"),
    (m("entry-published-before-it-stands-there", RING, "        self.layout.transfer(self.body_tail, address, n, True)\n", "        store64(self.layout.control, self.tail + 1)\n        self.layout.transfer(self.body_tail, address, n, True)\n",
       "the other side of a ring may read an entry that is not written yet"), "queues/test_queues_completion.py"),
    (m("host-of-another-version-attaches", HANDSHAKE, "    if version != ABI_VERSION:\n        return Request", "    if False:\n        return Request",
       "an adapter serves a host of another version of the host interface"), "queues/test_queues_handshake.py"),
    (m("adapter-of-another-version-is-taken", HANDSHAKE, "    if version != ABI_VERSION:\n        raise", "    if False:\n        raise",
       "a host attaches to an adapter of another version of the host interface"), "queues/test_queues_handshake.py"),
    (m("frame-zero-is-taken", HANDSHAKE, "    if 0 in frames or", "    if", "a host names a page frame that there is not"), "queues/test_queues_handshake.py"),
    (m("flag-raised-behind-the-last-look", SERVER, RAISE + TURN, TURN + "            for application in attached:\n                application.raise_flag()\n",
       "a doorbell that is rung while an adapter process falls asleep is lost"), "runtime/test_runtime_process_asleep.py"),
    (m("event-channel-forgets-what-finds-no-room", CHANNELS, "            self._pending[kind, element] = None\n", "", "an event that finds a channel's socket full is lost"), "runtime/test_runtime_event_channels.py"),
    (m("event-channel-never-watched", CHANNELS, "self._watch(self._end.fileno(), select.EPOLLOUT)", "pass", "what waits for room in an event channel waits for ever"), "runtime/test_runtime_event_channels.py"),
    (m("event-channel-outlives-the-hosts-end", CHANNELS, "if happened & (select.EPOLLHUP | select.EPOLLERR):", "if False:", "an event channel stays when its host has closed its end"), "runtime/test_runtime_event_channels.py"),
    (m("flag-never-raised", SERVER, RAISE, "", "an adapter process that sleeps asks for no kick"), "runtime/test_runtime_process_asleep.py"),
    (m("ended-application-let-go-behind-the-turn", SERVED, "        if self.ended.now():\n            self.dismiss_ended()\n        worked: cython.bint = self.loop.turn(now)\n", "        worked: cython.bint = self.loop.turn(now)\n        if self.ended.now():\n            self.dismiss_ended()\n",
       "an adapter process works in the memory of an application whose process has ended"), "runtime/test_runtime_served_turns.py"),
    (m("hosts-told-by-the-next-turn", SERVED, "        worked: cython.bint = self.loop.turn(now)\n        if self.loop.sleeper.deliver():\n            self.notify()\n", "        if self.loop.sleeper.deliver():\n            self.notify()\n        worked: cython.bint = self.loop.turn(now)\n",
       "an adapter process falls asleep with something that it has not told a host"), "runtime/test_runtime_served_turns.py"),
    (m("turns-counted-anew-behind-a-sleep", SERVED, "                return True\n", "                self.left = self.most\n                return True\n",
       "an adapter process that always falls asleep looks at no control socket"), "runtime/test_runtime_served_turns.py"),
    (m("sleep-although-something-is-due-soon", SERVED, "or not self.loop.soon(now)", "or True", "an adapter process sleeps past what is held back"), "runtime/test_runtime_served_turns.py"),
    (m("command-overtakes-what-was-rung", LOOP, "            self.acknowledgement.end()\n            self.transmit(now)\n            served = self.adapter.command(now) or served\n", "            served = self.adapter.command(now) or served\n",
       "a command is carried out before what its host has posted before it"), "runtime/test_runtime_doorbell_batching.py"),
    (m("executed-not-acknowledged-in-error", "transport/replies.py", "self.ack_pending and self.ring.pending == 0", "False",
       "a sender sees a message flushed that its peer has taken before it disconnected"), "transport/test_transport_rc_errors.py"),
    (m("acknowledged-past-a-lost-answer", "transport/replies.py", "self.ack_pending and self.ring.pending == 0", "self.ack_pending",
       "a queue pair in error acknowledges what comes behind a READ that it will not answer"), "transport/test_transport_rc_responder.py"),
    (m("command-taken-that-nobody-counted", "adapter/commands.py", "range(min(host.due, COMMANDS_A_TURN))", "range(COMMANDS_A_TURN)",
       "a command is carried out before the doorbells that its host rang meanwhile"), "adapter/test_adapter_commands_hosts.py"),
    (m("adapter-of-another-user", ADAPTER_PROCESS, "        listening_name.check_owner(control, name)\n", "        pass\n",
       "a program gives its memory to another user's process that has taken a device's name"), "runtime/test_runtime_shared_device.py"),
    (m("last-of-one-process-ends-all", ADAPTER_PROCESS, "if listening_name.connections(self.path):", "if False:",
       "a program that closes a device ends the adapter that another one has just found"), "runtime/test_runtime_shared_device.py"),
    (m("adapter-in-the-programs-group", ADAPTER_PROCESS, "process_group=0", "process_group=None",
       "a signal for the group of the program that started an adapter ends it for all"), "runtime/test_runtime_shared_device.py"),
    (m("adapter-in-a-session-of-its-own", ADAPTER_PROCESS, "process_group=0", "start_new_session=True",
       "the kernel runs an adapter late that is alone in a session"), "runtime/test_runtime_shared_device.py"),
    (m("process-poller-never-learns", "runtime/process.py", "            self._back_off.yielded(now, now_ns())\n", "",
       "who polls an adapter process beside programs that compute gives each of them its time slice"), "runtime/test_runtime_process.py"),
    (m("adapter-of-a-run-in-a-session-of-its-own", "cli/served_process.py", "process_group=0", "start_new_session=True",
       "the kernel runs late what is alone in a session"), "cli/test_cli_shared_adapters.py"),
    (m("adapter-of-a-run-in-its-group", "cli/served_process.py", "process_group=0", "process_group=None",
       "an interrupt for the copies of a run reaches their adapter"), "cli/test_cli_shared_adapters.py"),
    (m("adapter-stopped-by-a-terminal", "runtime/process_main.py", "    signal.signal(signal.SIGTTOU, signal.SIG_IGN)", "    pass",
       "an adapter that warns on a terminal that stops writers in the background is stopped"), "runtime/test_runtime_shared_device.py"),
    (m("starters-errors-kept", "runtime/server.py", "            self._left_alone()\n", "            pass\n",
       "whoever reads a program's errors waits until its adapter has no user"), "runtime/test_runtime_shared_device.py"),
    (m("rest-is-never-sent", "runtime/server.py", "        self.loop.send_rest()\n", "",
       "who is connected to a program that goes is not told"), "runtime/test_runtime_process_last.py"),
    (m("ring-goes-unread", "runtime/same_host_address.py", "            self.port.take_rest(self.port.number, peer.receiver)\n", "",
       "what a peer on this host sends last, a disconnect perhaps, is lost"), "runtime/test_runtime_same_host.py"),
    (m("adapter-that-ends-is-an-error", "runtime/devices.py", "if not self.process.joined or not attempts:", "if True:",
       "a device cannot be opened while its adapter ends with its last user"), "runtime/test_runtime_shared_device.py"),
    (m("burst-goes-on-elsewhere", TRANSMITTER, "self.waits_for if self.pending else self.link_of(burst.route)", "self.link_of(burst.route)",
       "a burst that a link has begun goes on over another one when links change"), "runtime/test_runtime_transmitter.py"),
    (m("stopped-neighbour-stops-all", TRANSMITTER, "if result == _AGAIN and not (self.pending and now - self.pending_ns > _LIFETIME_NS):", "if result == _AGAIN:",
       "a neighbour that takes nothing from its ring keeps everybody waiting"), "runtime/test_runtime_transmitter.py"),
    (m("any-post-is-a-quick-reply", DELAYED, "if replies and now - self.received_ns <= _QUICK_NS:", "if now - self.received_ns <= _QUICK_NS:",
       "acknowledgements wait for replies of other queue pairs"), "runtime/test_runtime_delayed_acknowledgement.py"),
    (m("doorbells-wait-beyond-a-call", BATCHING, " and self.waiting + 1 < self.most", "",
       "more doorbells wait than one call sends"), "runtime/test_runtime_doorbell_batching.py"),
    (m("earlier-deadline-wakes-nobody", SLEEPER, "elif deadline_ns + _LATE_NS < self.wakeup_ns:", "elif self.waiters < 0:",
       "who sleeps beyond a deadline that came later is not woken"), "runtime/test_runtime_sleeper.py"),
    (m("journal-forgets-its-last-number", JOURNAL, '_record(SENT, self.last_number, b"") + ', "",
       "a request is performed again after its journal began anew"), "mailbox/test_mailbox_requests.py"),
    (m("key-of-a-round-ago", KEYS, "            if self._gone_round:\n", "            if False:\n",
       "a key comes again after one round of the slots"), "memory/test_memory_key_reuse.py"),
    (m("slot-given-again", KEYS, "        self._next += 1\n", "", "a key that died is given to the next region"), "memory/test_memory_key_reuse.py"),
    (m("new-translation-keeps-its-slot", REGIONS, "        region.slot, region.key = self.take_slot()\n", "        slot, region.key = self.take_slot()\n        self.sequence.give(slot)\n        region.key = self.keys.index(region.slot) << 8 | region.key & 0xFF\n",
       "a region that gets another translation keeps its index"), "memory/test_memory_key_reuse.py"),
    (m("who-waits-does-not-probe", ANSWERS, "                self.probe = quiet\n", "                pass\n",
       "who waits for room learns of a peer's end only when all before it have"), "adapter/test_adapter_silence.py"),
    (m("retry-waits-for-room", ANSWERS, "        self.probe = quiet\n        self.again(TIMEOUT)", "        self.again(TIMEOUT)",
       "a retry waits for the room of others that nobody answers"), "adapter/test_adapter_silence.py"),
    (m("probe-without-need", WINDOW, "return now - self.heard_ns >= max(interval_ns, _STALL_NS)", "return True",
       "who waits sends beyond the window although others are answered"), "transport/test_transport_rc_asking.py"),
    (m("silence-costs-a-burst", WINDOW, "self.limit_bytes = _PROBE + self.packet_overhead_bytes", "self.limit_bytes = self.minimum_bytes",
       "a receiver that is silent for a moment gets another burst"), "adapter/test_adapter_silence.py"),
    (m("responses-without-a-pace", REPLIES, "        if self.now < self.departure_ns:\n            self.paced", "        if False:\n            self.paced",
       "one READ request is answered as fast as the link takes it"), "transport/test_transport_response_pacing.py"),
    (m("short-answers-count-as-full-bursts", PACING, "        self.free_ns -= min(self.free_ns, self.time_of(self.burst_bytes - min(cost_bytes, self.burst_bytes)))\n", "",
       "short answers to READs wait as if each were a burst"), "transport/test_transport_response_pacing.py"),
    (m("asking-again-is-no-loss", RESPONDER, "        if window.responses.lost(window.near_limit()):\n            window.lost()\n", "",
       "who asks again and again is answered as fast as who receives"), "transport/test_transport_response_pacing.py"),
    (m("pace-never-grows", RESPONDER, "        window.responses.asked_on(window.near_limit())\n", "",
       "a requester that keeps up is answered no faster"), "transport/test_transport_response_pacing.py"),
    (m("reset-keeps-a-paced-answer", REPLIES, "        self.paced = False\n        self.departs = False\n", "        self.departs = False\n",
       "a queue pair that was reset while an answer waited answers no more"), "transport/test_transport_response_pacing.py"),
    (m("gap-told-instead-of-acknowledgement", REPLIES, "            if self.nak_pending == _SEQUENCE and self.ack_pending and not self.acknowledge_executed():\n                return\n", "",
       "requests executed behind a forged gap are not acknowledged"), "transport/test_transport_rc_responder.py"),
    (m("values-that-do-not-fit-are-packed", "wire/field_packing.py", "            if value < 0 or value >> width:\n", "            if value < 0:\n",
       "a value that is too large changes the field before it"), "wire/test_wire_field_packing.py"),
    (m("unknown-fields-of-commands-ignored", "queues/codec.py", "        if named != len(values):\n", "        if named > len(values):\n",
       "a field that a command does not have is left out in silence"), "queues/test_queues_control.py"),
    (m("any-base-version-delivered", "management/dispatcher.py", "isinstance(taker, Client) and data[0] == BASE_VERSION and", "isinstance(taker, Client) and",
       "a datagram of a base version that there is not goes to a client"), "management/test_management_dispatcher.py"),
    (m("management-flood-answered", "adapter/management_flow.py", "        if not rate.take(now):\n", "        if False:\n",
       "every management datagram of a flood is answered"), "adapter/test_adapter_management.py"),
    (m("own-datagrams-never-leave", "adapter/engine.py", "            if port.is_own(burst.route) and not (flow in port.management and flow.leaves):", "            if port.is_own(burst.route):",
       "a program at whose port the manager of its fabric is cannot ask it"), "adapter/test_adapter_management.py"),
    (m("all-own-datagrams-leave", "adapter/management_flow.py", "        self.leaves = data[CLASS_AT] in self.agents_at_link\n", "        self.leaves = bool(self.agents_at_link)\n",
       "datagrams between programs of one port go to its link"), "adapter/test_adapter_management.py"),
    (m("time-out-of-a-request-not-told", "adapter/management_flow.py", "            elif agent.timed_out(request.data, request.destination):", "            elif True:",
       "a program waits for ever for the end of a request"), "adapter/test_adapter_host_agents.py"),
    (m("answered-request-is-sent-again", "adapter/host_agents.py", "            self.flow.pending.answered(self, request_key(header), source)\n", "            pass\n",
       "a request that was answered is sent again and told as timed out"), "adapter/test_adapter_host_agents.py"),
    (m("extended-type-of-every-service", "adapter/connection_manager.py", "QP_TYPES.get(request.transport_service_type, 0)", "QP_TYPES[request.transport_service_type | request.extended_transport_type << 4]",
       "a REQ for RC with an extended transport type, which means nothing there, ends the adapter"), "adapter/test_adapter_connection_events.py"),
    (m("agents-free-of-charge", "adapter/host_agents.py", "    adapter.resources.afford(host.number, cost_bytes, adapter.config.max_host_bytes)\n", "",
       "a host has as many agents as it likes"), "adapter/test_adapter_costs.py"),
    (m("waiting-requests-free-of-charge", "adapter/host_agents.py", " + MAX_PENDING * PENDING_BYTES", "",
       "what an agent may ask is not counted against its host's limit"), "adapter/test_adapter_costs.py"),
    (m("queue-pair-0-for-every-host", "adapter/host_agents.py", "    if subnet and not adapter.config.host_subnet_management:", "    if False:",
       "any program may configure ports"), "adapter/test_adapter_host_agents.py"),
    (m("requests-of-a-dead-host-go-on", "adapter/host_agents.py", "    agent.flow.pending.forget(agent)\n", "",
       "what a program has asked is sent after its end"), "adapter/test_adapter_host_agents.py"),
    (m("response-to-a-request-given-up", "adapter/management_flow.py", "                self.dispatcher.cancel(agent, MadHeader.decode(request.data), request.destination)\n", "                pass\n",
       "a program gets a response to a request whose end it was told"), "adapter/test_adapter_host_agents.py"),
    (m("dispatch-key-not-looked-at", "adapter/receive_path.py", "        if self._keys[arrival.data[offset] >> 5] != _BY_QP and", "        if False and",
       "a packet goes by its destination queue pair although its service has another dispatch key"), "adapter/test_adapter_toy_service.py"),
    (m("key-of-a-queue-pair-stays", "adapter/keyed.py", "            self._found.pop(row.number << 24 | row.key_number(queue_pair) & 0xFFFFFF, None)\n", "            pass\n",
       "a queue pair that was destroyed is found by its dispatch key"), "adapter/test_adapter_toy_service.py"),
    (m("reset-leaves-completions", "driver/qp.py", "            if state == RESET:\n                self._drop_completions()\n", "",
       "what was completed before a RESET is polled after it"), "verbs/suite/test_suite_errors.py"),
    (m("close-leaves-completions", "driver/qp.py", "qp_num=self.number)\n            self._drop_completions()\n", "qp_num=self.number)\n",
       "completions of a queue pair that is gone are polled"), "verbs/suite/test_suite_errors.py"),
    (m("drop-outlives-its-tail", "driver/polling.py", "        return tail is not None and not (tail - taken & _ALL_ONES) >> 63\n", "        return tail is not None\n",
       "completions after a RESET are lost while others of before wait"), "driver/test_driver_posting.py"),
    (m("drop-not-moved", "driver/polling.py", "                    self.dropped = {qp_num: tail - read & _ALL_ONES for qp_num, tail in self.dropped.items()}\n", "",
       "a resize brings dropped completions back, or takes later ones away"), "driver/test_driver_posting.py"),
    (m("refusal-without-reason", "adapter/commands.py", "command.command, code, reply, reason)", "command.command, code, reply)",
       "a refused command says nothing but an errno"), "adapter/test_adapter_refusals.py"),
    (m("refusal-without-attribute", "adapter/engine.py", 'f"{name} = {number}: the adapter has ports 1…{len(self.ports)}"', 'f"there is no port {number}"',
       "a refusal does not say which attribute is wrong"), "adapter/test_adapter_refusal_table.py"),
    (m("refusal-of-another-attribute", "adapter/path_migration.py", 'adapter.port_of(number, "alt_port_num")', "adapter.port_of(number)",
       "a refusal names an attribute that is right"), "adapter/test_adapter_path_migration.py"),
    (m("closes-at-the-end-of-the-process", "verbs/base.py", "        if not self._open or sys.is_finalizing():\n", "        if not self._open:\n",
       "a program that ends waits for ever for a lock of a thread that is gone"), "verbs/test_verbs_examples.py"),
    (m("credits-one-too-many", "fabric/switching/credits.py", "(limit - sent - blocks) & COUNT_MASK", "(limit - sent - blocks + 1) & COUNT_MASK",
       "a sender overruns its receiver's buffer by a block"), "fabric/test_fabric_switching_parts.py"),
    (m("lost-credits-stay-lost", "fabric/switching/port.py", "        if self.receiver.hear(vl, told.sent):\n            self._flow_control(vl, now_ps)\n", "",
       "what lost packets took is never given back"), "fabric/test_fabric_switching.py"),
    (m("events-of-one-time-in-another-order", "fabric/switching/events.py", "            done = 0\n        self._done = done\n", "            done = 0\n        self._done = 0\n",
       "the first event of a time happens again and again"), "fabric/test_fabric_switching_parts.py"),
    (m("lines-keep-what-has-left", "fabric/switching/packet.py", "        packets[gone] = None\n", "",
       "packets that have left a line take memory until all have"), "fabric/test_fabric_switching_parts.py"),
    (m("low-table-never-before", "fabric/switching/arbitration.py", "            self._high_left -= length_bytes\n", "            pass\n",
       "the high table starves the low one"), "fabric/test_fabric_switching_parts.py"),
    (m("segments-break-up", "fabric/switching/transmit_queues.py", "        self._open = None if packet.ends else key\n", "        self._open = None\n",
       "packets of other segments come between those of one"), "fabric/test_fabric_switching.py"),
    (m("copies-free-the-buffer", "fabric/switching/packet.py", "            self.held.copies += 1\n", "            pass\n",
       "a multicast packet's place is given away before all copies have left"), "fabric/test_fabric_switching.py"),
    (m("faster-output-does-not-wait", "fabric/switching/switch.py", "            ready_ps = max(ready_ps, late_ps)\n", "            pass\n",
       "a switch sends bytes that have not arrived"), "fabric/test_fabric_switching.py"),
    (m("victims-mark", "fabric/switching/port.py", "if is_root and queue.blocks >", "if queue.blocks >",
       "ports that only wait for credits mark what they send"), "fabric/test_fabric_switching.py"),
    (m("failed-link-delivers", "fabric/switching/port.py", "        if peer is None or not self.up or packet.epoch != peer._epoch:\n            self._has_lost(", "        if peer is None or not self.up:\n            self._has_lost(",
       "a packet arrives that was on a link when it failed"), "fabric/test_fabric_switching.py"),
    (m("shared-device-not-counted", "driver/adapters.py", "                    found.users += 1\n", "",
       "a device is closed while identifiers that requests have made are on it"), "driver/test_driver_rdmacm_devices.py"),
    (m("device-in-use-hides-others", "driver/rdmacm/local_devices.py", "                        otherwise = error\n                        continue\n", "                        raise error\n",
       "a device that another process has keeps identifiers from all other devices"), "driver/test_driver_rdmacm_devices.py"),
    (m("request-without-addresses", "driver/rdmacm/listening.py", "header is not None and self.is_for(header, place)\n", "header is not None\n",
       "a listener at one address takes requests to others"), "driver/test_driver_rdmacm_listening.py"),
    (m("native-request-of-any-partition", "driver/rdmacm/listening.py", "(place.is_native and index_of(place, event.pkey) < 0)", "False",
       "a request of a partition that the port is not in becomes a connection that carries nothing"), "driver/test_driver_rdmacm_listening.py"),
    (m("native-way-back-without-lid", "driver/rdmacm/queue_pairs.py", "            dlid=path.lid,\n", "",
       "who was asked by a native link answers nobody"), "driver/test_driver_rdmacm_listening.py"),
    (m("route-record-not-looked-at", "driver/rdmacm/routes.py", "    if found.status:\n", "    if False:\n",
       "what subnet administration refuses is taken for a route"), "driver/test_driver_rdmacm_routes.py"),
    (m("native-address-of-another", "driver/rdmacm/routes.py", " or found.address != address or", " or",
       "who asks for an address connects to whomever subnet administration names"), "driver/test_driver_rdmacm_routes.py"),
    (m("native-gid-leads-anywhere", "driver/rdmacm/local_devices.py", " and (not found.is_native or bool(found.ip))", "",
       "a peer of another subnet is looked for by a port that cannot reach it"), "driver/test_driver_rdmacm_devices.py"),
    (m("native-addresses-of-ipv6-are-gids", "driver/rdmacm/identifier.py", "not place.shares_subnet(gid)", "not destination.is_ipv6",
       "a path is asked for to an address that no port has as its GID"), "driver/test_driver_rdmacm_routes.py"),
    (m("group-of-no-answer", "driver/rdmacm/routes.py", "    if found.status or found.mgid != mgid or not 0xC000 <= found.mlid < 0xFFFF:\n", "    if False:\n",
       "a group that was refused is sent to"), "driver/test_driver_rdmacm_routes.py"),
    (m("addresses-not-registered", "fabric/manager/administration.py", "            if guid in inventory.by_guid:\n                self.services.register_address(", "            if False:\n                self.services.register_address(",
       "no host of a native fabric is found by its IP address"), "fabric/test_fabric_administration_registrations.py"),
    (m("reused-port-may-listen", "driver/rdmacm/port_numbers.py", "    if one.reuse and other.reuse and not one.listens and not other.listens:", "    if one.reuse and other.reuse:",
       "two identifiers listen at one port"), "driver/test_driver_rdmacm_tables.py"),
    (m("moved-behind-what-comes", "driver/rdmacm/identifier.py", "            for device in self._attached:\n                channel.attach(device, self)\n            with self._moving:\n                before, self.channel = self.channel, channel\n", "            before, self.channel = self.channel, channel\n            for device in self._attached:\n                channel.attach(device, self)\n            with self._moving:\n",
       "an end that comes while an identifier moves to another channel is lost"), "driver/test_driver_rdmacm_listening.py"),
    (m("moved-to-where-it-is", "driver/rdmacm/identifier.py", "            if before is not channel:\n", "            if True:\n",
       "an identifier that moves to its own channel hears nothing any more"), "driver/test_driver_rdmacm_listening.py"),
    (m("bound-and-does-not-know-it", "driver/rdmacm/identifier.py", "                self._bind(source or any_address(destination))\n                self.state = states.BOUND\n", "                self._bind(source or any_address(destination))\n",
       "who could not resolve finds its own port in use"), "driver/test_driver_rdmacm_listening.py"),
    (m("child-empties-its-parent-s-descriptor", "driver/rdmacm/events.py", "        descriptor, self._descriptor = self._descriptor, None\n        if descriptor is not None:\n            descriptor.abandon()\n", "",
       "a forked child that closes an identifier has its parent sleep over an event"), "verbs/test_verbs_cmid_forks.py"),
    (m("fork-without-later-ranks", "runtime/fork.py", "        if not fresh:\n", "        if not fresh or _held:\n",
       "a forked child keeps the sockets of adapters"), "runtime/test_runtime_fork.py"),
    (m("closing-adapter-is-not-told", "runtime/embedded.py", "                self.progress.close()\n                with self.loop.lock:", "                fork.unwatch(self)\n                self.progress.close()\n                with self.loop.lock:",
       "a child that is forked while a device closes keeps its address"), "runtime/test_runtime_fork_devices.py"),
    (m("goodbye-not-answered", "driver/rdmacm/connecting.py", "                self._said_goodbye = not closing  # else it has been answered\n", "                self._said_goodbye = False\n",
       "a peer that disconnects waits for the answer until it gives up"), "driver/test_driver_rdmacm_listening.py"),
    (m("depth-beyond-the-peer", "driver/rdmacm/connecting.py", "            depth = min(depth, self.peer.responder_resources)\n", "",
       "more READs are sent at a time than the peer can answer"), "driver/test_driver_rdmacm_listening.py"),
    (m("unwatched-clients-stay-open", "runtime/embedded.py", "                undo.callback(clients.close)\n", "",
       "a device that cannot watch for other processes keeps what it would have served them with"), "runtime/test_runtime_open_fails.py"),
    (m("adapters-name-is-free-too-early", "runtime/embedded.py", "                        held = self.clients.hold_name()\n", "                        pass\n",
       "who opens a device while another program closes it is told that its addresses are in use"), "runtime/test_runtime_shared_device.py"),
    (m("early-event-lost", "driver/rdmacm/ports.py", "                    self.keep(number, event)\n", "                    pass\n",
       "an answer that comes before its request's call returns is lost"), "driver/test_driver_rdmacm_listening.py"),
    (m("own-copies-from-groups", "links/roce_udp.py", "                if arrival.source == self.gid:", "                if False:",
       "who sends to a group that it is in gets its own packet twice"), "links/test_links_groups.py"),
    (m("group-left-with-the-first", "adapter/multicast.py", "        if port not in ports.values():\n            self.leave(port, gid)", "        if True:\n            self.leave(port, gid)",
       "with one queue pair that leaves a group all others leave it"), "adapter/test_adapter_multicast.py"),
    (m("ipv4-address-in-front", "management/ip_service.py", "bytes(12) + gid[12:] if version == 4", "gid[12:] + bytes(12) if version == 4",
       "requests tell their listener IPv4 addresses that nobody reads"), "management/test_management_ip_service.py"),
    (m("atomic-write-twice", RESPONDER, "            self.empty_again(view)\n", "            self.execution.abandon()\n",
       "who lost the answer of an ATOMIC WRITE never gets it"), "transport/test_transport_rc_atomic_write.py"),
    (m("atomic-write-anywhere", RESPONDER, "            or view.reth_va & 7\n", "",
       "an ATOMIC WRITE to an address that is not aligned is torn"), "transport/test_transport_rc_atomic_write.py"),
    (m("atomic-write-of-any-length", RESPONDER, "            or view.payload_bytes != 8\n", "",
       "bytes behind a short ATOMIC WRITE's packet are written"), "transport/test_transport_rc_atomic_write.py"),
    (m("flush-without-the-right", RESPONDER, "            or rights & ~self.connection.access  # which has no right for reserved types\n", "",
       "a peer makes a queue pair flush that does not allow it"), "transport/test_transport_rc_flush.py"),
    (m("flush-behind-the-end", RESPONDER, "if view.selectivity == _SELECTIVITY_REGION:", "if True:",
       "a FLUSH of bytes outside of the region is told to be done"), "transport/test_transport_rc_flush.py"),
    (m("flush-promises-persistence", REGIONS, "ACCESS_MASK = bits.RIGHTS_MASK | FLUSH_GLOBAL\n", "ACCESS_MASK = bits.RIGHTS_MASK | FLUSH_GLOBAL | FLUSH_PERSISTENT\n",
       "memory that a crash empties is registered as persistent"), "memory/test_memory_regions.py"),
    (m("atomic-write-by-plain-ack", ANSWERS, "1 << READ | 1 << ATOMIC | 1 << ATOMIC_WRITE | 1 << FLUSH)", "1 << READ | 1 << ATOMIC)",
       "an ATOMIC WRITE completes before it was answered"), "transport/test_transport_rc_atomic_write.py"),
    (m("atomic-write-takes-data-as-answer", ANSWERS, "view.position == _ONLY and view.payload_bytes == 0", "view.position == _ONLY",
       "an answer with data is taken for an ATOMIC WRITE's"), "transport/test_transport_rc_atomic_write.py"),
    (m("on-demand-past-its-range", ON_DEMAND, "        if offset > self.length or n > self.length - offset:\n", "        if offset > self.length:\n",
       "a region on demand gives bytes behind its end"), "memory/test_memory_on_demand.py"),
    (m("on-demand-written-without-right", ON_DEMAND, "        if not self.valid or (writing and not self.access & _LOCAL_WRITE):\n", "        if not self.valid:\n",
       "a region on demand without LOCAL_WRITE is written"), "memory/test_memory_on_demand.py"),
    (m("on-demand-half-moved", ON_DEMAND, "            if moved <= 0:\n                return -_EACCES\n", "            if moved <= 0:\n                return 0\n",
       "what is not mapped counts as moved"), "memory/test_memory_on_demand.py"),
    (m("on-demand-while-stopped", ON_DEMAND, "        if self.tpt.stopped:\n            return -_EAGAIN\n", "",
       "the adapter touches memory on demand while its data access is stopped"), "memory/test_memory_on_demand.py"),
    (m("on-demand-moves-under-its-key", ON_DEMAND, "        table.give_new_key(region)\n", "        table.must_be_free(region)\n",
       "a peer that has the key of the former place reaches the new one"), "memory/test_memory_on_demand.py"),
    (m("on-demand-anywhere", "adapter/on_demand_commands.py", "    if not reachable(host):\n", "    if False:\n",
       "a process that only claims to be the host's is reached"), "adapter/test_adapter_commands_memory.py"),
    (m("advice-across-domains", "driver/memory.py", "        if found is None or found.pd != pd:\n", "        if found is None:\n",
       "advice is taken on another domain's region"), "verbs/suite/test_suite_on_demand.py"),
    (m("pages-no-whole-number", "memory/host.py", "        pages = operator.index(pages)  # a float would stay in the free list\n", "",
       "a length that is a float spoils the device's memory"), "memory/test_memory_host.py"),
    (m("path-keeps-what-was-under-way", "transport/connection.py", "        self.requester.path_changed(now)\n", "",
       "what was under way is sent along the new path only after a time-out"), "adapter/test_adapter_path_migration.py"),
    (m("path-rearmed-without-one", "adapter/path_migration.py", "        if alternate is None and connection.alternate is None:", "        if False:",
       "a connection is armed that has no other path"), "adapter/test_adapter_path_migration.py"),
    (m("cm-believes-any-address", CM, "        if elsewhere and (found.other is None or not same_port(found.other, source)):", "        if False:",
       "whoever guesses its number ends a connection from anywhere"), "management/test_management_cm.py"),
    (m("cm-believes-any-address-of-who-may-migrate", CM, "found.other is None or not same_port(found.other, source)", "found.other is None",
       "whoever guesses its number ends a connection that has an alternate path from anywhere"), "management/test_management_cm_ends.py"),
    (m("cm-late-reply-names-another-end", CM, "        self._require(connection, states.REPLY)\n", "",
       "a reply that is refused changes the queue pair whose DREQ is taken"), "management/test_management_cm_ends.py"),
    (m("cm-alternate-path-of-a-refusal", CM, "        if reply.failover_accepted == m.FAILOVER_ACCEPTED:", "        if True:",
       "a path that was refused is believed"), "adapter/test_adapter_alternate_paths.py"),
    (m("cm-first-path-forgotten-at-once", CM, "            if not same_port(connection.peer, there):\n", "            if False:\n",
       "the goodbye of a peer that has not moved yet is a stranger's"), "adapter/test_adapter_alternate_paths.py"),
    (m("cm-ends-another-queue-pair", CM, "            if message.remote_qpn_eecn != number_of(connection.local_end):", "            if False:",
       "DREQ ends a connection of another queue pair than it names"), "management/test_management_cm.py"),
    (m("cm-reply-names-its-peer-again", CM, "            if connection.state == states.REQ_SENT:\n                connection.remote_comm_id", "            if not connection.remote_comm_id:\n                connection.remote_comm_id",
       "replies without a number fill the tables of peers"), "management/test_management_cm_table.py"),
    (m("cm-replier-takes-a-reply", CM, "            if not connection.active:", "            if False:",
       "a reply to who has replied is answered by another"), "management/test_management_cm_table.py"),
    (m("cm-request-again-from-any-address", CM, "self._by_remote.get((place_of(source), request.local_ca_guid, request.local_comm_id))", "next((each for key, each in self._by_remote.items() if key[1:] == (request.local_ca_guid, request.local_comm_id)), None)",
       "who names the number of another adapter keeps its request out"), "management/test_management_cm.py"),
    (m("cm-stale-for-any-address", CM, "self._by_end.get((place_of(source), request.local_ca_guid, end))", "next((each for key, each in self._by_end.items() if key[1:] == (request.local_ca_guid, end)), None)",
       "who names another adapter's queue pair ends its connection"), "management/test_management_cm.py"),
    (m("cm-backlog-without-end", CM, "        while len(listener.waiting) > listener.backlog:", "        while False:",
       "a flood of requests waits at a listener without bound"), "management/test_management_cm.py"),
    (m("cm-request-never-sent-again", CM_STATES, "    (REQ_SENT, RETRY): (REQ_SENT, (RESEND, START)),", "    (REQ_SENT, RETRY): (REQ_SENT, (START,)),",
       "a request that was lost is not sent again"), "management/test_management_cm.py"),
    (m("cm-second-dreq-not-answered", CM_STATES, "    (TIMEWAIT, DREQ): (TIMEWAIT, (SEND_DREP,)),\n", "",
       "a peer whose DREP was lost asks until it gives up"), "management/test_management_cm.py"),
    (m("cm-established-still-waits", CM_STATES, "    (REP_SENT, RTU): (ESTABLISHED, (STOP, REPORT)),", "    (REP_SENT, RTU): (ESTABLISHED, (REPORT,)),",
       "a reply is sent again although RTU has come"), "management/test_management_cm_table.py"),
    (m("cm-numbers-come-again", CM_TABLES, "            if number and number not in self._elements:", "            if number:",
       "two connections get one number"), "management/test_management_cm.py"),
    (m("cm-deadline-put-off-is-due", CM_TIMERS, "            if element.deadline_ns > now:\n", "            if False:\n",
       "who has asked for more time is not given it"), "management/test_management_cm.py"),
    (m("sidr-answer-from-any-address", SIDR, "            and same_port(resolution.peer, source)\n", "",
       "anybody may say which queue pair a datagram service has"), "management/test_management_cm.py"),
    (m("sidr-request-asked-twice", SIDR, "        return (request.request_id, source.gid, source.lid) in self._asked\n", "        return False\n",
       "a request that comes twice asks its program twice"), "management/test_management_cm.py"),
    *FABRIC,
    *FABRIC_AGENTS,
    *CONGESTION,
    *UNIFORM,
    *DRIVER,
    *FRAMES,
    *RUNTIME,
    (m("ahead-what-could-not-be-read-is-sent", SEGMENTATION, "            if request.payload(offset, n, address) == 0:\n", "            if request.payload(offset, n, address) <= 0:\n",
       "bytes of another message are sent in place of memory that is not mapped"), AHEAD),
    (m("ahead-of-the-message-before", SEGMENTATION, "            self.ahead_end = self.ahead_from\n", "            pass\n",
       "a message carries what the one before it has read"), AHEAD),
    (m("ahead-more-than-a-burst-carries", SEGMENTATION, "            count = 2  # the first one", "            pass  # the first one",
       "the first burst of an RDMA WRITE reads thirty times what it sends"), AHEAD),
    (m("ahead-of-a-budget-that-is-spent", SEGMENTATION, "        count = min(count, room // pmtu)\n", "",
       "a burst that has no room left reads 64 KiB all the same"), AHEAD),
    (m("ahead-buffers-without-end", SEGMENTATION, "            buffer = _ahead_buffers.pop()\n", "            raise IndexError\n",
       "each burst leaves a buffer behind"), AHEAD),
    *SOCKETS,
    *CONNECTED,
    *CONNECTIONS,
    *STORAGE,
    *ROOMS,
    *HARDWARE,
    *GATES,
    *NATIVE,
    *NATIVE_MEMORY,
    *PARTS,
    *VERBS,
    *ADAPTER,
    *QUEUES,
    *PLANTED,
    *BY_HAND,
    *MEANT,
    *EDGES,
    *CORNERS,
    *CORNERS_OF_FABRIC,
    *CORNERS_OF_SOCKETS,
    *ADDRESSES,
    *CHECKS,
    *STEPS,
    *PARTS_ALONE,
    *AROUND,
    *FORMATS,
)  # fmt: skip
"""Each with the tests that judge it."""

WITH_TESTS: tuple[Mutant, ...] = tuple(mutant for mutant, _ in JUDGED)
