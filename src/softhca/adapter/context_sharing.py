"""Objects that a host imports from another one, and the commands for that.

A host *exports* its context: it passes a descriptor, which stands for all that it owns here.  Another host
that passes the same descriptor (the same file: whoever has it was given it) *imports* the context, and may
then use protection domains of the first one, as if they were its own, and ask for the keys of regions in
them.  The descriptor is the only proof: numbers alone mean nothing to another host.

A domain that others use cannot be freed (EBUSY).  When its owner goes, a domain in which another host still
has something becomes that host's, and lives on; the owner's regions go with its memory.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from softhca.adapter.resources import Kind, Resource
from softhca.memory.null import is_null

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.adapter.hosts import Host

Fields = dict[str, Any]


def export_context(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """EXPORT_CONTEXT: from now on the passed descriptor stands for this host."""
    adapter.resources.contexts.export(host.number, host.take_descriptor(fields["descriptor"]))
    return {}


def import_context(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """IMPORT_CONTEXT: this host has been given the descriptor of another one."""
    descriptor = host.take_descriptor(fields["descriptor"])
    try:
        adapter.resources.contexts.show(host.number, descriptor)
    finally:
        os.close(descriptor)
    return {}


def import_pd(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """IMPORT_PD: a domain of a host whose context is imported; ENOENT for any other number."""
    domain = adapter.resources.get(Kind.PD, fields["pd"])
    if domain is None or not adapter.resources.contexts.may_import(host.number, domain.host):
        raise OSError(errno.ENOENT, f"pd = {fields['pd']}: no imported context has such a domain")
    if not adapter.resources.admit(domain, host.number):
        raise OSError(errno.EALREADY, f"pd = {fields['pd']}: it is imported already")
    return {}


def unimport_pd(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """UNIMPORT_PD: let go of it; EBUSY while this host has something in it."""
    domain = adapter.resources.find(Kind.PD, fields["pd"], host.number)
    adapter.resources.dismiss(domain, host.number)
    return {}


def import_mr(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """IMPORT_MR: the keys and the length of a region in a domain that this host has imported."""
    domain = adapter.resources.find(Kind.PD, fields["pd"], host.number)
    region = _region_of(adapter, domain, fields["mr"])
    if region is None or not (
        region.host == host.number or adapter.resources.contexts.may_import(host.number, region.host)
    ):
        raise OSError(errno.ENOENT, f"mr = {fields['mr']}: the domain has no such region")
    rkey = 0 if is_null(region.element) else region.number
    return {"lkey": region.number, "rkey": rkey, "length": region.element.length}


def _region_of(adapter: Adapter, domain: Resource, handle: int) -> Resource | None:
    """The region of ``domain`` that was registered under the key ``handle``."""
    found = adapter.resources.get(Kind.MR, handle)
    if found is not None and found.handle == handle and domain in found.uses:
        return found
    for each in adapter.resources.owned(domain.host):  # its key is another one since
        if each.kind is Kind.MR and each.handle == handle and domain in each.uses:
            return each
    return None
