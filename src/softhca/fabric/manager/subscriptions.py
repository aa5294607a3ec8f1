"""Subscriptions to notices, by InformInfo, and the Reports that are sent for them (IBTA vol. 1, 13.4.8.3,
13.4.11, 15.2.5.12).

A Report is sent again until its receiver says that it has come; a subscriber that says nothing to several
Reports is one no more.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from softhca.fabric.manager.inventory import Inventory, KnownPort
from softhca.fabric.manager.paths import RefusedError
from softhca.fabric.manager.requests import NEVER_NS
from softhca.management import constants as c
from softhca.management.administration_attributes import (
    CLASS_VERSION,
    STATUS_NO_RESOURCES,
    STATUS_REQUEST_INVALID,
    InformInfo,
)
from softhca.management.administration_tables import InformInfoRecord
from softhca.management.mad import Mad, MadHeader
from softhca.management.subnet_attributes import Notice

MOST_SUBSCRIPTIONS = 4096
MOST_OF_A_PORT = 32
MOST_REPORTS = 4096
"""Reports under way; what is due then is dropped and counted."""
MOST_REPORTS_TO_ONE = MOST_REPORTS // 2
"""Those to one port, which leaves the others as many."""
MOST_MISSED = 3
"""So many Reports in a row without an answer end a subscription."""
ALL = 0xFFFF
ALL_PRODUCERS = 0xFF_FFFF
NO_GID = bytes(16)
MULTICAST_FIRST = 0xC000
COUNTERS = ("reports", "reports_sent_again", "reports_unanswered", "reports_dropped", "subscriptions_ended")


@dataclass(slots=True, eq=False)
class Subscription:
    """Who wants to be told of what."""

    guid: int
    number: int
    wanted: InformInfo
    missed: int = 0


@dataclass(slots=True)
class _Report:
    """A Report under way."""

    subscription: Subscription
    data: bytes
    tries: int
    due_ns: int


class Subscriptions:
    """All of a subnet.  ``send(port_guid, qpn, data)`` sends a datagram to a port."""

    def __init__(
        self,
        send: Callable[[int, int, bytes], None],
        counters: dict[str, int],
        timeout_ns: int,
        retries: int,
    ) -> None:
        self._send = send
        self._counters = counters
        self._timeout_ns = timeout_ns
        self._retries = retries
        self._all: dict[tuple[int, InformInfo], Subscription] = {}
        self._of_port: Counter[int] = Counter()
        self._under_way: OrderedDict[int, _Report] = OrderedDict()  # the first deadline first
        self._under_way_to: Counter[int] = Counter()
        self._next_id = 1
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._all)

    def put(self, wanted: InformInfo, requester: KnownPort) -> InformInfo:
        """Subscribe or end a subscription; RefusedError."""
        if wanted.subscribe > 1 or wanted.is_generic > 1:
            raise RefusedError(STATUS_REQUEST_INVALID)
        key = requester.guid, _key(wanted)
        if not wanted.subscribe:
            if key not in self._all:
                raise RefusedError(STATUS_REQUEST_INVALID)
            self._end(key)
            return wanted
        if not _possible(wanted):
            raise RefusedError(STATUS_REQUEST_INVALID)
        if key not in self._all:
            full = self._of_port[requester.guid] >= MOST_OF_A_PORT
            if full or len(self._all) >= MOST_SUBSCRIPTIONS:
                raise RefusedError(STATUS_NO_RESOURCES)
            self._of_port[requester.guid] += 1
            self._all[key] = Subscription(requester.guid, self._next_number, wanted)
            self._next_number = self._next_number + 1 & 0xFFFF
        return wanted

    def _end(self, key: tuple[int, InformInfo]) -> None:
        del self._all[key]
        self._of_port[key[0]] -= 1
        if not self._of_port[key[0]]:
            del self._of_port[key[0]]

    def forget(self, guids: set[int]) -> None:
        """Ports have gone."""
        for key in [key for key in self._all if key[0] in guids]:
            self._end(key)
        for number in [n for n, each in self._under_way.items() if each.subscription.guid in guids]:
            self._take(number)

    def _take(self, number: int) -> _Report:
        """A Report is under way no more."""
        report = self._under_way.pop(number)
        guid = report.subscription.guid
        self._under_way_to[guid] -= 1
        if not self._under_way_to[guid]:
            del self._under_way_to[guid]
        return report

    def records(self, inventory: Inventory, guid: int | None) -> Iterator[bytes]:
        """InformInfoRecords, of one port or all."""
        for each in self._all.values():
            if guid not in (None, each.guid):
                continue
            yield InformInfoRecord(inventory.gid(each.guid), each.number, 0, each.wanted.encode()).encode()

    # notices

    def notify(self, notice: Notice, issuer: KnownPort, inventory: Inventory, now: int) -> None:
        """Tell all that want to hear it, and that are in a partition with the issuer."""
        body = notice.encode() + issuer.gid
        for each in list(self._all.values()):
            port = inventory.by_guid.get(each.guid)
            if port is None or not wants(each.wanted, notice, issuer):
                continue
            if not port.sees(issuer):
                continue
            crowded = self._under_way_to[each.guid] >= MOST_REPORTS_TO_ONE
            if crowded or len(self._under_way) >= MOST_REPORTS:
                self._counters["reports_dropped"] += 1
                continue
            self._report(each, body, now)

    def _report(self, subscription: Subscription, body: bytes, now: int) -> None:
        number = self._next_id
        self._next_id = number % 0xFFFF_FFFF + 1
        header = MadHeader(
            management_class=c.CLASS_SUBN_ADM,
            class_version=CLASS_VERSION,
            method=c.METHOD_REPORT,
            transaction_id=number,
            attribute_id=c.ATTRIBUTE_NOTICE,
        )
        data = Mad.make(header, body).encode()
        self._counters["reports"] += 1
        self._under_way[number] = _Report(subscription, data, 1, now + self._timeout_ns)
        self._under_way_to[subscription.guid] += 1
        self._send(subscription.guid, subscription.wanted.qpn, data)

    def answered(self, data: bytes, source: KnownPort) -> bool:
        """A ReportResp has come from a port; False: to no Report."""
        number = int.from_bytes(data[10:16], "big")
        report = self._under_way.get(number)
        if report is None or report.subscription.guid != source.guid:
            return False
        self._take(number)
        report.subscription.missed = 0
        return True

    @property
    def next_deadline_ns(self) -> int:
        """When `expire` has something to do."""
        for report in self._under_way.values():
            return report.due_ns
        return NEVER_NS

    def expire(self, now: int) -> None:
        """Send again what nobody has answered, or give it up."""
        while self.next_deadline_ns <= now:
            number, report = next(iter(self._under_way.items()))
            each = report.subscription
            if report.tries <= self._retries:
                report.tries += 1
                report.due_ns = now + self._timeout_ns
                self._under_way.move_to_end(number)
                self._counters["reports_sent_again"] += 1
                self._send(each.guid, each.wanted.qpn, report.data)
                continue
            self._take(number)
            self._counters["reports_unanswered"] += 1
            each.missed += 1
            key = each.guid, _key(each.wanted)
            if each.missed >= MOST_MISSED and self._all.get(key) is each:
                self._counters["subscriptions_ended"] += 1
                self._end(key)


def _key(wanted: InformInfo) -> InformInfo:
    """What two requests must have in common to be about one subscription."""
    return InformInfo(
        gid=wanted.gid, lid_range_begin=wanted.lid_range_begin, lid_range_end=wanted.lid_range_end,
        is_generic=wanted.is_generic, type=wanted.type, trap_number=wanted.trap_number, qpn=wanted.qpn,
        producer_type=wanted.producer_type,
    )  # fmt: skip


def _possible(wanted: InformInfo) -> bool:
    """Whether a subscription can be: its LIDs are unicast LIDs in order, and its queue pair none of 0."""
    begin, end = wanted.lid_range_begin, wanted.lid_range_end
    by_lid = begin == ALL or 0 < begin <= (end or begin) < MULTICAST_FIRST
    return wanted.qpn > 0 and (wanted.gid != NO_GID or by_lid)


def wants(wanted: InformInfo, notice: Notice, issuer: KnownPort) -> bool:
    """Whether a subscription is about a notice (13.4.8.3): its source, type, producer and number."""
    if wanted.gid != NO_GID:
        if wanted.gid != issuer.gid:
            return False
    elif wanted.lid_range_begin != ALL:
        last = issuer.lid + (1 << issuer.lmc) - 1
        end = max(wanted.lid_range_end, wanted.lid_range_begin)
        if end < issuer.lid or wanted.lid_range_begin > last:
            return False
    return (
        wanted.is_generic == notice.is_generic
        and wanted.type in (ALL, notice.type)
        and wanted.trap_number in (ALL, notice.trap_number)
        and wanted.producer_type in (ALL_PRODUCERS, notice.producer_type)
    )
