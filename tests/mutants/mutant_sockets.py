"""Bugs of stream sockets, with the tests that judge them."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

MANAGEMENT = "sockets/memory_management.py"
PROCESSING = "sockets/memory_processing.py"
STATE = "sockets/stream_state.py"
LISTENING = "sockets/listening.py"
STREAM_SOCKET = "sockets/stream_socket.py"
SENDING = "sockets/stream_sending.py"
STREAM = "sockets/stream.py"
POLLING = "sockets/test_sockets_polling.py"
JUDGE = "sockets/test_sockets_memory_management.py"
FINDING = "sockets/test_sockets_finding.py"
LIVES = "sockets/test_sockets_lives.py"
SCARCE = "sockets/test_sockets_scarce.py"
HUB = "sockets/hub.py"
ASKING = "sockets/test_sockets_liveness.py"
FAULTS = "sockets/test_sockets_faults.py"
CREDITS = "sockets/datagram_credits.py"
ROOM = "sockets/datagram_room.py"
DATAGRAM_STATE = "sockets/datagram_state.py"
DATAGRAM_PROTOCOL = "sockets/datagram_protocol.py"
DATAGRAM_PORT = "sockets/datagram_port.py"
OF_CREDITS = "sockets/test_sockets_datagram_credits.py"
OF_STATE = "sockets/test_sockets_datagram_state.py"
OF_DATAGRAMS = "sockets/test_sockets_datagrams.py"
PROGRAMS = "sockets/test_sockets_programs.py"

SOCKETS: tuple[tuple[Mutant, str], ...] = (
    (m("sockets-carried-without-names", "sockets/carried.py", "    _carried[relay.inode] = found\n", "",
       "a socket of TLS has no names: FTP over TLS fails"), PROGRAMS),
    (m("sockets-early-numbers-sleep", STREAM_SOCKET, "        if shown:  # the", "        if False:  # the",
       "a program that asked for the number before it connected waits in vain"), PROGRAMS),
    (m("sockets-an-exception-keeps-the-buffer", STREAM, "            finally:\n                why = None\n", "            finally:\n                pass\n",
       "a send that finds no room holds a bytearray that the program then cannot shorten"), PROGRAMS),
    (m("sockets-taken-memory-is-kept", SENDING, "            self._let_go()\n", "",
       "a bytearray cannot be resized until its bytes have arrived"), PROGRAMS),
    (m("datagrams-strangers-are-read", DATAGRAM_STATE, "        believed = self.believes(found.claim, now_ns)\n", "        believed = True\n",
       "anybody sends in the name of anybody"), OF_STATE),
    (m("datagrams-parts-without-end", DATAGRAM_STATE, "            if len(self._partials) >= MOST_PARTIALS:", "            if False:",
       "first pages of many datagrams take up all that is kept"), OF_STATE),
    (m("datagrams-parts-for-ever", DATAGRAM_STATE, "        self.expire(now_ns)\n        found =", "        found =",
       "pages of a datagram of which a part was lost never come back"), OF_STATE),
    (m("datagrams-goodbye-of-a-stranger", DATAGRAM_STATE, "            if claim in self._believed:\n                del self._believed[claim]\n", "            if True:\n                self._believed.pop(claim, None)\n",
       "a stranger has datagrams to a peer go by the kernel"), OF_STATE),
    (m("datagrams-connected-hears-all", DATAGRAM_STATE, "        if self.only is not None and found.claim.address != self.only:", "        if False:",
       "a connected socket reads datagrams of others"), OF_STATE),
    (m("datagrams-page-comes-twice", DATAGRAM_STATE, "        if index in partial.pages:", "        if False:",
       "a page that was repeated takes a slot for ever"), OF_STATE),
    (m("datagrams-mapped-pages-are-posted", DATAGRAM_PORT, "self.state.give_back(found.slots[kept:])", "self.state.give_back(found.slots)",
       "a peer writes into the program's receive buffer"), OF_DATAGRAMS),
    (m("datagrams-changed-under-way", DATAGRAM_PORT, "        return self._number if direct and not frozen else 0", "        return 0",
       "sendto returns while the adapter still reads the program's memory"), OF_DATAGRAMS),
    (m("datagrams-liar-is-believed", "sockets/datagrams.py", "        true = found is not None and (found.gid, found.qp_num) == claim.source\n", "        true = found is not None\n",
       "a queue pair sends in the name of any socket that exists"), OF_DATAGRAMS),
    (m("datagrams-limit-is-not-kept", CREDITS, "        if ahead(self.limit, self.position) >= wanted:", "        if True:",
       "a sender overruns the receive queue of a peer that reads slowly"), OF_CREDITS),
    (m("datagrams-wait-for-ever", CREDITS, "        if now_ns >= self.until_ns:\n            self.give_up()\n", "",
       "a send to a dead peer never returns"), OF_CREDITS),
    (m("datagrams-long-ones-never-go", CREDITS, "        wanted = min(messages, max(self.window * 3 // 4, 1))\n", "        wanted = messages\n",
       "a datagram longer than the window waits in vain each time"), OF_CREDITS),
    (m("datagrams-waited-for-in-vain-again", CREDITS, "max(self._patience_ns // 2, self._longest_ns // LEAST)", "self._longest_ns",
       "a peer that tells credit in drops slows its senders down as much as can be"), OF_CREDITS),
    (m("datagrams-reader-is-given-up-for-silent", CREDITS, "        if not self._heard:\n", "        if True:\n",
       "a slow reader that once was overrun is overrun from then on"), OF_CREDITS),
    (m("datagrams-forged-limit", CREDITS, " or ahead(limit, self.position) > window:", ":",
       "forged credit gives a sender room that is not there"), OF_CREDITS),
    (m("datagrams-old-credit", CREDITS, "        if not self._longest_ns or ahead(limit, self.limit) <= 0:", "        if not self._longest_ns:",
       "credit that was overtaken takes back what was told later"), OF_CREDITS),
    (m("datagrams-free-for-too-long", CREDITS, "        if ahead(self.limit, self.position) < -FAR:\n            self.limit = self.position - FAR & _MASK\n", "",
       "who sent two thousand million messages without credit never takes any"), OF_CREDITS),
    (m("datagrams-what-is-held-is-granted", CREDITS, "sender.seen + window - sender.held & _MASK", "sender.seen + window & _MASK",
       "a sender is told room that unread datagrams take"), OF_CREDITS),
    (m("datagrams-overtaken-goes-back", CREDITS, "        elif moved > 0:\n", "        else:\n",
       "a datagram that was overtaken takes room away"), OF_CREDITS),
    (m("datagrams-beginning-is-the-same", CREDITS, "        if not sender.begun or abs(moved) > FAR:", "        if not sender.begun:",
       "who gets a queue pair number that another one had is told limits of that one"), OF_CREDITS),
    (m("datagrams-share-of-those-that-are-gone", CREDITS, "now_ns - each.last_ns < ACTIVE_NS for each", "True for each",
       "a receiver that many have spoken to once lets each send next to nothing"), OF_CREDITS),
    (m("datagrams-senders-without-end", CREDITS, "            if len(self._senders) >= MOST_SENDERS:", "            if False:",
       "what is kept of senders grows for ever"), OF_CREDITS),
    (m("datagrams-credit-of-anybody", DATAGRAM_STATE, "            sending = self.sending.get(source)\n", "            sending = next(iter(self.sending.values()), None)\n",
       "a stranger tells a sender how far its peer can be sent to"), OF_CREDITS),
    (m("datagrams-dropped-ones-are-waited-for", DATAGRAM_STATE, "            if believed:\n                self._credit(found, now_ns)\n", "",
       "what a full queue has dropped counts as under way for ever"), OF_CREDITS),
    (m("datagrams-given-back-is-not-granted", DATAGRAM_STATE, "            self.credits.release(sender, sum(self._holders.pop(slot, None) is not None for slot in slots))", "            pass",
       "a sender whose datagrams were read has no room"), OF_CREDITS),
    (m("datagrams-window-of-nothing", DATAGRAM_PROTOCOL, "            if not 1 <= total <= MOST_WINDOW:", "            if False:",
       "a credit whose window cannot be is taken"), OF_CREDITS),
    (m("datagrams-what-lacks-a-part-is-kept", DATAGRAM_STATE, "            if partial.overtaken >= OVERTAKEN:", "            if False:",
       "on a network that loses, pages of datagrams that never become whole take up the pool"), OF_STATE),
    (m("datagrams-pages-before-their-header-are-believed", DATAGRAM_STATE, "now_ns, partial.pages)", "now_ns, ())",
       "a page of a wrong length that came before the header is part of a datagram"), OF_STATE),
    (m("datagrams-refused-and-never-told", ROOM, "                    HUB.after(max(limit_s - time.monotonic(), 0.0), self._look)\n", "                    pass\n",
       "an event loop waits for ever for a descriptor whose peer is dead"), OF_DATAGRAMS),
    (m("datagrams-refused-and-writable", "sockets/datagrams.py", " and not self._room.missing\n", "\n",
       "an event loop goes round for nothing while a peer has no room"), OF_DATAGRAMS),
    (m("datagrams-time-out-is-not-kept", ROOM, "limit_s if deadline_s is None else min(limit_s, deadline_s)", "limit_s",
       "a send takes longer than the socket's time-out"), OF_DATAGRAMS),
    (m("datagrams-two-credits-for-one-queue-pair", DATAGRAM_PORT, "        found = self.state.sending.get(source)\n", "        found = None\n",
       "two addresses of one peer count its messages apart, and both are told limits of the other"), OF_DATAGRAMS),
    (m("sockets-held-pages-are-granted", MANAGEMENT, "        if self._held:\n            return next(iter(self._held))\n", "",
       "a peer overwrites pages that the application has mapped or was lent"), JUDGE),
    (m("sockets-more-than-granted-is-taken", MANAGEMENT, "        if start + length - self._told_head > self.length:", "        if False:",
       "a peer that writes over what was not read is believed"), JUDGE),
    (m("sockets-credit-beyond-what-was-sent", MANAGEMENT, "        if not self.head <= head <= self.tail or", "        if not self.head <= head or",
       "forged credit gives a sender room that is not there"), JUDGE),
    (m("sockets-notifications-without-end", MANAGEMENT, "        if self.notifications - self._done >= _NOTIFICATIONS:", "        if False:",
       "many small sends find no receive at the peer"), JUDGE),
    (m("sockets-ring-does-not-wrap", MANAGEMENT, "    return [(offset, first), (0, length - first)]", "    return [(offset, length)]",
       "what crosses the end of the pool is written behind it"), JUDGE),
    (m("sockets-data-behind-fin", STATE, "            if self.finished:\n", "            if False:\n",
       "a stream goes on after its end"), JUDGE),
    (m("sockets-any-address-is-served", LISTENING, "        return address in self.addresses or", "        return True or",
       "a stream comes to one socket, its TCP connection to another one"), FINDING),
    (m("sockets-host-not-checked", LISTENING, "            _check_host(cmid, host)\n", "",
       "who names another host's TCP address gets its connection"), FINDING),
    (m("sockets-shared-port-is-served", LISTENING, "            if not listening.getsockopt(kernel.SOL_SOCKET, kernel.SO_REUSEPORT):", "            if True:",
       "another process accepts the TCP connection of a stream"), FINDING),
    (m("sockets-second-asker-wins", LISTENING, "len(self._ready) >= MOST or key in self._ready", "len(self._ready) >= MOST",
       "who asks for the TCP address of another one gets its connection"), FINDING),
    (m("sockets-dropped-is-not-closed", STREAM_SOCKET, "            HUB.soon(upgrade.drop)\n", "            pass\n",
       "the peer of a socket that was forgotten waits for ever"), LIVES),
    (m("sockets-child-keeps-the-sign-of-life", "sockets/upgrade.py", "        self.readiness.abandon()\n        self.tcp.close()\n", "        self.readiness.abandon()\n",
       "a dead program's peer waits until its child has ended, too"), LIVES),
    (m("sockets-hub-goes-round-for-nothing", HUB, " and _call(watched[0]) in _SCARCE:\n                    self._rest(fd, watched)\n", ":\n                    _call(watched[0])\n",
       "where no descriptor is left, one who asks makes a thread of the program take all of a processor"), SCARCE),
    (m("sockets-hub-half-open", HUB, "            epoll = undone.enter_context(select.epoll())\n", "            epoll = self._epoll = undone.enter_context(select.epoll())\n",
       "a program that once had no descriptor left connects by TCP alone for good"), SCARCE),
    (m("sockets-hub-without-thread", HUB, "            try:\n                made.start()\n", "            self._thread = made\n            try:\n                made.start()\n",
       "a program that once had no thread left connects by TCP alone for good"), SCARCE),
    (m("sockets-late-answer-is-taken", LISTENING, "        if stream.opened:\n            return stream\n", "        if stream:\n            return stream\n",
       "a connection to a listener that stood still is RDMA's on one side and TCP's on the other"), SCARCE),
    (m("sockets-silent-peer-is-waited-for-each-time", "sockets/datagrams.py", "            peer.asked = True  # one that does not answer is waited for once\n", "",
       "each datagram to a process that stands still takes a second"), SCARCE),
    (m("sockets-nobody-asks-who-gives-no-room", STREAM, "            say = self.on_stall\n", "            say = None\n",
       "a send to a process that stands still waits for ever where nothing is under way"), ASKING),
    (m("sockets-asks-those-who-read", "sockets/liveness.py", "found._ask(not found._stream.writable)", "found._ask(True)",
       "a sender that has once had no room asks its peer for ever"), ASKING),
    (m("sockets-keep-alive-is-tcps-alone", "sockets/liveness.py", "        with contextlib.suppress(OSError):\n            if", "        with contextlib.suppress(OSError):\n            if False and",
       "a program that keeps its connection alive is not told that the peer's adapter stands still"), ASKING),
    (m("sockets-sends-as-nobody", "sockets/datagrams.py", "        if not self._serving:\n            return None\n        now_s", "        now_s",
       "datagrams of a process that has forked are dropped half a minute later, for nobody finds whose they are"), "sockets/test_sockets_datagrams.py"),
    (m("sockets-wait-as-the-manager-has-it", "sockets/connecting.py", "            cmid.set_option(0, _ACK_OPTION, settings.ack_timeout, 1)", "            pass",
       "a peer that does not answer is waited for for as long as the connection manager has it"), ASKING),
    (m("sockets-keep-alive-at-two-speeds", "sockets/liveness.py", " and found._round == number", "",
       "options that are set again make one more clock each time"), ASKING),
    (m("sockets-nobody-keeps-the-time", "sockets/upgrade.py", "                HUB.start()\n", "",
       "a program that only connects, by the connection manager, never learns that its peer has gone"), FAULTS),
    (m("sockets-mapped-pages-are-somebody-else-s", PROCESSING, "            self._lent += not result\n", "",
       "pages that could not be taken out of a receive buffer at a socket's end become another connection's pool"), "sockets/test_sockets_stream.py"),
    (m("sockets-who-found-the-lock-taken-sleeps", STREAM, "                self._missed = True  # first: whoever holds the lock sees it when he gives that back\n", "",
       "a thread sleeps on while another one has taken what it waits for"), "sockets/test_sockets_stream.py"),
    (m("sockets-taken-and-not-yet-looked-at", STREAM, "if self._waiting() or self._pumping:", "if self._waiting():",
       "a thread sleeps on while another one is about to take what it waits for"), "sockets/test_sockets_stream.py"),
    (m("datagrams-who-found-the-lock-taken-sleeps", "sockets/datagrams.py", "            self._missed = False\n            self._wake()\n", "            self._missed = False\n",
       "a thread sleeps on while another one has taken its datagram"), "sockets/test_sockets_datagrams.py"),
    (m("sockets-mapped-pages-hold-up-all", STREAM, "        self.receiver.relieve()\n", "",
       "who goes on receiving elsewhere while a buffer has mapped pages waits for ever"), "sockets/test_sockets_stream.py"),
    (m("sockets-unread-is-read", MANAGEMENT, "self.tail - head - self.available", "self.tail - head",
       "a slow reader's mapped pages are copied in vain"), JUDGE),
    (m("sockets-copies-that-were-refused", PROCESSING, "            if found is None or copied():\n", "            copied()\n            if found is None:\n",
       "the sender writes into a buffer of the program"), "sockets/test_sockets_stream.py"),
    (m("sockets-copied-when-written", PROCESSING, "                primitives.atomic_add64(place, 0)  # a write: the kernel copies the page\n", "                pass\n",
       "what a buffer has kept changes with the pool"), "sockets/test_sockets_stream.py"),
    (m("sockets-nobody-is-pressed", SENDING, "SOLICITED if state.peers.presses else 0", "0",
       "who sends many small messages waits until the reader's program looks"), POLLING),
    (m("sockets-pressing-too-late", MANAGEMENT, "self._done >= _NOTIFICATIONS // 4", "self._done > _NOTIFICATIONS",
       "who sends many small messages waits until the reader's program looks"), POLLING),
    (m("sockets-no-completion-is-asked-for", SENDING, "            self.number + 1 - self._signaled >= SIGNAL_EACH\n", "            False\n",
       "small messages are never retired, and their sender waits for ever"), POLLING),
    (m("sockets-copies-without-completion", SENDING, "            or self.staging.tail - self._signaled_tail > self.staging.length >> 2\n", "",
       "memory for copies is used up by messages that nobody answers for"), POLLING),
    (m("sockets-who-sleeps-is-not-woken", STREAM, "not (self._sleeping or self._watched)", "True",
       "a sleeping reader gets no event for what arrives"), POLLING),
    (m("sockets-polls-for-ever-in-vain", "driver/poll_back_off.py", "self.limit_ns >> 1 if self.limit_ns > 2 * _SHORTEST else 0", "self.limit_ns",
       "calls poll as long where nothing ever comes so soon"), "driver/test_driver_poll_back_off.py"),
    (m("sockets-polls-on-a-busy-processor", "driver/poll_back_off.py", "        if self.contended(now):\n            return now\n", "",
       "polls hold up the peer that they wait for"), "driver/test_driver_poll_back_off.py"),
    (m("sockets-memory-is-waited-for-for-ever", SENDING, "0 if prompt else min(self._misses + 1, MISSES)", "0",
       "each send of memory that may change waits for a round trip"), "sockets/test_sockets_stream.py"),
)  # fmt: skip
"""Each with the tests that judge it."""
