"""Numbers and their objects: what exists in an adapter, who owns it, and what stands on what.

A resource that another one uses cannot go (EBUSY: a protection domain with regions or queue pairs, a
completion queue or shared receive queue with queue pairs); one host's numbers mean nothing to another,
but for protection domains that it has imported (`context_sharing`).
Refusals are OSError with the errno of the reply; nothing has changed when one is raised.
"""

from __future__ import annotations

import enum
import errno
from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from softhca.adapter.config import AdapterConfig
from softhca.adapter.exported_contexts import SharedContexts
from softhca.memory.protection import ProtectionDomains

NUMBER_LAST = (1 << 24) - 1


class Kind(enum.IntEnum):
    """Kinds of resources, in the order in which a dead host's are freed: what uses others first."""

    FLOW = -3
    QP = -2
    RWQ_IND_TABLE = -1
    WQ = 0
    AH = 1
    SRQ = 2
    CQ = 3
    MW = 4
    FAST_MR = 5
    MR = 6
    ARENA = 7
    PD = 8
    AGENT = 9
    XRCD = 10
    CM = 11
    EEC = 12
    RDD = 13
    DM = 14


NAMES: Mapping[Kind, str] = {
    Kind.FLOW: "flow",
    Kind.QP: "qp_num",
    Kind.RWQ_IND_TABLE: "rwq_ind_tbl",
    Kind.WQ: "wq_num",
    Kind.AH: "ah",
    Kind.SRQ: "srq",
    Kind.CQ: "cq",
    Kind.MW: "mw",
    Kind.FAST_MR: "mr",
    Kind.MR: "lkey",
    Kind.ARENA: "slot",
    Kind.PD: "pd",
    Kind.AGENT: "agent",
    Kind.XRCD: "xrcd",
    Kind.CM: "cm",
    Kind.EEC: "ee_num",
    Kind.RDD: "rdd",
    Kind.DM: "dm",
}
"""The attribute of commands that names one of a kind."""

LIMITS: Mapping[Kind, str] = {
    Kind.FAST_MR: "max_mr",
    Kind.ARENA: "max_mr",
    Kind.EEC: "max_ee",
    **{
        kind: f"max_{kind.name.lower()}"
        for kind in Kind
        if kind not in (Kind.FAST_MR, Kind.ARENA, Kind.EEC)
    },
}
"""The attribute of the adapter that bounds how many there are of a kind."""


def limits_of(config: AdapterConfig) -> dict[Kind, int]:
    """How many there may be of each kind."""
    return {
        Kind.FLOW: config.max_flow,
        Kind.QP: config.max_qp,
        Kind.RWQ_IND_TABLE: config.max_rwq_ind_table,
        Kind.WQ: config.max_wq,
        Kind.AH: config.max_ah,
        Kind.SRQ: config.max_srq,
        Kind.CQ: config.max_cq,
        Kind.MW: config.max_mw,
        Kind.FAST_MR: config.max_mr,
        Kind.MR: config.max_mr,
        Kind.ARENA: 2 * config.max_mr,
        Kind.PD: config.max_pd,
        Kind.AGENT: config.max_agent,
        Kind.XRCD: config.max_xrcd,
        Kind.CM: config.max_cm,
        Kind.EEC: config.max_ee,
        Kind.RDD: config.max_rdd,
        Kind.DM: config.max_dm,
    }


class Resource:
    """One thing that a host made: its ``number`` among its ``kind``, the ``element`` behind it, what it
    ``uses``, and what it costs the adapter beyond a small object.  ``handle`` is the number that it was made
    with.
    """

    __slots__ = ("cost_bytes", "element", "handle", "host", "kind", "number", "users", "uses")

    def __init__(
        self,
        kind: Kind,
        number: int,
        host: int,
        element: Any,
        uses: tuple[Resource, ...],
        cost_bytes: int = 0,
    ) -> None:
        self.cost_bytes = cost_bytes
        self.kind = kind
        self.number = self.handle = number
        self.host = host
        self.element = element
        self.uses = uses
        self.users = 0


class Numbers:
    """Numbers first…last, each given again as late as possible."""

    def __init__(self, first: int, last: int, start: int) -> None:
        self.first = first
        self.last = last
        self._next = first + (start - first) % (last - first + 1)

    def take(self, taken: Mapping[int, Any]) -> int:
        """The next number that is not in ``taken``, which the caller bounds below the whole range."""
        number = self._next
        while number in taken:
            number = self._after(number)
        self._next = self._after(number)
        return number

    def _after(self, number: int) -> int:
        return self.first if number == self.last else number + 1


