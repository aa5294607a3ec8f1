"""A port of a fabric's node as its management agents know it: PortInfo, tables, counters (IBTA vol. 1,
14.2.5.6, 16.1.3.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from softhca.fabric.topology import Link, LinkSpeed, LinkWidth, Node
from softhca.management.attributes import PortInfo

# PortState, PortPhysicalState (14.2.5.6)
NO_CHANGE, DOWN, INIT, ARMED, ACTIVE = range(5)
PHYS_POLLING, PHYS_DISABLED, PHYS_LINK_UP = 2, 3, 5

IS_SM = 1 << 1
CAPABILITIES = sum(
    1 << bit
    for bit in (
        3,  # traps
        6,  # SL mapping
        9,  # LedInfo
        11,  # SystemImageGUID
        14,  # extended speeds
        21,  # directed-route notices
        22,  # a notice when capabilities change
        25,  # client reregistration
    )
)
MTU_4096 = 5
VL_0_TO_7 = 4
ARBITRATION_ENTRIES = 8
GUIDS = 8
RESPONSE_TIME = 16
"""Agents answer within 4.096 µs × 2^16."""
SUBNET_TIMEOUT = 18
"""What a port has until a manager says otherwise: traps are 4.096 µs × 2^18 apart."""
LID_LAST = 0xBFFF
DEFAULT_PKEYS = b"\xff\xff" + bytes(62)
"""A table of P_Keys as it comes from the factory: full member of the default partition."""
NO_SPEED_CHANGE, ALL_SPEEDS = 0, 15
NO_WIDTH_CHANGE, ALL_WIDTHS = 0, 255
NO_EXTENDED_SPEED, ALL_EXTENDED_SPEEDS = 30, 31
NO_EXTENDED2_SPEED, ALL_EXTENDED2_SPEEDS = 6, 7

COUNTED_BYTES = 288
"""Of a datagram of management: LRH, BTH, DETH, 256 bytes and ICRC, which is what PortXmitData counts."""


class PortState:
    """Port ``number`` of a node; 0 is a switch's own.  ``failed``: its cable is out.

    ``counts`` are its error counters by PortCounters' names, ``sent`` and ``received`` the datagrams that
    passed it; ``data_sent``, ``words_sent`` … are packets of adapters and their 4-byte words, ``sl_sent``,
    ``sl_received`` … the words of each service level.  ``watch`` is called when PortInfo or P_Keys have
    changed.
    """

    __slots__ = (
        "arbitration",
        "cleared",
        "counts",
        "data_received",
        "data_sent",
        "disabled",
        "encoded",
        "failed",
        "guids",
        "info",
        "lease_ns",
        "led",
        "linked",
        "number",
        "own",
        "pkeys",
        "received",
        "sent",
        "sl_received",
        "sl_sent",
        "sl_to_vl",
        "state",
        "up",
        "watch",
        "words_received",
        "words_sent",
    )

    def __init__(self, node: Node, number: int, link: Link | None) -> None:
        self.number = number
        self.own = not node.is_switch or number == 0
        """Whether it has a LID, P_Keys and an M_Key of its own: all but the external ports of switches."""
        self.linked = link is not None
        self.disabled = False
        self.failed = False
        self.lease_ns = 0
        self.led = 0
        self.counts: dict[str, int] = {}
        self.cleared: dict[tuple[str, str], int] = {}
        self.sent = 0
        self.received = 0
        self.data_sent = self.data_received = 0
        self.words_sent = self.words_received = 0
        self.sl_sent: dict[int, int] = {}
        self.sl_received: dict[int, int] = {}
        self.watch: Callable[[], None] | None = None
        self.guids: dict[int, bytes] = {}
        self.pkeys: dict[int, bytes] = {}
        self.sl_to_vl: dict[int, bytes] = {}
        self.arbitration: dict[int, bytes] = {}
        self.info: PortInfo
        self.encoded: bytes
        self.state: int
        self.up: bool
        self.put(_first_info(number, self.own, link))

    def put(self, info: PortInfo) -> None:
        """PortInfo is this from now on."""
        self.info = info
        self.encoded = info.encode()
        self.state = info.state
        self.up = info.phys_state == PHYS_LINK_UP
        if self.watch is not None:
            self.watch()

    def change(self, **values: int) -> None:
        """Fields of PortInfo have these values from now on."""
        info = self.info
        if any(getattr(info, name) != value for name, value in values.items()):
            self.put(replace(info, **values))

    def has_lid(self, lid: int) -> bool:
        """Whether a LID is one of its own: the base LID and 2^LMC - 1 behind it."""
        base = self.info.lid
        return base <= lid < base + (1 << self.info.lmc)

    def pkey_block(self, block: int) -> bytes:
        """32 of its P_Keys."""
        return self.pkeys.get(block, bytes(64) if block else DEFAULT_PKEYS)

    def set_pkeys(self, block: int, data: bytes) -> None:
        """32 of its P_Keys are these from now on."""
        self.pkeys[block] = data
        if self.watch is not None:
            self.watch()

    def key_list(self) -> list[int]:
        """Its P_Keys by index, up to the last that is one."""
        blocks = range(max(self.pkeys, default=0) + 1)
        data = b"".join(map(self.pkey_block, blocks))
        keys = [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
        while keys and not keys[-1] & 0x7FFF:
            keys.pop()
        return keys

    def count(self, name: str, by: int = 1) -> None:
        """Count an error, by PortCounters' name of it."""
        self.counts[name] = self.counts.get(name, 0) + by

    def total(self, name: str) -> int:
        """A counter since the port is there, under PortCounters' or PortCountersExtended's name."""
        if name in ("xmit_pkts", "unicast_xmit_pkts"):
            return self.sent + self.data_sent
        if name in ("rcv_pkts", "unicast_rcv_pkts"):
            return self.received + self.data_received
        if name == "xmit_data":
            return self.sent * (COUNTED_BYTES // 4) + self.words_sent
        if name == "rcv_data":
            return self.received * (COUNTED_BYTES // 4) + self.words_received
        kind, is_level, level = name.partition("_data_sl")
        if is_level:
            return (self.sl_sent if kind == "xmit" else self.sl_received).get(int(level), 0)
        return self.counts.get(name, 0)

    def count_sent(self, packets: int, words: int, sl: int) -> None:
        """Packets of adapters, of one service level, have left."""
        self.data_sent += packets
        self.words_sent += words
        self.sl_sent[sl] = self.sl_sent.get(sl, 0) + words

    def count_received(self, packets: int, words: int, sl: int) -> None:
        """Packets of adapters, of one service level, have come."""
        self.data_received += packets
        self.words_received += words
        self.sl_received[sl] = self.sl_received.get(sl, 0) + words

    def read(self, attribute: str, name: str) -> int:
        """A counter since it was cleared in an attribute; each attribute is cleared by itself."""
        return self.total(name) - self.cleared.get((attribute, name), 0)

    def clear(self, attribute: str, names: Iterable[str]) -> None:
        """Counters of an attribute begin at 0 again."""
        for name in names:
            self.cleared[attribute, name] = self.total(name)


def active_rate(width: LinkWidth, speed: LinkSpeed) -> dict[str, int]:
    """PortInfo's fields of a link that is up with this width and speed of a lane."""
    return {
        "link_width_active": width.code,
        "link_speed_active": speed.code,
        "link_speed_ext_active": speed.extended_code,
        "link_speed_ext2_active": speed.extended2_code,
    }


def _rates(width: LinkWidth, speed: LinkSpeed) -> dict[str, int]:
    """PortInfo's fields of the widths and speeds that a port supports: these, one lane, four where it has
    more, and all speeds that are slower; they are enabled, too."""
    slower = [each for each in LinkSpeed if each <= speed]
    four = LinkWidth.X4.code if width > LinkWidth.X4 else 0
    fields = {
        "link_width": LinkWidth.X1.code | four | width.code,
        "link_speed": sum({each.code for each in slower}),
        "link_speed_ext": sum(each.extended_code for each in slower),
        "link_speed_ext2": speed.extended2_code,
    }
    return {f"{name}_{what}": bits for name, bits in fields.items() for what in ("supported", "enabled")}


def _first_info(number: int, own: bool, link: Link | None) -> PortInfo:
    """PortInfo of a port that nobody has configured.  A switch's own port has no link and is always up."""
    zero = number == 0
    width = link.width if link else LinkWidth.X4
    up = zero or link is not None
    speed = link.speed if link else LinkSpeed.HDR
    facts: dict[str, Any] = _rates(width, speed)
    facts |= active_rate(width, speed) if up else active_rate(LinkWidth.X1, LinkSpeed.SDR)
    if own:
        facts |= {"capability_mask": CAPABILITIES, "guid_cap": GUIDS, "subnet_timeout": SUBNET_TIMEOUT}
    return PortInfo(
        gid_prefix=0xFE80 << 48 if own else 0,
        local_port_num=number,
        state=ACTIVE if zero else INIT if up else DOWN,
        phys_state=PHYS_LINK_UP if up else PHYS_POLLING,
        link_down_default_state=PHYS_POLLING,
        neighbor_mtu=MTU_4096 if up else 1,
        vl_cap=VL_0_TO_7,
        vl_arbitration_high_cap=ARBITRATION_ENTRIES,
        vl_arbitration_low_cap=ARBITRATION_ENTRIES,
        mtu_cap=MTU_4096,
        operational_vls=VL_0_TO_7,
        resp_time_value=RESPONSE_TIME if own else 0,
        **facts,
    )


OWN_FIELDS = (
    "m_key",
    "gid_prefix",
    "lid",
    "sm_lid",
    "m_key_lease_period",
    "m_key_protect_bits",
    "lmc",
    "sm_sl",
    "subnet_timeout",
)
"""What a manager sets at ports that have a LID."""
LINK_FIELDS = (
    "link_down_default_state",
    "neighbor_mtu",
    "vl_high_limit",
    "vl_stall_count",
    "hoq_life",
    "partition_enforcement_inbound",
    "partition_enforcement_outbound",
    "filter_raw_inbound",
    "filter_raw_outbound",
    "local_phy_errors",
    "overrun_errors",
)
"""What a manager sets at ports that have a link; zero in the first two changes nothing."""
VIOLATIONS = ("m_key_violations", "p_key_violations", "q_key_violations")
"""Counters that begin anew where a manager sets 0."""

STATE_CHANGES: dict[tuple[int, int], int | None] = {
    # (state, asked): the state then; None cannot be asked for (14.2.5.6, 7.2.7)
    (DOWN, NO_CHANGE): DOWN, (DOWN, DOWN): DOWN, (DOWN, INIT): None, (DOWN, ARMED): None,
    (DOWN, ACTIVE): None,
    (INIT, NO_CHANGE): INIT, (INIT, DOWN): DOWN, (INIT, INIT): None, (INIT, ARMED): ARMED,
    (INIT, ACTIVE): None,
    (ARMED, NO_CHANGE): ARMED, (ARMED, DOWN): DOWN, (ARMED, INIT): None, (ARMED, ARMED): ARMED,
    (ARMED, ACTIVE): ACTIVE,
    (ACTIVE, NO_CHANGE): ACTIVE, (ACTIVE, DOWN): DOWN, (ACTIVE, INIT): None, (ACTIVE, ARMED): None,
    (ACTIVE, ACTIVE): ACTIVE,
}  # fmt: skip
"""What a Set of the state makes of it.  A port that goes down is trained anew at once, if it can be."""

PHYSICAL_CHANGES = frozenset({0, 1, PHYS_POLLING, PHYS_DISABLED})
"""The physical states that a manager may set: none, sleep, polling, disabled."""


def configured(port: PortState, asked: PortInfo) -> dict[str, int]:
    """The fields of PortInfo that a Set changes, with their new values, the states apart.  ValueError for
    what cannot be.
    """
    before = port.info
    values: dict[str, int] = {}
    if port.own:
        _check_own(asked)
        values = {name: getattr(asked, name) for name in OWN_FIELDS}
    if port.number:
        values |= _link_values(before, asked)
    values |= {name: 0 for name in VIOLATIONS if getattr(asked, name) == 0}
    return values


def _check_own(asked: PortInfo) -> None:
    if asked.lid > LID_LAST - ((1 << asked.lmc) - 1) or asked.lid & ((1 << asked.lmc) - 1):
        raise ValueError(f"LID {asked.lid:#x} with LMC {asked.lmc}")
    if asked.sm_lid > LID_LAST:
        raise ValueError(f"a manager's LID cannot be {asked.sm_lid:#x}")


def _link_values(before: PortInfo, asked: PortInfo) -> dict[str, int]:
    values = {name: getattr(asked, name) for name in LINK_FIELDS}
    if asked.link_down_default_state > PHYS_POLLING:
        raise ValueError(f"a link that is down cannot be {asked.link_down_default_state}")
    if asked.neighbor_mtu > before.mtu_cap:
        raise ValueError(f"an MTU of {asked.neighbor_mtu} at a port of {before.mtu_cap}")
    if asked.operational_vls > before.vl_cap:
        raise ValueError(f"{asked.operational_vls} for lanes of a port that has {before.vl_cap}")
    for name in ("link_down_default_state", "neighbor_mtu"):
        values[name] = values[name] or getattr(before, name)
    values["operational_vls"] = asked.operational_vls or before.operational_vls
    values["link_width_enabled"] = _enabled(
        "width", asked.link_width_enabled, before.link_width_enabled, before.link_width_supported, ALL_WIDTHS
    )
    values["link_speed_enabled"] = _enabled(
        "speed", asked.link_speed_enabled, before.link_speed_enabled, before.link_speed_supported, ALL_SPEEDS
    )
    for name, nothing, everything in (
        ("link_speed_ext", NO_EXTENDED_SPEED, ALL_EXTENDED_SPEEDS),
        ("link_speed_ext2", NO_EXTENDED2_SPEED, ALL_EXTENDED2_SPEEDS),
    ):
        asked_for, enabled = getattr(asked, f"{name}_enabled"), getattr(before, f"{name}_enabled")
        supported = getattr(before, f"{name}_supported")
        if asked_for != nothing:
            asked_for = _enabled("extended speed", asked_for, enabled, supported, everything)
        values[f"{name}_enabled"] = asked_for
    return values


def _enabled(what: str, asked: int, before: int, supported: int, everything: int) -> int:
    """Which widths or speeds are enabled: 0 leaves them, all ones mean all that are supported."""
    if asked == 0:
        return before
    if asked == everything:
        return supported
    if asked & ~supported:
        raise ValueError(f"{what} {asked:#x} of {supported:#x}")
    return asked
