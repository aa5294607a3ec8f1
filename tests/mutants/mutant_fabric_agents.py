"""Bugs of management agents, of datagrams' ways through a fabric, and of the programs at it."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

AGENT = "fabric/subnet_agent.py"
PERFORMANCE = "fabric/performance_agent.py"
PLANE = "fabric/mad_plane.py"
PORT = "fabric/port_state.py"
NOTICES = "fabric/notices.py"
SESSIONS = "fabric/umad_sessions.py"
REQUESTS = "fabric/umad_requests.py"
SERVER = "runtime/umad_server.py"
CONTROL = "runtime/fabric_control.py"
ROUTE = "management/directed_route.py"
MAD = "management/mad.py"

TRAINING = "fabric/link_training.py"

ON_AGENTS = "fabric/test_fabric_agents.py"
ON_TRAINING = "fabric/test_fabric_link_training.py"
ON_PLANE = "fabric/test_fabric_mad_plane.py"
ON_SESSIONS = "fabric/test_fabric_umad_sessions.py"
ON_SERVER = "runtime/test_runtime_umad_server.py"
ON_CONTROL = "runtime/test_runtime_fabric_control.py"
ON_MANAGEMENT = "management/test_management_agents.py"

FABRIC_AGENTS: tuple[tuple[Mutant, str], ...] = (
    (m("set-answered-as-set", MAD, "RESPONSE_METHODS.get(self.header.method, self.header.method | RESPONSE)", "self.header.method | RESPONSE",
       "a manager hears no answer to what it sets"), ON_MANAGEMENT),
    (m("m-key-not-asked", AGENT, "        if mad[3] == c.METHOD_GET and info.m_key_protect_bits < 2:", "        if info.m_key_protect_bits < 2:",
       "who has no M_Key configures ports"), ON_PLANE),
    (m("m-key-shown", AGENT, "        if attribute == c.ATTRIBUTE_PORT_INFO and not shown:", "        if False:",
       "who has no M_Key reads it"), ON_PLANE),
    (m("m-key-lease-never-ends", AGENT, "        if port.lease_ns and now >= port.lease_ns:", "        if False:",
       "a node whose manager is gone stays locked"), ON_PLANE),
    (m("forwarding-to-no-port", AGENT, "        _require(all(port < count or port == 0xFF for port in data))", "",
       "a switch takes a table with ports that it has not got"), ON_AGENTS),
    (m("port-state-skipped", PORT, "(INIT, ACTIVE): None", "(INIT, ACTIVE): ACTIVE",
       "a link is ACTIVE that was never ARMED"), ON_AGENTS),
    (m("one-lane-at-first", PORT, "operational_vls=VL_0_TO_7,", "operational_vls=VL_0_TO_7 if zero else 1,",
       "engines of OpenSM that need lanes find one"), ON_AGENTS),
    (m("lid-not-aligned", PORT, " or asked.lid & ((1 << asked.lmc) - 1):", ":",
       "LIDs of two ports overlap"), ON_AGENTS),
    (m("counter-runs-over", PERFORMANCE, "min(total, (1 << field.bits) - 1)", "total & ((1 << field.bits) - 1)",
       "a counter that is full begins at 0 again"), ON_AGENTS),
    (m("trap-at-every-change", NOTICES, "max(now, self._last_sent_ns.get(key, -NEVER_NS) + self._interval_ns(port))", "now",
       "a link that flaps floods the manager"), ON_PLANE),
    (m("trap-never-repressed", NOTICES, "                del self._pending[key]\n\n", "                pass\n\n",
       "a manager hears of one change again and again"), ON_PLANE),
    (m("initialised-link-carries-all", PLANE, "not (subnet or port.state == ACTIVE)", "False",
       "packets go over links that no manager has let"), ON_PLANE),
    (m("response-to-anybody", PLANE, "        if endpoint is None or not endpoint.is_at(place):", "        if endpoint is None:",
       "a program takes a response that came to another port"), ON_PLANE),
    (m("training-changes-nothing", PLANE, "        rate = {} if agreed is None else active_rate(*agreed)", "        rate: dict[str, int] = {}",
       "a link goes on at the width and speed that somebody has disabled"), ON_TRAINING),
    (m("link-as-one-end-likes-it", TRAINING, "_speeds(one) & _speeds(other)", "_speeds(one) | _speeds(other)",
       "a link is faster than one of its ends lets it be"), ON_TRAINING),
    (m("no-extended-speed-is-three", TRAINING, " if port.link_speed_ext_enabled != NO_EXTENDED_SPEED else 0", "",
       "a port whose extended speeds are disabled has three of them"), ON_TRAINING),
    (m("xdr-not-told", "fabric/manager/discovery.py", "    if PORT.get(info, \"link_speed_ext2_active\") == LinkSpeed.XDR.extended2_code:", "    if False:",
       "paths over XDR have the rate of QDR"), ON_TRAINING),
    (m("state-of-links-over-the-part", "runtime/fabric_commands.py", "            for index in range(first, min(first + MOST_TOLD, len(topology.links)))", "            for index in range(min(first + MOST_TOLD, len(topology.links)))",
       "links of a large fabric are shown in each other's colours"), ON_CONTROL),
    (m("gone-links-have-errors-in-the-legend", "fabric/picture.py", " for index, count in shown.errors.items() if index not in shown.gone)", " for count in shown.errors.values())",
       "a legend has what the picture does not show"), "fabric/test_fabric_picture.py"),
    (m("levels-counted-as-one", PORT, "        self.sl_received[sl] = self.sl_received.get(sl, 0) + words", "        self.sl_received[0] = self.sl_received.get(0, 0) + words",
       "a service level has carried what another one has"), "fabric/test_fabric_packet_plane.py"),
    (m("failed-link-retrained", PLANE, "any(each.disabled or each.failed for _, each in ends)", "any(each.disabled for _, each in ends)",
       "a link is up whose cable is out"), ON_PLANE),
    (m("entrance-not-noted", ROUTE, "        data[_RETURN_AT + pointer] = entrance\n        data[_POINTER_AT]", "        data[_POINTER_AT]",
       "an answer goes back another way than the request came"), ON_PLANE),
    (m("session-of-another-program", SESSIONS, "session is not None and session.origin == origin", "session is not None",
       "a program speaks in another one's name"), ON_SESSIONS),
    (m("program-that-does-not-read", SESSIONS, "        if len(session.outgoing) >= MOST_WAITING:", "        if False:",
       "what waits for a program that does not read has no end"), ON_SESSIONS),
    (m("nameless-program-served", SERVER, "            if not trusted or not origin:", "            if not trusted:",
       "a control datagram without a sender's name ends the server"), ON_SERVER),
    (m("socketless-program-served", SERVER, "            if not self._connect(session, made):  # anybody could send to it", "            if self._connect(session, made) is None:",
       "anybody speaks in the name of a program that has no socket"), ON_SERVER),
    (m("control-connections-unbounded", CONTROL, " or len(self._connections) >= MOST_CONNECTIONS:", ":",
       "connections that say nothing fill the server"), ON_CONTROL),
    (m("umad-requests-wait-for-ever", SESSIONS, "        given_up = session.requests.add(datagram, self._reached, now, _place(self._reached))", "        given_up = None",
       "a request that a program does not answer never comes back, and OpenSM's sweep never ends"), ON_SESSIONS),
    (m("umad-requests-asked-again-keep-time", REQUESTS, "        self._pending.pop(key, None)\n        given_up", "        given_up",
       "who asks again does not go behind those that are older"), ON_SESSIONS),
    (m("umad-requests-of-all", REQUESTS, "if each.target is target]", "]",
       "all requests come back when any program goes"), ON_SESSIONS),
    (m("umad-requests-not-answered", SESSIONS, "            session.requests.answered(datagram.data, _place(self._sender))", "            pass",
       "an answered request comes back, too"), ON_SESSIONS),
    (m("umad-requests-answered-unheard", SESSIONS, "        if not self._put(session, _packet(datagram, 0, shown)):\n            return False",
       "        self._put(session, _packet(datagram, 0, shown))", "a request whose answer found no room is taken for answered"), ON_SESSIONS),
    (m("umad-requests-by-class-alone", REQUESTS, "    return mad[1:2] + mad[10:16]", "    return mad[1:2]",
       "an answer is taken for that of any request"), ON_SESSIONS),
    (m("umad-requests-one-too-many", REQUESTS, "        if len(self._pending) >= MOST:", "        if len(self._pending) > MOST:",
       "a program has one more request under way than it may"), ON_SESSIONS),
    (m("umad-requests-late", REQUESTS, "if each.deadline_ns <= now]", "if each.deadline_ns < now]",
       "the loop wakes for a request and leaves it, again and again"), ON_SESSIONS),
    (m("umad-requests-not-asked", SERVER, "        loop.timed.append(sessions)", "        pass",
       "the loop sleeps although a request's time is over"), ON_SERVER),
    (m("umad-requests-given-back-later", SERVER, "        while able := self.sessions.ready - self._blocked:", "        if able := self.sessions.ready - self._blocked:",
       "what a killed program leaves waits for some other datagram to come"), ON_SERVER),
)