class ResourceTable:
    """All resources of an adapter by kind and number; ``limits`` bounds how many of each kind there are.

    Queue pair numbers begin at ``qpn_start``; 0 and 1 are management's and 0xFFFFFF is multicast's (IBTA vol.
    1, 3.5.10 and 10.5), so they are never given.  Work queues have numbers from the same range, so that a
    completion's number names one of both.
    """

    def __init__(self, limits: dict[Kind, int], qpn_start: int) -> None:
        self._limits = limits
        self._domains = ProtectionDomains(limits[Kind.PD])
        self._tables: dict[Kind, dict[int, Resource]] = {kind: {} for kind in Kind}
        self._owned: dict[int, dict[tuple[Kind, int], Resource]] = {}
        self._costs: dict[int, int] = {}
        self.contexts = SharedContexts()
        self._importers: dict[int, set[int]] = {}  # hosts, by protection domain
        self._inherited: set[int] = set()  # protection domains whose importer owns them now
        self._numbers = {kind: Numbers(1, NUMBER_LAST, 1) for kind in Kind if kind is not Kind.PD}
        self._numbers[Kind.QP] = self._numbers[Kind.WQ] = Numbers(2, NUMBER_LAST - 1, qpn_start)

    def reserve(self, kind: Kind) -> int:
        """A number for a new resource of ``kind``.  ENOMEM when the adapter's limit is reached."""
        if kind is Kind.PD:
            return self._domains.allocate()
        table: Mapping[int, Resource] = self._tables[kind]
        limit = self._limits[kind]
        if len(table) >= limit:
            raise OSError(
                errno.ENOMEM, f"{LIMITS[kind]} = {limit}: the adapter has no room for another {kind.name}"
            )
        if kind in (Kind.QP, Kind.WQ):
            table = ChainMap(self._tables[Kind.QP], self._tables[Kind.WQ])
        return self._numbers[kind].take(table)

    def afford(self, host: int, cost_bytes: int, limit_bytes: int) -> None:
        """ENOMEM when so much more for ``host`` would be more than ``limit_bytes`` for all that it owns."""
        if self._costs.get(host, 0) + cost_bytes > limit_bytes:
            raise OSError(
                errno.ENOMEM, f"max_host_bytes = {limit_bytes}: what this host owns costs the adapter that"
            )

    def cost(self, host: int) -> int:
        """Bytes that all that ``host`` owns costs the adapter."""
        return self._costs.get(host, 0)

    def charge(self, resource: Resource, cost_bytes: int) -> None:
        """A resource costs so much from now on."""
        total = self._costs.get(resource.host, 0) + cost_bytes - resource.cost_bytes
        resource.cost_bytes = cost_bytes
        if total:
            self._costs[resource.host] = total
        else:
            self._costs.pop(resource.host, None)

    def add(
        self,
        kind: Kind,
        number: int,
        host: int,
        element: Any,
        uses: tuple[Resource, ...] = (),
        cost_bytes: int = 0,
    ) -> Resource:
        """Enter a new resource that stands on ``uses``; what it costs was found to be affordable."""
        resource = Resource(kind, number, host, element, uses)
        self.charge(resource, cost_bytes)
        for used in uses:
            self._use(used, 1)
        self._tables[kind][number] = resource
        self._owned.setdefault(host, {})[kind, number] = resource
        return resource

    def _use(self, used: Resource, change: int) -> None:
        if used.kind is not Kind.PD:
            used.users += change
        elif change > 0:
            self._domains.reference(used.number)
        else:
            self._domains.unreference(used.number)

    def move(self, resource: Resource, uses: tuple[Resource, ...]) -> None:
        """Let a resource stand on other ones from now on."""
        for used in uses:
            self._use(used, 1)
        for used in resource.uses:
            self._use(used, -1)
        resource.uses = uses

    def renumber(self, resource: Resource, number: int) -> None:
        """Enter a resource under another number of its kind, which must be free."""
        if number == resource.number:
            return
        table, owned = self._tables[resource.kind], self._owned[resource.host]
        del table[resource.number], owned[resource.kind, resource.number]
        resource.number = number
        table[number] = owned[resource.kind, number] = resource

    def find(
        self, kind: Kind, number: int, host: int, name: str = "", named: int | None = None
    ) -> Resource:
        """The resource of this host, or a domain that it has imported.  EINVAL when there is none, or it is
        another host's: the attribute ``name`` of the command (its kind's own) says what does not exist, by
        ``number`` or what the command ``named``."""
        resource = self._tables[kind].get(number)
        if resource is None or (
            resource.host != host
            and (kind is not Kind.PD or host not in self._importers.get(number, ()))
        ):
            said = f"{name or NAMES[kind]} = {number if named is None else named}"
            raise OSError(errno.EINVAL, f"{said}: there is no such {kind.name}")
        return resource

    def find_own(self, kind: Kind, number: int, host: int) -> Resource:
        """The resource of this host; EINVAL when there is none, or it is only imported."""
        resource = self.find(kind, number, host)
        if resource.host != host:
            raise OSError(
                errno.EINVAL, f"{NAMES[kind]} = {number}: it is imported, and not this host's to free"
            )
        return resource

    # protection domains of several hosts

    def admit(self, domain: Resource, host: int) -> bool:
        """``host`` may use a domain of another one; False where it may already."""
        importers = self._importers.get(domain.number, set())
        if domain.host == host or host in importers:
            return False
        self._importers[domain.number] = importers | {host}
        return True

    def dismiss(self, domain: Resource, host: int) -> None:
        """It uses the domain no more.  EBUSY while it has something in it; EINVAL where it made the domain
        itself."""
        if any(domain in each.uses for each in self.owned(host)):
            raise OSError(errno.EBUSY, f"pd = {domain.number}: it is in use by this host")
        if domain.host != host:
            self._unshare(domain.number, host)
        elif domain.number in self._inherited:
            self._forsake(domain)
        else:
            raise OSError(errno.EINVAL, f"pd = {domain.number}: it is not imported")

    def _unshare(self, number: int, host: int) -> None:
        importers = self._importers.get(number, set()) - {host}
        if importers:
            self._importers[number] = importers
        else:
            self._importers.pop(number, None)

    def leave(self, host: int) -> None:
        """A host has gone, with all that it owned: it imports and exports nothing any more."""
        self.contexts.forget(host)
        for number in [number for number, hosts in self._importers.items() if host in hosts]:
            self._unshare(number, host)

    def hand_over(self, domain: Resource) -> bool:
        """The owner of a domain goes: where others have something in it, it is one of theirs from now on;
        else False."""
        if domain.kind is not Kind.PD or not self._domains.references(domain.number):
            return False
        for heir in sorted(self._importers.get(domain.number, ())):
            if any(domain in each.uses for each in self.owned(heir)):
                self._give(domain, heir)
                return True
        return False

    def _give(self, domain: Resource, heir: int) -> None:
        self._unshare(domain.number, heir)
        self._disown(domain)
        domain.host = heir
        self._owned.setdefault(heir, {})[Kind.PD, domain.number] = domain
        self._inherited.add(domain.number)

    def _forsake(self, domain: Resource) -> None:
        """The heir of a domain has nothing in it any more."""
        if not self.hand_over(domain):
            self.remove(domain)

    def _disown(self, resource: Resource) -> None:
        owned = self._owned[resource.host]
        del owned[resource.kind, resource.number]
        if not owned:
            del self._owned[resource.host]

    def get(self, kind: Kind, number: int) -> Resource | None:
        """The resource with a number whoever owns it."""
        return self._tables[kind].get(number)

    def users_of(self, resource: Resource) -> int:
        """How many other resources use this one."""
        return self._domains.references(resource.number) if resource.kind is Kind.PD else resource.users

    def check_idle(self, resource: Resource) -> None:
        """EBUSY as long as another resource uses this one."""
        users = self.users_of(resource)
        if users:
            raise OSError(
                errno.EBUSY, f"{NAMES[resource.kind]} = {resource.number}: it is in use by {users} other(s)"
            )

    def remove(self, resource: Resource) -> None:
        """Take it out; what it used is used by one less.  EBUSY when it is itself in use."""
        self.check_idle(resource)
        if resource.kind is Kind.PD:
            self._domains.free(resource.number)
            self._importers.pop(resource.number, None)  # the number may be another domain's
            self._inherited.discard(resource.number)
        for used in resource.uses:
            self._use(used, -1)
        self.charge(resource, 0)
        del self._tables[resource.kind][resource.number]
        self._disown(resource)

    def owned(self, host: int) -> list[Resource]:
        """All that ``host`` owns, in an order in which it can be removed."""
        return sorted(self._owned.get(host, {}).values(), key=lambda resource: resource.kind)

    def count(self, kind: Kind) -> int:
        """How many of a kind there are."""
        return len(self._tables[kind])
