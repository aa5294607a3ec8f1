"""What a device is made of: a link on its address and an adapter that frames for it."""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import secrets
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from softhca.adapter.config import (
    DEFAULT_VNI,
    GID_ENTRIES,
    GID_TABLE_LENGTH,
    MTU_BYTES,
    NATIVE,
    PKEY_TABLE_LENGTH,
    ROCE,
    AdapterConfig,
    PortConfig,
)
from softhca.adapter.engine import Adapter
from softhca.adapter.port import PORT_ACTIVE
from softhca.adapter.profile import HCA, Profile
from softhca.adapter.resources import Kind
from softhca.links.address_watch import AddressWatch
from softhca.links.fabric_messages import MOST_PKEYS
from softhca.links.followed_addresses import FollowedAddresses
from softhca.links.link import Link
from softhca.links.roce_udp import RoceUdpLink, open_first_free_loopback
from softhca.links.several_addresses import SeveralAddresses
from softhca.links.sockets import BUFFER_BYTES
from softhca.links.variables import CAPTURE, FAULTS
from softhca.links.vxlan_neighbours import vxlan_neighbours
from softhca.management.constants import CLASS_SUBN_LID, FABRIC_CLASSES
from softhca.runtime.clock import now_ns
from softhca.runtime.same_host import SameHost
from softhca.runtime.same_host_limits import not_automatic, unsupported
from softhca.runtime.specification import (
    ALL_ADDRESSES,
    DeviceSpecification,
    DeviceSpecificationError,
    further_addresses,
    resolve,
)
from softhca.transport.congestion import DcqcnSettings
from softhca.transport.loopback import Loopback
from softhca.transport.uniform import UniformBursts
from softhca.wire import route

if TYPE_CHECKING:
    from softhca.links.fabric import FabricLink
    from softhca.links.identification_check import CheckedLink

PORT_FIELDS = tuple(field.name for field in fields(PortConfig))
_log = logging.getLogger("softhca.runtime")

DATAGRAM_OVERHEAD_BYTES = 1280
"""What Linux charges a receiver for a datagram beyond its bytes, at most (``sk_buff`` and rounding)."""


def open_link(specification: DeviceSpecification) -> RoceUdpLink | CheckedLink | FabricLink:
    """The link of a ``udp`` or ``fabric`` device.

    OSError where the address cannot be had (its message names the device), DeviceSpecificationError for an
    interface that does not exist or has no address, or for a check of identifications over IPv6.
    """
    if specification.kind == "fabric":
        return _open_fabric(specification)
    link = _open_socket(specification)
    for peer in specification.segmenting:
        link.mark_segmenting(gid_of(peer))
    return _checked(specification, link) if specification.check_identification else link


def gid_of(address: str) -> bytes:
    """The GID that an address is."""
    return route.gid_of(ipaddress.ip_address(address).packed)


def _open_all(specification: DeviceSpecification) -> Any:
    """The link of a port with all of its addresses, as the environment wants it.  Errors as `open_link`."""
    first = _wrapped(open_link(specification))
    if not specification.addresses:
        return first

    def open_address(text: str) -> Any:
        return _wrapped(open_link(specification.at(text)))

    links, watch = [first], None
    try:
        if specification.addresses == ALL_ADDRESSES:
            watch = _watch_of(specification, first)  # before the first look: it tells of what comes meanwhile
        links += map(open_address, further_addresses(specification, first.address))
    except BaseException:
        for each in (*links, *([watch] if watch is not None else ())):
            each.close()
        raise
    if watch is not None:
        return FollowedAddresses(links, watch, open_address, GID_TABLE_LENGTH)
    return SeveralAddresses(links) if len(links) > 1 else first


def _watch_of(specification: DeviceSpecification, link: Any) -> AddressWatch | None:
    """Who tells of the addresses that the interface of a link gets and loses; None where nobody does: in some
    sandboxes the kernel's notifications are forbidden.
    """
    try:
        return AddressWatch(link.address)
    except OSError as error:
        reason = error.strerror or str(error)
        _log.warning("%s keeps the addresses that it has now: %s", specification.name, reason)
        return None


