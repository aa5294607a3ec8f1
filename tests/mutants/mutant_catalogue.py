"""The catalogue: bugs that implementations of RDMA have had, or could have, each as an edit of the source.

Text that is gone is an error: whoever changes such a line moves the mutant along.
"""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Edit, Mutant
from mutant_edits import mutant as m

PSN = "wire/psn.py"
VIEW = "wire/packet_view.py"
BUILD = "wire/build.py"
ICRC = "wire/icrc.py"
REQUESTER = "transport/requester.py"
CONDITIONS = "transport/conditions.py"
RETRY = "transport/retry.py"
ANSWERS = "transport/acknowledgement.py"
REQUEST = "transport/request.py"
SENDING = "transport/sending.py"
SEGMENTS = "transport/segmentation.py"
RESPONDER = "transport/responder.py"
XRC = "transport/xrc.py"
REPLIES = "transport/replies.py"
REPLAY = "transport/replay.py"
EXECUTION = "transport/execution.py"
RECEIVING = "transport/receiving.py"
SCATTER = "transport/scatter.py"
WINDOW = "transport/window.py"
UC = "transport/unreliable.py"
UC_RECEIVER = "transport/unreliable_receiver.py"
UD = "transport/datagram.py"
CONNECTION = "transport/connection.py"
CONTEXT = "transport/context.py"
QP_FLOW = "transport/queue_pair_flow.py"
REGIONS = "memory/regions.py"
PAGED = "memory/paged.py"
PAGED_MEMORY = "memory/paged_memory.py"
DOMAINS = "memory/protection.py"
RING = "queues/ring.py"
CQ = "queues/completion.py"
POLLING = "driver/polling.py"
SRQ = "queues/shared_receive.py"
DOORBELLS = "queues/doorbells.py"
ADMISSION = "adapter/admission.py"
ENGINE = "adapter/engine.py"
RECEIVE_PATH = "adapter/receive_path.py"
PORT = "adapter/port.py"
SOURCES = "adapter/sources.py"
TIMERS = "adapter/timers.py"
SCHEDULER = "adapter/scheduler.py"
QP_COMMANDS = "adapter/queue_pair_commands.py"
COMMANDS = "adapter/commands.py"
WINDOWS = "memory/windows.py"
KEY_WORK = "transport/key_work.py"
CM = "management/cm/manager.py"
CM_STATES = "management/cm/states.py"
CM_TIMERS = "management/cm/timers.py"
CM_PORT = "adapter/connection_manager.py"
INSTANCES = "management/cm/instances.py"
PATHS = "adapter/path_migration.py"

WIRE = (
    m("psn-distance-without-wrap", PSN,
      "return gap - 0x1000000 if gap & 0x800000 else gap", "return b - a",
      "PSNs are compared without their wrap"),
    m("psn-distance-unsigned", PSN,
      "return gap - 0x1000000 if gap & 0x800000 else gap", "return gap",
      "no PSN ever is an earlier one"),
    m("psn-responder-compares-plainly", RESPONDER,
      "gap: cython.int = distance(self.epsn, view.psn)", "gap: cython.int = view.psn - self.epsn",
      "the responder forgets the wrap"),
    m("psn-requester-bounds-plainly", ANSWERS,
      "distance(view.psn, self.high_psn) <= 0:", "self.high_psn <= view.psn:",
      "the requester forgets the wrap where it looks for ghosts"),
    m("psn-credit-compares-plainly", RETRY,
      "distance(self.entries[self.head] >> _COST_BITS, una_psn) > 0:", "una_psn > self.entries[self.head] >> _COST_BITS:",
      "what the window gets back stops at the wrap"),
    m("psn-replay-compares-plainly", REPLAY,
      "gap = distance(resource.first_psn, psn)", "gap = psn - resource.first_psn",
      "a READ across the wrap is not found again"),
    m("psn-uc-not-wrapped", UC_RECEIVER,
      "self.epsn = (psn + 1) & 0xFFFFFF", "self.epsn = psn + 1",
      "a UC message across the wrap is dropped"),
    m("pad-not-removed", VIEW, "self.payload_bytes = rest - self.pad", "self.payload_bytes = rest",
      "pad bytes are delivered as payload"),
    m("va-truncated", VIEW, "self.reth_va = be64(data, o)", "self.reth_va = be32(data, o + 4)",
      "remote addresses lose their upper half"),
    m("atomic-va-truncated", VIEW, "self.atomic_va = be64(data, o)", "self.atomic_va = be32(data, o + 4)",
      "addresses of atomics lose their upper half"),
    m("immediate-byte-order", BUILD, "return put32(data, o, immediate)",
      'return put32(data, o, int.from_bytes(immediate.to_bytes(4, "little"), "big"))',
      "the immediate is sent in the wrong byte order"),
    m("bth-psn-16-bits", BUILD, "return put24(data, o + 9, psn)", "return put24(data, o + 9, psn & 0xFFFF)",
      "only 16 bits of the PSN are sent"),
    m("icrc-not-checked-ipv6", SOURCES, "return 0 if difference == 0 else _DROP_ICRC", "return 0",
      "packets with a bad ICRC are taken"),
    m("icrc-leaves-last-word-out", ICRC, "return crc32(state, data_address + 12, n - 12)",
      "return crc32(state, data_address + 12, max(n - 16, 0))",
      "the ICRC does not cover the last four bytes"),
    m("icrc-leaves-headers-out", ICRC, "state: cython.uint = crc32(route.seed(n + 4), route.masked_bth(data_address), 12)",
      "state: cython.uint = route.seed(n + 4)",
      "the ICRC does not cover the BTH"),
)  # fmt: skip

