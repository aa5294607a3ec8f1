"""Network interfaces as a port of an adapter sees them: addresses, MTU, driver."""

from __future__ import annotations

import ctypes
import fcntl
import ipaddress
import socket
import struct

from softhca.links import netlink

PATH_MTUS_BYTES = (4096, 2048, 1024, 512, 256)
"""The path MTUs of InfiniBand (IBTA vol. 1, 9.2.8 and table of MTU encodings), largest first."""

OVERHEAD_BYTES = 96
"""All that may surround the payload of one packet in an IP datagram: IPv6 40, UDP 8, BTH 12, the largest set
of extension headers in front of a payload 32 (RDETH 4, DETH 8, RETH 16, ImmDt 4), ICRC 4."""

_SIOCGIFMTU, _SIOCGIFINDEX, _SIOCETHTOOL = 0x8921, 0x8933, 0x8946
_ETHTOOL_GDRVINFO, _ETHTOOL_GSTRINGS, _ETHTOOL_GSSET_INFO, _ETHTOOL_GFEATURES = 3, 0x1B, 0x37, 0x3A
_FEATURE_STRINGS, _STRING_BYTES = 4, 32
_TAKES_BURSTS = b"tx-udp-segmentation"
_DRIVER_INFO_BYTES, _DRIVER_OFFSET, _DRIVER_BYTES = 196, 4, 32
_NAME_BYTES, _REQUEST_BYTES = 16, 40


def parse_address(text: str) -> tuple[bytes, int]:
    """A textual address as packed bytes (4 or 16; an IPv4-mapped one gives 4) and interface index (or 0).

    ValueError when it is no address, OSError when the interface after ``%`` does not exist.
    """
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv4Address):
        return address.packed, 0
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped.packed, 0
    scope = address.scope_id
    if not scope:
        return address.packed, 0
    return address.packed, int(scope) if scope.isdigit() else socket.if_nametoindex(scope)


def active_mtu(interface_mtu_bytes: int) -> int:
    """The largest path MTU in bytes that always fits an interface's MTU: 1500 gives 1024, 4192 and more 4096.

    ValueError for an interface below 352 bytes, which cannot carry the smallest.
    """
    for mtu_bytes in PATH_MTUS_BYTES:
        if mtu_bytes + OVERHEAD_BYTES <= interface_mtu_bytes:
            return mtu_bytes
    raise ValueError(
        f"an interface MTU of {interface_mtu_bytes} bytes cannot carry a path MTU of 256 and "
        f"{OVERHEAD_BYTES} bytes of headers")


