"""What crosses between an adapter's port and the process of a fabric: packets of a seqpacket socket.

The adapter's first message is `Hello`, the fabric's answer `Welcome` or `Refusal`.  Then each side sends
bursts (`BURST`: stride, then LRH … VCRC of each packet), and the fabric what a manager sets (`INFO`).
Where the fabric is an Ethernet a burst is a run (`fabric.ethernet.frames`): the IP and UDP headers of its
first packet, and BTH … ICRC of each, stride apart; `INFO` says no more there than whether the link is up, and
the adapter says which multicast groups it is in (`GROUP`).  A message is checked by who reads it; one that
cannot be is a ValueError here.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

from softhca.wire.burst import CAPACITY
from softhca.wire.route import is_multicast

VERSION = 2
HEADER = struct.Struct("<B3xI")
"""Kind, and a burst's stride."""
BURST, INFO, HELLO, WELCOME, REFUSAL, GROUP = 1, 2, 3, 4, 5, 6
ETHERNET = "ethernet"
"""What a `WELCOME` says of its ``kind`` then."""
LARGEST = HEADER.size + CAPACITY
MOST_TEXT_BYTES = 16_384
MOST_PKEYS = 64
NUMBERS = {
    "lid": 0xBFFF, "lmc": 7, "sm_lid": 0xBFFF, "sm_sl": 15, "subnet_timeout": 31, "gid_prefix": (1 << 64) - 1,
    "state": 4,
}  # fmt: skip
"""What an `INFO` says of a port, and how much each can be; and ``pkeys``."""
PORT_FACTS = {"port_guid": (1 << 64) - 1, "node_guid": (1 << 64) - 1, "mtu": 5, "width": 255, "speed": 65_535}
"""What a `WELCOME` says besides."""
MOST_MBPS = 1 << 32
MOST_GROUPS = 256
"""Of one adapter on an Ethernet."""


def socket_name(name: str) -> str:
    """The abstract name at which adapters of this user join the fabric that is served under ``name``."""
    return f"\0softhca/fabric/{os.geteuid()}/{name}/adapters"


def encode(kind: int, content: dict[str, Any]) -> bytes:
    """A message of text."""
    return HEADER.pack(kind, 0) + json.dumps(content, separators=(",", ":")).encode()


def decode(data: bytes | memoryview) -> tuple[int, dict[str, Any]]:
    """Kind and content of a message of text.  ValueError."""
    if not HEADER.size < len(data) <= MOST_TEXT_BYTES:
        raise ValueError(f"a message of {len(data)} bytes")
    kind, _ = HEADER.unpack_from(data)
    try:
        content = json.loads(bytes(data[HEADER.size :]))
    except RecursionError:
        raise ValueError("a message that is too deep") from None
    if not isinstance(content, dict):
        raise ValueError("a message that is no object")
    return kind, content


def port_info(content: dict[str, Any]) -> dict[str, Any]:
    """What a manager has set, checked.  ValueError."""
    values: dict[str, Any] = {name: _number(content, name, most) for name, most in NUMBERS.items()}
    pkeys = content.get("pkeys")
    if not isinstance(pkeys, list) or len(pkeys) > MOST_PKEYS:
        raise ValueError("no P_Keys")
    if not all(isinstance(key, int) and not isinstance(key, bool) and 0 <= key <= 0xFFFF for key in pkeys):
        raise ValueError("P_Keys that cannot be")
    return values | {"pkeys": tuple(pkeys)}


def port_facts(content: dict[str, Any]) -> dict[str, int]:
    """What a port is, checked.  ValueError."""
    return {name: _number(content, name, most) for name, most in PORT_FACTS.items()}


def ethernet_facts(content: dict[str, Any]) -> tuple[bytes, int]:
    """The GID of an Ethernet's port, and its megabits a second, checked.  ValueError."""
    return _gid(content, "address"), _number(content, "mbps", MOST_MBPS)


def group_change(content: dict[str, Any]) -> tuple[bytes, bool]:
    """The MGID that a `GROUP` names, and whether the adapter is in the group from now on, checked.
    ValueError."""
    gid = _gid(content, "group")
    if not is_multicast(gid):
        raise ValueError("no group")
    member = content.get("member")
    if not isinstance(member, bool):
        raise ValueError("neither a member nor none")
    return gid, member


def _gid(content: dict[str, Any], name: str) -> bytes:
    try:
        gid = bytes.fromhex(str(content.get(name)))
    except ValueError:
        gid = b""
    if len(gid) != 16:
        raise ValueError(f"no {name}")
    return gid


def _number(content: dict[str, Any], name: str, most: int) -> int:
    value = content.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{name} is {str(value)[:40]}")
    return value