ADAPTER = (
    m("pkey-not-checked", PORT, "if (ours ^ theirs) & 0x7FFF or not ours & 0x7FFF:", "if not ours & 0x7FFF:",
      "packets of another partition are taken"),
    m("source-not-checked", ADMISSION,
      "if route.destination != arrival.source:", "if False:",
      "a connected queue pair takes packets of anyone"),
    m("destination-qp-not-checked", RECEIVE_PATH, "queue_pair = self._at_port(number)",
      "queue_pair = self._at_port(number) or next(iter(self.queue_pairs.values()), None)",
      "a packet for no queue pair goes to any"),
    Mutant("error-state-receives", (
        Edit(ADMISSION, " and queue_pair.state != _ERR", ""),
        Edit(QP_FLOW, "if not _RECEIVES[qp.state]:\n            qp.drop(\"drops_state\", view.psn)", "if qp.state == _RESET:\n            qp.drop(\"drops_state\", view.psn)"),
      ), "a queue pair in error still takes packets"),
    m("loopback-loses-the-stride", ENGINE, "arrival.stride = burst.stride", "arrival.stride = burst.length",
      "a burst to the own adapter is one packet"),
    m("deadline-not-kept", TIMERS, "        if flow.armed_ns < self.next_ns:\n            self.next_ns = flow.armed_ns\n", "",
      "the engine forgets when it wants to be called"),
    m("timer-keeps-the-later-deadline", TIMERS, "if flow.armed_ns <= deadline_ns:", "if flow.armed_ns >= deadline_ns:",
      "an earlier deadline does not replace a later one"),
    m("timer-slot-not-settled", TIMERS, "                self._place(flow, tick)\n\n    def _advance", "                pass\n\n    def _advance",
      "a timer that moves a level down is lost"),
    m("scheduled-for-ever", SCHEDULER, "        flow.scheduled = False\n", "",
      "a queue pair gets one turn in its life"),
    m("level-stays-waiting", SCHEDULER, "            self.waiting &= ~(1 << level)\n", "            pass\n",
      "an empty service level still counts as waiting"),
    m("lone-flow-goes-first", SCHEDULER, "            self._queue_lone()\n        self.queues[self.level].appendleft(flow)", "            pass\n        self.queues[self.level].appendleft(flow)",
      "who waits alone overtakes one that has its turn again"),
    m("lone-flow-leaves-its-level", SCHEDULER, "            self.waiting = 0\n", "",
      "the level of a queue pair that waited alone counts as waiting for ever"),
    m("lone-flow-in-another-queue", SCHEDULER, "self.queues[self.level_of_lone].append(self.lone)", "self.queues[self.level].append(self.lone)",
      "who waited alone stands in another level's queue when others come"),
    m("low-levels-starve", SCHEDULER, "if self.high_bytes < _HIGH_LIMIT_BYTES:", "if True:",
      "a busy high service level starves the lower ones"),
    m("qp-not-removed", QP_COMMANDS, "    del adapter.queue_pairs[queue_pair.number]\n", "",
      "a destroyed queue pair still takes packets"),
    m("qp-not-closed", QP_COMMANDS, "    queue_pair.close()\n", "",
      "a destroyed queue pair keeps its bytes in flight"),
    m("qp-timer-not-disarmed", QP_COMMANDS, "    adapter.timers.disarm(queue_pair.flow)\n", "",
      "the timer of a destroyed queue pair stays"),
    m("qp-resource-kept", QP_COMMANDS, "    adapter.resources.remove(resource)\n", "",
      "a destroyed queue pair still counts"),
    m("ah-kept", COMMANDS, '    del adapter.handles[fields["ah"]]\n', "",
      "a destroyed address handle can still be used"),
    m("dead-host-keeps-its-resources", ENGINE,
      "        for resource in self.resources.owned(number):\n            release(self, host, resource)\n", "",
      "what a host that died owned is never freed"),
)  # fmt: skip

MEMORY = (
    m("key-low-byte-not-checked", REGIONS, "if region is None or region.key != key or not region.valid:",
      "if region is None or not region.valid:", "a key with a wrong low byte is good"),
    m("domain-not-checked", REGIONS, "if region.pd != pd or (region.queue_pair and region.queue_pair != queue_pair):", "if region.queue_pair and region.queue_pair != queue_pair:", "a key of another protection domain is good"),
    m("range-one-too-long", REGIONS, "if offset > region.length or length > region.length - offset:",
      "if offset > region.length or length > region.length - offset + 1:",
      "a request may end one byte behind the region"),
    Mutant("write-one-beyond", (
        Edit(REGIONS, "if offset > region.length or length > region.length - offset:",
             "if offset > region.length or length > region.length - offset + 1:"),
        Edit(REGIONS, "        if offset > self.length or n > self.length - offset:\n            return -EFAULT\n        if self.tpt.stopped:\n            return -EAGAIN\n        if self.direct_address and self.direct_pid == 0:\n            copy(self.direct",
             "        if offset > self.length or n > self.length - offset + 1:\n            return -EFAULT\n        if self.tpt.stopped:\n            return -EAGAIN\n        if self.direct_address and self.direct_pid == 0:\n            copy(self.direct"),
      ), "a write may touch one byte behind the region"),
    Mutant("right-of-remote-write-not-checked", (
        Edit(EXECUTION, "rkey, self.connection.pd, va, n, _REMOTE_WRITE, self.connection.number", "rkey, self.connection.pd, va, n, 0, self.connection.number"),
        Edit(EXECUTION, "                or not self.region.access & _REMOTE_WRITE\n", ""),
      ), "a key without REMOTE_WRITE takes writes"),
    Mutant("right-of-remote-read-not-checked", (
        Edit(RESPONDER, "view.reth_va, n, _REMOTE_READ", "view.reth_va, n, 0"),
        Edit(REPLIES, "            or not resource.region.access & _REMOTE_READ\n", ""),
      ), "a key without REMOTE_READ is read"),
    Mutant("right-of-remote-atomic-not-checked", (
        Edit(RESPONDER, "view.atomic_va, 8, _REMOTE_ATOMIC", "view.atomic_va, 8, 0"),
      ), "a key without REMOTE_ATOMIC takes atomics"),
    Mutant("right-of-local-write-not-checked", (
        Edit(REQUEST, "_LOCAL_WRITE if self.kind == _READ or self.kind == _ATOMIC else 0", "0"),
        Edit(RECEIVING, "self.qp.environment.regions, pd, _LOCAL_WRITE)", "self.qp.environment.regions, pd, 0)"),
        Edit(REGIONS, "if not self.valid or not self.access & _LOCAL_WRITE:\n            return -EACCES", "if not self.valid:\n            return -EACCES"),
      ), "a buffer without LOCAL_WRITE is written"),
    Mutant("deregistered-key-stays-valid", (
        Edit(REGIONS, "        region.valid = False\n        region.direct_address = 0\n        region.generation += 1\n        self._vacate(region)\n", "        self.sequence.give(region.slot)\n"),
      ), "a key can be used after its region was deregistered"),
    m("qp-write-right-not-checked", EXECUTION, "if not self.connection.access & _REMOTE_WRITE or self.length_bytes > _MAX_MESSAGE:",
      "if self.length_bytes > _MAX_MESSAGE:", "a queue pair that does not allow writes takes them"),
    m("qp-read-right-not-checked", RESPONDER, "if not self.connection.access & _REMOTE_READ or n > _MAX_MESSAGE:",
      "if n > _MAX_MESSAGE:", "a queue pair that does not allow reads answers them"),
    m("atomic-not-aligned", RESPONDER, "if not self.connection.access & _REMOTE_ATOMIC or view.atomic_va & 7:",
      "if not self.connection.access & _REMOTE_ATOMIC:", "an atomic may be unaligned"),
    m("swap-arguments-exchanged", REGIONS, "return atomic_cas64(place, compare, swap)", "return atomic_cas64(place, swap, compare)",
      "compare and swap are exchanged"),
    m("add-forgotten", REGIONS, "return atomic_add64(place, add)", "return atomic_add64(place, 0)", "a fetch-and-add only fetches"),
    m("table-entries-leak", REGIONS, "        self.tpt.release(self.first_entry, self.entry_count)\n", "        pass\n",
      "a deregistered region keeps its table entries"),
    m("page-border-in-walk", REGIONS, "piece = bits.PAGE_BYTES - within\n            if piece > n:", "piece = bits.PAGE_BYTES\n            if piece > n:",
      "a copy runs over a page's end"),
    m("domain-reference-kept", DOMAINS, "self._references[pd] -= 1", "pass", "a protection domain stays in use for ever"),
    m("inline-offset-forgotten", REQUEST, "copy(address, self.work.address + self.work.inline_offset + offset, n)",
      "copy(address, self.work.address + offset, n)", "inline data are taken from the wrong place"),
    m("scatter-element-border", SCATTER, "while offset >= self.start + self.length:", "while offset > self.start + self.length:",
      "the walk stays at the end of an element"),
    m("scatter-never-goes-back", SCATTER, "if offset < self.start:", "if False:", "an earlier offset is looked for behind the last one"),
    m("scatter-forgets-its-offset", SCATTER, "result = self.region.write(self.va + within, address, piece)",
      "result = self.region.write(self.va, address, piece)", "every packet is placed at its element's begin"),
)  # fmt: skip

