"""Mutants by rule that nothing can find, each with the reason: they mean the same, or cost only time.

The key is the file, the function, and the line before and after, as the list of survivors shows them.
"""

from __future__ import annotations

EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "adapter/paths.py", "_hop_limit",
        'limit: int = vector.get("hop_limit", 0) → limit: int = vector.get("hop_limit", 1)',
    ): "0 and 1 both leave it to the adapter",
    (
        "adapter/paths.py", "route_of",
        "return _route(vector, port, 0 if port.native else "
        "_source_port(vector, entropy, port)) → "
        "return _route(vector, port, 1 if port.native else "
        "_source_port(vector, entropy, port))",
    ): "a native route has no UDP port",
    (
        "adapter/port_info.py", "set_port_info", "return → pass",
    ): "what follows compares, and finds that nothing has changed",
    (
        "adapter/resources.py", "ResourceTable.renumber", "return → pass",
    ): "it is taken out, and put in again where it was",
    (
        "adapter/sources.py", "Sources._known", "self.last = source → pass",
    ): "the same flow is looked up once more",
    (
        "adapter/timers.py", "Timers._first", "return -1 → return -2",
    ): "who asks only looks whether it is below 0",
    (
        "mailbox/journal.py", "Journal.outcome_sent",
        "if self._bytes > max(REWRITE_BYTES, REWRITE_FACTOR * self._first_bytes): → "
        "if self._bytes >= max(REWRITE_BYTES, REWRITE_FACTOR * self._first_bytes):",
    ): "the file begins anew a byte earlier",
    (
        "mailbox/box.py", "Mailbox._take_run", "self._idle += 1 → self._idle += 2",
    ): "credit that is owed is written after fewer polls",
    (
        "mailbox/box.py", "Mailbox._poll_inbox",
        "if self._idle >= IDLE_POLLS: → if self._idle > IDLE_POLLS:",
    ): "credit that is owed is written a look later",
    (
        "management/pending.py", "PendingRequests.add",
        "if len(self._deadlines) > 2 * len(self) + _SPARE: # most of them were answered → "
        "if len(self._deadlines) > 2 + len(self) + _SPARE: # most of them were answered",
    ): "is cleaned up more often",
    (
        "management/pending.py", "PendingRequests.add",
        "if len(self._deadlines) > 2 * len(self) + _SPARE: # most of them were answered → "
        "if not (len(self._deadlines) > 2 * len(self) + _SPARE): # most of them were answered",
    ): "is cleaned up each time, so that it never comes to be so long",
    (
        "queues/header.py", "_literal",
        'return f"{value}U" if value < 1 << 32 else f"{value}ULL" → '
        'return f"{value}U" if value <= 1 << 32 else f"{value}ULL"',
    ): "C gives a literal that does not fit the next wider type",
    (
        "machine/processor.py", "yield_processor", "_libc.sched_yield() → pass",
    ): "others run later",
    (
        "machine/processor.py", "Readable.now",
        "return bool(_libc.poll(ctypes.byref(self.asked), 1, 0) > 0) → "
        "return bool(_libc.poll(ctypes.byref(self.asked), 1, 1) > 0)",
    ): "waits for a millisecond",
    (
        "runtime/progress_thread.py", "Progress._wait_leading",
        "if self._drive(loop, ready, leading=True) or ready(): → "
        "if self._drive(loop, ready, leading=False) or ready():",
    ): "the thread in charge wakes itself once more, and goes by what another has seen of yields",
    (
        "runtime/progress_thread.py", "Progress._notify_followers", "self._changes += 1 → self._changes += 2",
    ): "who waits only looks whether it is another number",
    (
        "runtime/progress_thread.py", "Progress._run", "self._notify_followers() → pass",
    ): "what ends it wakes who is in charge, and that one tells them",
    (
        "runtime/wake_event.py", "WakeEvent.set",
        "os.eventfd_write(self._fd, 1) → os.eventfd_write(self._fd, 2)",
    ): "one read takes all that was written",
    (
        "runtime/transmitter.py", "Transmitter.links_changed", "self.epoch += 1 → self.epoch += 2",
    ): "a route only looks whether it is another number",
    (
        "transport/datagram.py", "DatagramReceiver.fill_grh", "self.grh_key = key → pass",
    ): "the last header is kept to save time",
    (
        "transport/engines.py", "SendEngine.produce", "return 0 → return 1",
    ): "each send engine has its own",
    (
        "transport/engines.py", "ReceiveEngine.produce", "return 0 → return 1",
    ): "only asked of an engine that has work, and each such engine has its own",
    (
        "transport/engines.py", "SendEngine.has_work", "return False → return True",
    ): "costs a turn in which nothing is sent",
    (
        "transport/engines.py", "ReceiveEngine.has_work", "return False → return True",
    ): "costs a turn in which nothing is sent",
    ("transport/engines.py", "SendEngine.drained", "return True → return False"): "every sender has its own",
    ("transport/engines.py", "SendEngine.drained", "return True → return 0"): "every sender has its own",
    (
        "transport/raw.py", "RawSender.put",
        "burst.data[1] = burst.data[1] & 0xF0 | (_LNH_IPV6 if service == _RAW_IPV6 else _LNH_RAW) → "
        "burst.data[1] = burst.data[1] & 241 | (_LNH_IPV6 if service == _RAW_IPV6 else _LNH_RAW)",
    ): "a route without GRH has written an even LNH there",
    (
        "transport/execution.py", "MessageExecutor.complete",
        "self.queue.complete(status, _RECV, 0, length_bytes, 0, self.connection.dest_qp, False, now) → "
        "self.queue.complete(status, _RECV, 0, length_bytes, 0, self.connection.dest_qp, True, now)",
    ): "a completion with an error is an event for a solicited request, too",
    (
        "transport/unreliable.py", "UnreliableTransmitter.leave_window",
        "self.condition = _READY → pass",
    ): "the turn that is asked for makes it so",
    (
        "transport/unreliable.py", "UnreliableTransmitter.reset", "self.window = None → pass",
    ): "it has been left, and the next burst aims anew",
    (
        "transport/unreliable_receiver.py", "UnreliableReceiver.execute", "self.execution.abandon() → pass",
    ): "in ERR nothing comes any more, and reset() abandons",
    (
        "management/cm/timers.py", "Timers.set", "self._order += 1 → self._order += 2",
    ): "only which of two is greater counts",
    (
        "wire/captures.py", "read_capture", "start = stream.read(4) → start = stream.read(5)",
    ): "who looks at it takes four bytes",
    (
        "wire/link_view.py", "_be64", "for i in range(o, o + 8): → for i in range(o, o + 9):",
    ): "interpreted, the word has room for a ninth byte; a packet before is then remembered in vain",
}  # fmt: skip


def reason(file: str, function: str, changed: str) -> str:
    """Why nothing finds that mutant; "" when something must."""
    return EQUIVALENT.get((file, function, changed), "")
