"""One bug for each statement, made in a copy of the source, that the statement's own checks must see."""

# ruff: noqa: E501 - each edit stands as it does in the source

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))
from mutant_edits import Edit, Mutant

from softhca.conformance.statements import STATEMENTS

DATAGRAM = "transport/datagram.py"
ENGINE = "adapter/engine.py"
EXECUTION = "transport/execution.py"
OPCODES = "wire/opcodes.py"
RECEIVER = "transport/unreliable_receiver.py"
RAW, RAW_SERVICES = "transport/raw.py", "adapter/raw_services.py"
RD_RECEIVER, RD_SENDER = "transport/rd_receiving.py", "transport/rd_sending.py"
REGIONS = "memory/regions.py"
REQUEST = "transport/request.py"
RESPONDER = "transport/responder.py"
SEGMENTATION = "transport/segmentation.py"
SENDER = "transport/unreliable.py"
STATES = "transport/states.py"
VIEW = "wire/packet_view.py"


def m(statement: str, file: str, find: str, replace: str, why: str) -> Mutant:
    """The mutant of a statement, by whose number it goes."""
    return Mutant(statement, (Edit(file, find, replace),), why)


OWN = (
    m("C9-9", RESPONDER, "if not self.connection.access & _REMOTE_READ or n > _MAX_MESSAGE:",
      "if not self.connection.access & _REMOTE_READ:", "a READ may ask for any length"),
    m("C9-60", "wire/psn.py", "if gap & 0x800000 else gap", "if gap > 0x800000 else gap",
      "the PSN half a circle away is newer"),
    m("9.7.4.1.1", RESPONDER, "        if self.nak_sent:\n            if self.replies.nak_pending", "        if False:\n            if self.replies.nak_pending",
      "each packet behind a gap gets a NAK"),
    m("9.7.4.1.2", RESPONDER, "if not self.execution.in_sequence(view) or not self.execution.length_ok(view):", "if not self.execution.length_ok(view):",
      "a message may begin within another"),
    m("9.7.4.1.5", RESPONDER, "self.refuse(_REMOTE_ACCESS)\n                return\n        resource = self.replies.ring.add(self.epsn, packets)",
      "self.refuse(_INVALID_REQUEST)\n                return\n        resource = self.replies.ring.add(self.epsn, packets)", "the bad key of a READ is called an invalid request"),
    m("9.7.4.1.6", RESPONDER, "if not self.execution.in_sequence(view) or not self.execution.length_ok(view):", "if not self.execution.in_sequence(view):",
      "payloads may be of any length"),
    m("9.7.5.1.2", RESPONDER, "        self.connection.observe(DUPLICATE_ANSWERED, view.psn, ATOMIC_AGAIN)\n", "        self.run_atomic(resource, view)\n",
      "an atomic that comes again is executed again"),
    m("9.7.5.2.8", "transport/retry.py", "tuple([microseconds * 1_000 for microseconds in _RNR_TIMER_US])", "tuple([microseconds for microseconds in _RNR_TIMER_US])",
      "the wait is a thousandth of what was told"),
    m("9.7.6.1", "transport/retry.py", "if self.retries_left == 0:", "if self.retries_left <= 1:", "one retry less than was set"),
    m("9.7.7.2", "transport/credits.py", "return 2 * power + ((count >> (power - 1)) & 1)", "return 2 * power + 1", "credits are rounded up"),
    m("A17.9.3-format", "transport/notification.py", "False, 0, BECN_BIT, 0, False)", "False, 0, BECN_BIT, 0, True)", "notifications say MigReq"),
    m("A17.9.3-marked", "adapter/receive_path.py", "arrival.traffic_class & _MARKED == _MARKED", "arrival.traffic_class & _MARKED != 0", "packets that are capable of marks count as marked"),
    m("A17.9.3-rate", "transport/congestion.py", "        if not self.machine.limited:\n            self.free_ns = now\n        return self.machine.notified(now)\n", "        return False\n", "notifications change nothing"),
    m("A17.9.3-unordered", "adapter/receive_path.py", "        queue_pair.flow.receive_notification(now)\n        return 0\n", "        queue_pair.flow.receive_notification(now)\n        queue_pair.responder.begin(1)\n        return 0\n", "behind a notification another PSN is expected"),
    m("9.7.8-headers", RD_SENDER, "self.writer.source_qp = message.queue.qp.number", "self.writer.source_qp = request.work.remote_qpn",
      "requests say that they come from the receiver's queue pair"),
    m("10.2.4-qkey", RD_SENDER, "        if self.writer.qkey & _HIGH:\n", "        if False:\n", "a Q_Key with its highest bit goes as it is"),
    m("9.7.8-one-message", RD_SENDER, "                self.current = message\n            ee.put(", "                pass\n            ee.put(",
      "a queue gives its messages to all EE contexts at once"),
    m("9.7.8-order", RESPONDER, "        if self.nak_sent:\n            if self.replies.nak_pending", "        if False:\n            if self.replies.nak_pending",
      "each packet behind a gap gets a NAK"),
    m("9.7.8-queue-pair", RD_RECEIVER, "qp.service != _RD or not _RECEIVES[qp.state] or qp.domain", "qp.service != _RD or qp.domain",
      "a queue pair that is not ready is there"),
    m("9.7.8-domain", RD_RECEIVER, " or qp.domain is not self.ee.domain:", ":", "the domain is not looked at"),
    m("9.7.8-qkey", RD_RECEIVER, "if qp.qkey != view.qkey:", "if False:", "the Q_Key is not looked at"),
    m("9.7.8-rights", RD_RECEIVER, "        self.connection.pd = qp.pd\n", "        self.connection.pd = self.connection.pd or qp.pd\n",
      "the protection domain is that of the first queue pair that was served"),
    m("9.7.8-one-message-in", RD_RECEIVER, "            and view.source_qp == self.source_qp\n", "", "a message goes on from another queue pair"),
    m("9.7.8-refused", RD_RECEIVER, "        elif self.answers.refused:\n", "        elif False:\n", "behind a NAK the next request is executed"),
    m("9.7.8-resync", RD_RECEIVER, "        self.epsn = (view.psn + 1) & 0xFFFFFF\n        self.answers", "        self.epsn = view.psn\n        self.answers",
      "the RESYNC's own PSN is expected behind it"),
    m("9.7.8-resync-again", RD_RECEIVER, "        if gap < 0:\n", "        if False:\n", "a RESYNC that comes again sets the expected PSN back"),
    m("9.7.8-resync-sender", RD_SENDER, "            self.messages.resync = True\n", "            pass\n", "what follows a message that was given up begins without a RESYNC"),
    Mutant("9.7.8-unknown-ee", (
        Edit("adapter/admission.py", "    if not receives(queue_pair):\n        return _STATE\n", ""),
        Edit("transport/queue_pair_flow.py", "        if not _RECEIVES[qp.state]:\n            qp.drop(\"drops_state\", view.psn)\n            return\n", ""),
    ), "an EE context in error answers"),
    m("9.7.8-local", RD_SENDER, "elif ee.domain is not self.qp.domain:", "elif False:", "any EE context may be used"),
    m("9.9.2-request-error", RD_SENDER, "if status == _RETRY_EXCEEDED or self.head == self.tail:", "if True:", "a request that is refused ends the EE context"),
    m("9.9.2-ee-error", RD_SENDER, "        if slow and now >= slow:\n            self.now", "        if False:\n            self.now", "an EE context that does not get through keeps all waiting"),
    m("9.9.3-receive-error", RD_RECEIVER, "        if outcome == _OPERATIONAL:\n            self.qp.fail()\n", "        self.ee.fail()\n", "a receive that is too small ends the EE context"),
    m("C9-165", VIEW, "if flags & 0x0F:", "if False:", "the transport version is not looked at"),
    m("C9-166", RECEIVER, "in_order: cython.bint = view.psn == self.epsn", "in_order: cython.bint = True",
      "the PSN is not looked at"),
    m("C9-167", RECEIVER, "BREAK, REFUSE, REFUSE, BREAK),  # a SEND", "BREAK, GO_ON, GO_ON, BREAK),  # a SEND",
      "a WRITE goes on within a SEND"),
    m("C9-168", RECEIVER, "if view.operation == _WRITE and not self.connection.access & _REMOTE_WRITE:", "if False:",
      "a queue pair that allows no writes takes them"),
    m("C9-169", EXECUTION, "> self.queue.buffers.total_bytes:", "> self.queue.buffers.total_bytes + 300:",
      "a SEND may be longer than its receive"),
    m("C9-170", EXECUTION, "rkey, self.connection.pd, va, n, _REMOTE_WRITE, self.connection.number", "rkey, self.connection.pd, va, n, 0, self.connection.number",
      "a key without write access takes writes"),
    m("C9-171", RECEIVER, "        # C9-190; C9-199:", '        if not self.length_ok(view):\n            return "drops_length"\n        # C9-190; C9-199:',
      "lengths are judged before the operation"),
    m("C9-172", SEGMENTATION, "ack_request, (request.first_psn + index) & 0xFFFFFF,", "ack_request, request.first_psn,",
      "all packets of a message have its first PSN"),
    m("C9-173", SENDER, "    def begin(self, psn: int) -> None:\n        self.next_psn = psn", "    def begin(self, psn: int) -> None:\n        self.next_psn = (psn + 1) & 0xFFFFFF",
      "sending begins one PSN late"),
    m("C9-174", STATES, "Behaviour(receive=True),  # RTR", "Behaviour(receive=True, start_send=True, transmit=True),  # RTR",
      "requests are sent in RTR"),
    m("C9-175", SENDER, "self.next_psn = (self.next_psn + written) & 0xFFFFFF", "self.next_psn = (self.next_psn + written + 1) & 0xFFFFFF",
      "a PSN is left out between messages"),
    m("C9-176", SEGMENTATION, "position = 2 if index + 1 == request.packets else 1", "position = 2 if index + 1 == request.packets else 0",
      "middle packets say that they are firsts"),
    m("C9-177", SEGMENTATION, "            n = pmtu\n        pad:", "            n = pmtu - 4\n        pad:",
      "first and middle packets are four bytes short"),
    m("C9-178", REQUEST, "elif self.length_bytes <= pmtu_bytes", "elif 0 < self.length_bytes <= pmtu_bytes",
      "an empty message is no packet"),
    m("C9-179", REQUEST, "self.packets = (self.length_bytes + pmtu_bytes - 1) // pmtu_bytes", "self.packets = self.length_bytes // pmtu_bytes + 1",
      "a last packet may be empty"),
    m("C9-180", SENDER, "            if not self.write(request, burst):\n                break\n", "            self.write(request, burst)\n",
      "a request completes with its first burst"),
    m("C9-181", RECEIVER, "self.epsn = (psn + 1) & 0xFFFFFF", "self.epsn = psn", "the same PSN is expected again"),
    m("C9-182", STATES, '    (RTS, RTS): {\n        RC: _transition(optional=_CONNECTED_RUNNING + " min_rnr_timer" + _PACED),\n        UC: _transition(optional=_CONNECTED_RUNNING + _PACED),',
      '    (RTS, RTS): {\n        RC: _transition(optional=_CONNECTED_RUNNING + " min_rnr_timer" + _PACED),\n        UC: _transition(optional=_CONNECTED_RUNNING + _PACED + " rq_psn"),',
      "the client sets the expected PSN while requests come in"),
    m("C9-183", RECEIVER, "in_order: cython.bint = view.psn == self.epsn", "in_order: cython.bint = view.psn >= self.epsn",
      "a jump forward is no gap"),
    m("C9-184", RECEIVER, "or (verdict == _GO_ON and not in_order):", "or not in_order:", "a first packet must be the expected one"),
    m("C9-185", RECEIVER, "self.epsn = (psn + 1) & 0xFFFFFF", "self.epsn = psn + 1", "the expected PSN does not wrap"),
    m("C9-186", RECEIVER, "reason[6:])\n        self.execution.abandon()", "reason[6:])", "a message goes on behind a gap"),
    m("o9-131", RECEIVER, "        self.reported = False\n\n    def drop", "\n    def drop", "a second loss is not told"),
    m("C9-187", RECEIVER, "(BEGIN, REFUSE, REFUSE, BEGIN,           BEGIN,", "(BEGIN, BEGIN, REFUSE, BEGIN,           BEGIN,",
      "a message may begin with a middle packet"),
    m("C9-188", RECEIVER, "(BREAK, REFUSE, REFUSE, BREAK,           BREAK, GO_ON,", "(BREAK, BREAK, BREAK, BREAK,           BREAK, GO_ON,",
      "within a WRITE a SEND's middle begins a message"),
    m("C9-189", RECEIVER, "BREAK, REFUSE, REFUSE, BREAK),  # a SEND", "REFUSE, REFUSE, REFUSE, REFUSE),  # a SEND",
      "a WRITE that breaks a SEND off is dropped too"),
    m("C9-190", OPCODES, "(UC, tuple(range(0x0C)), (), ()),", "(UC, tuple(range(0x0D)), (), ()),", "UC has READ requests"),
    m("C9-191", RECEIVER, "        self.connection.count(reason)\n", "        self.connection.count(reason)\n        self.connection.fail()\n",
      "an invalid request ends the queue pair"),
    m("C9-192.2.1", REGIONS, "        if region.pd != pd or (region.queue_pair and region.queue_pair != queue_pair):", "        if False:",
      "a key serves other protection domains"),
    m("C9-193", RECEIVER, "if view.payload_bytes and not self.permitted", "if not self.permitted", "the key of an empty WRITE is looked at"),
    m("C9-194", EXECUTION, "if self.received_bytes + view.payload_bytes > self.queue.buffers.total_bytes:", "if view.payload_bytes > self.queue.buffers.total_bytes:",
      "room is counted for each packet alone"),
    m("C9-195", EXECUTION, "return view.payload_bytes == pmtu and view.pad == 0", "return view.payload_bytes <= pmtu",
      "a first packet may be short"),
    m("C9-196", EXECUTION, "        return view.payload_bytes <= pmtu", "        return True", "an only packet may be longer than the PMTU"),
    m("C9-197", EXECUTION, "if view.position == _LAST and view.payload_bytes == 0:", "if False:", "a last packet may be empty"),
    m("C9-199", RECEIVER, "if view.pad and not ends:", "if False:", "pad bytes leave the opcode valid"),
    m("C9-200", DATAGRAM, "if request.length_bytes > self.qp.path_mtu_bytes:", "if request.length_bytes > 4096:",
      "a datagram may be longer than the PMTU"),
    m("C9-201", DATAGRAM, "if view.qkey != self.qp.qkey:", "if view.qkey > self.qp.qkey:", "smaller Q_Keys are good too"),
    m("C9-202", SENDER, "        self.qp.fail_sending()", "        self.qp.fail()", "a local error of the sender ends both sides"),
    m("C9-203", SENDER, "                break\n            self.retire(0)", "                break\n            self.retire(5)",
      "requests that have gone complete flushed"),
    m("C9-204", DATAGRAM, "self.next_psn = (self.next_psn + 1) & 0xFFFFFF", "self.next_psn = self.next_psn", "datagrams all have one PSN"),
    m("o9-144", DATAGRAM, "if view.qkey != self.qp.qkey:", "if view.qkey != self.qp.qkey or view.psn & 0x800000:",
      "datagrams with high PSNs are dropped"),
    m("C9-205", DATAGRAM, "if view.payload_bytes + _GRH_BYTES > self.queue.buffers.total_bytes:", "if view.payload_bytes > self.queue.buffers.total_bytes:",
      "the room of the first 40 bytes is not counted"),
    m("C9-206", OPCODES, "(UD, (0x04, 0x05),", "(UD, (0x00, 0x04, 0x05),", "UD has first packets"),
    m("C9-207", DATAGRAM, '        if not self.queue.posted():\n            self.qp.drop("drops_no_receive", view.psn)', "        if not self.queue.posted():\n            self.qp.fail()",
      "a datagram without receive ends the queue pair"),
    m("C9-208", "wire/raw.py", "if data[o + 6] == _NEXT_HEADER:", "if False:", "IBA transport may follow raw IPv6"),
    m("o9-145", RAW, "(length_bytes + 3) // 4 * 4", "length_bytes", "raw payloads are not padded"),
    m("o9-146", RAW_SERVICES, " or self._receivers.get(ALL_RAW)", "", "nobody receives the services of no queue pair"),
    m("o9-147", RAW_SERVICES, "    return ETHERTYPE_IPV6 if service == RAW_IPV6 else service", "    return ETHERTYPE_IPV6",
      "all raw services are one, and so have one queue pair"),
    m("o9-148", RAW, "> self.qp.path_mtu_bytes + _LONGEST_HEADERS:", "> self.qp.path_mtu_bytes:", "raw packets are within the MTU"),
)  # fmt: skip


def _repeated() -> tuple[Mutant, ...]:
    """A statement for TCAs repeats one for HCAs; so does its mutant."""
    known = {mutant.name: mutant for mutant in OWN}
    return tuple(
        Mutant(statement.id, known[statement.like[0]].edits, known[statement.like[0]].why)
        for statement in STATEMENTS
        if statement.like
    )


MUTANTS = (*OWN, *_repeated())
