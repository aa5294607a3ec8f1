"""Flow steering: which raw packet queue pairs receive an Ethernet frame (``ibv_create_flow``).

A *rule* names a queue pair and, by value and mask, bits of a frame's key (`wire.ethernet`).  Without a rule a
queue pair receives nothing.  A frame goes

* to the queue pairs of the first normal rules that it matches: least priority number first, of equal ones the
  mask that was used first.  Rules that say the same each get a copy;
* where no normal rule takes it: a multicast to those with a ``MC_DEFAULT`` rule, and any frame to those with
  an ``ALL_DEFAULT`` rule;
* besides, to all with a ``SNIFFER`` rule.

The cost of a frame grows with the number of different masks, which is bounded, not with that of rules.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from softhca.queues.control_fields import FLOW_ALL_DEFAULT, FLOW_MC_DEFAULT, FLOW_NORMAL, FLOW_SNIFFER
from softhca.wire.ethernet import DST_MAC, KEY_BYTES

if TYPE_CHECKING:
    from softhca.transport.context import QueuePair

MOST_MASKS = 64
"""Different (priority, mask) of one port at most."""
_MOST_KNOWN = 1024
_TYPES = (FLOW_NORMAL, FLOW_ALL_DEFAULT, FLOW_MC_DEFAULT, FLOW_SNIFFER)
_MAC_BYTES = 6
_BELOW_MAC = 8 * (KEY_BYTES - DST_MAC - _MAC_BYTES)
_WHOLE_MAC = (1 << 48) - 1


class Rule:
    """One rule; ``value`` and ``mask`` are keys as big-endian numbers."""

    def __init__(self, queue_pair: QueuePair, port_number: int, kind: int, priority: int, value: bytes,
                 mask: bytes) -> None:
        """EINVAL for a type that there is not, a key of another length, or fields where the type has none."""
        if kind not in _TYPES:
            raise OSError(errno.EINVAL, f"type = {kind}: no such type of rule")
        if len(value) != len(mask) or len(value) not in ((0, KEY_BYTES) if kind == FLOW_NORMAL else (0,)):
            raise OSError(errno.EINVAL, f"value, mask: {KEY_BYTES} bytes each, of normal rules alone")
        self.queue_pair = queue_pair
        self.port_number = port_number
        self.kind = kind
        self.priority = priority
        self.mask = int.from_bytes(mask, "big")
        self.value = int.from_bytes(value, "big") & self.mask

    @property
    def station(self) -> bytes:
        """The one address of this port that the rule is for; empty where it is for several, or a group."""
        if self.kind != FLOW_NORMAL or self.mask >> _BELOW_MAC & _WHOLE_MAC != _WHOLE_MAC:
            return b""
        mac = (self.value >> _BELOW_MAC & _WHOLE_MAC).to_bytes(_MAC_BYTES, "big")
        return b"" if mac[0] & 1 else mac


class Steering:
    """The rules of one port.  ``stations`` counts, by address, the rules that are for it alone."""

    def __init__(self) -> None:
        self.stations: dict[bytes, int] = {}
        self._rules: list[Rule] = []
        self._masks: dict[tuple[int, int], dict[int, list[Rule]]] = {}
        self._others: dict[int, list[Rule]] = {kind: [] for kind in _TYPES}
        self._known: dict[bytes, tuple[QueuePair, ...]] = {}

    def __len__(self) -> int:
        return len(self._rules)

    def add(self, rule: Rule) -> None:
        """Put a rule in force.  ENOSPC for more than `MOST_MASKS` different masks."""
        if rule.kind == FLOW_NORMAL:
            place = rule.priority, rule.mask
            if place not in self._masks:
                if len(self._masks) >= MOST_MASKS:
                    raise OSError(errno.ENOSPC, f"mask, priority: {MOST_MASKS} different ones at most")
                self._masks[place] = {}
                self._masks = dict(sorted(self._masks.items(), key=lambda item: item[0][0]))
            self._masks[place].setdefault(rule.value, []).append(rule)
        else:
            self._others[rule.kind].append(rule)
        if rule.station:
            self.stations[rule.station] = self.stations.get(rule.station, 0) + 1
        self._rules.append(rule)
        self._known.clear()

    def remove(self, rule: Rule) -> None:
        """End a rule that is in force."""
        if rule.kind == FLOW_NORMAL:
            place = rule.priority, rule.mask
            same = self._masks[place][rule.value]
            same.remove(rule)
            if not same:
                del self._masks[place][rule.value]
            if not self._masks[place]:
                del self._masks[place]
        else:
            self._others[rule.kind].remove(rule)
        if rule.station:
            self.stations[rule.station] -= 1
            if not self.stations[rule.station]:
                del self.stations[rule.station]
        self._rules.remove(rule)
        self._known.clear()

    def receivers(self, key: bytes) -> tuple[QueuePair, ...]:
        """Who receives the frame with this key, each once."""
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:  # the keys are the senders' choice
                self._known.clear()
            found = self._known[key] = self._look_up(key)
        return found

    def _look_up(self, key: bytes) -> tuple[QueuePair, ...]:
        number = int.from_bytes(key, "big")
        rules: list[Rule] = []
        for (_, mask), by_value in self._masks.items():
            rules = by_value.get(number & mask, [])
            if rules:
                break
        if not rules:
            rules = self._others[FLOW_ALL_DEFAULT]
            if key[DST_MAC] & 1:
                rules = self._others[FLOW_MC_DEFAULT] + rules
        return tuple(dict.fromkeys(rule.queue_pair for rule in rules + self._others[FLOW_SNIFFER]))
