"""The subnet management agent of a fabric's node (IBTA vol. 1, 14.2): what a manager reads and sets.

Datagrams are answered in place: 256 bytes come in, and the same bytes are the response.  M_Keys are checked
(14.2.4), a Set whose values cannot be changes nothing and is answered with the status for it, and everything
that is refused is counted by reason.
"""

from __future__ import annotations

from collections.abc import Callable

from softhca.fabric.node_state import (
    LINEAR_BLOCK,
    LINEAR_ENTRIES,
    MULTICAST_ENTRIES,
    NodeState,
)
from softhca.fabric.notices import Notices
from softhca.fabric.port_state import (
    DOWN,
    GUIDS,
    NO_CHANGE,
    PHYS_DISABLED,
    PHYSICAL_CHANGES,
    STATE_CHANGES,
    PortState,
    configured,
)
from softhca.management import constants as c
from softhca.management.attributes import PortInfo
from softhca.management.subnet_attributes import TABLES, BadMKeyDetails, SwitchInfo

DATA_AT = 64
M_KEY_AT = 24
LOCAL_PORT_AT = 28
"""Where PortInfo has the port that was asked; the answer of a switch differs by its entrance."""
SECOND_NS = 1_000_000_000
RETURN_PATH_AT = 192
NOTICE_PATH_BYTES = 30
MULTICAST_BLOCK = 32
PKEY_BLOCK = 32
GUID_BLOCK = 8
TOP_PORT = 254

COUNTERS = (
    "answered",
    "refused_version",
    "refused_attribute",
    "refused_value",
    "drops_m_key",
    "drops_method",
)
"""What an agent counts: answers, refusals by status, what is dropped for its M_Key or has no response."""


class RefusedError(Exception):
    """A value or an attribute modifier that cannot be: status 0x1C."""


