"""Bugs of corners of the fabric that no mutant was in, planted one by one and found by no
test at first, with the tests that judge them now.
"""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

PARTITION_FILE = "fabric/manager/partition_file.py"
ON_FABRIC_PARTITIONS = "fabric/test_fabric_partitions.py"
PARTITIONS = "fabric/manager/partitions.py"
NATIVE_BURSTS = "fabric/native_bursts.py"
ON_FABRIC_NATIVE_BURSTS = "fabric/test_fabric_native_bursts.py"
HOST_DATAGRAMS = "fabric/host_datagrams.py"
ON_FABRIC_PACKET_RULES = "fabric/test_fabric_packet_rules.py"
TRAFFIC = "fabric/traffic.py"
ON_FABRIC_TRAFFIC = "fabric/test_fabric_traffic.py"
ETHERNET_YAML = "fabric/ethernet_yaml.py"
ON_FABRIC_ETHERNET_LAYOUT = "fabric/test_fabric_ethernet_layout.py"
SETTINGS = "fabric/ethernet/settings.py"
ON_FABRIC_ETHERNET = "fabric/test_fabric_ethernet.py"
LAYOUT = "fabric/ethernet/layout.py"
MANAGED_FABRIC = "fabric/manager/managed_fabric.py"
ON_FABRIC_MANAGER = "fabric/test_fabric_manager.py"
PACKETS = "fabric/manager/packets.py"
ON_FABRIC_MANAGER_RULES = "fabric/test_fabric_manager_rules.py"
WINDOW = "transport/window.py"
LOOKUPS = "fabric/manager/lookups.py"
CONFIGURATION = "fabric/manager/configuration.py"
ON_FABRIC_MANAGER_WRITES = "fabric/test_fabric_manager_writes.py"
UMAD_REQUESTS = "fabric/umad_requests.py"
UMAD_SESSIONS = "fabric/umad_sessions.py"
ON_UMAD_SESSIONS = "fabric/test_fabric_umad_sessions.py"

