"""Bugs of the turns that make packets move, and of the entry of an adapter process, with the tests that judge
them."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

LOOP = "runtime/loop.py"
RULES = "runtime/test_runtime_loop_rules.py"
ENTRY = "runtime/process_main.py"
ENTERED = "runtime/test_runtime_process_main.py"

PROGRESS = "runtime/progress_thread.py"
NAPS = "runtime/test_runtime_naps.py"
CHOICE = "runtime/nap_choice.py"
CHOSEN = "runtime/test_runtime_nap_choice.py"

RUNTIME: tuple[tuple[Mutant, str], ...] = (
    (m("loop-yields-are-not-measured", LOOP, "            self.back_off.yielded(now, after)\n", "",
       "beside a program that computes each empty poll gives it a whole slice"), "runtime/test_runtime_loop_rules.py"),
    (m("loop-contended-poller-never-naps", LOOP, "            self.nap(now + (nap_ns if nap_ns > _SHORTEST_NAP_NS else _SHORTEST_NAP_NS))\n", "            pass\n",
       "who competes for the processor polls its slices away"), NAPS),
    (m("loop-naps-at-the-first-empty-poll", "driver/poll_back_off.py", "return _SLEEP if self.empty_polls > self.before_sleep else _AGAIN", "return _SLEEP",
       "who waits for a reply of microseconds sleeps"), NAPS),
    (m("nap-with-the-engine-s-lock", LOOP, "            and not self.lock.mine()\n        ):\n", "        ):\n",
       "who polls inside the lock sleeps with it"), NAPS),
    (m("naps-are-not-chosen", LOOP, "            and self.nap_choice.naps\n", "",
       "a ping-pong whose ends have their slices together sleeps between messages"), NAPS),
    (m("nap-ends-unseen", "runtime/progress_thread.py", "                loop.sleeper.nap_ends()\n", "",
       "a program that napped, posts and polls no more has nobody who sends again for it"), NAPS),
    (m("nap-settles-nothing", "runtime/progress_thread.py", "                    loop.settle(loop.clock())  # what", "                    pass  # what",
       "what another thread has posted during a nap is sent again by nobody"), NAPS),
    (m("nap-end-disturbs-waiters", "runtime/sleeper.py", "        if not self.waiters:\n            self.wakeup_ns = self.background_ns\n\n    def waiter", "        self.wakeup_ns = self.background_ns\n\n    def waiter",
       "who waits is taken for one who sleeps as long as the background thread"), NAPS),
    (m("naps-and-posted-requests", LOOP, "                self.nap_choice.done(now)\n", "",
       "what a program does whose packets need no round says nothing about naps"), NAPS),
    (m("naps-and-packets", LOOP, "            self.nap_choice.done(now)\n        else:", "        else:",
       "what a poller finds says nothing about naps"), NAPS),
    (m("naps-begin-behind-each-yield", LOOP, "            if self.back_off.contended(after):\n                self.nap_choice", "            if True:\n                self.nap_choice",
       "spells without competition are weighed"), NAPS),
    (m("naps-grow-with-posted-requests", LOOP, "                self.back_off.worked_ns = now  # a program that posts is not idle: shorter naps\n", "",
       "who waits for what a peer writes into memory sleeps half a millisecond each time"), NAPS),
    (m("naps-for-who-sleeps-by-itself", LOOP, "            naps\n            and advice", "            advice",
       "a stream that knows how long it polls sleeps unwoken"), NAPS),
    (m("nap-choice-never-tries-the-other", CHOICE, "            if self._spells % _TRY_EACH == 0:\n                self.naps = not self.naps\n", "",
       "the way that became better is never found"), CHOSEN),
    (m("nap-choice-takes-the-worse", CHOICE, "self.naps_rate >= self.polls_rate", "self.naps_rate <= self.polls_rate",
       "a thread waits in the way that brings less"), CHOSEN),
    (m("nap-choice-counts-the-quiet", CHOICE, "        if now < self.until_ns:\n            self._done += 1\n", "        self._done += 1\n",
       "what is done when nobody competes is weighed"), CHOSEN),
    (m("nap-choice-two-threads", CHOICE, "        if now < self.until_ns:  # another thread of the program has noticed it, too\n            return\n", "",
       "two threads that poll end each other's spells"), CHOSEN),
    (m("nap-choice-forgets-at-once", CHOICE, "(3 * before + rate) // 4", "rate",
       "one bad spell decides"), CHOSEN),
    (m("nap-waits-for-whole-milliseconds", PROGRESS, "        if exactly:\n", "        if False:\n",
       "a nap of microseconds takes a millisecond"), NAPS),
    (m("nap-is-no-poll", PROGRESS, "            loop.polls += POLLS_OF_A_POLLER  # who naps polls on: the background thread need not drive\n", "",
       "the background thread drives beside a thread that naps"), NAPS),
    (m("nap-of-a-second-thread-polls", PROGRESS, "                self._wait_following(loop, lambda: loop.dead, until_ns)\n                return\n", "                return\n",
       "a second thread polls the slices away that the first one spares"), NAPS),
    (m("nap-stays-the-leader", PROGRESS, "        self._leading = False\n        self._leader_lock.release()\n        self._notify_followers()\n", "        self._leading = False\n        self._notify_followers()\n",
       "after the first nap nobody can wait any more"), NAPS),
    (m("nap-leaves-followers-asleep", PROGRESS, "        self._leader_lock.release()\n        self._notify_followers()\n        if self._stopping:", "        self._leader_lock.release()\n        if self._stopping:",
       "who follows a thread that naps sleeps its whole time"), NAPS),
    (m("loop-reply-of-a-client-awaited", LOOP, "return _SINGLE if self.polled and not self.attached else _SOME", "return _SINGLE if self.polled else _SOME",
       "an acknowledgement waits for a reply of a client, whose poll is not seen"), RULES),
    (m("loop-hosts-served-before-the-ended-go", LOOP, "            self.clients.dismiss_ended()\n            if self.serve_hosts(now):\n                worked = True\n", "            if self.serve_hosts(now):\n                worked = True\n            self.clients.dismiss_ended()\n",
       "a round works in the memory of a process that has ended"), RULES),
    (m("loop-ring-overtakes-the-link", LOOP, "            receiver.fresh = False\n            self.drain(port, now)\n", "            receiver.fresh = False\n",
       "the first burst of a ring overtakes what its peer has sent by the link"), RULES),
    (m("loop-clients-not-told-by-a-kick", LOOP, "            self.clients.notify()\n        if self.sleeper.cares(now)", "            pass\n        if self.sleeper.cares(now)",
       "events for clients wait until somebody gives a round"), RULES),
    (m("loop-round-of-a-closed-adapter", LOOP, "            if self.dead:  # it was closed while the lock was waited for\n                return False\n", "",
       "a poll that has waited for the lock gives a round to an adapter that was closed meanwhile"), RULES),
    (m("loop-sleeper-never-cares", "runtime/sleeper.py", "return self.waiters != 0 or now + _LATE_NS < self.wakeup_ns", "return self.waiters != 0",
       "a poll leaves a sleeper that would notice the next deadline too late asleep"), "runtime/test_runtime_sleeper.py"),
    (m("loop-engine-asked-after-it-failed", LOOP, "            self.polled = False\n            if not self.dead:\n                self.settle(now)", "            self.polled = False\n            self.settle(now)",
       "a poll asks an engine that has raised for its next deadline"), RULES),
    (m("loop-failure-wakes-nobody", LOOP, "        self.dead = True\n        self.sleeper.wake()\n", "        self.dead = True\n",
       "who sleeps does not see that the adapter has failed"), RULES),
    (m("loop-serving-fails-unseen", LOOP, "        except Exception as error:\n            self.fail(error)\n            return False\n        return self.progress(now) or served", "        except Exception:\n            return False\n        return self.progress(now) or served",
       "an adapter process goes on with an engine that has raised while it served a host"), RULES),
    (m("loop-command-keeps-the-doorbell", LOOP, "            served = self.adapter.command(now) or served\n            self.adapter.last_doorbell = _NO_QUEUE_PAIR\n", "            served = self.adapter.command(now) or served\n",
       "what a command causes waits for the doorbells of other queue pairs"), RULES),
    (m("loop-later-of-two-waits", LOOP, "return first if first < second else second", "return first",
       "an acknowledgement that waits is sent when doorbells are due"), RULES),
    (m("loop-last-turn-bounded", LOOP, "            while self.transmit(self.clock()):\n                pass\n", "            self.transmit(self.clock())\n",
       "an adapter process that ends leaves disconnects unsent"), RULES),
    (m("loop-slow-round-parts-doorbells", LOOP, "                    self.batching.last_ns = self.now()  # that took a while\n", "",
       "the round that a doorbell has given makes the next one look like a late one"), RULES),
    (m("loop-rest-of-a-ring-bounded", LOOP, "receiver, DRAINED_BURSTS, self.clock())", "receiver, RECEIVE_BURSTS, self.clock())",
       "most of what a peer has left in its ring is lost"), RULES),
    (m("process-interrupted-with-its-program", ENTRY, "    signal.signal(signal.SIGINT, signal.SIG_IGN)\n", "",
       "a terminal's interrupt ends the adapter under its programs"), ENTERED),
    (m("process-ends-behind-the-first-line", ENTRY, "    while os.read(0, 4096):\n        pass\n", "    os.read(0, 4096)\n",
       "an adapter that stays ends when something is written to its input"), ENTERED),
    (m("process-names-one-port", ENTRY, '"+".join(link.address for link in links)', "links[0].address",
       "who has started an adapter process knows the address of its first port alone"), ENTERED),
    (m("process-door-blocks", ENTRY, "    door.setblocking(False)\n", "",
       "an adapter process waits in accept for an application that has gone"), ENTERED),
    (m("process-failure-is-success", ENTRY, "    return int(server.loop.dead)", "    return 0",
       "an adapter process whose engine has failed says that all went well"), ENTERED),
    (m("messages-want-of-descriptors-is-the-peer's", "runtime/messages.py", "if not flags & socket.MSG_TRUNC and flags & socket.MSG_CTRUNC and len(descriptors) < DESCRIPTORS:", "if False:",
       "a program at its limit of descriptors is told that its adapter broke the protocol"), "runtime/test_runtime_messages.py"),
    (m("gids-once-each", "adapter/port.py", "filled = max(self.config.gid_entries, len(self.own.gids))", "filled = len(self.own.gids)",
       "a program with a fixed index of the GID table finds an empty entry"), "adapter/test_adapter_config.py"),
    (m("gids-on-native-ports", "adapter/port.py", "        if self.native:\n            self.gid_table =", "        if False:\n            self.gid_table =",
       "a native port has a GID in several entries, and none of the prefix that its subnet has been given"), "adapter/test_adapter_config.py"),
    (m("gids-option-unheard", "runtime/assembly.py", "return specification.gids or GID_ENTRIES", "return GID_ENTRIES",
       "the option gids changes nothing"), "runtime/test_runtime_specification.py"),
    (m("gids-option-unseen-in-files", "cli/kernel_files.py", "gid_entries=device.gids or GID_ENTRIES", "gid_entries=GID_ENTRIES",
       "files say another table than the device has"), "cli/test_cli_kernel_files.py"),
)  # fmt: skip
"""Each with the tests that judge it."""