class SubnetAgent:
    """Answers for ``node``.  ``retrain(node, port)`` is called when a port's link shall go down and, if it
    can, come up again; ``counters`` may be shared by all agents of a fabric.
    """

    def __init__(
        self,
        node: NodeState,
        notices: Notices,
        retrain: Callable[[NodeState, PortState], None],
        counters: dict[str, int],
    ) -> None:
        self.node = node
        self._notices = notices
        self._retrain = retrain
        self._counters = counters

    def answer(self, mad: bytearray, entrance: int, now: int) -> bool:
        """A request of one of the classes of subnet management has come in by a port (0: from a switch
        itself).  True: ``mad`` is the response now; False: there is none.
        """
        method = mad[3]
        if method == c.METHOD_TRAP_REPRESS:
            return self._repress(mad, entrance, now)
        if method not in c.ANSWERED_METHODS:
            return self._drop("drops_method")
        if mad[0] != c.BASE_VERSION or mad[2] != 1:
            return self._respond(mad, c.STATUS_BAD_VERSION, "refused_version")
        shown = self._check_m_key(mad, entrance, now)
        if shown is None:
            return self._drop("drops_m_key")
        attribute = mad[16] << 8 | mad[17]
        modifier = int.from_bytes(mad[20:24], "big")
        get, put = ATTRIBUTES.get(attribute, NONE)
        if get is None or (put is None and method == c.METHOD_SET):
            return self._respond(mad, c.STATUS_BAD_ATTRIBUTE, "refused_attribute")
        status, reason = c.STATUS_OK, "answered"
        try:
            if method == c.METHOD_SET and put is not None:
                get(self, modifier, entrance)  # the same modifiers can be set as can be read
                put(self, modifier, entrance, bytes(mad[DATA_AT : DATA_AT + 64]))
        except (RefusedError, ValueError):
            status, reason = c.STATUS_BAD_VALUE, "refused_value"
        try:
            data = get(self, modifier, entrance)
        except RefusedError:
            return self._respond(mad, c.STATUS_BAD_VALUE, "refused_value")
        if attribute == c.ATTRIBUTE_PORT_INFO and not shown:
            data = bytes(8) + data[8:]
        mad[DATA_AT : DATA_AT + 64] = data.ljust(64, b"\0")
        return self._respond(mad, status, reason)

    def _respond(self, mad: bytearray, status: int, reason: str) -> bool:
        self._counters[reason] += 1
        if mad[1] == c.CLASS_SUBN_DIRECTED:
            status |= c.DIRECTION
        mad[3] = c.METHOD_GET_RESPONSE
        mad[4], mad[5] = status >> 8, status & 0xFF
        return True

    def _drop(self, reason: str) -> bool:
        self._counters[reason] += 1
        return False

    # M_Keys

    def _check_m_key(self, mad: bytearray, entrance: int, now: int) -> bool | None:
        """Whether the sender may see the M_Key; None: it has not got it, and the packet is dropped
        (14.2.4.1, 14.2.4.2)."""
        port = self.node.own_port(entrance)
        info = port.info
        if not info.m_key:
            return True
        if port.lease_ns and now >= port.lease_ns:
            port.lease_ns = 0
            port.change(m_key_protect_bits=0)
            info = port.info
        if int.from_bytes(mad[M_KEY_AT : M_KEY_AT + 8], "big") == info.m_key:
            port.lease_ns = 0
            return True
        if mad[3] == c.METHOD_GET and info.m_key_protect_bits < 2:
            return info.m_key_protect_bits == 0
        port.change(m_key_violations=min(info.m_key_violations + 1, 0xFFFF))
        if info.m_key_lease_period and not port.lease_ns:
            port.lease_ns = now + info.m_key_lease_period * SECOND_NS
        self._notices.raise_bad_m_key(self.node, port, _violation(mad, info.lid), now)
        return None

    def _repress(self, mad: bytearray, entrance: int, now: int) -> bool:
        """A manager has heard of a trap."""
        if self._check_m_key(mad, entrance, now) is None:
            return self._drop("drops_m_key")
        if (mad[16] << 8 | mad[17]) == c.ATTRIBUTE_NOTICE:
            self._notices.repress(self.node, bytes(mad[8:16]))
        return False

    # what is read: (agent, attribute modifier, entrance) -> data

    def _node_description(self, modifier: int, entrance: int) -> bytes:
        return self.node.description

    def _node_info(self, modifier: int, entrance: int) -> bytes:
        return self.node.info(entrance)

    def _switch_info(self, modifier: int, entrance: int) -> bytes:
        _require(self.node.is_switch)
        return self.node.switch_info.encode()

    def _port(self, number: int, entrance: int) -> PortState:
        """The port that a modifier names: 0 is the agent's own."""
        port = self.node.own_port(entrance) if number == 0 else self.node.port(number)
        if port is None:
            raise RefusedError
        return port

    def _port_info(self, modifier: int, entrance: int) -> bytes:
        port = self._port(modifier & ~c.EXTENDED_SPEEDS_BIT, entrance)
        data = port.encoded
        if port.number == entrance:
            return data
        return data[:LOCAL_PORT_AT] + bytes([entrance]) + data[LOCAL_PORT_AT + 1 :]

    def _guid_info(self, modifier: int, entrance: int) -> bytes:
        _require(modifier < GUIDS // GUID_BLOCK)
        port = self.node.own_port(entrance)
        own = self.node.node.port_guid(port.number).to_bytes(8, "big")
        return own + port.guids.get(modifier, bytes(64))[8:]

    def _pkeys(self, modifier: int, entrance: int) -> bytes:
        port, block = self._pkey_place(modifier, entrance)
        return port.pkey_block(block)

    def _pkey_place(self, modifier: int, entrance: int) -> tuple[PortState, int]:
        """The port and the block of P_Keys that a modifier names (14.2.5.7)."""
        number, block = modifier >> 16, modifier & 0xFFFF
        port = self._port(number, entrance) if self.node.is_switch else self.node.own_port(entrance)
        _require(block * PKEY_BLOCK < self.node.pkeys_cap(port.number))
        return port, block

    def _sl_to_vl(self, modifier: int, entrance: int) -> bytes:
        port, entering = self._sl_to_vl_place(modifier, entrance)
        return port.sl_to_vl.get(entering, bytes(8))

    def _sl_to_vl_place(self, modifier: int, entrance: int) -> tuple[PortState, int]:
        """The port out of which, and that by which packets come in (14.2.5.8)."""
        if not self.node.is_switch:
            return self.node.own_port(entrance), 0
        entering, leaving = modifier >> 8, modifier & 0xFF
        port = self.node.port(leaving)
        _require(port is not None and self.node.port(entering) is not None)
        assert port is not None
        return port, entering

    def _arbitration(self, modifier: int, entrance: int) -> bytes:
        port, block = self._arbitration_place(modifier, entrance)
        return port.arbitration.get(block, bytes(64))

    def _arbitration_place(self, modifier: int, entrance: int) -> tuple[PortState, int]:
        """The port, and the low (1) or high (3) table; the second halves need more entries than a port has
        (14.2.5.9)."""
        block, number = modifier >> 16, modifier & 0xFFFF
        port = self.node.port(number) if self.node.is_switch else self.node.own_port(entrance)
        _require(port is not None and block in (1, 3))
        assert port is not None
        return port, block

    def _linear(self, modifier: int, entrance: int) -> bytes:
        _require(self.node.is_switch and modifier < LINEAR_ENTRIES // LINEAR_BLOCK)
        return self.node.linear_block(modifier)

    def _multicast(self, modifier: int, entrance: int) -> bytes:
        _require(self.node.is_switch)
        block, position, between = modifier & 0x1FF, modifier >> 28, modifier >> 9 & 0x7FFFF
        ports = len(self.node.ports)
        _require(not between and block < MULTICAST_ENTRIES // MULTICAST_BLOCK and position * 16 < ports)
        return self.node.multicast.get(modifier, bytes(64))

    def _led_info(self, modifier: int, entrance: int) -> bytes:
        return (self._port(modifier, entrance).led << 31).to_bytes(4, "big")

    # what is set: (agent, attribute modifier, entrance, data); RefusedError or ValueError: it cannot be

    def _set_switch_info(self, modifier: int, entrance: int, data: bytes) -> None:
        asked, before = SwitchInfo.decode(data), self.node.switch_info
        _require(asked.linear_fdb_top < LINEAR_ENTRIES)
        top = asked.multicast_fdb_top
        _require(top == 0 or top == 0xFFFF or top < 0xC000 + MULTICAST_ENTRIES)
        for port in (asked.default_multicast_primary_port, asked.default_multicast_not_primary_port):
            _require(port == 0xFF or port < len(self.node.ports))
        changed = 0 if asked.port_state_change else before.port_state_change
        self.node.set_switch_info(
            linear_fdb_top=asked.linear_fdb_top,
            default_port=asked.default_port,
            default_multicast_primary_port=asked.default_multicast_primary_port,
            default_multicast_not_primary_port=asked.default_multicast_not_primary_port,
            lifetime=asked.lifetime,
            port_state_change=changed,
            multicast_fdb_top=top,
        )

    def _set_port_info(self, modifier: int, entrance: int, data: bytes) -> None:
        port = self._port(modifier & ~c.EXTENDED_SPEEDS_BIT, entrance)
        asked = PortInfo.decode(data)
        values = configured(port, asked)
        state: int | None = port.state
        if port.number:
            state = STATE_CHANGES.get((port.state, asked.state))
            _require(state is not None and asked.phys_state in PHYSICAL_CHANGES)
        _require(port.number != 0 or asked.state in (NO_CHANGE, port.state))
        down = port.number and (asked.phys_state or (state == DOWN and asked.state == DOWN))
        if state is not None and not down:
            values["state"] = state
        port.change(**values)
        if down:
            if asked.phys_state:
                port.disabled = asked.phys_state == PHYS_DISABLED
            self._retrain(self.node, port)

    def _set_guid_info(self, modifier: int, entrance: int, data: bytes) -> None:
        self.node.own_port(entrance).guids[modifier] = data

    def _set_pkeys(self, modifier: int, entrance: int, data: bytes) -> None:
        port, block = self._pkey_place(modifier, entrance)
        port.set_pkeys(block, data)

    def _set_sl_to_vl(self, modifier: int, entrance: int, data: bytes) -> None:
        port, entering = self._sl_to_vl_place(modifier, entrance)
        port.sl_to_vl[entering] = data[:8]

    def _set_arbitration(self, modifier: int, entrance: int, data: bytes) -> None:
        port, block = self._arbitration_place(modifier, entrance)
        lanes = TABLES[c.ATTRIBUTE_VL_ARBITRATION].decode(data)
        _require(all(entry >> 8 & 0xF != 15 for entry in lanes))  # lane 15 is not arbitrated (7.6.9)
        port.arbitration[block] = data

    def _set_linear(self, modifier: int, entrance: int, data: bytes) -> None:
        count = len(self.node.ports)
        _require(all(port < count or port == 0xFF for port in data))
        self.node.set_linear(modifier, data)

    def _set_multicast(self, modifier: int, entrance: int, data: bytes) -> None:
        self.node.multicast[modifier] = data

    def _set_led_info(self, modifier: int, entrance: int, data: bytes) -> None:
        self._port(modifier, entrance).led = data[0] >> 7


def _require(possible: bool) -> None:
    if not possible:
        raise RefusedError


def _violation(mad: bytearray, lid: int) -> BadMKeyDetails:
    """What trap 256 tells of a packet."""
    directed = mad[1] == c.CLASS_SUBN_DIRECTED
    hops = mad[7] if directed else 0
    path = bytes(mad[RETURN_PATH_AT + 1 : RETURN_PATH_AT + 1 + min(hops, NOTICE_PATH_BYTES)])
    return BadMKeyDetails(
        lid=lid,
        dr_slid=int.from_bytes(mad[32:34], "big") if directed else 0,
        method=mad[3],
        attribute_id=mad[16] << 8 | mad[17],
        attribute_modifier=int.from_bytes(mad[20:24], "big"),
        m_key=int.from_bytes(mad[M_KEY_AT : M_KEY_AT + 8], "big"),
        dr_notice=int(directed),
        dr_path_truncated=int(hops > NOTICE_PATH_BYTES),
        dr_hop_count=min(hops, NOTICE_PATH_BYTES),
        dr_return_path=path.ljust(NOTICE_PATH_BYTES, b"\0"),
    )


Getter = Callable[[SubnetAgent, int, int], bytes]
Setter = Callable[[SubnetAgent, int, int, bytes], None]
NONE: tuple[None, None] = (None, None)

ATTRIBUTES: dict[int, tuple[Getter, Setter | None]] = {
    c.ATTRIBUTE_NODE_DESCRIPTION: (SubnetAgent._node_description, None),
    c.ATTRIBUTE_NODE_INFO: (SubnetAgent._node_info, None),
    c.ATTRIBUTE_SWITCH_INFO: (SubnetAgent._switch_info, SubnetAgent._set_switch_info),
    c.ATTRIBUTE_GUID_INFO: (SubnetAgent._guid_info, SubnetAgent._set_guid_info),
    c.ATTRIBUTE_PORT_INFO: (SubnetAgent._port_info, SubnetAgent._set_port_info),
    c.ATTRIBUTE_PKEY_TABLE: (SubnetAgent._pkeys, SubnetAgent._set_pkeys),
    c.ATTRIBUTE_SL_TO_VL_TABLE: (SubnetAgent._sl_to_vl, SubnetAgent._set_sl_to_vl),
    c.ATTRIBUTE_VL_ARBITRATION: (SubnetAgent._arbitration, SubnetAgent._set_arbitration),
    c.ATTRIBUTE_LINEAR_FORWARDING: (SubnetAgent._linear, SubnetAgent._set_linear),
    c.ATTRIBUTE_MULTICAST_FORWARDING: (SubnetAgent._multicast, SubnetAgent._set_multicast),
    c.ATTRIBUTE_LED_INFO: (SubnetAgent._led_info, SubnetAgent._set_led_info),
}
"""What can be read and what can be set; all else has the status "no such attribute"."""
