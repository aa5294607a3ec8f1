"""The control commands of pageable memory: registering one, and the mode bit that stops data access."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from softhca.adapter.key_commands import check_room
from softhca.adapter.resources import Kind
from softhca.memory.paged import register_paged
from softhca.memory.paged_mapping import PagedMapping
from softhca.queues.control_fields import EVENT_PAGE_FAULT

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.adapter.hosts import Host

Fields = dict[str, Any]


def reg_paged(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """Register the pageable memory behind a descriptor: map it, take an attachment, make a key."""
    descriptor = host.take_descriptor(fields["descriptor"])
    try:
        pd = adapter.resources.find(Kind.PD, fields["pd"], host.number)
        check_room(adapter)
        mapping = PagedMapping(descriptor)
    finally:
        os.close(descriptor)
    if mapping.length > adapter.config.max_mr_size_bytes:
        raise OSError(errno.EINVAL, f"length: a region has at most {adapter.config.max_mr_size_bytes} bytes")
    region = register_paged(adapter.regions, mapping, pd.number, fields["va"], fields["access"])
    key = region.key
    region.memory.on_fault = lambda: host.report_event(EVENT_PAGE_FAULT, key)
    adapter.resources.add(Kind.MR, key, host.number, region, (pd,))
    return {"lkey": key, "rkey": key}


def set_data_access(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """A host stops the adapter's data access, or no longer does: it goes on when no host stops it."""
    if fields["allowed"] not in (0, 1):
        raise OSError(errno.EINVAL, f"allowed = {fields['allowed']}: data access is allowed (1) or not (0)")
    was_allowed = not host.stops_data_access
    host.stops_data_access = not fields["allowed"]
    settle_data_access(adapter)
    return {"was_allowed": int(was_allowed)}


def settle_data_access(adapter: Adapter) -> None:
    """Set the adapter's mode bit by what its hosts want."""
    allowed = not any(host.stops_data_access for host in adapter.hosts.values())
    if allowed == bool(adapter.regions.tpt.stopped):
        adapter.set_data_access(allowed)