QUEUES = (
    m("ring-body-does-not-wrap", RING, "if offset == self.body_bytes:\n                offset = 0", "if False:\n                offset = 0",
      "an entry across the store's end is damaged"),
    m("ring-one-too-many", RING, "if ((self.tail - self.head) & MASK64) >= self.layout.entries:", "if ((self.tail - self.head) & MASK64) > self.layout.entries:",
      "a full ring takes one more"),
    m("ring-bodies-not-freed", RING, "            self.body_used -= self.lengths[self.oldest]\n", "",
      "the room of entries is never free again"),
    m("completions-not-released", POLLING, "            self.reader.release(taken)\n", "            pass\n",
      "polled completions keep their room"),
    m("completions-backwards", POLLING, "found.append(entry)", "found.insert(0, entry)",
      "completions are polled newest first"),
    m("completion-overflow-silent", CQ, "            self.overflowed = True\n            self.notify_hook.overflow(self)\n            return False", "            return True",
      "a completion that finds no room is dropped silently"),
    m("completion-event-lost", CQ, "                self.notify_hook.completion_event(self)\n", "", "an armed queue never fires"),
    m("solicited-ignored", CQ, "(arm == abi.ARM_SOLICITED and (solicited or status != 0))", "arm == abi.ARM_SOLICITED",
      "any completion fires a queue armed for solicited ones"),
    m("srq-room-not-released", SRQ, "        self.consumer.release(1)\n", "", "a shared receive queue wears out"),
    m("srq-limit-late", SRQ, "elif left < self.limit:", "elif left < self.limit - 1:", "the limit event comes one receive late"),
    m("doorbell-stays-pending", DOORBELLS, "        atomic_cas64(self.pending_pages[slot // abi.WORDS_PER_PAGE] + slot % abi.WORDS_PER_PAGE * 8, 1, 0)\n", "",
      "a doorbell can be rung once"),
)  # fmt: skip

