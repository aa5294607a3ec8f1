"""Bugs of the host's half, with the tests that judge them."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

POLLING = "driver/polling.py"
CQ = "driver/cq.py"
EVENTS = "driver/events.py"
RING = "driver/entry_ring.py"
AGENTS = "driver/agents.py"
SESSION = "driver/session.py"
MEMORY = "driver/memory.py"
BY_QUEUES = "driver/test_driver_queues.py"
BY_EVENTS = "driver/test_driver_events.py"
BY_AGENTS = "driver/test_driver_agents.py"
BY_SESSION = "driver/test_driver_session.py"
BY_REGISTRATIONS = "driver/test_driver_registrations.py"

DRIVER: tuple[tuple[Mutant, str], ...] = (
    (m("driver-arm-lost-in-a-move", POLLING, "                self.reader.arm(self.asked == 2)\n", "                pass\n",
       "a request for an event is lost while its completion queue is resized"), BY_QUEUES),
    (m("driver-solicited-hides-any", POLLING, "            elif self.asked != 1:\n", "            else:\n",
       "who asks for solicited events takes away what was asked for all"), BY_QUEUES),
    (m("driver-completions-lost-with-their-queue", POLLING, "            if self.ended and not count:\n", "            if self.ended:\n",
       "completions that were taken are lost when the program destroys their queue"), BY_QUEUES),
    (m("driver-failures-hidden-by-success", POLLING, "                if entry.status:\n                    failed = self.failed\n", "                failed = self.failed if entry.status else None\n",
       "a failure is not told when a success follows it"), BY_QUEUES),
    (m("driver-rings-unmapped-before-their-device-is-closed", "memory/mapping.py", "            self._end = AtLast(self._unmap())\n", "            AtLast(self._unmap())\n",
       "a program that drops a network of its tests dies when it next makes something"), "verbs/test_verbs_ownership.py"),
    (m("verbs-unbegun-object-is-told", "verbs/base.py", "getattr(self, \"_open\", False) and not is_ending", "self._open and not is_ending",
       "a signal handler that raises has errors of softhca's own told beside its exception"), "verbs/test_verbs_ownership.py"),
    (m("driver-resize-keeps-the-former-ring", CQ, "                self._poller.move_to(adopted)\n        self._session.free(frames)\n", "                self._poller.move_to(adopted)\n",
       "each resized completion queue costs memory"), BY_QUEUES),
    (m("driver-ring-freed-under-a-poll", CQ, "        if unused:\n            self._session.free(frames)", "        self._session.free(frames)",
       "a ring is given to another queue while a poll reads it"), BY_QUEUES),
    (m("driver-event-of-the-dead-queue", CQ, "        self._driver.events.forget(frozenset({control.EVENT_CQ_ERR}), self.number)\n", "",
       "the next completion queue of a number is told of its predecessor's overrun"), BY_QUEUES),
    (m("driver-descriptor-made-late-is-silent", EVENTS, "                for _ in self._queued_of(token):\n                    found.queued()\n", "",
       "who asks for a descriptor after an event has come waits for the next one"), BY_EVENTS),
    (m("driver-interrupted-event-goes-last", EVENTS, "            self._events = {event: None, **self._events}", "            self._events = {**self._events, event: None}",
       "what an interrupted thread has taken comes behind what came later"), BY_EVENTS),
    (m("driver-interrupted-event-is-silent", EVENTS, "            self._events = {event: None, **self._events}\n            self._signal(ASYNCHRONOUS)\n", "            self._events = {event: None, **self._events}\n",
       "nobody who polls a descriptor sees what an interrupted thread has put back"), BY_EVENTS),
    (m("driver-event-of-a-destroyed-queue-put-back", EVENTS, "            if cq.number in self._queues:\n", "            if True:\n",
       "an interrupted thread puts back the event of a queue that is destroyed meanwhile"), BY_EVENTS),
    (m("driver-end-of-the-adapter-unseen", EVENTS, "        if found is not None and self._channel.alive:\n            found.empty()", "        if found is not None:\n            found.empty()",
       "a descriptor falls silent behind the end of its adapter"), BY_EVENTS),
    (m("driver-last-events-lost", EVENTS, "            if not found and not self._channel.alive:\n                ready()  # events from before the end\n", "",
       "what came while an adapter ended is not told"), BY_EVENTS),
    (m("driver-suppressed-for-the-next-one", EVENTS, "                self._drop_event((kind, element))\n                self._suppressed.discard((kind, element))", "                self._drop_event((kind, element))",
       "the next queue pair of a number is not told of its errors"), BY_EVENTS),
    (m("driver-ring-broken-by-one-is-used", RING, "            if n not in (0, self._entry_bytes):\n                self._broken = True\n", "",
       "a ring with a malformed entry is waited at for ever"), BY_AGENTS),
    (m("driver-answer-to-another-question", AGENTS, "answers = self._asked.get(arrival.mad[_TRANSACTION])", "answers = next(iter(self._asked.values()), None)",
       "a late answer is taken for that to the next question"), BY_AGENTS),
    (m("driver-question-of-somebody-is-the-answer", AGENTS, "        if not arrival.status and not arrival.mad[_METHOD_AT] & RESPONSE:\n            return False\n", "",
       "a request with the same number is taken for the answer"), BY_AGENTS),
    (m("driver-late-reply-is-the-next-ones", SESSION, "                if reply is None or reply.tag != tag:\n", "                if reply is None:\n",
       "the reply of a command that was given up is taken for the next one's"), BY_SESSION),
    (m("driver-replies-of-nobody-kept", SESSION, "        if reply is not None and reply.tag in self._awaited:\n", "        if reply is not None:\n",
       "replies of commands that were given up are kept for ever"), BY_SESSION),
    (m("driver-nested-reply-waited-for", SESSION, "            if self._awaited[tag] is not None:  # a nested command has taken this reply\n                break\n", "",
       "a command whose reply a signal handler's has taken is never answered"), BY_SESSION),
    (m("driver-unmapped-memory-registered", MEMORY, "if buffer is None and not _is_mapped(", "if False and not _is_mapped(",
       "an embedded adapter ends its program where an address is none"), BY_REGISTRATIONS),
    (m("driver-last-page-not-looked-at", MEMORY, "_bring(address, 1, writing) or _bring(address + length - 1, 1, writing)", "_bring(address, 1, writing)",
       "a region may go on behind what is mapped"), BY_REGISTRATIONS),
    (m("driver-old-key-still-named", MEMORY, "        del self._handles_by_key[former.lkey]\n        key = self._enter", "        key = self._enter",
       "the key of before a move names the region still"), BY_REGISTRATIONS),
    (m("driver-domain-changes-unasked", MEMORY, "pd if flags & control.REREG_PD else former.pd,", "pd,",
       "a region whose rights change is in another domain, for the driver"), BY_REGISTRATIONS),
    (m("driver-refused-move-stays-attached", MEMORY, "            if new is not placed:\n                self._release(new)\n            raise\n", "            raise\n",
       "each refused move costs an attachment"), BY_REGISTRATIONS),
    (m("driver-kept-arena-forgotten", MEMORY, "                self._leaving.append(arena)\n                raise\n", "                raise\n",
       "an arena that the adapter did not let go at once stays attached"), BY_REGISTRATIONS),
    (m("driver-interrupted-arena-forgotten", MEMORY, "            self._leaving.append(arena)\n            raise\n        return base", "            raise\n        return base",
       "a signal during a registration leaves its buffer attached"), BY_REGISTRATIONS),
    (m("driver-interrupted-region-keeps-arena", MEMORY, "        except BaseException:\n            self._release(placed)\n", "        except DriverError:\n            self._release(placed)\n",
       "a signal during a registration leaves its buffer attached, behind the attachment's answer"), BY_REGISTRATIONS),
    (m("driver-passes-whatever-has-the-number", "driver/duplicates.py", "        if memory.fd == number:\n", "        if True:\n",
       "a region of memory that another thread closes is of another file"), "driver/test_driver_duplicates.py"),
    (m("driver-any-refusal-is-a-bad-descriptor", "driver/channels.py", "{os.strerror(code)}", "{os.strerror(errno.EBADF)}",
       "who has no descriptor left is told that the one it has passed is none"), "driver/test_driver_channel_ends.py"),
    (m("driver-passes-the-number-itself", MEMORY, "pass_descriptor(descriptor)\n", "pass_descriptor(memory.fd)\n",
       "the adapter gets a file that has taken the number while the command waited for its turn"), "driver/test_driver_duplicates.py"),
    (m("driver-duplicate-is-closed-too-early", MEMORY, "            yield self._session.channel.pass_descriptor(descriptor)\n        finally:\n            os.close(descriptor)\n", "            number = self._session.channel.pass_descriptor(descriptor)\n        finally:\n            os.close(descriptor)\n        yield number\n",
       "an adapter in this process finds no descriptor"), "driver/test_driver_duplicates.py"),
    (m("verbs-state-told-unasked", "verbs/queue_pair.py", "if attr_mask & _STATE:\n            self._state", "if attr_mask:\n            self._state",
       "a query of something else changes the state that a program knows"), "verbs/test_verbs_qp.py"),
    (m("driver-looks-twice-for-the-queue-pair", "driver/rdmacm/queue_pairs.py", "    if queue_pair is not None:\n        with contextlib.suppress(DriverError):  # it may be destroyed\n            queue_pair.modify", "    if queue_pair is not None:\n        with contextlib.suppress(DriverError):  # it may be destroyed\n            owner.queue_pair.modify",
       "an identifier that another thread closes meanwhile has none"), "verbs/test_verbs_cmid_closed_meanwhile.py"),
    (m("driver-members-while-they-come", "machine/weak_members.py", "        references = self._members.valuerefs()  # a list, made without letting another thread go on\n        return iter([member for each in references if (member := each()) is not None])\n", "        return iter(self._members.values())\n",
       "who looks through what is open meets a change by another thread"), "machine/test_machine_weak_members.py"),
    (m("verbs-cmid-looks-twice-for-its-qp", "verbs/cm_messages.py", "        return qp\n", "        return self._qp\n",
       "a CMID that another thread closes meanwhile posts to None"), "verbs/test_verbs_cmid_closed_meanwhile.py"),
)  # fmt: skip
"""Each with the tests that judge it."""
