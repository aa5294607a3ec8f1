"""Subnet administration: the fabric manager answers queries and registrations by datagram (IBTA vol. 1,
chapter 15).

Sans-IO, as `FabricManager`, whose part it is: `receive` gets the datagrams of class 3, and what is to be sent
goes out by the manager.  Nothing raises, whatever comes in; every datagram has one fate, which is counted.

* A Get is answered with one record or a status; tables are sent by RMPP, segment by segment.
* Who asks is known by his LID; he sees what is in a partition with him.  Who knows the administration's key
  (SM_Key) is trusted and sees all; a wrong key is no key but a reason to be silent (15.4.1).
* `Budget` bounds what queries cost, `MOST_TRANSFERS` and `MOST_LOOKUPS` what is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from softhca.fabric.manager.aliases import Aliases
from softhca.fabric.manager.budget import Budget
from softhca.fabric.manager.inventory import Inventory, KnownPort
from softhca.fabric.manager.lookups import Lookups
from softhca.fabric.manager.membership import BOUNDS, Groups
from softhca.fabric.manager.paths import Paths, RefusedError, of_multi
from softhca.fabric.manager.services import Services
from softhca.fabric.manager.states import MASTER
from softhca.fabric.manager.subscriptions import COUNTERS as REPORT_COUNTERS
from softhca.fabric.manager.subscriptions import Subscriptions
from softhca.management import administration_attributes as a
from softhca.management import administration_tables as t
from softhca.management import constants as c
from softhca.management import rmpp
from softhca.management.attributes import ClassPortInfo
from softhca.management.mad import MadHeader
from softhca.management.subnet_attributes import Notice
from softhca.wire.layout import Header

if TYPE_CHECKING:
    from softhca.fabric.manager.manager import FabricManager

MOST_TRANSFERS = 128
MOST_TRANSFERS_TO_ONE = MOST_TRANSFERS // 2
"""One LID leaves the others as many."""
MOST_ANSWER_BYTES = 16 << 20
MOST_EXAMINED = 1 << 20
"""Records, and pairs of ports, that a query may make the manager look at."""
EXAMINED_A_UNIT = 64
PRODUCER_MANAGER = 4
CAPABILITIES = 1 << 1 | 1 << 9 | 1 << 10 | 1 << 13
"""Of its ClassPortInfo: notices, multicast groups, MultiPathRecords, and CapabilityMasks of PortInfoRecords
bit by bit."""
CAPABILITIES_2 = 1 << 3 | 1 << 5
"""SwitchInfo's MulticastFDBTop is set, and ports get GUIDs beside their own."""
SOME_CAPABILITIES = 1 << 31
"""Of the attribute modifier of a query for PortInfoRecords: their CapabilityMasks have these bits, and may
have others."""
CAPABILITIES_AT = 24
RESPONSE_TIME = 18
COUNTERS = (
    "queries", "answered", "refused", "drops_rate", "drops_key", "drops_source", "drops_state", "drops_form",
    "drops_transfer", "busy", "segments", "transfers", "transfers_failed",
    *REPORT_COUNTERS,
)  # fmt: skip
_TABLE_METHODS = frozenset({c.METHOD_GET, c.METHOD_GET_TABLE})
LID_BIT = 1


@dataclass(frozen=True, slots=True)
class Query:
    """A request as it came: ``wanted`` are the bytes of its record, ``lid`` whence it came."""

    header: MadHeader
    front: a.AdministrationHeader
    wanted: bytes
    requester: KnownPort
    lid: int
    trusted: bool
    inventory: Inventory

    @property
    def mask(self) -> int:
        """Its component mask."""
        return self.front.component_mask

    @property
    def key(self) -> tuple[int, int]:
        """What tells its answer from others."""
        return self.lid, self.header.transaction_id