def _open_fabric(specification: DeviceSpecification) -> FabricLink:
    from softhca.links.fabric_ethernet import open_fabric_link

    name, _, node = specification.place.partition("/")
    try:
        link = open_fabric_link(name, node)
    except OSError as error:
        code, reason = error.errno or errno.EIO, error.strerror or str(error)
        raise OSError(code, f"{specification.name}: {reason}") from None
    if link.is_native and specification.congestion:
        link.close()
        raise DeviceSpecificationError(
            f"SOFTHCA_DEVICES: congestion of {specification.name!r}: the fabric {name!r} is of native links, "
            "which have no DCQCN")
    return link


def _open_socket(specification: DeviceSpecification) -> RoceUdpLink:
    size_bytes = specification.buffer_bytes or BUFFER_BYTES
    merge = not specification.check_identification  # merged datagrams have lost their headers
    if not specification.place:
        link: RoceUdpLink = open_first_free_loopback(
            receive_buffer_bytes=size_bytes, send_buffer_bytes=size_bytes, gro=merge
        )
        return link
    address = resolve(specification.place)
    try:
        return RoceUdpLink(
            address, receive_buffer_bytes=size_bytes, send_buffer_bytes=size_bytes, gro=merge
        )
    except OSError as error:
        code = error.errno or errno.EADDRNOTAVAIL
        reason = error.strerror or str(error)
        raise OSError(code, f"{specification.name}: {address} port 4791: {reason}") from None


def _checked(specification: DeviceSpecification, link: RoceUdpLink) -> CheckedLink:
    """The link with a raw socket beside it; it is closed where there can be none."""
    from softhca.links.identification_check import CheckedLink

    try:
        return CheckedLink(link)
    except OSError as error:
        link.close()
        raise OSError(error.errno, f"{specification.name}: {error.strerror}") from None
    except ValueError as error:
        link.close()
        raise DeviceSpecificationError(
            f"SOFTHCA_DEVICES: check_identification of {specification.name!r}: {error}") from None


def assemble(specification: DeviceSpecification) -> tuple[Adapter, Any]:
    """A new adapter with one port, and its link.  Errors as ``open_link``."""
    adapter, links = assemble_ports(specification.at(specification.place))
    return adapter, links[0]


def assemble_ports(specification: DeviceSpecification) -> tuple[Adapter, list[Any]]:
    """A new adapter and the links of its ports, in their order.  Errors as ``open_link``.

    Where ``SOFTHCA_FAULTS`` says so the link has faults, where ``SOFTHCA_CAPTURE`` says so it is tapped
    below them: what is captured is what really leaves.
    """
    links: list[Any] = []
    try:
        for place in specification.places:
            links.append(_open_all(specification.at(place)))
        on_fabric = links[0] if specification.kind == "fabric" else None
        is_native = on_fabric is not None and on_fabric.is_native
        first, *further = [_port_config(specification, link) for link in links]
        config = AdapterConfig(**{name: getattr(first, name) for name in PORT_FIELDS},
                               node_guid=0 if on_fabric is None else on_fabric.node_guid,
                               pkey_table_length=MOST_PKEYS if is_native else PKEY_TABLE_LENGTH,
                               gid_entries=_gid_entries(specification, is_native),
                               profile=Profile.of(specification.profile or HCA),
                               window_bytes=specification.window_bytes,
                               congestion=_congestion(specification, on_fabric),
                               uniform_bursts=UniformBursts() if specification.uniform else None,
                               strict_source_port=specification.strict_source_port,
                               ethernet_frames=on_fabric is None,
                               vni=DEFAULT_VNI if specification.vni is None else specification.vni,
                               vteps=tuple(map(gid_of, specification.vteps)),
                               further_ports=tuple(further))
        adapter = Adapter(config, seed=secrets.randbits(64), now=now_ns())
        for port, link in zip(adapter.ports, links, strict=True):
            if on_fabric is not None:
                _manage(adapter, port.number, link)
            if isinstance(link, FollowedAddresses):
                link.on_change = partial(_change_addresses, adapter, port.number, None)
            port.source_port_for = link.source_port_for
            port.overhead_for = partial(_overhead_bytes, link)
            port.link_counters = link.shown_counters
            if on_fabric is None:
                port.segment.listen = link.listen_for_frames
                port.segment.neighbours = partial(vxlan_neighbours, link.gid)
        adapter.groups.join = lambda number, gid: links[number - 1].join(gid)
        adapter.groups.leave = lambda number, gid: links[number - 1].leave(gid)
    except BaseException:
        for link in links:
            link.close()
        raise
    return adapter, links


