"""Bugs of congestion control, of its notifications, and of Ethernet switches."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

DCQCN = "transport/congestion.py"
NOTIFICATION = "transport/notification.py"
FLOW = "transport/queue_pair_flow.py"
REPLIES = "transport/replies.py"
RECEIVE_PATH = "adapter/receive_path.py"
ENGINE = "adapter/engine.py"
PATHS = "adapter/paths.py"
PACING = "transport/pacing.py"
QP_COMMANDS = "adapter/queue_pair_commands.py"
SWITCH = "fabric/ethernet/switch.py"
PORT = "fabric/ethernet/port.py"
PLANE = "fabric/ethernet/plane.py"
FRAMES = "fabric/ethernet/frames.py"
LINK = "links/fabric_ethernet.py"
NETWORK = "fabric/ethernet/network.py"

ON_DCQCN = "transport/test_transport_congestion.py"
ON_ADAPTERS = "adapter/test_adapter_congestion.py"
ON_PACING = "transport/test_transport_pacing.py"
ON_PACED = "adapter/test_adapter_pacing.py"
ON_SWITCHES = "fabric/test_fabric_ethernet.py"
ON_PLANE = "fabric/test_fabric_ethernet_plane.py"
ON_LINK = "runtime/test_runtime_fabric_ethernet.py"
ON_WORLDS = "simulation/test_simulation_ethernet.py"

CONGESTION: tuple[tuple[Mutant, str], ...] = (
    (m("pacing-loses-the-rest-of-a-division", PACING, "        self.rest = product % self.rate_kbps\n", "        self.rest = 0\n",
       "a limited queue pair is faster than its limit by what divisions drop"), ON_PACING),
    (m("pacing-saves-up-idle-time", PACING, "        if self.free_ns < now:\n            self.free_ns = now\n            self.rest = 0\n", "",
       "a limited queue pair that was idle sends a burst as long as it was idle"), ON_PACING),
    (m("pacing-slack-of-a-whole-burst", PACING, "(max_burst_bytes - turn) * _NS_KBPS", "max_burst_bytes * _NS_KBPS",
       "a limited queue pair sends longer bursts than were asked for"), ON_PACING),
    (m("frames-to-many-count-often", "transport/frames.py", "        if self.index == 0 and pacing is not None:\n            pacing.frame", "        if pacing is not None:\n            pacing.frame",
       "a frame to a group takes the time of as many frames as it has receivers"), ON_PACED),
    (m("frames-to-nobody-are-free", "transport/frames.py", "            if pacing is not None:\n                pacing.frame(request.length_bytes, self.now)\n            return True", "            return True",
       "frames that nobody is there for complete at once, whatever the limit"), ON_PACED),
    (m("paced-frames-without-a-turn", "transport/frames.py", "                self.flow.environment.schedule(self.flow)\n                return False", "                return False",
       "a limited queue pair whose frames went to nobody is not called again"), ON_PACED),
    (m("paced-datagrams-hold-their-window", FLOW, "        qp.requester.give_way()\n", "",
       "a limited queue pair holds the turn of a window while it waits for its moment"), ON_PACED),
    (m("limited-requests-are-copied-at-once", "transport/executor.py", "        if self.queue_pair.flow.pacing is not None:\n            return 0", "        if False:\n            return 0",
       "a limited queue pair to the same adapter copies as fast as memory"), ON_PACED),
    (m("paced-messages-ask-for-nothing", "transport/requester.py", "        if self.flow.pacing is not None:\n            return True\n", "",
       "the timer of a limited queue pair runs out between two packets of a message"), ON_PACED),
    (m("a-limit-outlives-reset", FLOW, "        self.control_by(None)\n        self.pace_by(None)\n", "        self.control_by(None)\n",
       "a queue pair that was reset is still as slow as it was"), ON_PACED),
    (m("any-rate-is-a-limit", QP_COMMANDS, "    if rate_kbps and not LEAST_RATE_KBPS <= rate_kbps <= MOST_RATE_KBPS:", "    if rate_kbps > MOST_RATE_KBPS:",
       "a rate below the least is taken"), ON_PACED),
    (m("congestion-control-lifts-a-limit", FLOW, "self.pacing if self.control is None else Both(self.control, self.pacing)", "self.pacing if self.control is None else self.control",
       "with congestion control nothing is limited"), ON_PACED),
    (m("group-copies-for-each-member", SWITCH, "            branches.setdefault((ways[frame.flow % len(ways)],) if ways else (), set()).add(host)\n",
       "            branches.setdefault(((ways[frame.flow % len(ways)],) if ways else ()) + (host,), set()).add(host)\n",
       "a packet to a group passes a link as often as it has members behind it"), ON_PLANE),
    (m("group-sends-to-its-sender", PLANE, "self._groups[run.destination] - {port.number}", "self._groups[run.destination]",
       "who sends to a group that it is in gets its own packet twice"), ON_PLANE),
    (m("group-keeps-who-has-gone", PLANE, "        for group in list(port.groups):\n            self.set_member(port, group, False)\n", "",
       "packets to a group go to a host whose adapter has gone"), ON_PLANE),
    (m("group-arrives-as-the-port-s", LINK, "        if self._is_ipv4:\n            is_group = front[16] & 0xF0 == 0xE0\n", "        if self._is_ipv4:\n            is_group = False\n",
       "no queue pair gets what is sent to a group"), ON_LINK),
    (m("cnp-flood-cuts-each-time", DCQCN, "        if self.limited and now - self._cut_ns < self._cut_interval_ns:\n", "        if False:\n",
       "a burst of notifications stops a flow"), ON_DCQCN),
    (m("dcqcn-no-least-rate", DCQCN, "max(self.rate_mbps * (1 - self.alpha / 2), self._least_mbps)", "self.rate_mbps * (1 - self.alpha / 2)",
       "a flow that is told often enough never sends again"), ON_DCQCN),
    (m("dcqcn-beyond-the-line", DCQCN, "        self.target_mbps = min(self.target_mbps, self.line_mbps)\n", "",
       "the target grows beyond what the line carries"), ON_DCQCN),
    (m("dcqcn-alpha-does-not-decay", DCQCN, "            self.alpha *= (1 - self._gain) ** min(steps, 1_000_000)\n", "",
       "one notification after a quiet hour halves the rate"), ON_DCQCN),
    (m("dcqcn-makes-up-for-hours", DCQCN, "        if begin + _SLACK_NS < now:\n            begin = now - _SLACK_NS\n", "",
       "a flow that was idle sends a flood"), ON_DCQCN),
    (m("dcqcn-tells-of-each-mark", DCQCN, "        if self.told and now - self.told_ns < self.notify_ns:\n            return False\n", "",
       "as many notifications as packets"), ON_DCQCN),
    (m("dcqcn-headers-are-free", DCQCN, "        length_bytes += packets * _FRAME\n", "",
       "flows of short packets take more than their rate"), ON_DCQCN),
    (m("cnp-capable-of-marks", NOTIFICATION, "TRAFFIC_CLASS = 48 << 2", "TRAFFIC_CLASS = 48 << 2 | 2",
       "notifications are marked where they are needed most"), ON_DCQCN),
    (m("cnp-with-the-last-identification", NOTIFICATION, "        route.identification = 0\n", "        pass\n",
       "a notification behind a cut burst has a wrong ICRC"), ON_DCQCN),
    (m("cnp-of-any-length", RECEIVE_PATH, "        if n != _NOTIFICATION_BYTES:\n            return _LENGTH\n", "",
       "packets that are no notifications slow flows down"), ON_ADAPTERS),
    (m("cnp-of-any-partition", RECEIVE_PATH, "        if not pkeys_match(queue_pair.pkey, self._view.pkey):\n            return _PKEY\n        queue_pair.flow.receive_notification", "        queue_pair.flow.receive_notification",
       "another partition slows flows down"), ON_ADAPTERS),
    (m("marks-of-ect-count", RECEIVE_PATH, "arrival.traffic_class & _MARKED == _MARKED", "arrival.traffic_class & _MARKED != 0",
       "packets that met no congestion are told of"), ON_ADAPTERS),
    (m("marks-of-each-packet", RECEIVE_PATH, "            self._marked = False  # once for a run of packets, which have all the same mark\n", "",
       "a run of packets counts as often as it has packets"), ON_ADAPTERS),
    (m("datagrams-capable-of-marks", PATHS, "    return _route(vector, port, 0 if port.native else _source_port(vector, entropy, port))\n",
       "    return _route(vector, port, 0 if port.native else _source_port(vector, entropy, port), port.config.congestion is not None)\n",
       "packets that nobody slows down are marked in place of being dropped"), ON_ADAPTERS),
    (m("class-lost-to-ect", PATHS, "traffic_class & ~ECN_MASK | ECT0 if reacts", "ECT0 if reacts",
       "the class that the consumer asked for is gone"), ON_ADAPTERS),
    (m("paced-flow-keeps-the-window", FLOW, "        if self.window is not None and self.window.turn is self:\n            self.window.leave(self)\n", "",
       "a slow flow holds up all others to the same adapter"), ON_ADAPTERS),
    (m("paced-flow-sends-no-acks", FLOW, "        if qp.responder.has_work():\n            n = qp.responder.produce(burst, now)\n        return n\n", "        return n\n",
       "the peers of a slow flow time out"), ON_ADAPTERS),
    (m("reset-keeps-the-rate", FLOW, "        self.quick_replies = 0\n        self.control_by(None)\n", "        self.quick_replies = 0\n",
       "a new connection of the queue pair is as slow as the last one"), ON_ADAPTERS),
    (m("answers-to-reads-pass-the-rate", REPLIES, "        if self.departure_ns < self.flow.not_before_ns:\n            self.departure_ns = self.flow.not_before_ns\n", "",
       "READ responses leave faster than the flow may send"), ON_ADAPTERS),
    (m("answers-of-long-ago-pass-the-rate", REPLIES, "        if self.departure_ns < self.flow.not_before_ns:\n            self.departure_ns = self.flow.not_before_ns\n        if self.now",
       "        elif False:\n            pass\n        if self.paced and self.departure_ns < self.flow.not_before_ns:\n            self.departure_ns = self.flow.not_before_ns\n        if self.now",
       "an answer that has waited for its pace leaves before the rate allows it"), ON_WORLDS),
    (m("ethernet-marks-what-does-not-react", SWITCH, "frame.ecn not in (0, MARKED)", "frame.ecn != MARKED",
       "marks on packets whose senders do not know of them"), ON_SWITCHES),
    (m("ethernet-drops-at-the-head", SWITCH, "        if out.queued[priority] + length > settings.queue_bytes:", "        if out.queued[priority] > settings.queue_bytes:",
       "a queue holds more than it has room for"), ON_SWITCHES),
    (m("ethernet-buffer-never-freed", SWITCH, "        self.used_bytes -= frame.length_bytes\n", "",
       "a switch that has carried enough carries nothing"), ON_SWITCHES),
    (m("pause-never-ends", SWITCH, "            entered.pause(frame.priority, 0, now_ps)\n", "",
       "who was paused waits for the whole time"), ON_SWITCHES),
    (m("pause-not-renewed", SWITCH, "        if pausing is not None and held.paused[what]:", "        if False:",
       "a pause ends before the queue has shrunk"), ON_SWITCHES),
    (m("pause-of-all-priorities", PORT, "        self.paused_until_ps[priority] = until_ps\n", "        self.paused_until_ps = [until_ps] * PRIORITIES\n",
       "notifications wait behind the data that they are about"), ON_SWITCHES),
    (m("ethernet-detours", NETWORK, "if not is_host and far.get(other, distance) < distance]", "if not is_host]",
       "packets go round in a circle"), ON_SWITCHES),
    (m("ethernet-failed-link-keeps-its-queue", PORT, "                self._break(queue.popleft(), now_ps)\n", "                queue.popleft()\n",
       "what waited for a link that failed has no fate, and its room is gone"), ON_SWITCHES),
    (m("ethernet-link-is-back-and-paused", PORT, "        self.paused_until_ps = [0] * PRIORITIES\n\n    def _break", "\n    def _break",
       "a link that is back carries nothing, for a pause of before"), ON_SWITCHES),
    (m("ethernet-ways-by-dead-links", NETWORK, "zip(switch.ports, here, strict=True) if port.up]", "zip(switch.ports, here, strict=True)]",
       "traffic does not take another way when a link fails"), ON_SWITCHES),
    (m("ethernet-in-another-s-name", PLANE, "        if run.source != self.addresses[port.number - 1]:", "        if False:",
       "a host sends from the address of another one"), ON_PLANE),
    (m("ethernet-blocked-for-ever", PLANE, "            if port.is_blocked and self._waiting(port) <= HOST_QUEUE_BYTES // 2:", "            if False:",
       "a host whose port was full never sends again"), ON_PLANE),
    (m("ethernet-marks-get-lost", FRAMES, "    ecn = MARKED if marked else", "    ecn =",
       "hosts do not hear of congestion"), ON_PLANE),
    (m("ethernet-waits-without-bound", PLANE, "        if port.arrived_bytes + len(payload) > RECEIVE_BYTES:", "        if False:",
       "an adapter that takes nothing costs the fabric's process all memory"), ON_PLANE),
    (m("ethernet-damage-passes", PLANE, "            if copy.data == data\n", "",
       "switches forward frames whose FCS is wrong"), ON_PLANE),
    (m("ethernet-source-port-lost", LINK, "        arrival.source_port = front[-8] << 8 | front[-7]\n", "",
       "adapters do not know the port that packets came from"), ON_LINK),
)