SENDER = (
    m("retry-skips-a-packet", REQUESTER, "self.cursor_packet = distance(self.at(self.head).first_psn, self.una_psn)",
      "self.cursor_packet = distance(self.at(self.head).first_psn, self.una_psn) + 1", "the retry begins one packet late"),
    m("retries-never-reset", ANSWERS, "        self.retry.progress()\n        self.settle()\n", "        self.settle()\n", "retries are counted over the whole connection"),
    m("retries-infinite", RETRY, "        self.retries_left -= 1\n", "", "a dead peer is tried for ever"),
    m("retries-one-less", RETRY, "if self.retries_left == 0:", "if self.retries_left == 1:", "one retry less than asked for"),
    m("rnr-infinite-ignored", RETRY, "if self.rnr_retry == RNR_RETRY_INFINITE:", "if False:", "7 RNR retries are 7, not infinite"),
    m("rnr-counts-as-retry", ANSWERS, "elif self.retry.spend_rnr_retry():", "elif self.retry.spend_retry():",
      "RNR NAKs use up the other retries"),
    m("rnr-nak-twice-counts-twice", ANSWERS,
      "        if not (_TRANSMITS >> self.condition) & 1:\n            return\n        if not (_RNR_NAKS >> self.recovery) & 1 and self.cursor_psn() == self.una_psn == view.psn:\n            return  # its delay is over, and the packet has not gone again since\n", "",
      "an RNR NAK that comes while one is waited for counts as another one"),
    m("sequence-nak-behind-rnr-nak-heeded", CONDITIONS, 'Recovery("REFUSED", True, False, False,', 'Recovery("REFUSED", True, True, False,',
      "a sequence NAK behind an RNR NAK of the same PSN costs a retry"),
    m("rnr-nak-gives-no-retries-back", RETRY, "        self.retries_left = self.retry_count\n        if self.rnr_retry == RNR", "        if self.rnr_retry == RNR",
      "losses between RNR NAKs are counted over the whole wait for a receive"),
    m("rnr-delay-too-short", RETRY, "tuple([microseconds * 1_000 for microseconds in _RNR_TIMER_US])", "tuple([microseconds for microseconds in _RNR_TIMER_US])",
      "the delay of an RNR NAK is a thousandth of what it should be"),
    m("rnr-nak-ignored", ANSWERS, "            self.rnr_nak(view)\n", "            pass\n", "RNR NAKs are ignored"),
    m("timeout-is-linear", RETRY, "return (TIMER_UNIT_NS << timeout) * TIMER_FACTOR if timeout else 0",
      "return TIMER_UNIT_NS * timeout * TIMER_FACTOR if timeout else 0", "the time-out is not a power of two"),
    m("timeout-huge", RETRY, "TIMER_FACTOR = 2", "TIMER_FACTOR = 64", "the time-out is 32 times too long"),
    m("timer-never-armed", REQUESTER, "            self.flow.environment.arm(self.flow, deadline)\n", "            pass\n", "the transport timer is not started"),
    m("timer-armed-once", ANSWERS, "        self.armed_ns = 0\n        if self.flow.window", "        if self.flow.window",
      "the transport timer fires once only"),
    m("window-leaks-at-retry", REQUESTER, "        window.give_up(self.in_flight.clear(window.epoch))\n        if lost:", "        self.in_flight.clear(window.epoch)\n        if lost:", "bytes of lost packets stay charged"),
    m("window-never-narrows", WINDOW, "self.limit_bytes = max(self.minimum_bytes, self.limit_bytes // 2)", "pass",
      "losses do not narrow the window"),
    Mutant("window-waits-unasked", (
        Edit(REQUESTER, "self.writer.burst.packets == 0 and (self.probe or self.must_request_ack()):", "self.probe:"),
        Edit(REQUESTER, "if placed and self.flow.waiting and not self.probe and not self.must_request_ack():", "if placed and self.flow.waiting and not self.probe:"),
      ), "who waits for room may have asked for no answer, and a time-out ends the wait"),
    m("window-turn-lost", WINDOW, "        flow.environment.schedule(flow)\n", "", "who waits for room is not woken"),
    m("fence-ignored", REQUESTER, "if self.cursor_packet == 0 and request.work.flags & _FENCE and self.rd_outstanding:", "if False:",
      "a fenced request does not wait for reads"),
    m("reads-one-too-many", REQUESTER,
      "        if self.rd_outstanding >= self.connection.max_rd_atomic:\n            return self.block(_READS)\n        if end",
      "        if self.rd_outstanding > self.connection.max_rd_atomic:\n            return self.block(_READS)\n        if end",
      "one read more than max_rd_atomic"),
    m("atomics-without-limit", REQUESTER,
      "        if self.rd_outstanding >= self.connection.max_rd_atomic:\n            return self.block(_READS)\n        if not self.admitted",
      "        if not self.admitted", "atomics do not keep max_rd_atomic"),
    m("credits-ignored", REQUESTER, "            self.limited\n            and request.limited", "            False\n            and request.limited",
      "sends go out without credits"),
    m("credits-block-everything", REQUESTER, "            self.limited\n            and request.limited", "            self.limited",
      "writes wait for credits too"),
    m("read-done-by-an-ack", ANSWERS, "if (_ANSWERED >> request.kind) & 1 and request.received < request.packets:",
      "if (_ANSWERED >> request.kind) & 1 and request.kind != _READ and request.received < request.packets:", "an ACK completes a READ without its data"),
    m("read-response-out-of-order", ANSWERS, "if view.psn != self.una_psn:\n            if distance", "if False:\n            if distance",
      "a READ response behind a loss is taken"),
    m("read-response-length-not-checked", ANSWERS, "return view.payload_bytes == (rest if rest < pmtu else pmtu)", "return True",
      "a READ response of any length is taken"),
    m("read-again-from-the-begin", SEGMENTS, "            (request.work.remote_va + offset) & _MASK64,\n", "            request.work.remote_va,\n",
      "a READ asked for again in part begins at its first byte"),
    m("ack-takes-one-more", ANSWERS, "if not self.advance((view.psn + 1) & 0xFFFFFF):", "if not self.advance((view.psn + 2) & 0xFFFFFF):",
      "an ACK answers for one packet too many"),
    m("nak-acknowledges-its-psn", ANSWERS,
      "if not self.advance(view.psn):\n            self.implied_nak()\n            return\n        if not _TRANSMIT[self.connection.state] or self.head == self.tail:\n            return\n        if self.una_psn",
      "if not self.advance((view.psn + 1) & 0xFFFFFF):\n            self.implied_nak()\n            return\n        if not _TRANSMIT[self.connection.state] or self.head == self.tail:\n            return\n        if self.una_psn",
      "a NAK acknowledges the packet that it refuses"),
    m("nak-access-ignored", ANSWERS, "elif code in NAK_STATUS:", "elif code in NAK_STATUS and code != 2:", "a remote access error is overheard"),
    m("implied-nak-missed", ANSWERS, "        if (_IMPLIED_NAK >> self.recovery) & 1 and not self.goes_again() and self.head != self.tail:\n", "        if False:\n",
      "an ACK that overtakes a READ's response says nothing"),
    m("ghost-acks-believed", ANSWERS, "if distance(self.una_psn, view.psn) < 0 or distance", "if distance", "old answers are taken for new ones"),
    m("atomic-result-byte-order", ANSWERS, "store64(self.result_address, view.atomic_original)",
      'store64(self.result_address, int.from_bytes(view.atomic_original.to_bytes(8, "little"), "big"))', "an atomic's result has the wrong byte order"),
    m("swap-fields-exchanged", SEGMENTS, "                request.work.swap,\n                request.work.compare_add,",
      "                request.work.compare_add,\n                request.work.swap,", "AtomicETH's swap and compare are exchanged"),
    m("empty-message-has-no-packet", REQUEST, "elif self.length_bytes <= pmtu_bytes or self.kind == _ATOMIC:",
      "elif 0 < self.length_bytes <= pmtu_bytes or self.kind == _ATOMIC:", "an empty message takes no PSN"),
    m("solicited-not-sent", SEGMENTS, "last and request.work.flags & _SOLICITED != 0 and request.limited", "False", "the solicited bit is not sent"),
    m("last-packet-does-not-ask", SEGMENTS, "self.acknowledged and (last or (ends and ack_at_end))", "self.acknowledged and (ends and ack_at_end)",
      "the last packet of a message asks for no acknowledgement"),
    m("unsignaled-shown", SENDING, "if status == 0 and not work.flags & _SIGNALED and not self.qp.signal_all:", "if False:", "unsignaled requests complete"),
    m("unsignaled-errors-lost", SENDING, "if status == 0 and not work.flags & _SIGNALED and not self.qp.signal_all:",
      "if not work.flags & _SIGNALED and not self.qp.signal_all:", "an unsignaled request that fails does not say so"),
    m("send-room-not-released", SENDING, "        self.qp.send_ring.release(1)\n        self.complete(request, status, now)\n", "        self.complete(request, status, now)\n",
      "completed requests keep their room in the send queue"),
    m("flush-forgets-what-was-not-begun", SENDING, "        request: Request\n        left: cython.uint = self.capacity\n        while left:\n            request = self.take(True)\n            if request is None:\n                return\n", "        request: Request\n        left: cython.uint = 0\n        while left:\n            request = self.take(True)\n            if request is None:\n                return\n",
      "requests that were only posted are not flushed"),
    m("flush-looks-like-success", REQUESTER, "        while self.head != self.tail:\n            self.retire(_FLUSHED)", "        while self.head != self.tail:\n            self.retire(0)",
      "flushed requests complete with success"),
    m("completion-opcode-wrong", "queues/operations.py", "READ, abi.WC_RDMA_READ", "READ, abi.WC_SEND",
      "a READ's completion says SEND"),
    m("draining-never-ends", REQUESTER, "        if self.connection.draining and self.head == self.tail:\n            self.connection.drained()", "        pass",
      "SQD never tells that it has drained"),
)  # fmt: skip

