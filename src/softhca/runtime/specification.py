"""``SOFTHCA_DEVICES`` as text: which adapters a process has and how each of them reaches the wire.

    SOFTHCA_DEVICES = device { "," device }
    device          = NAME "=" port { "+" port } [ "?" OPTION "=" VALUE { "&" OPTION "=" VALUE } ]
    port            = KIND ":" PLACE

A device of kind ``udp`` has as many ports as it names, numbered from 1; options are for all of them.

=========  ==========================================================================================
``KIND``   ``PLACE``
=========  ==========================================================================================
``udp``    an IPv4 address, an IPv6 address in brackets, the name of a network interface, or ``*``:
           the first free loopback address 127.0.0.2, 127.0.0.3 …; RoCEv2, UDP port 4791
``fabric`` a fabric that `softhca fabric serve` or `softhca run` serves: its name, or ``NAME/NODE``; without
           a node the first host that is free, ``NAME/NODE[PORT]`` one of its ports
``unix``   socket of an adapter process that serves already: a path, or ``@`` and an abstract name
=========  ==========================================================================================

Options of ``udp``; ``fabric`` has ``window``, ``profile`` and ``source_port``, and where it is an Ethernet
``gids``, ``congestion`` and ``rate``:

========================  ===========================================================================
``mtu``                   256, 512, 1024, 2048, 4096: an upper limit of the port's active MTU in bytes
``buffer``                bytes asked of the kernel for each socket buffer; what it gives without
                          privilege is 212,992
``addresses``             further IP addresses of the port, joined by ``+``: at most 15, IPv4 and IPv6, none
                          in brackets; or ``all``: those of the interface of the port's address.  Of a device
                          with one port (docs/verbs.md)
``gids``                  1 … 16: so many entries of the ports' GID tables have their addresses, in turn; 4
``window``                bytes in flight to one peer, at most: more for peers with larger socket buffers
                          on paths with long round trips
``segmenting``            addresses, joined by ``+``, of peers behind a network card that cuts bursts itself
                          and is known to count identifications as the kernel does (``links.paths``)
``check_identification``  1: compare the IPv4 identification of every datagram received with the one
                          that its ICRC covers (takes CAP_NET_RAW, for a raw socket); 0: do not
``vni``                   the VXLAN segment of the device's Ethernet frames (raw packet queue pairs)
``vteps``                 addresses, joined by ``+``, of further members of that segment
``same_host``             0: packets, also to adapters of the same user on this host; otherwise requests
                          to them are carried out in shared memory where both ends allow that and it can
                          be (docs/same-host.md); 1: a warning says why where it cannot
``share``                 0: other processes that open these addresses do not share an adapter which is
                          embedded in this one; 1 (default): they do
``source_port``           ``strict``: a connected queue pair takes packets from one UDP source port of its
                          peer, that of the first packet that fits; ``any``: from every one
``congestion``            ``dcqcn``: connections slow down where switches mark packets (DCQCN), and say so
                          where marked ones arrive; ``off`` (default): they do not (docs/congestion.md)
``rate``                  megabits a second of the path's first link, for ``congestion``; 100000
``uniform``               1 (default): RDMA WRITEs without immediate and READs of medium length leave as
                          messages whose packets have one length, so that they share bursts, once the
                          connection has proven their range; 0: they always leave as FIRST, MIDDLE, LAST
                          (docs/performance.md)
``profile``               ``hca``: everything; ``tca``: a target's adapter, which has datagrams and
                          what is added by ``+``: ``rc uc write read atomic``
========================  ===========================================================================

Every error is one line that names the word at fault.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from softhca.links.interfaces import address_of_interface

MTUS_BYTES = (256, 512, 1024, 2048, 4096)
LEAST_BUFFER_BYTES = 131_072
MOST_BUFFER_BYTES = 1 << 30
LEAST_RATE_MBPS = 10
MOST_RATE_MBPS = 1_000_000
MAX_DEVICES = 64
ALL_ADDRESSES = ("all",)
"""All other addresses of the interface that a port is at."""
FABRIC_OPTIONS = ("gids", "window", "profile", "congestion", "rate", "source_port")

_FABRIC_HOST = re.compile(r"([A-Za-z0-9_.:-]{1,64})(/[A-Za-z0-9_.:-]{1,64}(\[[0-9]{1,3}\])?)?\Z")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}\Z")
_INTERFACE = re.compile(r"[A-Za-z0-9_.@-]{1,15}\Z")


class DeviceSpecificationError(ValueError):
    """``SOFTHCA_DEVICES`` or ``SOFTHCA_ADAPTER`` is wrong; the message names the word at fault."""


@dataclass(frozen=True)
class DeviceSpecification:
    """One adapter as it was asked for.

    ``place`` is an address or interface name (``udp``), a path (``unix``), a host of a fabric
    (``fabric``), or empty: the first free
    loopback address; it is port 1's, ``further_places`` are those of ports 2 and up.  ``addresses`` are
    further ones of the only port, or `ALL_ADDRESSES`.
    ``mtu_bytes`` limits the ports' active MTU, ``buffer_bytes`` the sockets' buffers; 0
    leaves them to the interface and to the link.  ``gids``: entries of the GID table of a RoCE port, 0: the
    usual number.  ``window_bytes`` limits what is in flight to one peer, 0:
    what a default buffer takes.  ``segmenting``: addresses of peers to which a card cuts bursts;
    ``check_identification``: a raw socket verifies what arrives.  ``profile`` as `Profile.of` takes it.
    ``strict_source_port``: a connection's packets come from one UDP port.
    ``congestion``: connections have DCQCN, on links of ``rate_mbps`` (0: the usual).
    ``uniform``: medium WRITEs and READs leave in packets of one length where their range is proven.
    ``same_host``: whether memory may be shared with adapters on this host; None: it may, automatically.
    ``vni`` and ``vteps``: the VXLAN segment of its Ethernet frames, and addresses of further adapters or
    kernels there; None: the usual one.
    ``share``: whether other processes that open the device share an embedded adapter.
    """

    name: str
    kind: str
    place: str
    mtu_bytes: int = 0
    buffer_bytes: int = 0
    addresses: tuple[str, ...] = ()
    gids: int = 0
    window_bytes: int = 0
    segmenting: tuple[str, ...] = ()
    check_identification: bool = False
    strict_source_port: bool = False
    congestion: bool = False
    rate_mbps: int = 0
    uniform: bool = True
    profile: str = ""
    same_host: bool | None = None
    share: bool = True
    vni: int | None = None
    vteps: tuple[str, ...] = ()
    further_places: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """Where each port is, port 1 first."""
        return (self.place, *self.further_places)

    def at(self, place: str) -> DeviceSpecification:
        """The same with one port, which is there."""
        return replace(self, place=place, further_places=())

    def __str__(self) -> str:
        ports = "+".join(f"{self.kind}:{self._text_of(place)}" for place in self.places)
        options = "&".join(f"{key}={value}" for key, value in (
            ("mtu", self.mtu_bytes), ("buffer", self.buffer_bytes),
            ("addresses", "+".join(self.addresses)), ("gids", self.gids),
            ("window", self.window_bytes),
            ("segmenting", "+".join(self.segmenting)),
            ("check_identification", int(self.check_identification)),
            ("source_port", "strict" if self.strict_source_port else ""),
            ("congestion", "dcqcn" if self.congestion else ""), ("rate", self.rate_mbps),
            ("uniform", "" if self.uniform else "0"),
            ("profile", self.profile),
            ("same_host", "" if self.same_host is None else str(int(self.same_host))),
            ("share", "" if self.share else "0"),
            ("vni", "" if self.vni is None else str(self.vni)), ("vteps", "+".join(self.vteps))) if value)
        return f"{self.name}={ports}" + (f"?{options}" if options else "")

    def _text_of(self, place: str) -> str:
        return f"[{place}]" if self.kind == "udp" and ":" in place else place or "*"


DEFAULT = DeviceSpecification("softhca0", "udp", "")


def parse(text: str) -> tuple[DeviceSpecification, ...]:
    """The devices that ``text`` (the value of ``SOFTHCA_DEVICES``) names, in its order.

    Blank text gives the default device.  Raises :class:`DeviceSpecificationError`.
    """
    if not text.strip():
        return (DEFAULT,)
    words = [word.strip() for word in text.split(",")]
    if len(words) > MAX_DEVICES:
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: {len(words)} devices, at most {MAX_DEVICES}")
    devices = tuple(_device(word) for word in words)
    names: set[str] = set()
    places: set[tuple[str, str]] = set()
    for device in devices:
        if device.name in names:
            raise DeviceSpecificationError(f"SOFTHCA_DEVICES: device name {device.name!r} is given twice")
        names.add(device.name)
        if set(device.addresses) & set(device.places):
            raise DeviceSpecificationError(
                f"SOFTHCA_DEVICES: addresses of {device.name!r}: they are those besides its own")
        named = () if device.addresses == ALL_ADDRESSES else device.addresses
        for place in filter(None, (*device.places, *named)):
            if (device.kind, place) in places:
                raise DeviceSpecificationError(f"SOFTHCA_DEVICES: {place!r} is given to two devices")
            places.add((device.kind, place))
    return devices


def with_same_host(text: str, same_host: bool) -> str:
    """``text`` (the value of ``SOFTHCA_DEVICES``) with this ``same_host`` for each device of kind ``udp``.

    Raises :class:`DeviceSpecificationError`.
    """
    devices = (
        replace(device, same_host=same_host) if device.kind == "udp" else device for device in parse(text)
    )
    return ",".join(map(str, devices))


def parse_one(word: str) -> DeviceSpecification:
    """One ``name=kind:place`` word.  Raises :class:`DeviceSpecificationError`."""
    return _device(word.strip())


def _device(word: str) -> DeviceSpecification:
    name, equals, rest = word.partition("=")
    if not equals:
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: {word!r} is not NAME=KIND:PLACE")
    if not _NAME.match(name):
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: {name!r} is no device name")
    kind, colon, place = rest.partition(":")
    if not colon or kind not in ("udp", "unix", "fabric"):
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: {kind!r} is no kind of link (udp, unix, fabric)")
    if kind == "unix":
        return DeviceSpecification(name, kind, _path(place))
    if kind == "fabric":
        ports, _, options = rest.partition("?")
        first, *further = _fabric_ports(ports)
        known = _options(options, FABRIC_OPTIONS)
        return DeviceSpecification(name, kind, first, **known, further_places=tuple(further))
    ports, _, options = rest.partition("?")
    first, *further = _ports(ports)
    made = DeviceSpecification(name, kind, first, **_options(options), further_places=tuple(further))
    if made.addresses and further:
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: addresses of {name!r}: it has several ports")
    return made


def _named_ports(text: str, kind: str, place_of: Callable[[str], str]) -> list[str]:
    """The places of the ports of one device, all of one kind, joined by ``+``."""
    from softhca.adapter.config import MAX_PORTS

    words = text.split("+")
    if len(words) > MAX_PORTS:
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: {len(words)} ports, at most {MAX_PORTS}")
    places = []
    for word in words:
        found, _, place = word.partition(":")
        if found != kind:
            raise DeviceSpecificationError(f"SOFTHCA_DEVICES: {word!r} is no port of kind {kind}")
        places.append(place_of(place))
    return places


def _fabric_ports(text: str) -> list[str]:
    """Where the ports of a device are that ``fabric:F/h3[1]+fabric:F/h3[2]`` names: at one host."""
    places = _named_ports(text, "fabric", _host)
    if len(places) > 1 and (
        len({place.partition("[")[0] for place in places}) > 1
        or len(set(places)) < len(places)
        or not all(place.endswith("]") for place in places)
    ):
        raise DeviceSpecificationError(
            f"SOFTHCA_DEVICES: {text!r}: ports of one device are several of one host, NAME/NODE[PORT]")
    return places


def _ports(text: str) -> list[str]:
    """Where the ports of a device are that ``udp:A+udp:B`` names."""
    places = _named_ports(text, "udp", _place)
    if len(set(filter(None, places))) != len(list(filter(None, places))):
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: {text!r} gives two ports one place")
    return places


def _host(place: str) -> str:
    if not _FABRIC_HOST.match(place):
        raise DeviceSpecificationError(
            f"SOFTHCA_DEVICES: {place!r} is no host of a fabric: NAME/NODE, NAME/NODE[PORT], or NAME for "
            "one that is free")
    return place


def _path(place: str) -> str:
    try:
        n = len(os.fsencode(place))  # an environment variable may hold bytes that are no text
    except UnicodeEncodeError:
        n = 0
    if not 0 < n <= 107:
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: {place!r} is no path of a socket (1 to 107 bytes)")
    return place


def _place(place: str) -> str:
    """Address in its canonical form, the name of an interface as it was written, or empty for ``*``."""
    if place == "*":
        return ""
    bracketed = place.startswith("[") and place.endswith("]")
    try:
        address = ipaddress.ip_address(place[1:-1] if bracketed else place)
    except ValueError:
        if not _INTERFACE.match(place):
            raise DeviceSpecificationError(
                f"SOFTHCA_DEVICES: {place!r} is neither an address nor an interface") from None
        return place
    if bracketed != (address.version == 6):
        form = "is written in brackets" if address.version == 6 else "is written without brackets"
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: {place!r}: an IPv{address.version} address {form}")
    if address.is_multicast or address.is_unspecified or place == "255.255.255.255":
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: {place!r} is not the address of one interface")
    if address.version == 6 and address.ipv4_mapped is not None:
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: {place!r}: write the IPv4 address itself")
    return str(address)


def _number(value: str) -> int:
    """The number that ``value`` is, −1 if it is none."""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 12 else -1


def _mtu(value: str) -> int:
    if _number(value) not in MTUS_BYTES:
        raise DeviceSpecificationError(
            f"SOFTHCA_DEVICES: mtu {value!r} is none of {', '.join(map(str, MTUS_BYTES))}")
    return int(value)


def _buffer(value: str) -> int:
    if not LEAST_BUFFER_BYTES <= _number(value) <= MOST_BUFFER_BYTES:
        raise DeviceSpecificationError(
            f"SOFTHCA_DEVICES: buffer {value!r} is not {LEAST_BUFFER_BYTES}…{MOST_BUFFER_BYTES}")
    return int(value)


def _addresses(value: str) -> tuple[str, ...]:
    """Further addresses of a port, in their canonical form."""
    from softhca.adapter.config import GID_TABLE_LENGTH

    if value in ALL_ADDRESSES:
        return ALL_ADDRESSES
    found = []
    for word in value.split("+"):
        try:
            ipaddress.ip_address(word)
        except ValueError:
            raise DeviceSpecificationError(f"SOFTHCA_DEVICES: addresses {word!r} is no address") from None
        found.append(_place(f"[{word}]" if ":" in word else word))
    if len(found) >= GID_TABLE_LENGTH or len(set(found)) < len(found):
        raise DeviceSpecificationError(
            f"SOFTHCA_DEVICES: addresses {value!r} are not 1…{GID_TABLE_LENGTH - 1} different ones")
    return tuple(found)


def _gids(value: str) -> int:
    from softhca.adapter.config import GID_TABLE_LENGTH

    if not 1 <= _number(value) <= GID_TABLE_LENGTH:
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: gids {value!r} is not 1…{GID_TABLE_LENGTH}")
    return int(value)


def _window(value: str) -> int:
    from softhca.adapter.config import MAXIMUM_WINDOW_BYTES, MINIMUM_WINDOW_BYTES

    if not MINIMUM_WINDOW_BYTES <= _number(value) <= MAXIMUM_WINDOW_BYTES:
        raise DeviceSpecificationError(
            f"SOFTHCA_DEVICES: window {value!r} is not {MINIMUM_WINDOW_BYTES}…{MAXIMUM_WINDOW_BYTES}")
    return int(value)


def _peers(name: str) -> Callable[[str], tuple[str, ...]]:
    """Reads addresses, in their canonical form; inside of an option none is in brackets."""

    def read(value: str) -> tuple[str, ...]:
        found = []
        for word in value.split("+"):
            try:
                found.append(str(ipaddress.ip_address(word)))
            except ValueError:
                raise DeviceSpecificationError(f"SOFTHCA_DEVICES: {name} {word!r} is no address") from None
        return tuple(found)

    return read


def _vni(value: str) -> int:
    from softhca.wire.vxlan import MOST_VNI

    if not 0 <= _number(value) <= MOST_VNI:
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: vni {value!r} is not 0…{MOST_VNI}")
    return int(value)


def _switch(name: str) -> Callable[[str], bool]:
    def read(value: str) -> bool:
        if value not in ("0", "1"):
            raise DeviceSpecificationError(f"SOFTHCA_DEVICES: {name} {value!r} is neither 0 nor 1")
        return value == "1"

    return read


def _source_port(value: str) -> bool:
    if value not in ("any", "strict"):
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: source_port {value!r} is neither any nor strict")
    return value == "strict"


def _congestion(value: str) -> bool:
    if value not in ("off", "dcqcn"):
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: congestion {value!r} is neither off nor dcqcn")
    return value == "dcqcn"


def _rate(value: str) -> int:
    if not LEAST_RATE_MBPS <= _number(value) <= MOST_RATE_MBPS:
        raise DeviceSpecificationError(
            f"SOFTHCA_DEVICES: rate {value!r} is not {LEAST_RATE_MBPS}…{MOST_RATE_MBPS} megabits a second")
    return int(value)


def _profile(value: str) -> str:
    from softhca.adapter.profile import Profile  # with it comes the transport, which few texts need

    try:
        return str(Profile.of(value))
    except ValueError as error:
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: profile {value!r}: {error}") from None


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "mtu": ("mtu_bytes", _mtu),
    "buffer": ("buffer_bytes", _buffer),
    "addresses": ("addresses", _addresses),
    "gids": ("gids", _gids),
    "window": ("window_bytes", _window),
    "segmenting": ("segmenting", _peers("segmenting")),
    "check_identification": ("check_identification", _switch("check_identification")),
    "source_port": ("strict_source_port", _source_port),
    "congestion": ("congestion", _congestion),
    "rate": ("rate_mbps", _rate),
    "uniform": ("uniform", _switch("uniform")),
    "profile": ("profile", _profile),
    "same_host": ("same_host", _switch("same_host")),
    "share": ("share", _switch("share")),
    "vni": ("vni", _vni),
    "vteps": ("vteps", _peers("vteps")),
}


def _options(options: str, known: Collection[str] = ()) -> dict[str, Any]:
    """The options' values by attribute name; ``known``: those that there are, all by default."""
    known = known or _OPTIONS
    values: dict[str, Any] = {}
    for option in filter(None, options.split("&")):
        key, _, value = option.partition("=")
        if key not in known:
            raise DeviceSpecificationError(
                f"SOFTHCA_DEVICES: unknown option {key!r} ({', '.join(known)})")
        attribute, read = _OPTIONS[key]
        values[attribute] = read(value)
    return values


def resolve(place: str) -> str:
    """The address that ``place`` (an address or the name of an interface) stands for.

    An interface gives its first IPv4 address, else its first IPv6 address.
    Raises :class:`DeviceSpecificationError` when there is no such interface or it has no address.
    """
    try:
        return str(ipaddress.ip_address(place))
    except ValueError:
        pass  # not an address: the name of an interface
    try:
        socket.if_nametoindex(place)
    except OSError:
        raise DeviceSpecificationError(f"SOFTHCA_DEVICES: there is no interface {place!r}") from None
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            return address_of_interface(place, family)
    raise DeviceSpecificationError(f"SOFTHCA_DEVICES: interface {place!r} has no address")


def further_addresses(specification: DeviceSpecification, address: str) -> list[str]:
    """The addresses of a device's port besides ``address``, as text; of an interface those that packets can
    come to from elsewhere, in the kernel's order, as many as a GID table has room for.  OSError where no
    interface has ``address``.
    """
    from softhca.adapter.config import GID_TABLE_LENGTH
    from softhca.links.interfaces import addresses_beside

    if specification.addresses != ALL_ADDRESSES:
        return [each for each in specification.addresses if each != address]
    return addresses_beside(address)[: GID_TABLE_LENGTH - 1]
