"""XRC domains of an adapter, and the commands that open and close them (IBTA vol. 1, annex A14).

A domain belongs to a file, whichever process has it open, or to nobody else than who made it.  All hosts that
open the same file's domain share its shared receive queues and may make targets in it.  It lives as long as
somebody has it open.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from softhca.adapter.resources import Kind, Resource
from softhca.queues.control_fields import XRCD_CREATE, XRCD_EXCLUSIVE, XRCD_FILE
from softhca.transport.xrc import XrcDomain

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.adapter.hosts import Host

FileKey = tuple[int, int]
"""Device and inode: the same for every process that has the file open."""


class XrcDomains:
    """Those that belong to a file, each with how often it is open."""

    def __init__(self) -> None:
        self._domains: dict[FileKey, XrcDomain] = {}
        self._open: dict[FileKey, int] = {}

    def open(self, key: FileKey, flags: int) -> XrcDomain:
        """The domain of a file.  EAGAIN: there is none, and it is not to be made; EINVAL: there is one, and
        it was to be made.
        """
        domain = self._domains.get(key)
        if domain is None and not flags & XRCD_CREATE:
            raise OSError(errno.EAGAIN, "flags: the file has no XRC domain, and O_CREAT is not set")
        if domain is not None and flags & XRCD_EXCLUSIVE:
            raise OSError(errno.EINVAL, "flags: the file has an XRC domain, and O_EXCL is set")
        if domain is None:
            domain = self._domains[key] = XrcDomain()
        self._open[key] = self._open.get(key, 0) + 1
        return domain

    def close(self, key: FileKey) -> None:
        """One of those who have a file's domain open closes it."""
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key], self._domains[key]


class OpenDomain:
    """A domain as one host has opened it; ``key`` None: it is that host's alone."""

    __slots__ = ("domain", "key")

    def __init__(self, domain: XrcDomain, key: FileKey | None) -> None:
        self.domain = domain
        self.key = key


def open_xrcd(adapter: Adapter, host: Host, fields: dict[str, Any], now: int) -> Mapping[str, Any]:
    """OPEN_XRCD: the domain of a file, or a new one of the host's own."""
    flags = fields["flags"]
    if flags & ~(XRCD_FILE | XRCD_CREATE | XRCD_EXCLUSIVE):
        raise OSError(errno.EINVAL, f"flags = {flags:#x}: there are no such flags")
    number = adapter.resources.reserve(Kind.XRCD)
    key = (fields["device"], fields["inode"]) if flags & XRCD_FILE else None
    domain = XrcDomain() if key is None else adapter.xrc_domains.open(key, flags)
    adapter.resources.add(Kind.XRCD, number, host.number, OpenDomain(domain, key))
    return {"xrcd": number}


def close_xrcd(adapter: Adapter, host: Host, fields: dict[str, Any], now: int) -> Mapping[str, Any]:
    """CLOSE_XRCD; EBUSY while the host has queues in it."""
    resource = adapter.resources.find(Kind.XRCD, fields["xrcd"], host.number)
    adapter.resources.remove(resource)
    release_domain(adapter, resource)
    return {}


def release_domain(adapter: Adapter, resource: Resource) -> None:
    """A host's open domain is gone."""
    if resource.element.key is not None:
        adapter.xrc_domains.close(resource.element.key)


def domain_of(resource: Resource) -> XrcDomain | None:
    """The domain that a shared receive queue is in; None: an ordinary one."""
    for used in resource.uses:
        if used.kind is Kind.XRCD:
            domain: XrcDomain = used.element.domain
            return domain
    return None