CORNERS_OF_FABRIC: tuple[tuple[Mutant, str], ...] = (
    (m("partition-small-x-alone", PARTITION_FILE, "text[:2].lower() == \"0x\"", "text[:2] == \"0x\"",
       "a P_Key of 0X12 ends the reading of a file"), ON_FABRIC_PARTITIONS),
    (m("partition-lines-are-not-summed", PARTITION_FILE, "        line += rule.count(\"\\n\")\n        if", "        line = first + rule.count(\"\\n\")\n        if",
       "what is wrong behind rules of several lines is told with another line"), ON_FABRIC_PARTITIONS),
    (m("partition-port-before-name", PARTITION_FILE, "((word, None), (match[1], int(match[2])) if match else (word, None))", "((match[1], int(match[2])) if match else (word, None),)",
       "a node whose name ends in brackets is no member"), ON_FABRIC_PARTITIONS),
    (m("partition-default-in-one-case", PARTITION_FILE, "elif name.lower() == _DEFAULT_NAME:", "elif name == _DEFAULT_NAME:",
       "a rule for DEFAULT makes another partition"), ON_FABRIC_PARTITIONS),
    (m("partition-manager-is-twice-in-the-default", PARTITIONS, "*(key for key in found if key != DEFAULT_BASE)]", "*found]",
       "a manager that is a limited member has a P_Key twice"), ON_FABRIC_PARTITIONS),
    (m("partition-no-limited-named-is-nobody", PARTITIONS, "if self.limited is None or guid in self.limited:", "if self.limited is not None and guid in self.limited:",
       "a partition whose limited members are all others has none"), ON_FABRIC_PARTITIONS),
    (m("partition-named-switch-leaves-the-default", PARTITIONS, "return keys if is_default else", "return keys if named else",
       "a switch that a partition names is in the default one no more"), ON_FABRIC_PARTITIONS),
    (m("partition-may-be-there-twice", PARTITIONS, "< len(self._all):", "< len(self._all) - 1:",
       "a P_Key is configured twice"), ON_FABRIC_PARTITIONS),
    (m("native-raw-of-four-words", NATIVE_BURSTS, "LRH_BYTES + 12 + VCRC_BYTES", "LRH_BYTES + 16 + VCRC_BYTES",
       "the shortest raw packet is none"), ON_FABRIC_NATIVE_BURSTS),
    (m("native-queue-pair-0-is-any", NATIVE_BURSTS, "(b\"\\0\\0\\0\", b\"\\0\\0\\1\")", "(b\"\\0\\0\\1\",)",
       "packets for queue pair 0 go with the others"), ON_FABRIC_NATIVE_BURSTS),
    (m("native-link-version-of-one-bit", NATIVE_BURSTS, "packet[0] & 0x0F or", "packet[0] & 0x08 or",
       "packets of other link versions pass"), ON_FABRIC_NATIVE_BURSTS),
    (m("native-reserved-bits-are-taken", NATIVE_BURSTS, "or packet[1] & 0x0C:", ":",
       "reserved bits of an LRH mean nothing"), ON_FABRIC_NATIVE_BURSTS),
    (m("native-bytes-beside-words", NATIVE_BURSTS, " or (n - VCRC_BYTES) & 3:", ":",
       "a packet that is no whole number of words passes"), ON_FABRIC_NATIVE_BURSTS),
    (m("native-grh-without-room", NATIVE_BURSTS, "LEAST_TRANSPORT_BYTES + VCRC_BYTES else -1", "VCRC_BYTES else -1",
       "the BTH of a packet with a GRH is read behind its end"), ON_FABRIC_NATIVE_BURSTS),
    (m("native-lane-of-the-first", NATIVE_BURSTS, "packet[:4] != front[:4] or ", "packet[1:4] != front[1:4] or ",
       "packets of another lane go as those of the first one"), ON_FABRIC_NATIVE_BURSTS),
    (m("native-run-of-what-is-none", NATIVE_BURSTS, "    if _transport_of(packet) != transport:\n        return False\n", "",
       "what is no packet goes with those before it"), ON_FABRIC_NATIVE_BURSTS),
    (m("native-management-within-a-run", NATIVE_BURSTS, "    return not transport or _destination(packet, transport) not in _MANAGEMENT_QPS", "    return True",
       "a datagram for management goes to an adapter behind others"), ON_FABRIC_NATIVE_BURSTS),
    (m("native-lane-change-by-the-new-one", NATIVE_BURSTS, "key = len(packet), difference", "key = len(packet), vl",
       "a VCRC is changed as for another lane before"), ON_FABRIC_NATIVE_BURSTS),
    (m("native-lane-table-full", NATIVE_BURSTS, "            _lane_changes.clear()\n", "            return\n",
       "a switch that has seen many lengths changes lanes no more"), ON_FABRIC_NATIVE_BURSTS),
    (m("host-datagram-of-any-length", HOST_DATAGRAMS, " or len(transport.payload) != MAD_BYTES:", ":",
       "a short datagram is read as a management datagram"), ON_FABRIC_PACKET_RULES),
    (m("host-datagram-q-key-of-0", HOST_DATAGRAMS, "qkey=0 if subnet else GENERAL_QKEY", "qkey=GENERAL_QKEY",
       "a subnet management packet has the Q_Key of general ones"), ON_FABRIC_PACKET_RULES),
    (m("traffic-one-more-under-way", TRAFFIC, "if sender.waiting_bytes >= MOST_WAITING_BYTES:", "if sender.waiting_bytes > MOST_WAITING_BYTES:",
       "who has all under way that may be sends one more message"), ON_FABRIC_TRAFFIC),
    (m("traffic-routes-of-more-lanes", TRAFFIC, "found is None or found.routing.lanes > self.fabric.ends[self.hosts[0]].port.settings.lanes", "found is None",
       "routes that need two lanes are used on one"), ON_FABRIC_TRAFFIC),
    (m("traffic-headers-without-an-icrc", TRAFFIC, "HEADERS_BYTES = 26", "HEADERS_BYTES = 22",
       "packets are four bytes too short"), ON_FABRIC_TRAFFIC),
    (m("traffic-second-port-is-the-first", TRAFFIC, "if end.port == 1 else None", "",
       "a host's second port shows what its first one carries"), ON_FABRIC_TRAFFIC),
    (m("traffic-each-packet-begins", TRAFFIC, "begins=not number", "begins=True",
       "each packet of a message begins it"), ON_FABRIC_TRAFFIC),
    (m("traffic-fastest-sender-decides", TRAFFIC, "lambda: congestion(min(rates.values()))", "lambda: congestion(max(rates.values()))",
       "congestion control begins faster than a slow link is"), ON_FABRIC_TRAFFIC),
    (m("ethernet-line-of-the-first-link", ETHERNET_YAML, "            line = sections[\"links\"].value[error.link].line", "            line = sections[\"links\"].line",
       "a link that cannot be is told with another one's line"), ON_FABRIC_ETHERNET_LAYOUT),
    (m("ethernet-marks-behind-the-bound", SETTINGS, "if queued_bytes < self.least_bytes:", "if queued_bytes <= self.least_bytes:",
       "where Kmin is Kmax a packet at it is not marked"), ON_FABRIC_ETHERNET),
    (m("ethernet-fastest-is-refused", LAYOUT, "LEAST_MBPS <= self.mbps[index] <= MOST_MBPS", "LEAST_MBPS <= self.mbps[index] < MOST_MBPS",
       "a link of 1.6 Tb/s cannot be"), ON_FABRIC_ETHERNET_LAYOUT),
    (m("ethernet-addresses-begin-again", LAYOUT, "for number in range(len(given), len(self.hosts))", "for number in range(len(self.hosts) - len(given))",
       "a host has another address where one before it was given one"), ON_FABRIC_ETHERNET_LAYOUT),
    (m("ethernet-given-is-another-ones-own", LAYOUT, "if len(set(found)) < len(found):", "if len(set(given)) < len(given):",
       "two hosts have one address"), ON_FABRIC_ETHERNET_LAYOUT),
    (m("managed-hears-after-the-end", MANAGED_FABRIC, "            if manager in self.managers:\n", "            if True:\n",
       "a manager that has gone goes on"), ON_FABRIC_MANAGER),
    (m("managed-time-goes-back", MANAGED_FABRIC, "self.now = max(self.now, when)", "self.now = when",
       "time of a managed fabric goes back"), ON_FABRIC_MANAGER),
    (m("packets-field-over-the-ones-beside-it", PACKETS, "(value & mask) << shift", "value << shift",
       "a value that is too large for its field changes the fields beside it"), ON_FABRIC_MANAGER_RULES),
    (m("lookups-arbitration-that-is-not", LOOKUPS, "cap > half * LANES_A_BLOCK", "cap >= half * LANES_A_BLOCK",
       "a port without arbitration is asked for it"), ON_FABRIC_MANAGER_RULES),
    (m("lookups-one-more-is-known", LOOKUPS, "if len(self._known) < MOST_CACHED:", "if len(self._known) <= MOST_CACHED:",
       "what is known of nodes grows by one beyond its bound"), ON_FABRIC_MANAGER_RULES),
    (m("lookups-full-one-later", LOOKUPS, "if len(self._under_way) >= MOST_LOOKUPS:", "if len(self._under_way) > MOST_LOOKUPS:",
       "a query is begun for which there is no room"), ON_FABRIC_MANAGER_RULES),
    (m("lookups-window-of-the-manager", LOOKUPS, "min(WINDOW, config.window)", "config.window",
       "look-ups take all of what may be asked at a time"), ON_FABRIC_MANAGER_RULES),
    (m("lookups-lanes-of-each-port", LOOKUPS, "sorted(port.node.ports) if port.node.is_switch else [0]", "sorted(port.node.ports)",
       "a channel adapter is asked for tables that it has not"), ON_FABRIC_MANAGER_RULES),
    (m("lookups-last-guids", LOOKUPS, "-(-PORT.get(port.info, \"guid_cap\") // GUIDS_A_BLOCK)", "PORT.get(port.info, \"guid_cap\") // GUIDS_A_BLOCK",
       "GUIDs in a block that is not full are not read"), ON_FABRIC_MANAGER_RULES),
    (m("lookups-name-nothing", LOOKUPS, "mask >> bit & 1", "mask & bit",
       "who asks for one block is told all"), ON_FABRIC_MANAGER_RULES),
    (m("lookups-port-of-an-adapter", LOOKUPS, "block << 16 | (number if port.node.is_switch else 0)", "block << 16 | number",
       "a channel adapter is asked for a block of another port"), ON_FABRIC_MANAGER_RULES),
    (m("writes-known-before-the-answer", CONFIGURATION, "    shadow[key] = b\"\"\n\n    def done(answer: bytes) -> None:\n        shadow[key] = data\n", "    shadow[key] = data\n\n    def done(answer: bytes) -> None:\n        pass\n",
       "a table whose write was lost is never written"), ON_FABRIC_MANAGER_WRITES),
    (m("writes-keys-known-before-the-answer", CONFIGURATION, "        shadow[key] = b\"\"\n\n        def done(answer: bytes, key", "        shadow[key] = part\n\n        def done(answer: bytes, key",
       "P_Keys whose write was lost are never written"), ON_FABRIC_MANAGER_WRITES),
    (m("writes-port-0-active", CONFIGURATION, "if number and PORT.get(data, \"state\") == ARMED:", "if PORT.get(data, \"state\") == ARMED:",
       "a switch's own port is told to be active"), ON_FABRIC_MANAGER_WRITES),
    (m("writes-changes-that-come-meanwhile", CONFIGURATION, "not (clear and before.port_state_change)", "not before.port_state_change",
       "a change that came during a sweep is cleared unseen"), ON_FABRIC_MANAGER_WRITES),
    (m("writes-one-port-without-a-lid", CONFIGURATION, "return any(PORT.get(data, \"lid\")", "return all(PORT.get(data, \"lid\")",
       "an adapter with a port that is not linked is written at each sweep"), ON_FABRIC_MANAGER_WRITES),
    (m("writes-no-top-of-groups", CONFIGURATION, "multicast_fdb_top=multicast_top,\n", "",
       "a switch drops packets of all groups"), ON_FABRIC_MANAGER_WRITES),
    (m("writes-one-lane", CONFIGURATION, "    if lanes == 1:\n        return\n    arb", "    arb",
       "lanes are written where one is enough"), ON_FABRIC_MANAGER_WRITES),
    (m("writes-lanes-swapped", CONFIGURATION, "row[at] << 4 | row[at + 1]", "row[at + 1] << 4 | row[at]",
       "service levels have each other's lanes"), ON_FABRIC_MANAGER_WRITES),
    (m("writes-arbitration-without-a-block", CONFIGURATION, "modifier = 1 << 16 | leaving", "modifier = leaving",
       "lanes above 0 never have their turn"), ON_FABRIC_MANAGER_WRITES),
    (m("writes-last-block-of-keys-stays", CONFIGURATION, "range(blocks, -(-cap // PKEY_BLOCK))", "range(blocks, cap // PKEY_BLOCK)",
       "a port keeps P_Keys that were taken from it"), ON_FABRIC_MANAGER_WRITES),
    (m("writes-one-table-for-all-ports", CONFIGURATION, "port << 24 | block", "block",
       "the second port of an adapter has no P_Keys"), ON_FABRIC_MANAGER_WRITES),
    (m("writes-group-bytes-swapped", CONFIGURATION, "data[2 * place + 1 - bit // 8]", "data[2 * place + bit // 8]",
       "packets of a group leave by other ports"), ON_FABRIC_MANAGER_WRITES),
    (m("writes-group-position-by-24", CONFIGURATION, "position << 28 | block", "position << 24 | block",
       "ports from 16 on are in no group"), ON_FABRIC_MANAGER_WRITES),
    (m("writes-groups-that-are-over-stay", CONFIGURATION, "{modifier: bytearray(64) for modifier in before.get(guid, ())}", "{}",
       "packets go on to members that have left"), ON_FABRIC_MANAGER_WRITES),
    (m("umad-answer-of-another-class", UMAD_REQUESTS, "return mad[1:2] + mad[10:16]", "return mad[10:16]",
       "an answer of another class ends the wait for a request"), ON_UMAD_SESSIONS),
    (m("umad-answer-by-the-plane-s-part", UMAD_REQUESTS, "mad[10:16]", "mad[8:16]",
       "a request that was answered comes back as timed out"), ON_UMAD_SESSIONS),
    (m("umad-name-without-an-end", UMAD_SESSIONS, ".encode()[: NAME_BYTES - 1]", ".encode()[:NAME_BYTES]",
       "a program reads on behind a long name of its node"), ON_UMAD_SESSIONS),
    (m("umad-who-has-gone-is-ready", UMAD_SESSIONS, "            self.ready.discard(session)\n", "",
       "a socket that is closed is written to"), ON_UMAD_SESSIONS),
    (m("umad-manager-by-one-byte", UMAD_SESSIONS, "request.data[:4] != bytes(4)", "request.data[:1] != bytes(1)",
       "a program that says so with another number is no manager"), ON_UMAD_SESSIONS),
    (m("umad-own-lid-is-not-said", UMAD_SESSIONS, "slid or own", "slid",
       "an answer to a program that left its LID out goes to none"), ON_UMAD_SESSIONS),
    (m("umad-request-of-an-earlier-one", UMAD_SESSIONS, "        self._reached, self._sender = None, session\n", "        self._sender = session\n",
       "a request comes back because a program has gone that never had it"), ON_UMAD_SESSIONS),
    (m("umad-longer-than-it-is", UMAD_SESSIONS, "min(length, c.MAD_BYTES))", "length)",
       "a program is told that a datagram is longer than it is"), ON_UMAD_SESSIONS),
    (m("umad-stop-to-another-queue-pair", UMAD_SESSIONS, "Datagram(datagram.slid, datagram.dlid, datagram.sqpn, datagram.dqpn, stop)", "Datagram(datagram.slid, datagram.dlid, datagram.dqpn, datagram.sqpn, stop)",
       "the order to stop goes to the asker's queue pair"), ON_UMAD_SESSIONS),
    (m("umad-stops-what-fits", UMAD_SESSIONS, "length > c.MAD_BYTES:", "length >= c.MAD_BYTES:",
       "an answer that has come whole is stopped"), ON_UMAD_SESSIONS),
    (m("umad-without-room-counts-as-told", UMAD_SESSIONS, "            if self._put(session, _packet(datagram, TIMED_OUT)):\n                self.counters[\"timed_out\"] += 1", "            self._put(session, _packet(datagram, TIMED_OUT))\n            self.counters[\"timed_out\"] += 1",
       "a request that does not come back for want of room counts as told"), ON_UMAD_SESSIONS),
    (m("umad-connection-refused", UMAD_SESSIONS, "TIMED_OUT = 110", "TIMED_OUT = 111",
       "a program is told of another error than a time-out"), ON_UMAD_SESSIONS),
    (m("umad-stops-at-each-segment", UMAD_SESSIONS, "rmpp.DATA, 1):", "rmpp.DATA, said.segment_number):",
       "a later segment is taken for the first"), ON_UMAD_SESSIONS),
    (m("umad-first-segment-is-all", UMAD_SESSIONS, "(0 if last else c.MAD_BYTES)", "0",
       "who does not say how much he will send is not stopped"), ON_UMAD_SESSIONS),
    (m("umad-attaches-at-the-last-port", UMAD_SESSIONS, "linked[0] if linked else 1", "linked[-1] if linked else 1",
       "a program attaches at the last linked port of its node"), ON_UMAD_SESSIONS),
    (m("umad-stops-at-an-old-time", UMAD_SESSIONS, "        self._now = now\n        dlid", "        dlid",
       "the time goes back when a sender is told to stop"), ON_UMAD_SESSIONS),
)  # fmt: skip
"""Each with the tests that judge it."""