def _gid_entries(specification: DeviceSpecification, is_native: bool) -> int:
    """How many entries the GIDs of a RoCE port have.  DeviceSpecificationError: asked of a native fabric."""
    if specification.gids and is_native:
        raise DeviceSpecificationError(
            f"SOFTHCA_DEVICES: gids of {specification.name!r}: a native port has one GID, and "
            f"{specification.place!r} is a native fabric")
    return specification.gids or GID_ENTRIES


def _congestion(specification: DeviceSpecification, on_fabric: Any) -> DcqcnSettings | None:
    """DCQCN for links of the speed that was said, or else that of the Ethernet which is served, or the usual.
    DeviceSpecificationError: on a native fabric.
    """
    if not specification.congestion:
        return None
    if on_fabric is not None and on_fabric.is_native:
        raise DeviceSpecificationError(
            f"SOFTHCA_DEVICES: congestion of {specification.name!r}: DCQCN is RoCEv2's, and "
            f"{specification.place!r} is a native fabric")
    usual = DcqcnSettings()
    known_mbps = usual.line_mbps if on_fabric is None else max(on_fabric.mbps, usual.least_mbps)
    return replace(usual, line_mbps=specification.rate_mbps or known_mbps)


def _manage(adapter: Adapter, port_number: int, link: Any) -> None:
    """Have a port be as the manager of its fabric says, now and from now on."""

    def apply(info: dict[str, Any]) -> None:
        if not link.is_native:
            adapter.set_link(port_number, info["state"] == PORT_ACTIVE)
            return
        values = dict(info)
        try:
            adapter.set_pkeys(port_number, values.pop("pkeys"))
            adapter.set_port_info(port_number, **values)
        except ValueError as error:
            _log.warning("port %d: what the fabric says cannot be: %s", port_number, error)

    if link.is_native:
        for flow in adapter.ports[port_number - 1].management:
            flow.agents_at_link = FABRIC_CLASSES | {CLASS_SUBN_LID}
    apply(link.info)
    link.on_info = apply


def _port_config(specification: DeviceSpecification, link: Any) -> PortConfig:
    if specification.kind == "fabric":
        mtu = {length: number for number, length in MTU_BYTES.items()}[link.active_mtu]
        return PortConfig(gids=(link.gid,), active_mtu=mtu, framing=NATIVE if link.is_native else ROCE,
                          active_width=link.active_width, active_speed=link.active_speed)
    limit_bytes = min(link.active_mtu, specification.mtu_bytes or link.active_mtu)
    mtu = max(number for number, length in MTU_BYTES.items() if length <= limit_bytes)
    return PortConfig(gids=_gids_of(link), active_mtu=mtu)


def _gids_of(link: Any) -> tuple[bytes, ...]:
    """The GIDs of a RoCE port: its addresses."""
    return link.gids if isinstance(link, SeveralAddresses) else (link.gid,)


def same_host_of(
    specification: DeviceSpecification, adapter: Adapter, links: Sequence[Any], packets_alone: bool = False
) -> SameHost | None:
    """What a new adapter shares with others on this host, where that is allowed and can be; None: all goes by
    packets.

    ``packets_alone``: no memory of this adapter's hosts is given to peers, and none of theirs used.  A port
    whose link is tapped, has faults or checks identifications wants to see packets, so it has no part in it.
    Where it cannot be, whoever asked for it gets an error; whoever did not ask gets none.

    Queue pairs of the adapter that are connected to each other have no need of all that (`Loopback`): their
    packets never come to a link.
    """
    if specification.same_host is False or specification.kind == "fabric":
        return None
    same_host = _with_others(specification, adapter, links)
    sharing = None
    if same_host is not None and not packets_alone:
        sharing = adapter.regions.sharing = same_host.sharing
    adapter.same_host = Loopback(frozenset(gid for port in adapter.ports for gid in port.gids), sharing)
    for number, link in enumerate(links, 1):
        if isinstance(link, FollowedAddresses) and same_host is not None and number in same_host.ports:
            link.on_change = partial(_change_addresses, adapter, number, same_host)
    return same_host


