"""Bugs of Ethernet frames and flow steering, with the tests that judge them."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

SEGMENT = "adapter/segment.py"
STEERING = "adapter/steering.py"
KEY = "wire/ethernet.py"
SENDING = "transport/frames.py"
BY_FRAMES = "adapter/test_adapter_frames.py"
BY_WIRE = "wire/test_wire_frames.py"
SCALING = "adapter/scaling.py"
WORK_QUEUES = "adapter/work_queue_commands.py"
BY_SCALING = "adapter/test_adapter_scaling.py"

FRAMES: tuple[tuple[Mutant, str], ...] = (
    (m("frames-stations-without-end", SEGMENT, "            del self._stations[next(iter(self._stations))]\n", "            pass\n",
       "whoever forges source addresses fills the adapter's memory"), BY_FRAMES),
    (m("frames-group-learned", SEGMENT, "        if mac[0] & 1:\n            return\n        if mac not in", "        if mac not in",
       "a forged frame from a group's address takes the group's frames to one adapter"), BY_FRAMES),
    (m("frames-station-for-ever", SEGMENT, "        if known and now - heard_ns <= STATION_NS:\n", "        if known:\n",
       "frames go to where a station was last heard, however long ago"), BY_FRAMES),
    (m("frames-neighbours-asked-each-time", SEGMENT, "            self._found_ns is None or now - self._found_ns >= NEIGHBOURS_NS\n", "            True\n",
       "each frame for an unknown station reads the kernel's list of sockets"), BY_FRAMES),
    (m("frames-priorities-turned", STEERING, "key=lambda item: item[0][0]))", "key=lambda item: -item[0][0]))",
       "the rule with the greatest priority number wins"), BY_FRAMES),
    (m("frames-old-rules-remembered", STEERING, "        self._rules.remove(rule)\n        self._known.clear()\n", "        self._rules.remove(rule)\n",
       "a queue pair receives by a rule that was ended"), BY_FRAMES),
    (m("frames-long-ones-are-dropped", "transport/raw.py", "            if not self.ends_short:\n", "            if True:\n",
       "a frame longer than its receive is lost without an error"), BY_FRAMES),
    (m("frames-long-ones-overrun-silently", "transport/raw.py", "            status = _LENGTH_ERROR\n        if status == 0:\n", "        if status == 0:\n",
       "a frame longer than its receive is another error than the length's"), BY_FRAMES),
    (m("frames-ports-of-fragments", KEY, "    if (data[o + 6] & 0x1F) == 0 and data[o + 7] == 0:\n", "    if True:\n",
       "data of a later fragment is taken for ports"), BY_WIRE),
    (m("frames-other-segments", "wire/vxlan.py", "        if not data[offset] & _FLAG_VNI or found != vni:\n", "        if not data[offset] & _FLAG_VNI:\n",
       "frames of other segments are received"), BY_WIRE),
    (m("scaling-key-slides-too-far", SCALING, "following >> (7 - bit) & 1", "following >> bit & 1",
       "frames are spread by another hash than the verbs'"), BY_SCALING),
    (m("scaling-ports-of-the-other-protocol", SCALING, "_SRC_PORT, 2, fields & _SRC_UDP", "_SRC_PORT, 2, fields & _SRC_TCP",
       "datagrams are hashed by what is meant for connections"), BY_SCALING),
    (m("scaling-by-the-high-bits", SCALING, "self.hash(frame) & (n - 1)", "(self.hash(frame) >> 8) & (n - 1)",
       "a frame comes to another queue than programs expect by its hash"), BY_SCALING),
    (m("scaling-to-queues-in-any-state", "adapter/frame_path.py", "            if not receives(queue_pair):\n                reason", "            if queue_pair.domain is not None:\n                reason",
       "a frame for a queue in RESET is not told among those dropped for a state"), BY_SCALING),
    (m("scaling-in-error", "adapter/frame_path.py", "queue_pair.domain is not None and queue_pair.state != _ERR", "queue_pair.domain is not None",
       "a queue pair with a table receives in the error state"), BY_SCALING),
    (m("scaling-table-longer-than-its-size", WORK_QUEUES, "    if sum(count for _, count in runs) != entries:\n", "    if sum(count for _, count in runs) < entries:\n",
       "a table has entries that its size does not say"), BY_SCALING),
    (m("scaling-table-lets-queues-go", WORK_QUEUES, "host.number, queues, uses, cost_bytes)", "host.number, queues, (), cost_bytes)",
       "a queue is destroyed under the table that leads to it"), BY_SCALING),
    (m("scaling-queue-pair-lets-its-table-go", WORK_QUEUES, "enter(adapter, host, queue_pair, (domain, table))", "enter(adapter, host, queue_pair, (domain,))",
       "a table is destroyed under the queue pair that receives by it"), BY_SCALING),
    (m("scaling-wrong-current-state", WORK_QUEUES, "and fields[\"curr_wq_state\"] != state:", "and False:",
       "a program that is wrong about a queue's state is not told"), BY_SCALING),
    (m("scaling-numbers-of-queue-pairs", "adapter/resources.py", "        if kind in (Kind.QP, Kind.WQ):\n", "        if False:\n",
       "a work queue and a queue pair have one number, and a completion names both"), BY_SCALING),
    (m("scaling-short-key", WORK_QUEUES, "    if len(key) != TOEPLITZ_KEY_BYTES:\n", "    if len(key) > TOEPLITZ_KEY_BYTES:\n",
       "bytes behind a key that is too short are read"), BY_SCALING),
)  # fmt: skip
