"""Tables that the manager does not keep: it reads them at the nodes when somebody asks for them, and knows
them until the next sweep.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from softhca.fabric.manager.inventory import KnownPort
from softhca.fabric.manager.packets import PORT
from softhca.fabric.manager.paths import RefusedError
from softhca.fabric.manager.requests import Requests
from softhca.management import administration_tables as t
from softhca.management import constants as c
from softhca.management.administration_attributes import STATUS_NO_RESOURCES

if TYPE_CHECKING:
    from softhca.fabric.manager.manager import ManagerConfig

MOST_LOOKUPS = 16
"""Queries under way."""
MOST_LOOKUPS_OF_ONE = MOST_LOOKUPS // 2
"""One LID leaves the others as many."""
MOST_READS = 4096
"""Datagrams for one query."""
MOST_CACHED = 1 << 16
WINDOW = 16
SPACE = 1
"""Of transaction IDs: sweeps have another one."""
GUIDS_A_BLOCK = 8
LANES_A_BLOCK = 32

Done = Callable[[list[bytes]], None]
Written = Callable[[int | None, bytes], None]


class Read(NamedTuple):
    """One Get: of whom, what, and the record of its answer."""

    port: KnownPort
    attribute: int
    modifier: int
    record: Callable[[bytes], bytes]

    @property
    def key(self) -> tuple[int, int, int]:
        """What tells its answer from others."""
        place = self.port.number if not self.port.node.is_switch else 0
        return self.port.node_guid, self.attribute << 8 | place, self.modifier


@dataclass(slots=True)
class _Lookup:
    done: Done
    left: int = 0
    waiting: deque[tuple[int, Read]] = field(default_factory=deque)
    records: list[tuple[int, bytes]] = field(default_factory=list)


class Lookups:
    """Queries that wait for nodes' answers, by the key of each: the LID that asks, and its transaction.

    Those who ask take turns with their reads.  A node that has not answered one read is asked no other one
    for the same query.
    """

    def __init__(self, transmit: Callable[[bytes], None], config: ManagerConfig) -> None:
        self._requests = Requests(
            transmit, min(WINDOW, config.window), config.timeout_ns, config.retries, config.m_key, SPACE
        )
        self._under_way: dict[tuple[int, int], _Lookup] = {}
        self._turns: OrderedDict[int, deque[tuple[tuple[int, int], _Lookup]]] = OrderedDict()
        self._known: dict[tuple[int, int, int], bytes] = {}

    def is_full(self, lid: int) -> bool:
        """Whether no query of a LID may begin now."""
        if len(self._under_way) >= MOST_LOOKUPS:
            return True
        return sum(each[0] == lid for each in self._under_way) >= MOST_LOOKUPS_OF_ONE

    def has(self, key: tuple[int, int]) -> bool:
        """Whether a query is under way."""
        return key in self._under_way

    def start(
        self,
        key: tuple[int, int],
        attribute: int,
        ports: Iterable[KnownPort],
        wanted: bytes,
        mask: int,
        done: Done,
    ) -> int | None:
        """Read what a query is about; ``done`` gets the records, of nodes that do not answer none.  How many
        reads that needs; None: too many queries are under way, or too many of this LID.
        RefusedError: it is about too much.
        """
        if self.is_full(key[0]):
            return None
        reads: list[Read] = []
        for port in ports:
            reads.extend(_READS[attribute](port, wanted, mask))
            if len(reads) > MOST_READS:
                raise RefusedError(STATUS_NO_RESOURCES)
        lookup = _Lookup(done)
        for place, read in enumerate(reads):
            known = self._known.get(read.key)
            if known is None:
                lookup.waiting.append((place, read))
            else:
                lookup.records.append((place, read.record(known)))
        lookup.left = len(lookup.waiting)
        if not lookup.left:
            self._end(lookup)
            return 0
        self._under_way[key] = lookup
        self._turns.setdefault(key[0], deque()).append((key, lookup))
        return lookup.left

    def _ask(self, key: tuple[int, int], lookup: _Lookup, place: int, read: Read) -> None:
        def answered(status: int | None, data: bytes) -> None:
            lookup.left -= 1
            if status == c.STATUS_OK:
                if len(self._known) < MOST_CACHED:
                    self._known[read.key] = data
                lookup.records.append((place, read.record(data)))
            elif status is None:
                others = [each for each in lookup.waiting if each[1].port.node_guid != read.port.node_guid]
                lookup.left -= len(lookup.waiting) - len(others)
                lookup.waiting = deque(others)
            if not lookup.left:
                del self._under_way[key]
                self._end(lookup)

        path = read.port.node.path(read.port.number)
        self._requests.get(path, read.attribute, answered, read.modifier)

    def write(
        self, key: tuple[int, int], port: KnownPort, block: int, data: bytes, done: Written
    ) -> None:
        """Write a block of a port's GUIDs; ``done`` gets the status (None: no answer) and what stands
        there."""
        read = next(iter(_guids(port, bytes([0, 0, block, 0]), 1 << 1)))
        self._under_way[key] = _Lookup(lambda records: None)

        def answered(status: int | None, data: bytes) -> None:
            self._known.pop(read.key, None)
            self._under_way.pop(key, None)
            done(status, data)

        path = port.node.path(port.number)
        self._requests.set(path, read.attribute, data, answered, read.modifier)

    @staticmethod
    def _end(lookup: _Lookup) -> None:
        lookup.records.sort()
        lookup.done([record for _, record in lookup.records])

    def pump(self, now: int) -> None:
        """Send what there is room for."""
        self._requests.pump(now)
        while self._requests.has_room and self._turns:
            lid, turn = self._turns.popitem(last=False)
            key, lookup = turn[0]
            if lookup.waiting:
                self._ask(key, lookup, *lookup.waiting.popleft())
                self._requests.pump(now)
            if not lookup.waiting:
                turn.popleft()
            if turn:
                self._turns[lid] = turn

    def response(self, data: bytes, now: int) -> bool:
        """A response has come; False: it is none of these."""
        if int.from_bytes(data[8:12], "big") & 0xFFFF != SPACE:
            return False
        self._requests.response(data, now)
        self.pump(now)
        return True

    def expire(self, now: int) -> None:
        """Ask again what has not been answered."""
        self._requests.expire(now)
        self.pump(now)

    @property
    def next_deadline_ns(self) -> int:
        """When `expire` has something to do."""
        return self._requests.next_deadline_ns

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._under_way

    def forget(self) -> None:
        """What has been read may be so no more."""
        self._known.clear()

    def step_down(self) -> None:
        """Give up what is under way, too."""
        self.forget()
        self._requests.forget()
        self._turns.clear()
        self._under_way.clear()


def _named(wanted: bytes, mask: int, bit: int, at: int) -> int | None:
    """The byte of a record at a place, where the component mask names it."""
    return wanted[at] if mask >> bit & 1 else None


def _chosen(numbers: Iterable[int], named: int | None) -> list[int]:
    return [number for number in numbers if named in (None, number)]


def _sl_to_vl(port: KnownPort, wanted: bytes, mask: int) -> Iterator[Read]:
    """By port of entrance and exit; a channel adapter has one table."""
    numbers = sorted(port.node.ports) if port.node.is_switch else [0]
    for leaving in _chosen(numbers, _named(wanted, mask, 2, 3)):
        for entering in _chosen(numbers, _named(wanted, mask, 1, 2)):

            def record(data: bytes, entering: int = entering, leaving: int = leaving) -> bytes:
                return t.SlToVlRecord(port.lid, entering, leaving, 0, data[:8]).encode()

            modifier = entering << 8 | leaving
            yield Read(port, c.ATTRIBUTE_SL_TO_VL_TABLE, modifier, record)


def _arbitration(port: KnownPort, wanted: bytes, mask: int) -> Iterator[Read]:
    """The blocks that a port has by its PortInfo."""
    numbers = sorted(port.node.ports) if port.node.is_switch else [port.number]
    for number in _chosen(numbers, _named(wanted, mask, 1, 2)):
        info = port.node.ports[number]
        blocks = []
        for first, name in ((1, "vl_arbitration_low_cap"), (3, "vl_arbitration_high_cap")):
            cap = PORT.get(info, name)
            blocks += [first + half for half in range(2) if cap > half * LANES_A_BLOCK]
        for block in _chosen(blocks, _named(wanted, mask, 2, 3)):

            def record(data: bytes, number: int = number, block: int = block) -> bytes:
                return t.VlArbitrationRecord(port.lid, number, block, 0, data).encode()

            modifier = block << 16 | (number if port.node.is_switch else 0)
            yield Read(port, c.ATTRIBUTE_VL_ARBITRATION, modifier, record)


def _guids(port: KnownPort, wanted: bytes, mask: int) -> Iterator[Read]:
    """The blocks that a port has by its PortInfo."""
    count = -(-PORT.get(port.info, "guid_cap") // GUIDS_A_BLOCK)
    for block in _chosen(range(count), _named(wanted, mask, 1, 2)):

        def record(data: bytes, block: int = block) -> bytes:
            return t.GuidInfoRecord(port.lid, block, 0, 0, data).encode()

        yield Read(port, c.ATTRIBUTE_GUID_INFO, block, record)


_READS: dict[int, Callable[[KnownPort, bytes, int], Iterator[Read]]] = {
    t.ATTRIBUTE_SL_TO_VL_RECORD: _sl_to_vl,
    t.ATTRIBUTE_VL_ARBITRATION_RECORD: _arbitration,
    t.ATTRIBUTE_GUID_INFO_RECORD: _guids,
}
"""What is read for each record."""