RECEIVER = (
    m("write-acknowledged-not-done", RESPONDER, "outcome = self.execution.execute(view, arrival, self.now)",
      "outcome = _DONE if view.operation == _WRITE and view.position == _MIDDLE else self.execution.execute(view, arrival, self.now)",
      "middle packets of a write are acknowledged and not written"),
    m("write-executed-again", RESPONDER, "            self.duplicate(view)\n",
      "            if view.operation == _WRITE and view.position == 3 and self.execution.operation == _NOTHING and not view.has_immdt:\n                self.execution.execute(view, arrival, self.now)\n            self.duplicate(view)\n",
      "a duplicate write is written again"),
    m("send-executed-again", RESPONDER, "            self.duplicate(view)\n",
      "            if view.operation == _SEND and view.position == 3 and self.execution.operation == _NOTHING:\n                self.execution.execute(view, arrival, self.now)\n            self.duplicate(view)\n",
      "a duplicate send is delivered again"),
    m("atomic-executed-again", RESPONDER, "        self.replies.ring.ask(resource, 0, 1, 8)\n        self.flow.environment.schedule(self.flow)",
      "        self.run_atomic(resource, view)\n        self.replies.ring.ask(resource, 0, 1, 8)\n        self.flow.environment.schedule(self.flow)",
      "a duplicate atomic acts again"),
    m("atomic-replay-is-todays-value", RESPONDER, "        self.replies.ring.ask(resource, 0, 1, 8)\n        self.flow.environment.schedule(self.flow)",
      "        resource.result = resource.region.fetch_add(resource.va, 0)\n        self.replies.ring.ask(resource, 0, 1, 8)\n        self.flow.environment.schedule(self.flow)",
      "a replayed atomic returns what stands there now"),
    m("replay-one-too-few", REPLAY, "for i in range(self.count):\n            resource = self.resources[(self.newest + self.capacity - i) % self.capacity]",
      "for i in range(self.count - 1):\n            resource = self.resources[(self.newest + self.capacity - i) % self.capacity]",
      "the oldest replay resource is not found"),
    m("replay-length-one-packet", REPLAY, "if gap >= 0 and gap < resource.packets:", "if gap == 0:", "a READ is found again by its first PSN only"),
    m("gap-not-noticed", RESPONDER, "            self.gap(view.psn)\n", "            self.epsn = view.psn\n            self.expected(view, arrival)\n",
      "packets behind a loss are executed"),
    m("nak-not-sent", RESPONDER, "        self.replies.nak_pending = _SEQUENCE\n        self.replies.nak_psn = self.epsn\n", "        self.replies.nak_psn = self.epsn\n", "a gap is not told to the requester"),
    m("nak-for-every-packet", RESPONDER, "        self.nak_sent = True\n        self.replies.nak_pending = _SEQUENCE", "        self.replies.nak_pending = _SEQUENCE",
      "each packet behind a gap gets a NAK"),
    m("acks-never", RESPONDER, "            if view.ack_request:\n                self.replies.acknowledge_through(view.psn)\n            elif", "            if",
      "requests are acknowledged when they come again only"),
    m("ack-for-the-next", REPLIES, "if not self.writer.acknowledge(self.ack_psn, self.sink.credit_code(), self.msn):",
      "if not self.writer.acknowledge((self.ack_psn + 1) & 0xFFFFFF, self.sink.credit_code(), self.msn):", "an ACK answers for what has not come yet"),
    m("duplicates-not-acknowledged", RESPONDER,
      "            self.replies.acknowledge_through(view.psn)\n            self.replies.asked_again = True", "            pass",
      "when an ACK is lost it is not sent again"),
    m("msn-never-counts", RESPONDER, "            if ends:\n                self.replies.msn = (self.replies.msn + 1) & 0xFFFFFF\n", "", "the MSN does not count sends and writes"),
    m("credits-too-many", RECEIVING, "return encode(count) if count > 0 else 0", "return encode(count + 1) if count > 0 else 1", "one credit too many is given"),
    m("rnr-receive-not-waited-for", RESPONDER, "self.replies.refuse(psn, _RNR | (self.connection.min_rnr_timer & 31))", "self.replies.refuse(psn, _SEQUENCE)",
      "a sequence NAK instead of an RNR NAK"),
    m("rnr-executes-what-follows", RESPONDER, "if self.replies.nak_pending == 0 or self.replies.nak_pending == _SEQUENCE:", "if True:",
      "packets behind an RNR NAK that was not sent yet are executed"),
    m("resources-not-rounded", REPLAY, "return 1 << (agreed - 1).bit_length() if agreed else 0", "return agreed",
      "who rounds the agreed reads up to a power of two is refused"),
    m("read-from-the-begin", REPLIES, "(resource.va + offset) & _MASK64,", "resource.va,", "every packet of a READ's answer holds the first bytes"),
    m("read-last-packet-full", REPLIES, "        if n > pmtu:\n            n = pmtu\n        pad", "        n = pmtu\n        pad", "a READ's last packet is a full one"),
    m("read-resource-overwritten", REPLAY, "        return oldest.answered or not oldest.pending\n", "        return True\n",
      "more reads than agreed push out the oldest"),
    m("length-not-checked", EXECUTION, "            return view.payload_bytes == pmtu and view.pad == 0\n", "            return True\n",
      "first and middle packets may be of any length"),
    m("write-end-not-checked", EXECUTION, "if ends != (self.received_bytes + view.payload_bytes == self.length_bytes):", "if False:",
      "a write may end before its length"),
    m("write-longer-than-said", EXECUTION, "        if self.received_bytes + view.payload_bytes > self.length_bytes:\n            return _INVALID\n        if ends != (self.received_bytes + view.payload_bytes == self.length_bytes):\n            return _INVALID\n", "",
      "a write may be longer than its RETH says"),
    m("receive-too-short-by-one", EXECUTION, "if self.received_bytes + view.payload_bytes > self.queue.buffers.total_bytes:",
      "if self.received_bytes + view.payload_bytes > self.queue.buffers.total_bytes + 1:", "a message one byte too long is not refused as such"),
    m("empty-write-checks-its-key", EXECUTION, "        if self.length_bytes == 0:\n            return _DONE\n", "",
      "the key of an empty write is looked at"),
    m("opcode-sequence-not-checked", EXECUTION, "return not begins and cython.cast(cython.int, view.operation) == self.operation", "return True",
      "a message may begin within another"),
    m("write-immediate-takes-no-receive", EXECUTION, "        if view.has_immdt:\n            outcome = self.acquire(view)\n            if outcome != _DONE:\n                return outcome\n", "",
      "a write with immediate completes a receive that it does not hold"),
    m("write-length-not-told", EXECUTION, "            self.received_bytes & _WORD,\n", "            self.received_bytes & _WORD if opcode == _RECV else 0,\n",
      "a write with immediate completes with length 0"),
    m("receive-opcode-wrong", EXECUTION, "self.ended(view, _RECV_RDMA_WITH_IMM)", "self.ended(view, _RECV if view.has_immdt else _RECV_RDMA_WITH_IMM)",
      "a write with immediate looks like a send"),
    m("receives-not-flushed", RECEIVING, "        left = self.ring.layout.entries\n        while left:\n            if self.acquire() == _NO_RECEIVE:\n                return\n",
      "        left = 0\n        while left:\n            if self.acquire() == _NO_RECEIVE:\n                return\n", "after an error posted receives stay"),
    m("receive-room-not-released", RECEIVING, "        if self.shared is None:\n            self.ring.release(1)\n        if status:", "        if status:",
      "completed receives keep their room"),
    m("last-wqe-event-missing", CONTEXT, "            self.environment.event(EVENT_QP_LAST_WQE_REACHED, self.number)\n", "            pass\n",
      "nobody is told that a queue pair takes no more shared receives"),
    m("access-event-missing", CONTEXT, "        if event >= 0:\n            self.environment.event(event, self.number)\n", "", "the responder's error is not reported"),
)  # fmt: skip

