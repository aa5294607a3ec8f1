"""The control commands of memory windows, fast regions and null regions (see ``commands.py``)."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from softhca.adapter.resources import Kind, Resource
from softhca.memory.null import is_null, register_null

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.adapter.hosts import Host

Fields = dict[str, Any]


def check_room(adapter: Adapter) -> None:
    """ENOMEM when the adapter has all the regions, fast ones among them, that it may have."""
    limit = adapter.config.max_mr
    if adapter.resources.count(Kind.MR) + adapter.resources.count(Kind.FAST_MR) >= limit:
        raise OSError(errno.ENOMEM, f"max_mr = {limit}: the adapter has no room for another region")


def alloc_mw(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """ALLOC_MW: a memory window, bound to nothing, and the key that its first bind begins from."""
    pd = adapter.resources.find(Kind.PD, fields["pd"], host.number)
    number = adapter.resources.reserve(Kind.MW)
    window = adapter.memory_windows.allocate(_name(number, Kind.MW), pd.number, fields["type"])
    adapter.resources.add(Kind.MW, number, host.number, window, (pd,))
    return {"mw": window.number, "rkey": window.key}


def dealloc_mw(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """DEALLOC_MW: bound or not; its key is dead at once."""
    resource = _find(adapter, host, "mw", fields["mw"], Kind.MW)
    adapter.memory_windows.deallocate(resource.element)
    adapter.resources.remove(resource)
    return {}


def alloc_fast_mr(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """ALLOC_FAST_MR: room for ``max_pages`` pages, and the key that its first registration begins from."""
    pd = adapter.resources.find(Kind.PD, fields["pd"], host.number)
    check_room(adapter)
    limit = adapter.config.max_fast_pages
    if not 0 < fields["max_pages"] <= limit:
        raise OSError(errno.EINVAL, f"max_pages = {fields['max_pages']}: a fast region has 1…{limit} pages")
    number = adapter.resources.reserve(Kind.FAST_MR)
    region = adapter.memory_windows.allocate_fast(
        _name(number, Kind.FAST_MR), pd.number, fields["max_pages"], host.address_map
    )
    adapter.resources.add(Kind.FAST_MR, number, host.number, region, (pd,))
    return {"mr": region.number, "key": region.key}


def dereg_fast_mr(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """DEREG_FAST_MR: registered or not; EBUSY while memory windows are bound to it."""
    resource = _find(adapter, host, "mr", fields["mr"], Kind.FAST_MR)
    adapter.memory_windows.deallocate(resource.element)
    adapter.resources.remove(resource)
    return {}


def alloc_null_mr(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """ALLOC_NULL_MR: a local key of which zeros are read, and what is written is thrown away.  DEREG_MR ends
    it; REREG_MR is EINVAL."""
    pd = adapter.resources.find(Kind.PD, fields["pd"], host.number)
    check_room(adapter)
    region = register_null(adapter.regions, pd.number)
    adapter.resources.add(Kind.MR, region.key, host.number, region, (pd,))
    return {"lkey": region.key}


def end_null_regions(adapter: Adapter, pd: Resource) -> None:
    """A domain goes: where its host has nothing in it but null regions, they end.  Devices whose null key is
    the same for all domains count nothing, and programs (perftest) leave their null regions to the domain.
    """
    if not adapter.resources.users_of(pd):
        return
    found = [each for each in adapter.resources.owned(pd.host) if pd in each.uses]
    if len(found) == adapter.resources.users_of(pd) and all(is_null(each.element) for each in found):
        for each in found:
            adapter.regions.deregister(each.element)
            adapter.resources.remove(each)


def _name(number: int, kind: Kind) -> int:
    """The number by which work requests name a window (even) or a fast region (odd): one space for both."""
    return number << 1 | (kind is Kind.FAST_MR)


def _find(adapter: Adapter, host: Host, field: str, name: int, kind: Kind) -> Resource:
    """The resource that a command's field names; EINVAL where there is none, or it is the other kind's."""
    number = name >> 1 if name & 1 == (kind is Kind.FAST_MR) else 0  # which is nobody's
    return adapter.resources.find(kind, number, host.number, field, name)
