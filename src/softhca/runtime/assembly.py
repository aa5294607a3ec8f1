"""What a device is made of: a link on its address and an adapter that frames for it."""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import secrets
from functools import partial
from typing import Any

from softhca.adapter.config import MTU_BYTES, AdapterConfig, PortConfig
from softhca.adapter.engine import Adapter
from softhca.adapter.profile import HCA, Profile
from softhca.adapter.resources import Kind
from softhca.links.identification_check import CheckedLink
from softhca.links.link import Link
from softhca.links.roce_udp import RoceUdpLink, open_first_free_loopback
from softhca.links.sockets import BUFFER_BYTES
from softhca.links.variables import CAPTURE, FAULTS
from softhca.runtime.clock import now_ns
from softhca.runtime.same_host import SameHost, why_not, why_not_unasked
from softhca.runtime.specification import DeviceSpecification, DeviceSpecificationError, resolve
from softhca.wire.route import V4_MAPPED_PREFIX

_log = logging.getLogger("softhca.runtime")

DATAGRAM_OVERHEAD_BYTES = 1280
"""What Linux charges a receiver for a datagram beyond its bytes, at most (``sk_buff`` and rounding)."""


def open_link(specification: DeviceSpecification) -> RoceUdpLink | CheckedLink:
    """The link of a ``udp`` device.

    OSError where the address cannot be had (its message names the device), DeviceSpecificationError for an
    interface that does not exist or has no address, or for a check of identifications over IPv6.
    """
    link = _open_socket(specification)
    for peer in specification.segmenting:
        packed = ipaddress.ip_address(peer).packed
        link.mark_segmenting(packed if len(packed) == 16 else V4_MAPPED_PREFIX + packed)
    return _checked(specification, link) if specification.check_identification else link


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
            links.append(_wrapped(open_link(specification.at(place))))
        first, *further = [_port_config(specification, link) for link in links]
        config = AdapterConfig(gids=first.gids, active_mtu=first.active_mtu,
                               profile=Profile.of(specification.profile or HCA),
                               window_bytes=specification.window_bytes,
                               strict_source_port=specification.strict_source_port,
                               further_ports=tuple(further))
        adapter = Adapter(config, seed=secrets.randbits(64), now=now_ns())
        for port, link in zip(adapter.ports, links, strict=True):
            port.source_port_for = link.source_port_for
            port.overhead_for = partial(_overhead_bytes, link)
            port.link_counters = link.shown_counters
    except BaseException:
        for link in links:
            link.close()
        raise
    return adapter, links


def _port_config(specification: DeviceSpecification, link: Any) -> PortConfig:
    limit_bytes = min(link.active_mtu, specification.mtu_bytes or link.active_mtu)
    mtu = max(number for number, length in MTU_BYTES.items() if length <= limit_bytes)
    return PortConfig(gids=(link.gid,), active_mtu=mtu)


def neighbours_of(
    specification: DeviceSpecification, adapter: Adapter, link: Any, packets_alone: bool = False
) -> SameHost | None:
    """The same-host paths of a new adapter, where they are allowed and can be; None: all goes by packets.

    ``packets_alone``: no memory of this adapter's hosts is given to neighbours, and none of theirs used.
    A link that is tapped, has faults or checks identifications wants to see packets.  Who asked for the paths
    is told why there are none; who did not ask is not.  An adapter with several ports has none: its packets
    go by the links of their ports.
    """
    if specification.same_host is False:
        return None
    unasked = specification.same_host is None
    reason = why_not_unasked() if unasked else why_not()
    if link.sees_packets:
        reason = "its packets are to be seen"
    if len(adapter.ports) > 1:
        reason = "it has several ports"
    if not reason:
        try:
            neighbours = SameHost(
                link.gid, adapter.port.gids, lambda gid: _in_flight(adapter, gid), unasked
            )
        except OSError as error:
            reason = error.strerror or str(error)
    if reason:
        level = logging.DEBUG if unasked else logging.WARNING
        _log.log(level, "%s uses packets on this host too: %s", specification.name, reason)
        return None
    if not packets_alone:
        adapter.same_host = adapter.regions.sharing = neighbours.sharing
    return neighbours


def _in_flight(adapter: Adapter, gid: bytes) -> int:
    """Bytes of reliable connections under way to a GID."""
    window = adapter.port.windows.get(gid)
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


def _overhead_bytes(link: Link, destination: bytes) -> int:
    """Cost of a datagram to a destination beyond its bytes: nothing of its own where bursts stay whole."""
    return 0 if link.preserves_bursts(destination) else DATAGRAM_OVERHEAD_BYTES


def counts(adapter: Adapter) -> dict[str, int]:
    """How many resources of each kind an adapter holds."""
    return {kind.name: adapter.resources.count(kind) for kind in Kind}
