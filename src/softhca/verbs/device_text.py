"""Text for the numbers of devices and ports."""

from collections.abc import Mapping

from softhca.verbs.device_enums import (
    ibv_device_cap_flags,
    ibv_event_type,
    ibv_port_cap_flags,
    ibv_port_cap_flags2,
)
from softhca.verbs.extensions import SOFTHCA_EVENT_MESSAGES_LOST, SOFTHCA_EVENT_PAGE_FAULT
from softhca.verbs.utils import be64toh, mtu_to_str

_GID_TYPES = {0: "IB", 1: "RoCEv1", 2: "RoCEv2"}
_TRANSPORTS = {0: "IB", 1: "IWARP", 2: "USNIC", 3: "USNIC UDP"}
_NODES = {1: "CA", 2: "Switch", 3: "Router", 4: "RNIC", 5: "USNIC", 6: "USNIC UDP"}
_PORT_STATES = {0: "NOP", 1: "Down", 2: "Init", 3: "Armed", 4: "Active", 5: "Defer"}
_LINK_LAYERS = {0: "Unspecified", 1: "InfiniBand", 2: "Ethernet"}
_PHYSICAL = {
    1: "Sleep",
    2: "Polling",
    3: "Disabled",
    4: "Port configuration training",
    5: "Link up",
    6: "Link error recovery",
    7: "Phy test",
}
_WIDTHS = {1: "1X", 2: "4X", 4: "8X", 8: "12X", 16: "2X"}
_SPEEDS = {
    0: "0.0",
    1: "2.5",
    2: "5.0",
    4: "5.0",
    8: "10.0",
    16: "14.0",
    32: "25.0",
    64: "50.0",
    128: "100.0",
    256: "200.0",
}


def translate_gid_type(gid_type: int) -> str:
    """Name of an ``ibv_gid_type``."""
    return _GID_TYPES.get(gid_type, f"Unknown gid_type ({gid_type})")


def guid_format(num: int) -> str:
    """A GUID as libibverbs holds it (read from big-endian memory), in four words."""
    digits = f"{be64toh(num):016x}"
    return ":".join(digits[i : i + 4] for i in range(0, 16, 4))


def guid_to_hex(node_guid: int) -> str:
    """A GUID in hexadecimal without prefix."""
    return f"{node_guid:x}"


def translate_transport_type(transport_type: int) -> str:
    """Name of an ``ibv_transport_type``."""
    return _TRANSPORTS.get(transport_type, "Unknown")


def translate_node_type(node_type: int) -> str:
    """Name of an ``ibv_node_type``."""
    return _NODES.get(node_type, "Unknown")


def port_state_to_str(port_state: int) -> str:
    """Name and number of an ``ibv_port_state``."""
    name = _PORT_STATES.get(port_state)
    return f"{name} ({port_state})" if name else f"Invalid state ({port_state})"


def translate_mtu(mtu: int) -> str:
    """Bytes and code of an ``ibv_mtu``."""
    length_bytes = mtu_to_str(mtu)
    return f"{length_bytes} ({mtu})" if length_bytes else f"Invalid MTU ({mtu})"


def translate_link_layer(ll: int) -> str:
    """Name of a link layer."""
    return _LINK_LAYERS.get(ll, f"Invalid link layer ({ll})")


def str_from_flags(flags: int, dictionary: Mapping[int, str]) -> str:
    """One indented line for each bit that is set."""
    return "\n  " + "".join(f"{name}\n  " for bit, name in dictionary.items() if flags & bit)


def translate_port_cap_flags(flags: int) -> str:
    """Names of a port's capabilities, a line each."""
    return str_from_flags(flags, {each: str(each.name) for each in ibv_port_cap_flags})


def translate_port_cap_flags2(flags: int) -> str:
    """Names of a port's second capabilities, a line each."""
    return str_from_flags(flags, {each: str(each.name) for each in ibv_port_cap_flags2})


def translate_device_caps(flags: int) -> str:
    """Names of a device's capabilities, a line each."""
    return str_from_flags(flags, {each: str(each.name) for each in ibv_device_cap_flags})


def phys_state_to_str(phys: int) -> str:
    """Name and number of a physical port state."""
    return f"{_PHYSICAL[phys]} ({phys})" if phys in _PHYSICAL else "Invalid physical state"


def width_to_str(width: int) -> str:
    """Name and code of a link width."""
    return f"{_WIDTHS[width]} ({width})" if width in _WIDTHS else "Invalid width"


def speed_to_str(active_speed: int, active_speed_ex: int = 0) -> str:
    """Rate of a lane and its code; the extended code counts when it is set."""
    speed = active_speed_ex or active_speed
    return f"{_SPEEDS[speed]} Gbps ({speed})" if speed in _SPEEDS else "Invalid speed"


def translate_event_type(event_type: int) -> str:
    """Name of an ``ibv_event_type``."""
    if event_type == SOFTHCA_EVENT_MESSAGES_LOST:
        return "SOFTHCA_EVENT_MESSAGES_LOST"
    if event_type == SOFTHCA_EVENT_PAGE_FAULT:
        return "SOFTHCA_EVENT_PAGE_FAULT"
    try:
        return ibv_event_type(event_type).name
    except ValueError:
        return f"Unknown event_type ({event_type})"
