"""Bugs of corners that no mutant was in, planted one by one and found by no test at first, with the tests that
judge them now."""

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
LISTENING = "sockets/listening.py"
ON_SOCKETS_LISTENING_RULES = "sockets/test_sockets_listening_rules.py"
WORK_REQUESTS = "sockets/work_requests.py"
ON_SOCKETS_WORK_REQUESTS = "sockets/test_sockets_work_requests.py"
STAGING = "sockets/staging.py"
SOCKETS_SETTINGS = "sockets/settings.py"
ON_SOCKETS_SETTINGS = "sockets/test_sockets_settings.py"
REPLACING = "sockets/replacing.py"
CREATION = "sockets/creation.py"

CORNERS: tuple[tuple[Mutant, str], ...] = (
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
    (m("listening-duplicate-is-no-user", LISTENING, "            return found.join()\n        with", "            return found\n        with",
       "the close of one duplicate of a listening socket ends all"), ON_SOCKETS_LISTENING_RULES),
    (m("listening-socket-of-a-number-is-no-user", LISTENING, "return None if found is None else found.join()", "return found",
       "the close of a socket made of a number ends the others"), ON_SOCKETS_LISTENING_RULES),
    (m("listening-first-leave-ends-it", LISTENING, "            self._users -= 1\n            if not self._users:\n                self.close()", "            self.close()",
       "the close of one of several duplicates ends the service"), ON_SOCKETS_LISTENING_RULES),
    (m("listening-all-of-ipv6-alone", LISTENING, "if host == \"::\" and not listening", "if host == \"::\" and listening",
       "a dual-stack server is not found by IPv4 addresses"), ON_SOCKETS_LISTENING_RULES),
    (m("listening-localhost-for-all", LISTENING, "addresses.append(any_like(mapped(\"0.0.0.0\")))", "addresses.append(mapped(\"0.0.0.0\")[:12] + b\"\\x7f\\0\\0\\1\")",
       "a dual-stack server is found at one IPv4 address"), ON_SOCKETS_LISTENING_RULES),
    (m("listening-closed-one-listens", LISTENING, "return self._begun and not self.closed", "return self._begun",
       "a request to a socket that was closed is answered"), ON_SOCKETS_LISTENING_RULES),
    (m("listening-closed-one-takes-streams", LISTENING, "full = self.closed or len", "full = len",
       "a stream waits at a socket that was closed"), ON_SOCKETS_LISTENING_RULES),
    (m("listening-closed-one-gives-streams", LISTENING, "        if self.closed:\n            return None\n        with", "        with",
       "a stream that was given up is given to who accepts"), ON_SOCKETS_LISTENING_RULES),
    (m("listening-claimed-stays", LISTENING, "found = self._ready.pop((host, port), None)\n        if found", "found = self._ready.get((host, port))\n        if found",
       "two connections have one stream"), ON_SOCKETS_LISTENING_RULES),
    (m("listening-claim-does-not-wait", LISTENING, "        if not stream.opened:\n            stream.wait(lambda: stream.opened, time.monotonic() + OPENED_S)\n", "",
       "a stream whose last packet was lost is TCP's on one side alone"), ON_SOCKETS_LISTENING_RULES),
    (m("listening-unused-stays-open", LISTENING, "            return stream\n        stream.refuse()\n        return None", "            return stream\n        return None",
       "a stream whose peer had given up keeps its memory"), ON_SOCKETS_LISTENING_RULES),
    (m("listening-half-served-stays", LISTENING, "            except BaseException:\n                self.close()\n                raise\n            _served", "            except BaseException:\n                raise\n            _served",
       "a port that could be told of at one address alone is served all the same"), ON_SOCKETS_LISTENING_RULES),
    (m("listening-ways-are-not-told-apart", LISTENING, "if served is None or served.alone != peer.alone:", "if served is None:",
       "who wants no TCP connection is given to one who waits for it"), ON_SOCKETS_LISTENING_RULES),
    (m("listening-late-failure-leaves-identifier", LISTENING, "            with contextlib.suppress(*requests.FAILED):\n                cmid.close()\n            raise", "            raise",
       "an early request that fails leaves its identifier"), ON_SOCKETS_LISTENING_RULES),
    (m("listening-device-is-not-kept", LISTENING, "            devices.keep(cmid)\n", "",
       "each connection opens the device anew"), ON_SOCKETS_LISTENING_RULES),
    (m("listening-child-serves-on", LISTENING, "    _served.clear()\n", "    pass\n",
       "a forked child believes that its parent's port is its own to serve"), ON_SOCKETS_LISTENING_RULES),
    (m("work-request-bound-by-one", WORK_REQUESTS, "if not last and total <= whole:", "if not last and total < whole:",
       "64 KiB take two requests"), ON_SOCKETS_WORK_REQUESTS),
    (m("work-request-first-is-the-last", WORK_REQUESTS, "if early and part == last:", "if early and part == 0:",
       "memory may be changed before all of it was taken"), ON_SOCKETS_WORK_REQUESTS),
    (m("work-request-over-the-pools-end", WORK_REQUESTS, "if len(places) > 1 or length > _WHOLE:", "if length > _WHOLE:",
       "a run is written over the end of the peer's pool"), ON_SOCKETS_WORK_REQUESTS),
    (m("work-request-second-piece-is-the-first", WORK_REQUESTS, "            address += size\n        store64", "        store64",
       "a message that crosses the pool's end arrives with its beginning twice"), ON_SOCKETS_WORK_REQUESTS),
    (m("work-request-ring-of-before", WORK_REQUESTS, "8 * (told & _LAST_ENTRY)", "8 * ((told - 1) & _LAST_ENTRY)",
       "a notification in memory stands where the one before it was"), ON_SOCKETS_WORK_REQUESTS),
    (m("work-request-wakes-nobody", WORK_REQUESTS, "self._write_words(_WRITE, _WAKING, 0, number, self._record + _WAKES, 8)", "self._write_words(_WRITE, _SIGNALED, 0, number, self._record + _WAKES, 8)",
       "a thread that sleeps in a call is not woken"), ON_SOCKETS_WORK_REQUESTS),
    (m("work-request-half-a-record", WORK_REQUESTS, "number, self._record, 16)", "number, self._record, 8)",
       "credit in memory tells no count of notifications"), ON_SOCKETS_WORK_REQUESTS),
    (m("work-request-chain-of-one", WORK_REQUESTS, "request.following = 0, (), chain\n        chain = request", "request.following = 0, (), None\n        chain = request",
       "of sixteen receives one is posted"), ON_SOCKETS_WORK_REQUESTS),
    (m("staging-skips-what-fits", STAGING, "        if left < length:", "        if left <= length:",
       "the last run of the ring is never used"), ON_SOCKETS_WORK_REQUESTS),
    (m("settings-any-pool", SOCKETS_SETTINGS, " or pool & (pool - 1):", ":",
       "a pool that is no power of two is offered"), ON_SOCKETS_SETTINGS),
    (m("settings-largest-pool-is-too-large", SOCKETS_SETTINGS, "<= pool <= LARGEST", "<= pool < LARGEST",
       "a pool of 256 MiB is refused"), ON_SOCKETS_SETTINGS),
    (m("settings-chunk-unbounded", SOCKETS_SETTINGS, "(\"staging_bytes\", \"chunk_bytes\")", "(\"staging_bytes\",)",
       "a chunk of no bytes is taken"), ON_SOCKETS_SETTINGS),
    (m("settings-endless-time-out", SOCKETS_SETTINGS, "if not 1 <= self.ack_timeout", "if not 0 <= self.ack_timeout",
       "an ACK time-out of 0, which is none, is taken"), ON_SOCKETS_SETTINGS),
    (m("settings-all-must-be-negative", SOCKETS_SETTINGS, "        if min(amounts) < 0:", "        if max(amounts) < 0:",
       "a negative time is taken"), ON_SOCKETS_SETTINGS),
    (m("settings-pool-twice-as-large", SOCKETS_SETTINGS, "1 << (length - 1).bit_length()", "1 << length.bit_length()",
       "a pool is twice as large as was asked for"), ON_SOCKETS_SETTINGS),
    (m("settings-yes-is-no", SOCKETS_SETTINGS, "text != \"0\" if kind == \"bool\"", "text == \"1\" if kind == \"bool\"",
       "a switch that says yes is off"), ON_SOCKETS_SETTINGS),
    (m("settings-keepalive-before-now", SOCKETS_SETTINGS, "            self.keepalive_s,\n        )", "        )",
       "a negative keepalive is taken"), ON_SOCKETS_SETTINGS),
    (m("settings-least-is-too-little", SOCKETS_SETTINGS, "if not 4096 <= getattr", "if not 4096 < getattr",
       "4096 bytes are refused"), ON_SOCKETS_SETTINGS),
    (m("replacing-runs-itself", REPLACING, "!= os.path.realpath(folder)]", "== os.path.realpath(folder)]",
       "a program's own sitecustomize does not run"), ON_SOCKETS_SETTINGS),
    (m("replacing-module-unknown", REPLACING, "        sys.modules[\"sitecustomize\"] = module\n", "",
       "sitecustomize is not the program's own"), ON_SOCKETS_SETTINGS),
    (m("creation-refused-stays-open", CREATION, "            refused = error\n            made.close()", "            refused = error",
       "each address that refuses leaves a descriptor"), ON_SOCKETS_SETTINGS),
    (m("creation-address-in-use", CREATION, "kernel.SO_REUSEADDR, 1)", "kernel.SO_REUSEADDR, 0)",
       "a server cannot be started again at once"), ON_SOCKETS_SETTINGS),
    (m("creation-two-stacks-are-one", CREATION, "0 if dualstack_ipv6 else 1", "1 if dualstack_ipv6 else 0",
       "a dual-stack server takes IPv6 alone"), ON_SOCKETS_SETTINGS),
    (m("creation-backlog-of-its-own", CREATION, "128 if backlog is None else backlog", "128",
       "a server's backlog is not what was asked for"), ON_SOCKETS_SETTINGS),
    (m("creation-source-is-ignored", CREATION, "                made.bind(source_address)\n", "                pass\n",
       "a connection leaves from another address than asked for"), ON_SOCKETS_SETTINGS),
    (m("creation-time-out-is-ignored", CREATION, "                made.settimeout(timeout)\n", "                pass\n",
       "a connection waits longer than asked for"), ON_SOCKETS_SETTINGS),
    (m("creation-failed-server-stays-open", CREATION, "    except BaseException:\n        made.close()\n        raise", "    except BaseException:\n        raise",
       "a server that cannot listen leaves its descriptor"), ON_SOCKETS_SETTINGS),
)  # fmt: skip
"""Each with the tests that judge it."""
