"""Device memory of hosts, and arenas over memory that a host has passed.

Device memory is a sealed memfd, which its host makes, maps and passes (ALLOC_DM); the adapter holds it under
a number.  Whoever has been given the host's context (`context_sharing`) may ask for the descriptor by the
number.  To register some of it a host passes the descriptor once more and has it mapped as an arena
(ATTACH_ARENA): so keys reach the memory itself, whoever made it, and it lives until the last of them lets go
of it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from softhca.adapter.resources import Kind, Resource
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.descriptors import has_ordinary_pages, seals_of
from softhca.memory.mapping import Mapping as FileMapping
from softhca.queues.control_fields import MAX_DM_BYTES

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.adapter.hosts import Host

Fields = dict[str, Any]

MAX_PASSED_BYTES = 64 << 30
"""Most memory, as memfds of any kind, that a host has mapped beside its own."""


class DeviceMemory:
    """``length`` bytes on the memfd ``descriptor``, which is its own until `close`, or the adapter's end."""

    def __init__(self, descriptor: int, length: int) -> None:
        self.descriptor = descriptor
        self.length = length

    def close(self) -> None:
        """May be called again."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = close


def alloc_dm(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """ALLOC_DM: hold a passed memfd as so many bytes of device memory.  ENOMEM: the host has too much."""
    memory = DeviceMemory(host.take_descriptor(fields["descriptor"]), fields["length"])
    number = adapter.resources.reserve(Kind.DM)
    owned = [each.element.length for each in adapter.resources.owned(host.number) if each.kind is Kind.DM]
    if not memory.length > 0:
        raise OSError(errno.EINVAL, "length: device memory has bytes")
    if sum(owned) + memory.length > MAX_DM_BYTES:
        raise OSError(errno.ENOMEM, f"length: a host has at most {MAX_DM_BYTES} bytes of device memory")
    _check(memory.descriptor, -(-memory.length // PAGE_BYTES), MAX_DM_BYTES)
    adapter.resources.add(Kind.DM, number, host.number, memory)
    return {"dm": number}


def free_dm(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """FREE_DM: who has imported the memory, and regions over it, keep it."""
    release(adapter, adapter.resources.find(Kind.DM, fields["dm"], host.number))
    return {}


def release(adapter: Adapter, resource: Resource) -> None:
    """Hold it no more."""
    adapter.resources.remove(resource)
    resource.element.close()


def imported(adapter: Adapter, host: int, number: int) -> DeviceMemory:
    """The device memory of a context that ``host`` imports; ENOENT for any other number."""
    found = adapter.resources.get(Kind.DM, number)
    if found is None or not adapter.resources.contexts.may_import(host, found.host):
        raise OSError(errno.ENOENT, f"dm = {number}: no imported context has such device memory")
    memory: DeviceMemory = found.element
    return memory


def attach_passed(host: Host, slot: int, pages: int, descriptor: int) -> FileMapping:
    """Map a passed memfd, which is closed here, as ``pages`` pages from ``slot`` on.

    What a host has mapped so, all together, is bounded by `MAX_PASSED_BYTES`: address space is all hosts'.
    """
    mapped = sum(arena.element[1] for arena in set(host.arenas.values()) if len(arena.element) > 3)
    try:
        _check(descriptor, pages, MAX_PASSED_BYTES - mapped * PAGE_BYTES)
        mapping = FileMapping(descriptor, pages * PAGE_BYTES)
    finally:
        os.close(descriptor)
    host.address_map.attach(slot, pages, mapping.address)
    return mapping


def _check(descriptor: int, pages: int, most_bytes: int) -> None:
    """EINVAL unless it is a memfd of so many ordinary pages, of which none can go under a reader."""
    seals = seals_of(descriptor)
    size = os.fstat(descriptor).st_size
    if not seals & fcntl.F_SEAL_SHRINK or not has_ordinary_pages(descriptor):
        raise OSError(errno.EINVAL, "descriptor: it is no sealed memory of ordinary pages")
    if size != pages * PAGE_BYTES or not 0 < size <= most_bytes:
        raise OSError(errno.EINVAL, f"descriptor: {size} bytes are not {pages} pages, or too many")