KEYS = (
    m("withdrawal-forgets-generation", WINDOWS, "        self.valid = False\n        self.generation += 1\n        self.users", "        self.valid = False\n        self.users",
      "what is under way goes on with a moved window's dead key"),
    m("window-still-valid-after-withdrawal", WINDOWS, "        self.valid = False\n        self.generation += 1\n        self.users", "        self.generation += 1\n        self.users",
      "an invalidated window's key still opens it"),
    m("window-count-never-falls", WINDOWS, "        self.parent.bound_windows -= 1\n", "", "a region stays busy after its last window"),
    m("window-count-never-rises", WINDOWS, "        parent.bound_windows += 1\n", "        pass\n", "a region can be deregistered below its windows"),
    m("window-for-every-queue-pair", REGIONS, "if region.pd != pd or (region.queue_pair and region.queue_pair != queue_pair):", "if region.pd != pd:",
      "a type 2 window is open to other queue pairs of its domain"),
    m("window-rights-not-kept", WINDOWS, "self.access = access & _GRANTS", "self.access = _GRANTS", "a window gives rights that its bind did not"),
    m("window-length-not-kept", WINDOWS, "        self.length = length\n        self.access = access & _GRANTS", "        self.length = parent.length\n        self.access = access & _GRANTS",
      "a window reaches to its region's end"),
    m("window-begins-with-its-region", WINDOWS, "        self.parent_va = va\n        self.zero", "        self.parent_va = parent.va\n        self.zero", "a window's bytes are its region's first ones"),
    m("moved-window-keeps-its-key", WINDOWS, "        self.key = key\n        self.parent = parent", "        self.parent = parent", "a bind gives no new key"),
    m("local-invalidate-does-nothing", KEY_WORK, "        return windows.invalidate(work.imm_or_key, connection.number, connection.pd, False)", "        return 0",
      "LOCAL_INV completes without effect"),
    m("send-with-invalidate-does-nothing", EXECUTION, "if view.has_ieth and self.connection.environment.memory_windows.invalidate(", "if False and self.connection.environment.memory_windows.invalidate(",
      "a SEND with Invalidate is a SEND"),
    m("invalidation-of-any-psn", RESPONDER, "        elif gap > 0:\n            self.gap(view.psn)\n", "        elif gap > 0:\n            if view.has_ieth:\n                self.connection.environment.memory_windows.invalidate(view.invalidate_key, self.connection.number, self.connection.pd, True)\n            self.gap(view.psn)\n",
      "a SEND with Invalidate withdraws a key whatever its PSN"),
    m("invalidated-key-not-told", EXECUTION, "            flags = _WITH_INV\n            imm_or_key = view.invalidate_key\n", "            flags = _WITH_INV\n",
      "a receive does not tell the key that died"),
    m("queue-pair-leaves-its-windows", QP_COMMANDS, "    adapter.memory_windows.forget_queue_pair(queue_pair.number)\n", "", "type 2 windows outlive their queue pair"),
    m("zero-length-bind-keeps-the-window", WINDOWS, "            self._unbind(window)\n            window.key = key\n            return 0", "            window.key = key\n            return 0",
      "a type 1 window is not unbound"),
    m("bind-does-not-wait", REQUESTER, "        if self.head != self.cursor:\n            return self.block(_ORDER)\n        if execute_local", "        if execute_local",
      "a bind overtakes what stands before it"),
    m("bind-counts-as-a-message", REQUESTER, "            messages = 0\n", "            pass\n", "a bind takes a send sequence number"),
)

