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
)  # fmt: skip