class SubnetAdministration:
    """That of one manager.  ``counters`` are `COUNTERS`."""

    def __init__(self, manager: FabricManager) -> None:
        self._manager = manager
        config = manager.config
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.groups = Groups(self._group_changed, self._send_group_notice, config.gid_prefix)
        self.services = Services()
        self.aliases = Aliases()
        self.subscriptions = Subscriptions(
            self._send_report, self.counters, config.timeout_ns, config.retries
        )
        self.lookups = Lookups(manager.send_directed, config)
        self._budget = Budget(config.queries_per_second)
        self._transfers: dict[tuple[int, int], rmpp.Sender] = {}
        self._inventory: Inventory | None = None
        self._paths: Paths | None = None
        self._now = 0

    # what is known

    @property
    def inventory(self) -> Inventory | None:
        """What is known of the fabric; None before the first sweep has come that far."""
        fabric = self._manager.fabric
        if fabric.routes is None:
            return None
        if self._inventory is None or self._inventory.fabric is not fabric:
            manager = self._manager
            self._inventory = Inventory(
                fabric, manager.config.gid_prefix, manager.pkeys_of, manager.written, self.aliases.owner
            )
            self._paths = None
        return self._inventory

    @property
    def paths(self) -> Paths | None:
        """The paths of this inventory; None: there is none yet."""
        inventory = self.inventory
        if inventory is not None and self._paths is None:
            bit = t.component(a.PathRecord, "dgid")
            self._paths = Paths(inventory, lambda wanted, mask: self.groups.path(wanted, mask, bit))
        return self._paths

    def swept(self, before: dict[int, KnownPort], now: int) -> None:
        """A sweep has ended; ``before`` are the ports that there were.  Who has gone is forgotten, and who
        wants to know hears of it."""
        self._now = now
        inventory = self.inventory
        if inventory is None:
            return
        gone = before.keys() - inventory.by_guid.keys()
        self.subscriptions.forget(set(gone))
        self.groups.forget(set(gone))
        self.lookups.forget()
        for guid, address in self._manager.config.addresses.items():
            if guid in inventory.by_guid:
                self.services.register_address(inventory.by_guid[guid], address, inventory, now)
        if before:
            for guid in gone:
                self._send_notice(a.TRAP_GID_OUT, before[guid].gid)
            for guid in inventory.by_guid.keys() - before.keys():
                self._send_notice(a.TRAP_GID_IN, inventory.by_guid[guid].gid)
                self._restore_aliases(inventory.by_guid[guid])

    def step_down(self) -> None:
        """The manager is master no more: another one has what is registered."""
        config = self._manager.config
        self.groups = Groups(self._group_changed, self._send_group_notice, config.gid_prefix)
        self.services = Services()
        self.subscriptions = Subscriptions(
            self._send_report, self.counters, config.timeout_ns, config.retries
        )
        self.aliases = Aliases()
        self._inventory = None
        self._transfers.clear()
        self.lookups.step_down()

    # inputs

    def receive(self, data: bytes, lid: int, now: int) -> None:
        """A datagram of class 3 from a LID, 256 bytes."""
        self._now = now
        header = MadHeader.decode(data)
        front = a.AdministrationHeader.decode(data, rmpp.HEADER_AT)
        is_data = not rmpp.is_rmpp(data) or front.rmpp_type == rmpp.DATA
        inventory = self.inventory
        requester = inventory.at_lid(lid) if inventory is not None else None
        if self._manager.state != MASTER:
            self.counters["drops_state"] += 1
        elif inventory is None or requester is None:
            self.counters["drops_source"] += 1
        elif not is_data:
            self._acknowledged(data, (lid, header.transaction_id))
        elif header.method == c.METHOD_REPORT | c.RESPONSE:
            if not self.subscriptions.answered(data, requester):
                self.counters["drops_form"] += 1
        elif header.method & c.RESPONSE or header.method in c.UNANSWERED_METHODS:
            self.counters["drops_form"] += 1
        elif front.sm_key not in (0, self._manager.config.administration_key):
            self.counters["drops_key"] += 1
        elif not self._budget.allows(lid, now):
            self.counters["drops_rate"] += 1
        else:
            trusted = front.sm_key != 0
            wanted = data[rmpp.DATA_AT :]
            self._query(Query(header, front, wanted, requester, lid, trusted, inventory))

    def expire(self, now: int) -> None:
        """Time has come to ``now``."""
        self._now = now
        self.services.expire(now)
        self.subscriptions.expire(now)
        self.lookups.expire(now)
        for key, sender in list(self._transfers.items()):
            if now >= sender.deadline_ns:
                self._sent(key, sender, sender.expire(now))

    @property
    def next_deadline_ns(self) -> int:
        """When `expire` is to be called."""
        deadlines = [sender.deadline_ns for sender in self._transfers.values()]
        return min(
            self.services.next_deadline_ns,
            self.subscriptions.next_deadline_ns,
            self.lookups.next_deadline_ns,
            *deadlines,
        )

    def trapped(self, notice: Notice, source_lid: int, now: int) -> None:
        """A node has told the manager of something: whoever wants to know is told."""
        self._now = now
        inventory = self.inventory
        issuer = inventory.at_lid(notice.issuer_lid or source_lid) if inventory is not None else None
        if inventory is not None and issuer is not None:
            self.subscriptions.notify(notice, issuer, inventory, now)

    # queries

    def _query(self, query: Query) -> None:
        self.counters["queries"] += 1
        header = query.header
        handler = _HANDLERS.get(header.attribute_id)
        if header.base_version != c.BASE_VERSION or header.class_version != a.CLASS_VERSION:
            self._refuse(query, c.STATUS_BAD_VERSION)
        elif header.method not in _METHODS:
            self._refuse(query, c.STATUS_BAD_METHOD)
        elif handler is None or header.method not in handler.methods:
            self._refuse(query, c.STATUS_BAD_ATTRIBUTE)
        elif not _is_whole(query.front):
            self.counters["drops_form"] += 1  # a request of several segments
        elif query.key in self._transfers or self.lookups.has(query.key):
            self.counters["drops_transfer"] += 1  # asked again while the answer is under way
        elif header.method in _TRANSFERRED and not self._may_transfer_to(query.lid):
            self._busy(query)
        else:
            try:
                handler.answer(self, query)
            except RefusedError as error:
                self._refuse(query, error.status)
        self._budget.charge(query.lid, 1)

    def _may_transfer_to(self, lid: int) -> bool:
        """Whether one more table may be sent to a LID."""
        if len(self._transfers) >= MOST_TRANSFERS:
            return False
        return sum(to == lid for to, _ in self._transfers) < MOST_TRANSFERS_TO_ONE

    def _busy(self, query: Query) -> None:
        self.counters["busy"] += 1
        self._refuse(query, c.STATUS_BUSY)

    def _refuse(self, query: Query, status: int) -> None:
        self.counters["refused"] += 1
        self._reply(query, status, query.wanted)

    def _reply(self, query: Query, status: int, data: bytes) -> None:
        """A response of one datagram, without RMPP."""
        header = replace(query.header, method=_response(query.header.method), status=status)
        front = replace(
            query.front, rmpp_version=0, rmpp_type=0, rmpp_response_time=0, rmpp_flags=0, rmpp_status=0,
            segment_number=0, payload_length=0, attribute_offset=_offset(query.header.attribute_id),
        )  # fmt: skip
        self._send(query.lid, (header.encode() + front.encode() + data).ljust(c.MAD_BYTES, b"\0"))

    def answer_record(self, query: Query, record: Header) -> None:
        """A query has one record as its answer."""
        self.counters["answered"] += 1
        self._reply(query, c.STATUS_OK, record.encode())

    def answer_records(
        self, query: Query, records: Iterable[bytes], mask: int | None = None, attribute: int | None = None
    ) -> None:
        """Those of the records that have what a query wants in the components of ``mask``, all that it names
        where that is not given.  RefusedError.  A record of no bytes is work that has led to none.
        ``attribute``: what the records are, where that is not what the query names."""
        attribute = query.header.attribute_id if attribute is None else attribute
        length = t.RECORDS[attribute].LENGTH_BYTES
        compared = t.mask_of(attribute, query.mask if mask is None else mask)
        wanted = int.from_bytes(query.wanted[:length], "big") & compared
        found: list[bytes] = []
        size = 8 * _offset(attribute)
        examined = 0
        for record in records:
            examined += 1
            if record and (not compared or int.from_bytes(record, "big") & compared == wanted):
                found.append(record.ljust(size, b"\0"))
            if len(found) * size > MOST_ANSWER_BYTES or examined > MOST_EXAMINED:
                self._budget.charge(query.lid, examined / EXAMINED_A_UNIT)
                raise RefusedError(a.STATUS_NO_RESOURCES)
        self._budget.charge(query.lid, examined / EXAMINED_A_UNIT)
        if query.header.method == c.METHOD_GET:
            if len(found) != 1:
                raise RefusedError(a.STATUS_TOO_MANY_RECORDS if found else a.STATUS_NO_RECORDS)
            self.counters["answered"] += 1
            self._reply(query, c.STATUS_OK, found[0])
        else:
            self._transfer(query, b"".join(found), size)

    def _transfer(self, query: Query, data: bytes, size: int) -> None:
        """Send a table, as many segments as it needs."""
        config = self._manager.config
        header = replace(query.header, method=_response(query.header.method), status=c.STATUS_OK)
        front = replace(query.front, attribute_offset=size // 8)
        sender = rmpp.Sender(header, front, data, config.timeout_ns, config.retries)
        self.counters["answered"] += 1
        self.counters["transfers"] += 1
        self._transfers[query.key] = sender
        self._sent(query.key, sender, sender.start(self._now))

    def _acknowledged(self, data: bytes, key: tuple[int, int]) -> None:
        sender = self._transfers.get(key)
        if sender is None:
            self.counters["drops_transfer"] += 1
            return
        self._sent(key, sender, sender.receive(data, self._now))

    def _sent(self, key: tuple[int, int], sender: rmpp.Sender, mads: list[bytes]) -> None:
        for mad in mads:
            self.counters["segments"] += 1
            self._send(key[0], mad)
        if sender.done:
            self.counters["transfers_failed"] += not sender.complete
            self._transfers.pop(key, None)

    def _send(self, lid: int, data: bytes) -> None:
        self._manager.send(lid, c.GENERAL_QPN, data)

    # answers by attribute

    def _ports(self, query: Query, by_lid: bool = True) -> list[KnownPort]:
        """The ports that records are about: those that the requester may see, one if a LID is named."""
        ports = query.inventory.ports
        if by_lid and query.mask & LID_BIT:
            at_lid = query.inventory.at_lid(int.from_bytes(query.wanted[:2], "big"))
            ports = [at_lid] if at_lid is not None else []
        if query.trusted:
            return ports
        return [port for port in ports if query.requester.sees(port)]

    def class_port_info(self, query: Query) -> None:
        """What this subnet administration can do."""
        info = ClassPortInfo(
            class_version=a.CLASS_VERSION,
            capability_mask=CAPABILITIES,
            capability_mask2=CAPABILITIES_2,
            resp_time_value=RESPONSE_TIME,
        )
        self.counters["answered"] += 1
        self._reply(query, c.STATUS_OK, info.encode())

    def node_records(self, query: Query) -> None:
        """NodeRecords."""
        self.answer_records(query, query.inventory.node_records(self._ports(query)))

    def port_info_records(self, query: Query) -> None:
        """PortInfoRecords."""
        records = query.inventory.port_info_records(self._ports(query), query.trusted)
        bit = 1 << t.PORT_CAPABILITIES
        if query.mask & bit and query.header.attribute_modifier & SOME_CAPABILITIES:
            wanted = _capabilities(query.wanted)
            some = (each for each in records if _capabilities(each) & wanted == wanted)
            self.answer_records(query, some, query.mask & ~bit)
        else:
            self.answer_records(query, records)

    def switch_info_records(self, query: Query) -> None:
        """SwitchInfoRecords."""
        self.answer_records(query, query.inventory.switch_info_records(self._ports(query)))

    def link_records(self, query: Query) -> None:
        """LinkRecords."""
        self.answer_records(query, query.inventory.link_records(self._ports(query)))

    def linear_records(self, query: Query) -> None:
        """LinearForwardingTableRecords."""
        self.answer_records(query, query.inventory.linear_records(self._ports(query)))

    def multicast_records(self, query: Query) -> None:
        """MulticastForwardingTableRecords."""
        self.answer_records(query, query.inventory.multicast_records(self._ports(query)))

    def pkey_records(self, query: Query) -> None:
        """P_KeyTableRecords: for who is trusted only."""
        if not query.trusted:
            raise RefusedError(a.STATUS_REQUEST_INVALID)
        self.answer_records(query, query.inventory.pkey_records(self._ports(query)))

    def manager_records(self, query: Query) -> None:
        """SMInfoRecords: this manager and those that it has met."""
        known = [self._manager.info(), *(other.info for other in self._manager.others.values())]
        self.answer_records(query, query.inventory.manager_records(known, query.trusted))

    def looked_up(self, query: Query) -> None:
        """Records of tables that the manager reads at the nodes when somebody asks for them."""
        attribute = query.header.attribute_id

        def done(records: list[bytes]) -> None:
            try:
                self.answer_records(query, iter(records))
            except RefusedError as error:
                self._refuse(query, error.status)

        reads = self.lookups.start(query.key, attribute, self._ports(query), query.wanted, query.mask, done)
        if reads is None:
            self._busy(query)
        else:
            self._budget.charge(query.lid, reads)
            self.lookups.pump(self._now)

    def path_records(self, query: Query) -> None:
        """PathRecords."""
        wanted = a.PathRecord.decode(query.wanted)
        single = query.header.method == c.METHOD_GET
        paths = self.paths
        assert paths is not None
        found = paths.records(wanted, query.mask, query.requester, single)
        try:
            self.answer_records(query, found, 0)
        except RefusedError as error:
            if single or error.status not in (a.STATUS_NO_RECORDS, a.STATUS_INVALID_GID):
                raise
            self.answer_records(query, (), 0)

    def multi_path_records(self, query: Query) -> None:
        """PathRecords between several ports at once."""
        wanted = a.MultiPathRecord.decode(query.wanted)
        pairs, each, mask = of_multi(wanted, query.mask)
        paths = self.paths
        assert paths is not None
        found = (
            record
            for sgid, dgid in pairs
            for record in paths.records(replace(each, sgid=sgid, dgid=dgid), mask, query.requester, False)
        )
        self.answer_records(query, found, 0, a.ATTRIBUTE_PATH_RECORD)

    def guid_records(self, query: Query) -> None:
        """GUIDInfoRecords: what GUIDs ports have, and who gets others beside his own."""
        if query.header.method in _TABLE_METHODS:
            self.looked_up(query)
            return
        wanted = t.GuidInfoRecord.decode(query.wanted)
        port = self.aliases.place(wanted, query.mask, query.requester, query.trusted, query.inventory)
        if self.lookups.is_full(query.lid):
            self._busy(query)
            return
        before = set(self.aliases.of(port.guid))
        if query.header.method == c.METHOD_SET:
            self.aliases.put(wanted, query.mask, port, query.inventory)
        else:
            self.aliases.remove(wanted, query.mask, port)

        def done(status: int | None, data: bytes) -> None:
            if status == c.STATUS_OK:
                self.answer_record(query, replace(wanted, table=data))
            else:
                self._refuse(query, a.STATUS_NO_RESOURCES)

        data = self.aliases.block(port.guid, wanted.block)
        self.lookups.write(query.key, port, wanted.block, data, done)
        self.lookups.pump(self._now)
        after = set(self.aliases.of(port.guid))
        for trap, guids in ((a.TRAP_GID_OUT, before - after), (a.TRAP_GID_IN, after - before)):
            for guid in guids:
                self._send_notice(trap, query.inventory.gid(guid))

    def _restore_aliases(self, port: KnownPort) -> None:
        """A port has come back, and its node may know nothing any more."""
        for block in self.aliases.blocks(port.guid):
            data = self.aliases.block(port.guid, block)
            self.lookups.write((port.lid, -1 - block), port, block, data, lambda status, data: None)
        self.lookups.pump(self._now)

    def member_records(self, query: Query) -> None:
        """MCMemberRecords: who joins, who leaves, and what groups there are."""
        method = query.header.method
        if method in _TABLE_METHODS:
            wanted = a.MCMemberRecord.decode(query.wanted)
            found = self.groups.records(query.requester, query.trusted, wanted, query.mask)
            self.answer_records(query, found, query.mask & ~BOUNDS)
            return
        wanted = a.MCMemberRecord.decode(query.wanted)
        act = self.groups.join if method == c.METHOD_SET else self.groups.leave
        self.answer_record(query, act(wanted, query.mask, query.requester, query.inventory))

    def service_records(self, query: Query) -> None:
        """ServiceRecords: who offers what."""
        method = query.header.method
        if method in _TABLE_METHODS:
            records = self.services.records(query.requester, query.trusted, self._now)
            self.answer_records(query, records)
            return
        wanted = a.ServiceRecord.decode(query.wanted)
        if method == c.METHOD_SET:
            record = self.services.register(wanted, query.mask, query.requester, query.inventory, self._now)
        else:
            record = self.services.withdraw(wanted, query.mask, query.requester, query.inventory)
        self.answer_record(query, record)

    def inform_info(self, query: Query) -> None:
        """InformInfo: who wants to be told of what."""
        wanted = a.InformInfo.decode(query.wanted)
        self.answer_record(query, self.subscriptions.put(wanted, query.requester))

    def inform_records(self, query: Query) -> None:
        """InformInfoRecords: who is not trusted sees his own."""
        guid = None if query.trusted else query.requester.guid
        self.answer_records(query, self.subscriptions.records(query.inventory, guid))

    # what others are told

    def _send_report(self, guid: int, qpn: int, data: bytes) -> None:
        inventory = self.inventory
        port = inventory.by_guid.get(guid) if inventory is not None else None
        if port is not None:
            self._manager.send(port.lid, qpn, data)

    def _group_changed(self, mlid: int, members: frozenset[int], senders: frozenset[int]) -> None:
        self._manager.set_group(mlid, members, self._now, senders)

    def _send_group_notice(self, mgid: bytes, is_there: bool) -> None:
        self._send_notice(a.TRAP_GROUP_CREATED if is_there else a.TRAP_GROUP_DELETED, mgid)

    def _send_notice(self, trap: int, gid: bytes) -> None:
        """The manager itself has something to tell."""
        inventory = self.inventory
        own = inventory.at_lid(self._manager.own_lid) if inventory is not None else None
        if inventory is None or own is None:
            return
        notice = Notice(
            type=3, producer_type=PRODUCER_MANAGER, trap_number=trap, issuer_lid=own.lid,
            data_details=(bytes(6) + gid).ljust(54, b"\0"),
        )  # fmt: skip
        self.subscriptions.notify(notice, own, inventory, self._now)


def _response(method: int) -> int:
    return c.RESPONSE_METHODS.get(method, method | c.RESPONSE)


def _capabilities(record: bytes) -> int:
    """CapabilityMask of a PortInfoRecord."""
    return int.from_bytes(record[CAPABILITIES_AT : CAPABILITIES_AT + 4], "big")


def _is_whole(front: a.AdministrationHeader) -> bool:
    """Whether a request is one datagram, be it sent by RMPP or not."""
    if not front.rmpp_flags & rmpp.ACTIVE:
        return True
    ends = rmpp.FIRST | rmpp.LAST
    return front.segment_number <= 1 and front.rmpp_flags & ends != rmpp.FIRST


def _offset(attribute: int) -> int:
    """How long a record is in an answer, in 8 bytes."""
    record = t.RECORDS.get(attribute)
    return 0 if record is None else -(-record.LENGTH_BYTES // 8)


@dataclass(frozen=True)
class Handler:
    """What is done for an attribute, and by which methods."""

    answer: Callable[[SubnetAdministration, Query], None]
    methods: frozenset[int] = _TABLE_METHODS


_REGISTERED = _TABLE_METHODS | {c.METHOD_SET, c.METHOD_DELETE}
_METHODS = _REGISTERED | {c.METHOD_GET_MULTI}
_TRANSFERRED = frozenset({c.METHOD_GET_TABLE, c.METHOD_GET_MULTI})
_HANDLERS: dict[int, Handler] = {
    c.ATTRIBUTE_CLASS_PORT_INFO: Handler(SubnetAdministration.class_port_info, frozenset({c.METHOD_GET})),
    a.ATTRIBUTE_INFORM_INFO: Handler(SubnetAdministration.inform_info, frozenset({c.METHOD_SET})),
    a.ATTRIBUTE_NODE_RECORD: Handler(SubnetAdministration.node_records),
    a.ATTRIBUTE_PORT_INFO_RECORD: Handler(SubnetAdministration.port_info_records),
    t.ATTRIBUTE_SL_TO_VL_RECORD: Handler(SubnetAdministration.looked_up),
    a.ATTRIBUTE_SWITCH_INFO_RECORD: Handler(SubnetAdministration.switch_info_records),
    t.ATTRIBUTE_LINEAR_FORWARDING_RECORD: Handler(SubnetAdministration.linear_records),
    t.ATTRIBUTE_MULTICAST_FORWARDING_RECORD: Handler(SubnetAdministration.multicast_records),
    a.ATTRIBUTE_SM_INFO_RECORD: Handler(SubnetAdministration.manager_records),
    a.ATTRIBUTE_LINK_RECORD: Handler(SubnetAdministration.link_records),
    t.ATTRIBUTE_GUID_INFO_RECORD: Handler(SubnetAdministration.guid_records, _REGISTERED),
    a.ATTRIBUTE_SERVICE_RECORD: Handler(SubnetAdministration.service_records, _REGISTERED),
    t.ATTRIBUTE_PKEY_TABLE_RECORD: Handler(SubnetAdministration.pkey_records),
    a.ATTRIBUTE_PATH_RECORD: Handler(SubnetAdministration.path_records),
    a.ATTRIBUTE_MULTI_PATH_RECORD: Handler(
        SubnetAdministration.multi_path_records, frozenset({c.METHOD_GET_MULTI})
    ),
    t.ATTRIBUTE_VL_ARBITRATION_RECORD: Handler(SubnetAdministration.looked_up),
    a.ATTRIBUTE_MC_MEMBER_RECORD: Handler(SubnetAdministration.member_records, _REGISTERED),
    t.ATTRIBUTE_INFORM_INFO_RECORD: Handler(SubnetAdministration.inform_records),
}
"""The attributes; all others have the status "no such attribute"."""
