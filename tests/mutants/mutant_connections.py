"""Bugs of the communication manager and of what is around it, with the tests that judge them."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

CM = "management/cm/manager.py"
SIDR = "management/cm/resolutions.py"
NUMBERS = "management/cm/instances.py"
INSTANCES = "adapter/connection_instances.py"
COMMANDS = "adapter/connection_commands.py"
PORT = "adapter/connection_manager.py"
CONNECTING = "driver/rdmacm/connecting.py"
LISTENING = "driver/rdmacm/listening.py"
TEST_SIDR = "management/test_management_cm_resolutions.py"
TEST_ENDS = "management/test_management_cm_ends.py"
TEST_INSTANCES = "adapter/test_adapter_connection_instances.py"
TEST_PORT = "adapter/test_adapter_connections.py"
TEST_PATHS = "adapter/test_adapter_alternate_paths.py"
TEST_RDMACM = "driver/test_driver_rdmacm_listening.py"

CONNECTIONS: tuple[tuple[Mutant, str], ...] = (
    (m("rdmacm-late-receives-not-waited-for", "driver/rdmacm/queue_pairs.py", "RNR_TIMER_OF_ENDLESS_TRIES if tries >= FOREVER else RNR_TIMER_OF_COUNTED_TRIES", "RNR_TIMER_OF_ENDLESS_TRIES",
       "a peer whose tries are counted gives up on a program that is later than 20 ms for each"), TEST_RDMACM),
    (m("sidr-number-is-of-one-peer", SIDR, "        return (request.request_id, source.gid, source.lid) in self._asked\n", "        return any(key[0] == request.request_id for key in self._asked)\n",
       "a peer that chose the number of another one's request is not heard"), TEST_SIDR),
    (m("sidr-own-question-answered", SIDR, "        if not resolution.listener:\n            raise OSError", "        if False:\n            raise OSError",
       "a program that answers its own question waits for the peer in vain"), TEST_SIDR),
    (m("sidr-asks-on-after-the-answer", SIDR, "        self._timers.stop(resolution)\n", "",
       "what was answered is asked again, and told as unreachable"), TEST_SIDR),
    (m("sidr-beyond-the-last-place", CM, "        elif self._tables.full or not self._resolutions.request(", "        elif not self._resolutions.request(",
       "a flood of requests for datagram services fills the memory"), TEST_SIDR),
    (m("cm-request-that-gave-way-is-known", CM, "                self._forget_peer(oldest)\n", "",
       "who had to give way is not heard when it asks again"), TEST_ENDS),
    (m("cm-displaced-request-stays", CM, "                self._forget(oldest)\n", "",
       "a flood of requests fills the tables, though each gives way to the next"), TEST_ENDS),
    (m("cm-request-taken-back-stays", CM, "            if event == states.REJ:  # the peer has given up what nobody may have heard of yet\n                self._forget(connection)\n", "",
       "peers that ask and take back fill the tables of a program that takes no events"), TEST_PORT),
    (m("sidr-displaced-without-a-word", CM, "                self._resolutions.displace(oldest)", "                self._resolutions.forget(oldest)",
       "a host pays for requests for datagram services that are over, until it may have no more"), TEST_PORT),
    (m("cm-what-is-over-is-paid-for", PORT, "            self.remove(event.number)  # with this event it is over", "            pass",
       "strangers use up what a host may have"), TEST_PORT),
    (m("rdmacm-keeps-what-gave-way", LISTENING, "            self._owner.take_back(notice)\n", "            pass\n",
       "a flood of requests fills the memory of a program that takes no events"), TEST_RDMACM),
    (m("rdmacm-loses-an-early-end", LISTENING, "            port.keep(event.id, event)  # its identifier is being made", "            pass",
       "an identifier is not told that its peer has given up meanwhile"), TEST_RDMACM),
    (m("cm-stale-before-it-was-established", CM, "        if connection.state == states.ESTABLISHED:\n            message = endings.disconnect(connection, m.Dreq, bytes(m.Dreq.PRIVATE_BYTES))\n            self._command(connection, states.DISCONNECT,", "        if connection.state in (states.ESTABLISHED, states.REP_SENT):\n            message = endings.disconnect(connection, m.Dreq, bytes(m.Dreq.PRIVATE_BYTES))\n            self._command(connection, states.DISCONNECT,",
       "what was never established is disconnected"), TEST_ENDS),
    (m("cm-silent-about-what-is-over", CM, "            if isinstance(known, Connection) and known.state != states.CLOSED:", "            if isinstance(known, Connection):",
       "a peer that replies to a request that was given up asks on until it gives up"), TEST_ENDS),
    (m("instance-of-before-comes-back", NUMBERS, "        if last is None or 0 < (instance - last) % INSTANCES < _SAME:\n", "        if True:\n",
       "a late reply brings numbers back whose packets may live"), TEST_INSTANCES),
    (m("instance-of-a-later-request-forgotten", INSTANCES, "        if peer is not None and self._by_peer.get(peer) == number:", "        if peer is not None:",
       "the end of a request takes the number of a later one's queue pair"), TEST_INSTANCES),
    (m("instance-of-what-found-no-room", PORT, "                self.instances.forget(event.number)\n                return False", "                return False",
       "requests that found no room stay in the memory, and give numbers"), TEST_INSTANCES),
    (m("cm-events-overtake", PORT, "        if self.waiting or not self._put(entry):\n            self.waiting.append", "        if not self._put(entry):\n            self.waiting.append",
       "a program is told the end of a connection before its beginning"), TEST_PORT),
    (m("cm-requests-overtake", PORT, "            if self.waiting or not self.affords()", "            if not self.affords()",
       "a request comes before the end of the one in whose place it is"), TEST_PORT),
    (m("cm-broken-ring-waited-for", PORT, "(self._put(self.waiting[0]) or self._ring.broken)", "self._put(self.waiting[0])",
       "a host that has broken its ring fills the adapter's memory"), TEST_PORT),
    (m("cm-any-end-at-connecting", COMMANDS, "is no type of a connected queue pair\")\n    _require_own(channel, fields)\n", "is no type of a connected queue pair\")\n",
       "a program that names another one's queue pair ends its connection"), TEST_PATHS),
    (m("cm-any-end-at-replying", COMMANDS, "    channel = _channel_for(adapter, host, fields)\n    _require_own(channel, fields)\n    reply =", "    channel = _channel_for(adapter, host, fields)\n    reply =",
       "a program that names another one's queue pair in a reply is taken for it"), TEST_PATHS),
    (m("cm-end-named-before-it-was", CM, "        if self._owns(connection):\n            self._by_local", "        if True:\n            self._by_local",
       "the goodbye of a connection that has moved goes along the path that is gone"), TEST_PATHS),
    (m("cm-ends-of-ee-contexts-are-queue-pairs", PORT, "kind = Kind.EEC if is_datagrams(end) else Kind.QP", "kind = Kind.QP",
       "a program names another one's EE context, or may not name its own"), TEST_PATHS),
    (m("rdmacm-goes-on-without-its-queue-pair", CONNECTING, "                owner.state = states.CLOSED\n                self._port.end(", "                self._port.end(",
       "a connection whose queue pair is not ready can be established"), TEST_RDMACM),
    (m("rdmacm-own-rnr-retries", "driver/rdmacm/queue_pairs.py", '"rnr_retry": connection.peer.rnr_retry,', '"rnr_retry": end.rnr_retry,',
       "who asked tries more or less often than the peer wants where there is no receive"), TEST_RDMACM),
)  # fmt: skip
"""Each with the tests that judge it."""