UNRELIABLE = (
    m("uc-middle-after-loss", UC_RECEIVER, "if verdict == _REFUSE or (verdict == _GO_ON and not in_order):",
      "if verdict == _REFUSE:", "a UC message goes on behind a loss"),
    m("uc-partial-message-stays", UC_RECEIVER, "        self.execution.abandon()\n\n    def execute", "\n    def execute",
      "what came of a lost UC message is put in front of the next"),
    m("uc-partial-completes", UC_RECEIVER, "            self.drop(\"drops_sequence\", self.epsn, True)",
      "            if self.execution.operation == _SEND:\n                self.execution.complete(0, self.execution.received_bytes, self.now)\n            self.drop(\"drops_sequence\", self.epsn, True)",
      "a UC message without its end completes"),
    m("uc-window-leaks", UC, "        if window.epoch == epoch:\n            window.give_up(cost)\n", "", "what UC and UD sent stays charged"),
    m("uc-psn-stands-still", UC, "self.next_psn = (self.next_psn + written) & 0xFFFFFF", "self.next_psn = self.next_psn", "UC's PSN does not go on between bursts"),
    m("ud-grh-source-wrong", UD, "source=arrival.source[12:],", "source=arrival.destination[12:],", "the GRH names the receiver as the sender"),
    m("ud-source-qp-wrong", UD, "self.writer.source_qp = self.qp.number", "self.writer.source_qp = request.work.remote_qpn",
      "DETH names the wrong source queue pair"),
    m("multicast-heard-by-its-sender", RECEIVE_PATH, "if own and queue_pair.number == view.source_qp:", "if False:",
      "a sender gets a copy of its own datagram to its group"),
    m("multicast-not-heard-here", ENGINE, "flow.multicasts and self.groups.heard(burst.route.destination)", "False",
      "a group's members at the sender's adapter get nothing"),
    m("ud-qkey-not-checked", UD, "if view.qkey != self.qp.qkey:", "if False:", "a datagram with another Q_Key is taken"),
    m("ud-too-long-sent", UD, "if request.length_bytes > self.qp.path_mtu_bytes:", "if False:", "a datagram longer than the PMTU is sent"),
    m("ud-receive-without-grh-room", UD, "if view.payload_bytes + _GRH_BYTES > self.queue.buffers.total_bytes:", "if view.payload_bytes > self.queue.buffers.total_bytes:",
      "the room for the GRH is not counted"),
    m("ud-payload-at-the-grh", UD, "                _GRH_BYTES, view.payload_bytes, arrival.payload_address + view.payload", "                0, view.payload_bytes, arrival.payload_address + view.payload",
      "the payload stands where the GRH should"),
    m("ud-length-without-grh", UD, "            view.payload_bytes + GRH_BYTES,\n", "            view.payload_bytes,\n", "byte_len does not count the GRH"),
    m("ud-handle-of-another-domain", UD, "handle is None or handle.pd != self.qp.pd or", "handle is None or", "an address handle of another domain is good"),
)  # fmt: skip

HELD = (
    m("held-write-acknowledged", EXECUTION, "            if result == -_EAGAIN:\n                return _HELD\n            if result:\n", "            if result and result != -_EAGAIN:\n",
      "a write to held memory counts as done"),
    m("held-send-delivered", EXECUTION, "            if status == -_EAGAIN:\n                return _HELD\n            if status:\n", "            if status and status != -_EAGAIN:\n",
      "a send to held memory counts as delivered"),
    Mutant("held-atomic-answered", (
        Edit(RESPONDER, "if region.fault == -_EAGAIN:", "if False:"),
        Edit(RESPONDER, "        if region.fault:\n            self.refuse", "        if region.fault and region.fault != -_EAGAIN:\n            self.refuse"),
      ), "an atomic on held memory is answered without having been executed"),
    m("held-packet-restarts-its-message", RESPONDER, "        self.connection.observe(MEMORY_HELD, psn, HELD_REQUEST)\n", "        self.connection.observe(MEMORY_HELD, psn, HELD_REQUEST)\n        self.execution.received_bytes = 0\n",
      "behind a held packet a message is placed from its begin"),
    m("held-answer-forgotten", REPLIES, "                self.flow.environment.wait_for_memory(self.flow)\n", "", "a READ of held memory is never answered"),
    m("held-answer-skips-a-packet", REPLIES, "                self.held = True\n", "                self.held = True\n                resource.next_index += 1\n",
      "the packet of an answer that was held is left out"),
    m("held-source-forgotten", REQUESTER, "        self.flow.environment.wait_for_memory(self.flow)\n", "", "who waits for his own memory waits for ever"),
    m("held-result-repaired-by-time-out", ANSWERS, "        if (_TRANSMITS >> self.condition) & 1:\n            self.retry.progress()\n", "        if False:\n            self.retry.progress()\n",
      "an answer that cannot be placed is dropped, and only a time-out asks again"),
    m("held-result-forgotten", ANSWERS, "            self.condition = _UNPLACED\n            self.flow.environment.wait_for_memory(self.flow)\n", "            self.condition = _UNPLACED\n",
      "an answer that cannot be placed is never asked for again"),
    m("held-result-spends-a-retry", ANSWERS, "            self.retry.progress()\n            self.recovery = _ANSWERED_ALREADY\n            self.rewind(False)\n",
      "            if not self.retry.spend_retry():\n                self.fail_head(_RETRY_EXCEEDED)\n                return\n            self.rewind(False)\n",
      "an answer that cannot be placed costs a retry"),
    m("held-atomic-result-kept", ANSWERS, "        result = request.scatter(0, 8, self.result_address)\n        if result:", "        result = request.scatter(0, 8, self.result_address)\n        if result and result != -_EAGAIN:",
      "an atomic completes whose result was not placed"),
    m("held-never-due", ENGINE, "if now >= self.memory_waiters.next_ns:", "if False:", "who waits for memory is tried again only when somebody tells"),
    m("held-deadline-not-told", ENGINE, "return deadline if deadline < self.memory_waiters.next_ns else self.memory_waiters.next_ns", "return deadline", "the engine does not say when memory is to be tried again"),
    m("held-uc-message-completes", UC_RECEIVER, "            if result == -_EAGAIN:\n                return _HELD\n            if result:\n", "            if result and result != -_EAGAIN:\n",
      "a UC write that met held memory counts as done"),
    m("held-datagram-completes", UD, "return result if result == 0 or result == -_EAGAIN else _PROTECTION_ERROR", "return 0 if result == 0 or result == -_EAGAIN else _PROTECTION_ERROR",
      "a datagram that met held memory completes"),
    m("moved-page-not-in-the-table", PAGED_MEMORY, "        for page, frame, count in new:\n            put_entries(self.mapping.table, page, frame, count)\n", "", "a page is moved without the table"),
    m("moved-page-not-copied", PAGED_MEMORY, "                self.frames.copy(source, target)\n", "                pass\n", "a page is moved without its bytes"),
    m("swapped-page-not-read", PAGED_MEMORY, "                self._read_in(piece)\n", "                pass\n", "a page comes back without its bytes"),
    m("mode-bit-ignored", PAGED, "        if self.tpt.stopped:\n            return -EAGAIN\n", "", "a stopped adapter goes on copying"),
)  # fmt: skip

