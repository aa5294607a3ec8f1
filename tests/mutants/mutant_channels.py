"""Bugs of channels, with the tests that judge them."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

ACCOUNTS = "channels/accounts.py"
CONNECTING = "channels/connecting.py"
ENDPOINT = "channels/endpoint.py"
LINK = "channels/link.py"
MESSAGES = "channels/messages.py"
NAMED = "channels/named.py"
REGISTRATION = "channels/registration.py"
STEPS = "channels/steps.py"
WINDOWS = "channels/windows.py"
TEST_ACCOUNTS = "channels/test_channels_accounts.py"
TEST_ASYNCIO = "channels/test_channels_asyncio.py"
TEST_BUFFERS = "channels/test_channels_buffers.py"
TEST_FORKS = "channels/test_channels_forks.py"
TEST_HOSTILE = "channels/test_channels_hostile.py"
TEST_KEEPALIVE = "channels/test_channels_keepalive.py"
TEST_MESSAGES = "channels/test_channels_messages.py"
TEST_RULES = "channels/test_channels_rules.py"
TEST_SCARCE = "channels/test_channels_scarce.py"
TEST_SEVERAL = "channels/test_channels_several.py"
TEST_SYNC = "channels/test_channels_sync.py"

CONNECTED: tuple[tuple[Mutant, str], ...] = (
    (m("channels-unshare-takes-another-s", STEPS, "    if not link.named.made(shared):\n", "    if False:\n",
       "one connection takes away memory that another one shares"), TEST_BUFFERS),
    (m("channels-credit-beyond-what-was-sent", ACCOUNTS, "        if not self.taken <= number <= self.sent:", "        if not self.taken <= number:",
       "forged credit gives a sender room that is not there"), TEST_ACCOUNTS),
    (m("channels-control-takes-the-last-place", ACCOUNTS, "self.sent + self.taken - 1", "self.sent + self.taken",
       "two sides that have much to say wait for each other for ever"), TEST_ACCOUNTS),
    (m("channels-stage-used-twice", ACCOUNTS, "        return (there if there < here else here) - self.sent\n", "        return there - self.sent\n",
       "a message is overwritten while it may have to go again"), TEST_ACCOUNTS),
    (m("channels-what-is-lost-holds-room", ENDPOINT, "            self._at_once = self._answering = True\n", "            pass\n",
       "an unacknowledged sender that has lost all waits for ever"), TEST_SEVERAL),
    (m("channels-window-stays-open", ENDPOINT, "            self.operate([window.invalidate()], ended)", "            self.operate([self.wire.probe(0)], ended)",
       "a peer reads the memory of a message that it has fetched long ago"), TEST_HOSTILE),
    (m("channels-room-is-never-given-back", LINK, "            self._reserved -= entries\n", "            pass\n",
       "a peer that opens and closes channels makes the completion queue grow without end"), TEST_SCARCE),
    (m("channels-short-waits-never-ask", LINK, "                self._waited_s += time.monotonic() - before_s\n", "                self._waited_s = time.monotonic() - before_s\n",
       "who waits by short time-outs never learns that the peer has gone"), TEST_KEEPALIVE),
    (m("channels-asks-without-end", LINK, "                    self._waited_s = 0.0\n                    self.keep_alive()", "                    self.keep_alive()",
       "who has waited for one interval asks at every turn from then on"), TEST_KEEPALIVE),
    (m("channels-a-child-sends-as-its-parent", ENDPOINT, "        self.quick = 0\n        self.inbox.clear()", "        self.inbox.clear()",
       "a forked child changes the parent's messages, which stand in memory that both see"), TEST_FORKS),
    (m("channels-a-child-receives", ENDPOINT, "        self.inbox.clear()\n", "",
       "a forked child takes messages out of memory into which the parent receives"), TEST_FORKS),
    (m("channels-a-child-copies", STEPS, "    _require(endpoint)\n    lease = _source", "    lease = _source",
       "a forked child changes what the parent writes to named buffers"), TEST_FORKS),
    (m("channels-memory-goes-first", "channels/channel.py", "        self._endpoint.destroy()  # before what is shared: the peer's operations are not refused, they end\n        if last:\n            self._link.close()\n", "        if last:\n            self._link.close()\n        self._endpoint.destroy()\n",
       "who uses a buffer of a peer that closes is refused, and not told of the end"), TEST_BUFFERS),
    (m("channels-a-late-question-is-a-lie", ACCOUNTS, "        if sent > self.expected:", "        if True:",
       "a lossy link ends an unacknowledged channel whose messages overtake what its sender asks"), TEST_ACCOUNTS),
    (m("channels-a-dead-peer-refuses", STEPS, "int(e.IBV_WC_REM_INV_REQ_ERR)))", "int(e.IBV_WC_REM_INV_REQ_ERR), int(e.IBV_WC_REM_OP_ERR)))",
       "a program that was killed is taken for one that shares nothing"), TEST_BUFFERS),
    (m("channels-lack-of-memory-goes-through", "channels/wiring.py", "        except OSError as error:\n            raise failed(", "        except KeyError as error:\n            raise failed(",
       "a listener ends where there is no memory for one who asks"), TEST_SCARCE),
    (m("channels-message-fetched-twice", ENDPOINT, "        if self.fetching is not None:\n            self.require_open()\n            return None\n", "",
       "two receives take one message"), TEST_SYNC),
    (m("channels-control-fails-with-data", ENDPOINT, "        if status == _PEER_IS_GONE and not self.peer_closed:", "        if True:",
       "one channel that fails ends all others of the connection"), TEST_SEVERAL),
    (m("channels-close-tells-before-data", STEPS, "        yield lambda: (\n            (flushed.done and not endpoint.offers)", "        yield lambda: (\n            flushed.done",
       "a long message that is on offer is lost by a close"), TEST_SYNC),
    (m("channels-abandoned-one-keeps-all", STEPS, "    if last:\n        link.close()\n", "",
       "a connection without channels stays for good"), "channels/test_channels_several.py"),
    (m("channels-cancelled-fetch-keeps-the-head", STEPS, "            endpoint.give_up(fetch)\n", "            pass\n",
       "after a cancelled receive nobody receives any more"), TEST_SYNC),
    (m("channels-rights-not-checked", NAMED, "        if not self.rights & right:", "        if False:",
       "a program that may only read breaks its channel when it writes"), TEST_BUFFERS),
    (m("channels-range-not-checked", NAMED, "or offset + length > self.length:", "or False:",
       "a program that reads too far breaks its channel"), TEST_BUFFERS),
    (m("channels-let-go-too-early", NAMED, "            if not grant.users:\n                self._link.send_control", "            if True:\n                self._link.send_control",
       "a buffer is taken back while an operation on it is under way"), TEST_HOSTILE),
    (m("channels-fields-of-other-kinds", MESSAGES, "            if field != \"kind\" and value and field not in fields:", "            if False:",
       "control messages mean what their kind has no field for"), TEST_MESSAGES),
    (m("channels-answers-without-end", LINK, "        if len(self._pending) >= MOST_PENDING:", "        if False:",
       "a peer that asks and takes no answer fills the memory"), TEST_HOSTILE),
    (m("channels-revoking-is-asking", LINK, "MOST_PENDING = 2 * MOST_NAMES\n", "MOST_PENDING = MOST_NAMES\n",
       "who revokes all buffers of a peer that takes nothing ends the connection"), TEST_HOSTILE),
    (m("channels-opens-without-room", STEPS, "                asked = link.has_room\n", "                asked = True\n",
       "who asks again and again for a channel of a peer that takes nothing ends the connection"), TEST_HOSTILE),
    (m("channels-ends-what-nobody-knows", STEPS, "        if is_known:\n", "        if True:\n",
       "the peer is told the end of channels of which it never heard"), TEST_HOSTILE),
    (m("channels-buffer-of-another-connection", STEPS, "    if which._channel._link is not endpoint.link:", "    if False:",
       "a buffer that another connection shares breaks this one"), TEST_BUFFERS),
    (m("channels-buffer-of-another-connection-awaited", STEPS, "    if which._channel._link is not endpoint.link:", "    if kind.__name__ != \"AsyncRemoteBuffer\" and which._channel._link is not endpoint.link:",
       "a buffer that another connection shares breaks this one, in coroutines"), TEST_ASYNCIO),
    (m("channels-short-messages-after-the-end", ENDPOINT, "            self.peer_closed = True\n            self.quick = 0\n", "            self.peer_closed = True\n",
       "a short message to a channel that the peer has closed is sent, and lost"), TEST_RULES),
    (m("channels-opened-as-another-service", ENDPOINT, "            if kind == m.OPENED and message.end.service != self.service:", "            if False:",
       "an unacknowledged channel is connected to an acknowledged one"), TEST_RULES),
    (m("channels-greeted-by-another-service", CONNECTING, "        if peer.end.service != endpoint.service:", "        if False:",
       "a connection is made whose ends are of two services"), TEST_RULES),
    (m("channels-late-messages-cost-receives", ENDPOINT, "            self._free.append(self._receives[slot])\n            self._at_once = True\n            return", "            self._at_once = True\n            return",
       "an unacknowledged channel to which messages came late receives nothing any more"), TEST_RULES),
    (m("channels-pieces-hold-room", ENDPOINT, "        self._under_way -= operation.count\n", "        self._under_way -= 1\n",
       "a channel that has written some long buffers does nothing any more"), TEST_RULES),
    (m("channels-operations-in-places-of-messages", ENDPOINT, "self._under_way + 8 <= OPERATIONS or", "self._under_way <= OPERATIONS or",
       "a channel with many operations fails for want of room in its queue pair"), TEST_RULES),
    (m("channels-dead-for-one-alone", ENDPOINT, "        if status == _PEER_IS_GONE and not self.peer_closed:", "        if False:",
       "each channel of a peer that is gone waits for itself"), TEST_RULES),
    (m("channels-asked-beyond-the-most", LINK, "len(self.channels) + len(asked) >= MOST_CHANNELS", "len(self.channels) >= MOST_CHANNELS",
       "a peer asks for more channels than a connection has"), TEST_RULES),
    (m("channels-given-up-and-accepted", LINK, "                self.requests = deque(kept)", "                pass",
       "a program accepts a channel that its peer has given up"), TEST_RULES),
    (m("channels-numbers-of-the-peer", LINK, "            self._next_channel = (number + 2) & m.MOST_CHANNEL or 2", "            self._next_channel = (number + 1) & m.MOST_CHANNEL or 2",
       "the second channel that one side opens has a number of the other's"), TEST_RULES),
    (m("channels-number-in-use", LINK, "            while number in self.channels:\n                number = (number + 2) & m.MOST_CHANNEL or 2  # 0 is the connection's first, and no other's\n", "",
       "a channel that lives long gets a namesake"), TEST_RULES),
    (m("channels-last-words-lost", LINK, "            while self._handle.waiting():\n                for each in self._handle.poll(_POLLED):\n                    self._completed(each)\n            self._end(ChannelLost(\"the peer has ended", "            self._end(ChannelLost(\"the peer has ended",
       "messages that came before the end are lost where that is heard first"), TEST_RULES),
    (m("channels-asks-once-and-never-again", LINK, "        elif each.wr_id == _PROBE:\n            self._probing = False\n", "        elif each.wr_id == _PROBE:\n            pass\n",
       "who waits learns that the peer has died only if that was in the first second"), TEST_RULES),
    (m("channels-one-credit-at-a-time", LINK, "                    if account.room <= 0:\n                        break\n", "                    break\n",
       "of two channels whose messages were taken one stands still"), TEST_RULES),
    (m("channels-nobody-watches-for-room", LINK, "            self.later.append(self._watch)\n", "            pass\n",
       "what a program has said waits until it calls again"), TEST_RULES),
    (m("channels-said-is-heard", LINK, "        return not self._pending and self._acknowledged == self._posted", "        return not self._pending",
       "a close goes before what it has said has arrived"), TEST_RULES),
    (m("channels-rest-of-a-buffer-is-all-of-it", STEPS, "        length = max(grant.length - offset, 0)", "        length = grant.length",
       "a read from the middle of a buffer to its end is refused"), TEST_RULES),
    (m("channels-window-lost-without-room", STEPS, "            if window is not None:\n                link.windows.give_back(window)", "            pass",
       "after thirty large messages that found no room nobody sends another"), TEST_RULES),
    (m("channels-array-mistaken", REGISTRATION, "            if found is not None and found.owner() is owner:", "            if False:",
       "an array is registered each time that it is sent"), TEST_SYNC),
    (m("channels-dead-arrays-stay", REGISTRATION, "(entry.owner() is None or len(self._cache) > CACHED)", "len(self._cache) > CACHED",
       "memory of arrays that are gone stays registered"), TEST_SYNC),
    (m("channels-window-key-again", WINDOWS, "        self._key = (self._key + 1) & 0xFF\n", "",
       "a key that a peer was told for one message is good for the next one"), TEST_HOSTILE),
)  # fmt: skip
"""Each with the tests that judge it."""