def _request(name: str, number: int, argument: bytes) -> bytes:
    """One interface ioctl; the answer after the name.  OSError when there is no such interface."""
    encoded = name.encode()
    if not 0 < len(encoded) < _NAME_BYTES:
        raise ValueError(f"{name!r} is no interface name")
    block = encoded.ljust(_NAME_BYTES, b"\0") + argument.ljust(_REQUEST_BYTES - _NAME_BYTES, b"\0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        return fcntl.ioctl(channel, number, block)[_NAME_BYTES:]


def mtu_of_interface(name: str) -> int:
    """MTU of an interface in bytes; OSError when it does not exist."""
    mtu_bytes: int = struct.unpack_from("=i", _request(name, _SIOCGIFMTU, b""))[0]
    return mtu_bytes


def index_of_interface(name: str) -> int:
    """Index of an interface; OSError when it does not exist."""
    index: int = struct.unpack_from("=i", _request(name, _SIOCGIFINDEX, b""))[0]
    return index


def driver_of_interface(name: str) -> str:
    """Name of the kernel driver behind an interface (``veth``, ``virtio_net`` …); empty where it has none."""
    try:
        information = _ethtool(name, struct.pack("=I", _ETHTOOL_GDRVINFO).ljust(_DRIVER_INFO_BYTES, b"\0"))
    except OSError:
        return ""  # not an Ethernet-like interface: the loopback, tunnels
    driver = information[_DRIVER_OFFSET : _DRIVER_OFFSET + _DRIVER_BYTES]
    return driver.split(b"\0", 1)[0].decode("ascii", "replace")


def takes_bursts(name: str) -> bool:
    """Whether an interface is given UDP bursts whole, to cut them itself or to hand them on.

    Where it is not the kernel cuts them.  OSError when there is no such interface, or it does not say.
    """
    count = struct.unpack_from("=I", _ethtool(name, struct.pack(
        "=IIQI", _ETHTOOL_GSSET_INFO, 0, 1 << _FEATURE_STRINGS, 0)), 16)[0]
    head = struct.pack("=III", _ETHTOOL_GSTRINGS, _FEATURE_STRINGS, count)
    strings = _ethtool(name, head + bytes(count * _STRING_BYTES))[len(head):]
    entries = [strings[at : at + _STRING_BYTES] for at in range(0, len(strings), _STRING_BYTES)]
    names = [entry.split(b"\0", 1)[0] for entry in entries]
    if _TAKES_BURSTS not in names:
        return False  # the kernel is older than the feature, so no interface can have it
    bit = names.index(_TAKES_BURSTS)
    blocks = (count + 31) // 32
    features = _ethtool(name, struct.pack("=II", _ETHTOOL_GFEATURES, blocks) + bytes(16 * blocks))
    active: int = struct.unpack_from("=IIII", features, 8 + 16 * (bit // 32))[2]  # available requested active
    return bool(active >> bit % 32 & 1)


def _ethtool(name: str, block: bytes) -> bytes:
    """One ethtool command; its block as the kernel has filled it in."""
    buffer = ctypes.create_string_buffer(block, len(block))
    _request(name, _SIOCETHTOOL, struct.pack("@P", ctypes.addressof(buffer)))
    return buffer.raw


def address_of_interface(name: str, family: int = socket.AF_INET) -> str:
    """First address of that family of an interface, as text.

    An IPv6 link-local one is given only when there is no other, with its ``%interface``.
    OSError when the interface does not exist or has no such address.
    """
    index = socket.if_nametoindex(name)
    length = 4 if family == socket.AF_INET else 16
    found = [entry.address for entry in netlink.addresses()
             if entry.interface_index == index and len(entry.address) == length]
    wide = [address for address in found if not ipaddress.ip_address(address).is_link_local or length == 4]
    if wide:
        return socket.inet_ntop(family, wide[0])
    if found:
        return f"{socket.inet_ntop(family, found[0])}%{name}"
    raise OSError(f"interface {name} has no IPv{4 if length == 4 else 6} address")


def interface_of_address(text: str) -> str:
    """Name of the interface that bears an address of this machine; any of 127/8 is the loopback's.

    OSError when no interface does.
    """
    address, scope = parse_address(text)
    if scope:
        return socket.if_indextoname(scope)
    entries = netlink.addresses()
    for entry in entries:
        if entry.address == address:
            return socket.if_indextoname(entry.interface_index)
    if len(address) == 4 and address[0] == 127:
        for entry in entries:
            if len(entry.address) == 4 and entry.address[0] == 127:
                return socket.if_indextoname(entry.interface_index)
    raise OSError(f"no interface of this machine has the address {text}")


def addresses_beside(text: str) -> list[str]:
    """The other addresses of the interface that bears the address ``text``, in the kernel's order, without
    IPv6's link-local ones, which are nothing without their interface, and those that cannot be used yet.
    OSError when no interface does.
    """
    index = index_of_interface(interface_of_address(text))
    own, _ = parse_address(text)
    found = addresses_of_index(index)
    return [
        str(each) for each in found
        if each.packed != own and (each.version == 4 or not each.is_link_local)
    ]


def addresses_of_index(index: int) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """The addresses of an interface that can be used, in the kernel's order.  OSError as `netlink.addresses`.
    """
    entries = (entry for entry in netlink.addresses() if entry.interface_index == index and entry.usable)
    # one with two prefixes is told twice
    return [ipaddress.ip_address(each) for each in dict.fromkeys(entry.address for entry in entries)]