CONNECTIONS = (
    m("cm-lost-rtu-never-comes", CM_STATES, "    (ESTABLISHED, REP): (ESTABLISHED, (RESEND,)),", "    (ESTABLISHED, REP): (ESTABLISHED, ()),",
      "a peer whose RTU was lost gives up an established connection"),
    m("cm-lost-rep-never-comes", CM_STATES, "    (REP_SENT, RETRY): (REP_SENT, (RESEND, START)),", "    (REP_SENT, RETRY): (REP_SENT, (START,)),",
      "a reply that was lost is not sent again"),
    m("cm-retries-once", CM_STATES, "    (REQ_SENT, RETRY): (REQ_SENT, (RESEND, START)),", "    (REQ_SENT, RETRY): (REQ_SENT, (RESEND,)),",
      "a request that was lost twice is not sent a third time"),
    m("cm-second-request-is-a-new-one", CM, "        if known is not None:\n            self._step(known, states.REQ", "        if False:\n            self._step(known, states.REQ",
      "who repeats a request is told that its connection is stale"),
    m("cm-lost-dreq-never-comes", CM_STATES, "    (DREQ_SENT, RETRY): (DREQ_SENT, (RESEND, START)),", "    (DREQ_SENT, RETRY): (DREQ_SENT, ()),",
      "who disconnects waits for ever, and its peer stays"),
    m("cm-deadline-in-the-past", CM_PORT, "        deadline = self.manager.next_deadline()\n", "        deadline = NEVER_NS\n",
      "nothing is sent again: the manager's time never comes"),
    m("cm-knows-late-messages-for-ever", CM_STATES, "    (TIMEWAIT, OVER): (CLOSED, (REPORT,)),", "    (TIMEWAIT, OVER): (TIMEWAIT, (REPORT,)),",
      "a queue pair is never connected again: its old connection is not over"),
    m("instance-not-looked-at", QP_FLOW, "        if qp.instance and view.reserved7 != qp.instance:", "        if False:",
      "late packets of an old connection are taken for new ones"),
    m("instance-always-the-same", INSTANCES, "        self._remember(place, last % INSTANCES + 1)", "        self._remember(place, last)",
      "connected again, it is the same connection to late packets"),
    m("instance-not-carried", SEGMENTS, "            self.connection.instance,\n", "            0,\n",
      "no packet says which connection it belongs to"),
    m("instance-of-the-last-request", "adapter/connection_instances.py", "            self._give(own, instance)", "            self._give(own, offer_of(message.private_data) or instance % 127 + 1)",
      "the active side takes another number than its peer has agreed to"),
    m("failover-peer-not-told", CONNECTION, "            self.receive_engine().announce()", "            pass",
      "a peer that says nothing stays at a dead path"),
    m("failover-by-the-old-port", CONNECTION, "        self.flow.port_number = self.port_number = path.port_number", "        self.port_number = path.port_number",
      "a connection that has migrated still asks the old port for turns"),
    m("failover-not-when-retries-end", ANSWERS, "        elif not self.connection.migrate(FAIL, self.now):", "        elif True:",
      "an armed connection fails instead of migrating"),
    m("failover-not-when-the-port-fails", PATHS, "    if not up:\n        port_failed", "    if False:\n        port_failed",
      "an armed connection stays at a port of which the adapter knows that it is down"),
    m("failover-peer-refused", ADMISSION, "    return queue_pair.migration == _ARMED and queue_pair.alternate.port_number == port_number", "    return False",
      "packets of a peer that has migrated are for nobody"),
    m("failover-peer-not-followed", QP_FLOW, "            elif arrival.source == route.destination and arrival.destination == route.source:\n", "            elif False:\n",
      "who gets packets of a peer that has migrated stays where it is"),
    m("lap-goodbye-by-the-old-path", ENGINE, "                path_taken(self, resource.element)\n", "                pass\n",
      "a connection whose first path is gone says good bye to nobody"),
    m("lap-answer-not-told", "management/cm/path_states.py", "    (PROPOSED, APR): (QUIET, (STOP, REPORT)),", "    (PROPOSED, APR): (QUIET, (STOP,)),",
      "who has proposed a path never loads it"),
    m("lap-by-the-port-that-it-came-by", CM_PORT, "                    return management.connections\n", "                    pass\n",
      "what comes along the alternate path is of no connection"),
)  # fmt: skip

UNSEEN = {
    "low-levels-starve": "costs time only: at rest everything is done",
    "window-never-narrows": "costs time only: what is lost goes again",
    "credits-block-everything": "costs time only: a lone packet may always go",
    "page-border-in-walk": "a driver's regions lie in one piece in its adapter's process; memory's own tests walk pages",
    "rnr-executes-what-follows": "only a request that comes twice before the NAK is sent, and then nothing is wrong",
    "bind-counts-as-a-message": "costs time only: where credits are counted wrongly, a lone packet may always go",
    "rnr-nak-gives-no-retries-back": "no receiver of a world is late for so long that eight packets are lost meanwhile",
    "qp-timer-not-disarmed": "the timer fires, finds nobody, and is gone when the world is at rest",
}
"""Bugs that no world shows, and why; they are run when they are named."""

EXCHANGES: tuple[Mutant, ...] = (
    m("flush-without-the-regions-right", RESPONDER, "pd, va, length, rights, self.connection.number", "pd, va, length, 0, self.connection.number",
      "a FLUSH is answered by whatever region, also where it asks for persistence"),
    m("atomic-write-at-odd-addresses", RESPONDER, "            or view.reth_va & 7\n", "", "eight bytes are written at odd addresses, too"),
    m("atomic-write-answered-and-not-done", RESPONDER, "result = region.put_word(view.reth_va, arrival.payload_address + view.payload)", "result = 0",
      "an ATOMIC WRITE is answered and nothing is written"),
    m("xrc-queue-of-any-message", XRC, "queue: ReceiveQueue = self.queues.get(view.xrc_srq)\n        if queue is not None:",
      "queue: ReceiveQueue = self.queues.get(view.xrc_srq) or next(iter(self.queues.values()), None)\n        if queue is not None:",
      "a target gives all messages to the queue that it has served first"),
    m("xrc-first-queues-domain", XRC, "        self.connection.pd = shared.pd\n", "        self.connection.pd = self.connection.pd or shared.pd\n",
      "keys count in the protection domain of the first queue that was named"),
)

EVERYTHING: tuple[Mutant, ...] = WIRE + ADAPTER + MEMORY + QUEUES + SENDER + RECEIVER + KEYS + UNRELIABLE + HELD + CONNECTIONS + EXCHANGES
CATALOGUE: tuple[Mutant, ...] = tuple(mutant for mutant in EVERYTHING if mutant.name not in UNSEEN)

QUICK = (
    "pad-not-removed",
    "scatter-forgets-its-offset",
    "timer-never-armed",
    "ud-source-qp-wrong",
)
"""A sample whose worlds are few: the ordinary tests run it."""