def _change_addresses(
    adapter: Adapter, port_number: int, same_host: SameHost | None, gids: tuple[bytes, ...]
) -> tuple[bytes, ...]:
    """A port has other addresses: peers on this host (``same_host``, where the port shares memory), its GID
    table and its hosts learn it.  The addresses for which the table has no place.
    """
    before = adapter.ports[port_number - 1].gids
    if same_host is not None:
        for gid in before.difference(gids):
            same_host.remove_address(port_number, gid)
        for gid in set(gids) - before:
            try:
                same_host.add_address(port_number, gid)
            except OSError as error:
                _log.debug("%s uses packets on this host too: %s", _text_of(gid), error)
    refused = adapter.set_gids(port_number, gids).refused
    for gid in refused:
        _log.warning("%s has no entry in the GID table of port %d, which is full", _text_of(gid), port_number)
        if same_host is not None:
            same_host.remove_address(port_number, gid)
    return refused


def _with_others(
    specification: DeviceSpecification, adapter: Adapter, links: Sequence[Any]
) -> SameHost | None:
    """What an adapter shares with others, ports added; None where nothing is."""
    automatic = specification.same_host is None
    same_host = None
    reason = not_automatic() if automatic else unsupported()
    if not reason:
        try:
            same_host = SameHost([gid for port in adapter.ports for gid in port.gids], automatic)
        except OSError as error:
            reason = error.strerror or str(error)
    reasons = [reason] * len(links) if same_host is None else _add_ports(same_host, adapter, links)
    _log_reasons(specification, reasons, logging.DEBUG if automatic else logging.WARNING)
    if same_host is None:
        return None
    if not same_host.ports:
        same_host.close()
        return None
    return same_host


def _log_reasons(specification: DeviceSpecification, reasons: list[str], level: int) -> None:
    """Say why ports do not share memory."""
    for number, reason in enumerate(reasons, 1):
        if reason:
            name = specification.name if len(reasons) == 1 else f"{specification.name}, port {number},"
            _log.log(level, "%s uses packets on this host too: %s", name, reason)


def _add_ports(same_host: SameHost, adapter: Adapter, links: Sequence[Any]) -> list[str]:
    """Have an adapter's ports share memory; for each, empty or why it, or which of its addresses, does not.
    """
    reasons = []
    for number, link in enumerate(links, 1):
        if link.sees_packets:
            reasons.append("its packets are to be seen")
            continue
        in_flight = partial(_in_flight, adapter, number)
        found = []
        for gid in _gids_of(link):
            try:
                same_host.add_address(number, gid, in_flight)
            except OSError as error:
                reason = error.strerror or str(error)
                found.append(reason if gid == link.gid else f"{_text_of(gid)}: {reason}")
        reasons.append(", ".join(found))
    return reasons


def _text_of(gid: bytes) -> str:
    """The address that a GID is, as text."""
    return str(ipaddress.ip_address(gid[12:] if gid.startswith(route.V4_MAPPED_PREFIX) else gid))


def _in_flight(adapter: Adapter, port_number: int, gid: bytes) -> int:
    """Bytes of reliable connections under way from a port to a GID."""
    window = adapter.ports[port_number - 1].windows.get(gid)
    return 0 if window is None else int(window.in_flight_bytes)


def _wrapped(link: Any) -> Any:
    """The link as the environment wants it.  What wraps it is imported only then: that takes as long as a
    tenth of all other modules.
    """
    if os.environ.get(CAPTURE):
        from softhca.links.tap import tapped

        link = tapped(link)
    if not os.environ.get(FAULTS):
        return link
    from softhca.links.faults import FaultsError
    from softhca.links.faulty import impaired

    try:
        return impaired(link, now_ns)
    except FaultsError as error:
        raise DeviceSpecificationError(f"{FAULTS}: {error}") from None


def descriptors_of(link: Link) -> list[int]:
    """What is readable when there may be something for a link to receive."""
    return [fd for fd in (link.fileno(), link.group_fileno()) if fd >= 0]


def _overhead_bytes(link: Link, destination: bytes) -> int:
    """Cost of a datagram to a destination beyond its bytes: nothing of its own where bursts stay whole."""
    return 0 if link.preserves_bursts(destination) else DATAGRAM_OVERHEAD_BYTES


def counts(adapter: Adapter) -> dict[str, int]:
    """How many resources of each kind an adapter holds."""
    return {kind.name: adapter.resources.count(kind) for kind in Kind}
